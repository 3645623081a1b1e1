"""Reaching a server by its URL: its version, or an error that names it and never its password."""

from __future__ import annotations

import psycopg
from psycopg.conninfo import conninfo_to_dict

from makegood.errors import ConfigurationError

CONNECT_TIMEOUT_SECONDS = 10


def connect(url: str) -> psycopg.Connection[tuple[object, ...]]:
    """A connection in autocommit; a dead server, a wrong password or a bad URL raises one of our errors."""
    from makegood.database import unavailable  # noqa: PLC0415 - brings the pool, which most callers need not

    describe(url)
    try:
        return psycopg.connect(
            url, connect_timeout=CONNECT_TIMEOUT_SECONDS, autocommit=True, application_name="makegood"
        )
    except psycopg.OperationalError as error:
        raise unavailable(url, error) from error


def reach(url: str) -> str:
    """The version of the server there."""
    with connect(url) as connection:
        version = connection.info.server_version
    return f"{version // 10000}.{version % 10000}"


def describe(url: str) -> str:
    """Host, port and database: all that may be shown of a URL."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # its own message may quote the password
        raise ConfigurationError(
            "MAKEGOOD_DATABASE_URL or MAKEGOOD_DATABASE_ADMIN_URL is not a PostgreSQL URL",
            hint="It looks like postgresql://user:password@host:5432/database.",
        ) from None
    return f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"
