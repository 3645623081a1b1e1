"""One small pool of connections that can only read, are never waited for long, and outlive a restart of the server.

Whatever role the address names, a session is read-only, gives up a statement after a few seconds, and steps down to
``makegood_read`` where it may. What goes wrong comes out as :class:`Away`, in words for whoever looks at the page.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import psycopg_pool
from psycopg.rows import dict_row

from makegood.errors import MakegoodError
from makegood.local import where
from makegood.migrations import sql_folder

CONNECTIONS_MAX = 6  # viewers share what was read; a wall of screens needs no more
WAIT_SECONDS = 4.0  # for a connection: somebody is looking at a page meanwhile
CONNECT_SECONDS = 3
STATEMENT_SECONDS = 8  # a page that takes longer is told so, and the server is spared
GIVE_UP_SECONDS = 5.0  # of connecting in the background; the next look tries anew

# The database is there, and is another version's.
_OTHER_SHAPE = (
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.InvalidSchemaName,
)


@dataclass
class Away(Exception):
    """Nothing can be shown now: what is wrong, and what a person can do."""

    what: str
    todo: str


class Reader:
    """Runs the named queries of ``sql/queries/dashboard``."""

    def __init__(self, find_url: Callable[[], str] = lambda: where.database_url("read")) -> None:
        # The address is asked for at each connection: an embedded server may come back on another port.
        self._find_url = find_url
        self._pool = psycopg_pool.ConnectionPool(
            find_url,
            kwargs={
                "autocommit": True,
                "row_factory": dict_row,
                "connect_timeout": CONNECT_SECONDS,
                "prepare_threshold": None,  # a plan for any text would not use the index for this one
                "application_name": "makegood dashboard",
            },
            min_size=0,
            max_size=CONNECTIONS_MAX,
            timeout=WAIT_SECONDS,
            reconnect_timeout=GIVE_UP_SECONDS,
            max_idle=60.0,
            configure=_configure,
            check=psycopg_pool.ConnectionPool.check_connection,
            open=True,
        )

    def close(self) -> None:
        self._pool.close()

    def knows(self, name: str) -> bool:
        """Whether there is such a query: a part of the house may not be there yet."""
        return _path(name).is_file()

    def write(self, name: str, parameters: Mapping[str, Any]) -> None:
        """Runs one that writes, if the server lets us; counting is the only one, and nobody waits for its success."""
        ignored = contextlib.suppress(psycopg.Error, psycopg_pool.PoolTimeout, MakegoodError)
        with ignored, self._pool.connection() as connection, connection.transaction():
            connection.execute("SET TRANSACTION READ WRITE")
            connection.execute(read_query(name), parameters)

    def rows(self, name: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The rows of one named query, or Away."""
        try:
            self._find_url()  # says at once that the embedded server is down, where the pool would wait
            with self._pool.connection() as connection:
                return list(connection.execute(read_query(name), parameters).fetchall())
        except (psycopg.Error, psycopg_pool.PoolTimeout, MakegoodError) as error:
            raise explain(error) from error


def explain(error: Exception) -> Away:
    """What a database error means for somebody who looks at a page."""
    if isinstance(error, psycopg.errors.QueryCanceled):
        return Away(
            f"The database took longer than {STATEMENT_SECONDS} seconds to answer.",
            "It may be busy. Choose a shorter period or fewer orders; this page tries again by itself.",
        )
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return Away("The dashboard may not read the tables.", "Grant makegood_read to its login, or migrate anew.")
    if isinstance(error, _OTHER_SHAPE):
        return Away("The database has not the shape that this version expects.", "Run: makegood db migrate")
    return Away(
        "The database does not answer.",
        "Is it running? makegood doctor says what is wrong. This page comes back by itself.",
    )


@functools.cache
def read_query(name: str) -> str:
    return _path(name).read_text(encoding="utf-8")


def _path(name: str) -> Path:
    return sql_folder() / "queries" / "dashboard" / f"{name}.sql"


def _configure(connection: psycopg.Connection[Any]) -> None:
    connection.execute(read_query("session"), {"timeout": f"{STATEMENT_SECONDS}s"})
