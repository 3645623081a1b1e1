"""Connections that never leave a transaction open, and database errors sorted into ours.

Every statement is its own transaction (autocommit): what belongs together is one SQL function.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import psycopg
import psycopg_pool
import structlog
from psycopg.rows import dict_row

from makegood import errors

log = structlog.get_logger()

Row = dict[str, Any]
Parameters = Sequence[Any] | Mapping[str, Any]

# What to do again as a whole: the server was restarted, a deadlock, a lock that was not free in time.
RETRIED = (psycopg.OperationalError, psycopg.InterfaceError, psycopg_pool.PoolTimeout)
RETRY_WAITS_SECONDS = (0.05, 0.5, 2.0, 5.0)
CONNECT_TIMEOUT_SECONDS = 10

_OURS: dict[str, type[errors.MakegoodError]] = {
    "MG001": errors.IllegalTransition,
    "MG002": errors.InvariantError,
    "MG003": errors.InvariantError,
    "MG004": errors.InvariantError,
    "MG005": errors.InputError,
    "MG006": errors.InvariantError,
    "MG007": errors.KeyReused,
    "MG008": errors.ConfigurationError,
    "MG009": errors.UnknownWorkflowType,
    "MG010": errors.AlreadyStarted,
    "MG011": errors.InputError,
    "MG012": errors.InvariantError,
    "MG013": errors.InvariantError,
    "MG020": errors.NotAllowed,
    "MG021": errors.TransientError,
}


class Database:
    """A small pool. ``call`` runs one statement, again after a lost connection, and returns its rows."""

    def __init__(self, url: str, *, connections: int = 4, connection_class: Any = psycopg.AsyncConnection) -> None:
        self._pool = psycopg_pool.AsyncConnectionPool(
            url,
            min_size=1,
            max_size=connections,
            open=False,
            timeout=CONNECT_TIMEOUT_SECONDS,
            check=psycopg_pool.AsyncConnectionPool.check_connection,
            connection_class=connection_class,
            kwargs={
                "autocommit": True,
                "row_factory": dict_row,
                "connect_timeout": CONNECT_TIMEOUT_SECONDS,
                "application_name": "makegood",
            },
        )
        self._url = url

    async def __aenter__(self) -> Database:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        # One plain connection first: the pool would retry a wrong password in silence until it times out.
        try:
            connection = await psycopg.AsyncConnection.connect(self._url, connect_timeout=CONNECT_TIMEOUT_SECONDS)
        except psycopg.OperationalError as error:
            raise unavailable(self._url, error) from error
        await connection.close()
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()

    async def call(self, statement: str, parameters: Parameters = ()) -> list[Row]:
        """Only for statements that may run twice: all of makegood's functions are such."""
        return await _again(lambda: self._once(statement, parameters))

    async def call_at_one_moment(self, statement: str, parameters: Parameters = ()) -> list[Row]:
        """One statement that sees the database as it was when it began, whatever it does in between.

        Somebody else's change to a row it wants to change makes all of it begin anew.
        """

        async def within() -> list[Row]:
            async with self._pool.connection() as connection, connection.transaction():
                await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                cursor = await connection.execute(statement, parameters)
                rows: list[Row] = await cursor.fetchall()
                return rows

        return await _again(within)

    async def preview(self, statement: str, parameters: Parameters = ()) -> list[Row]:
        """What a statement would return; nothing of it stays."""

        async def rolled_back() -> list[Row]:
            async with self._pool.connection() as connection, connection.transaction(force_rollback=True):
                cursor = await connection.execute(statement, parameters)
                rows: list[Row] = await cursor.fetchall()
                return rows

        return await _again(rolled_back)

    async def _once(self, statement: str, parameters: Parameters) -> list[Row]:
        async with self._pool.connection() as connection:
            cursor = await connection.execute(statement, parameters)
            return await cursor.fetchall() if cursor.description else []


async def _again(work: Callable[[], Awaitable[list[Row]]]) -> list[Row]:
    for wait_seconds in RETRY_WAITS_SECONDS:
        try:
            return await work()
        except RETRIED as error:
            log.warning("database.retried", error=str(error).strip(), wait_seconds=wait_seconds)
            await asyncio.sleep(wait_seconds)
        except psycopg.Error as error:
            raise translated(error) from quotable(error)
    try:
        return await work()
    except RETRIED as error:
        raise errors.DatabaseUnavailable(f"the database did not answer: {str(error).strip()}") from error
    except psycopg.Error as error:
        raise translated(error) from quotable(error)


def quotable(error: psycopg.Error) -> psycopg.Error | None:
    """The cause to keep. Not a refused value's: PostgreSQL quotes the whole row, and logs would have it."""
    return None if isinstance(error, psycopg.DataError | psycopg.IntegrityError) else error


def translated(error: psycopg.Error) -> Exception:
    """Our error for one of our SQLSTATEs; a refused value is the caller's; everything else stays what it is."""
    diagnostic = error.diag
    message = diagnostic.message_primary or str(error)
    if error.sqlstate in _OURS:
        return _OURS[error.sqlstate](message, hint=diagnostic.message_hint)
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return errors.ConfigurationError(message, hint="Grant makegood_jobs to this login, or use its own role.")
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return errors.DatabaseUnavailable(f"the database is read-only: {message}", hint="Is this a standby?")
    if isinstance(error, psycopg.ProgrammingError):
        # The statements are ours and fixed: a table, function or column that is not there is another version's.
        return errors.ConfigurationError(message, hint="Bring the database up to date: makegood db migrate")
    if isinstance(error, psycopg.DataError | psycopg.IntegrityError):
        return errors.InputError(message)
    return error


def unavailable(url: str, error: Exception) -> errors.DatabaseUnavailable:
    """Names the server without its password."""
    parts = psycopg.conninfo.conninfo_to_dict(url)
    where = f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}/{parts.get('dbname', '')}"
    said = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
    return errors.DatabaseUnavailable(
        f"cannot connect to PostgreSQL at {where} as {parts.get('user', '(default user)')}: {said}",
        hint="Run `makegood doctor`; the embedded server is started by `make up`.",
    )
