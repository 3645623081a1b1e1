"""One question to the database from a command: connect, ask, close; errors in words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, LiteralString

import psycopg
from psycopg.rows import dict_row

from makegood.database import CONNECT_TIMEOUT_SECONDS, quotable, translated, unavailable
from makegood.engine.payload import check_payload
from makegood.local import where

ARGUMENT_BYTES_MAX = 64 * 1024


def ask(statement: LiteralString, parameters: Sequence[Any] = (), *, role: where.Role = "jobs") -> list[dict[str, Any]]:
    """The rows of one statement, committed."""
    for value in parameters:
        check_payload(value, name="an argument", bytes_max=ARGUMENT_BYTES_MAX)
    url = where.database_url(role)
    try:
        connection = psycopg.connect(
            url, autocommit=True, row_factory=dict_row, connect_timeout=CONNECT_TIMEOUT_SECONDS
        )
    except psycopg.OperationalError as error:
        raise unavailable(url, error) from error
    with connection:
        try:
            return connection.execute(statement, parameters).fetchall()
        except psycopg.Error as error:
            raise translated(error) from quotable(error)
