"""One small pool of connections that can do what people may do, and can see nothing: the role ``makegood_act``.

Each act is one statement, and so one transaction; its token makes it safe to send again when the answer was lost.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

import psycopg
import psycopg_pool
import streamlit as st

from dashboard.database import CONNECT_SECONDS, GIVE_UP_SECONDS, WAIT_SECONDS, Away, explain, read_query
from makegood.errors import MakegoodError
from makegood.local import where
from makegood.settings import get_settings

CONNECTIONS_MAX = 3  # people act one after the other
STATEMENT_SECONDS = 15  # a group of 500 takes about one
LOCK_SECONDS = 5  # somebody else has the order: a person is told rather than kept waiting

Answer = dict[str, Any]


@dataclass
class Refused(Exception):
    """The act was not done. ``why`` may carry what others wrote: it is shown as text."""

    why: str
    todo: str = ""


class Actor:
    """Calls the act functions, as the person it is told."""

    def __init__(self) -> None:
        self._pool = psycopg_pool.ConnectionPool(
            lambda: where.database_url("act"),
            kwargs={
                "autocommit": True,
                "connect_timeout": CONNECT_SECONDS,
                "application_name": "makegood dashboard acts",
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

    def release(self, login: str, token: uuid.UUID, workflow_type: str, order: str, reason: str) -> Answer:
        return self._call("makegood.act_release(%s, %s, %s, %s, %s)", login, token, workflow_type, order, reason)

    def release_group(self, login: str, token: uuid.UUID, items: list[dict[str, str]], reason: str) -> Answer:
        settings = get_settings()
        limits = (settings.approval_above_orders, settings.approval_valid_seconds)
        function = "makegood.act_release_group(%s, %s, %s::jsonb, %s, %s, %s)"
        return self._call(function, login, token, json.dumps(items), reason, *limits)

    def retry_undo(self, login: str, token: uuid.UUID, workflow_type: str, order: str, reason: str) -> Answer:
        return self._call("makegood.act_retry_undo(%s, %s, %s, %s, %s)", login, token, workflow_type, order, reason)

    def settle(
        self, login: str, token: uuid.UUID, workflow_type: str, order: str, step: str, proof: str, reason: str
    ) -> Answer:
        settings = get_settings()
        limits = (settings.approval_above_minor, settings.approval_valid_seconds)
        function = "makegood.act_settle(%s, %s, %s, %s, %s, %s, %s, %s, %s)"
        return self._call(function, login, token, workflow_type, order, step, proof, reason, *limits)

    def cancel(self, login: str, token: uuid.UUID, workflow_type: str, order: str, reason: str) -> Answer:
        return self._call("makegood.act_cancel(%s, %s, %s, %s, %s)", login, token, workflow_type, order, reason)

    def carry_out(self, login: str, token: uuid.UUID, approval_id: str, reason: str) -> Answer:
        valid = get_settings().approval_valid_seconds
        return self._call("makegood.act_carry_out(%s, %s, %s, %s, %s)", login, token, approval_id, reason, valid)

    def approve(self, login: str, token: uuid.UUID, approval_id: str, digest: str, reason: str) -> Answer:
        return self._call("makegood.act_give_approval(%s, %s, %s, %s, %s)", login, token, approval_id, digest, reason)

    def refuse(self, login: str, token: uuid.UUID, approval_id: str, reason: str) -> Answer:
        return self._call("makegood.act_refuse_approval(%s, %s, %s, %s)", login, token, approval_id, reason)

    def mark_finding(self, login: str, token: uuid.UUID, finding_id: str, days: int | None, reason: str) -> Answer:
        return self._call("makegood.act_mark_finding(%s, %s, %s, %s, %s)", login, token, finding_id, days, reason)

    def approve_refund(self, login: str, token: uuid.UUID, finding_id: str, digest: str, reason: str) -> Answer:
        return self._call("makegood.act_approve_remedy(%s, %s, %s, %s, %s)", login, token, finding_id, digest, reason)

    def refuse_refund(self, login: str, token: uuid.UUID, finding_id: str, reason: str) -> Answer:
        return self._call("makegood.act_refuse_remedy(%s, %s, %s, %s)", login, token, finding_id, reason)

    def _call(self, function: str, *parameters: Any) -> Answer:
        """Twice when the connection was lost: what was done the first time is answered the same."""
        try:
            try:
                return self._once(function, parameters)
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if not isinstance(error, psycopg.InterfaceError) and error.sqlstate:
                    raise
                return self._once(function, parameters)
        except (psycopg.Error, psycopg_pool.PoolTimeout, MakegoodError) as error:
            raise refuse(error) from error

    def _once(self, function: str, parameters: tuple[Any, ...]) -> Answer:
        clean = [value.replace("\x00", "") if isinstance(value, str) else value for value in parameters]
        with self._pool.connection() as connection:
            ((may_read,),) = connection.execute(read_query("acting_rights")).fetchall()
            if may_read:
                raise Refused(
                    "The dashboard's own login may do more than act: nothing was done.",
                    "MAKEGOOD_DATABASE_ACT_URL must be a login with makegood_act and nothing else.",
                )
            (row,) = connection.execute(f"SELECT {function}", clean).fetchall()
            answer: Answer = row[0]
            return answer


def refuse(error: Exception) -> Refused | Away:
    """What a database error means for somebody who wants to act."""
    if isinstance(error, psycopg.Error) and (error.sqlstate or "").startswith("MG"):
        return Refused(error.diag.message_primary or "It was refused.", error.diag.message_hint or "")
    if isinstance(error, psycopg.errors.LockNotAvailable | psycopg.errors.DeadlockDetected):
        return Refused("Somebody else is at it right now.", "Nothing was done. Try again in a moment.")
    if isinstance(error, psycopg.errors.ReadOnlySqlTransaction):
        return Refused("The database is read-only: nothing was done.", "Try again when it is not.")
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return Refused(
            "The dashboard's own login may not act.", "Grant makegood_act to the login in MAKEGOOD_DATABASE_ACT_URL."
        )
    return explain(error)


@st.cache_resource(show_spinner=False)
def actor() -> Actor:
    return Actor()


def _configure(connection: psycopg.Connection[Any]) -> None:
    limits = {"timeout": f"{STATEMENT_SECONDS}s", "lock_timeout": f"{LOCK_SECONDS}s"}
    connection.execute(read_query("acting_session"), limits)
