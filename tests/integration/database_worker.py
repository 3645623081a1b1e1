"""A worker that the database's tests drive by hand: each method is one call of one SQL function, as the jobs' role."""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from makegood.engine.definitions import Action, compensation_id
from makegood.local.postgres import EmbeddedPostgres
from makegood.workflows.checkout import make_checkout

Row = dict[str, Any]

MIGRATED = "makegood_template"  # the database of tests/conftest.py that every other one is copied from

_NOTHING = Action(send=lambda call, request: {})
CHECKOUT = make_checkout(
    charge=_NOTHING, refund=_NOTHING, reserve=_NOTHING, release=_NOTHING, ship=_NOTHING, cancel_shipment=_NOTHING
)
DEFINITION = CHECKOUT.to_document()
DOING = {step.name: step.doing for step in CHECKOUT.steps}
DONE = {step.name: step.done or "completed" for step in CHECKOUT.steps}
POSITIONS = {step.name: position for position, step in enumerate(CHECKOUT.steps, start=1)}
UNDO = {step.name: step.undo_name for step in CHECKOUT.steps}
HOUR_SECONDS = 3600.0


@dataclass
class Lease:
    """A claimed workflow as its worker believes it to be."""

    id: uuid.UUID
    entity_id: str
    fence: int
    state: str

    def to(self, state: str, **facts: Any) -> Row:
        """An item of the engine's functions: the guard, and whatever goes with it."""
        return {"id": str(self.id), "fence": self.fence, "from_state": self.state, "to_state": state, **facts}


class Worker:
    """One connection, one name. Verdicts are returned as the functions say them."""

    def __init__(self, url: str, name: str = "worker-1") -> None:
        self.name = name
        self.connection = psycopg.connect(url, autocommit=True, row_factory=dict_row)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def rows(self, statement: Any, *parameters: Any) -> list[Row]:
        cursor = self.connection.execute(statement, parameters or None)
        return cursor.fetchall() if cursor.description else []

    def row(self, statement: Any, *parameters: Any) -> Row:
        (found,) = self.rows(statement, *parameters)
        return found

    def register(self, definition: Row = DEFINITION) -> None:
        self.rows("SELECT makegood.register_workflow(%s::jsonb)", json.dumps(definition))

    def start(self, entity_id: str, amount_minor: int | None = 1000, currency: str | None = "EUR") -> uuid.UUID:
        statement = "SELECT makegood.start_workflow('checkout', %s, '{}', %s, %s) AS id"
        return self.row(statement, entity_id, amount_minor, currency)["id"]

    def claim(self, batch: int = 10, *, lease_seconds: float = 60, **options: Any) -> list[Lease]:
        """Options: types, stuck_only, ids, states, older_than_seconds, take_over_after_seconds."""
        rows = self.rows(
            "SELECT * FROM makegood.claim_workflows(%s, %s, %s, %s, %s, %s, %s, %s, %s)",
            *(self.name, lease_seconds, batch, options.get("types"), options.get("stuck_only", False)),
            *(options.get("ids"), options.get("states"), options.get("older_than_seconds")),
            options.get("take_over_after_seconds", 0),
        )
        return [Lease(row["id"], row["entity_id"], row["fence"], row["current_state"]) for row in rows]

    def started(self, entity_id: str) -> Lease:
        """A new workflow, claimed."""
        (lease,) = self.claim(ids=[self.start(entity_id)])
        return lease

    def read(self, lease: Lease) -> Row:
        return self.row("SELECT * FROM makegood.workflow_executions WHERE id = %s", lease.id)

    def begin(self, lease: Lease, step: str, *, request: str = "same", window_seconds: float = HOUR_SECONDS) -> Row:
        item = lease.to(DOING[step], **self._forward(lease, step), request_hash=digest(request).hex())
        row = self._one("SELECT * FROM makegood.begin_steps(%s, 60, %s, %s::jsonb)", item, window_seconds)
        if row["verdict"] not in {"lost", "cancel"}:
            lease.state = DOING[step]
        return row

    def finish(self, lease: Lease, step: str, **facts: Any) -> str:
        return self.finish_row(lease, step, **facts)["verdict"]

    def finish_row(self, lease: Lease, step: str, **facts: Any) -> Row:
        """With ``via`` and ``next`` among the facts also the beginning of the next step."""
        item = lease.to(DONE[step], **self._forward(lease, step), attempt=1, outcome="success")
        item |= {"response": {"step": step}, "patch": {step: {"ok": True}}, **facts}
        return self._moved(lease, "SELECT * FROM makegood.finish_steps(%s, 60, 3600, %s::jsonb)", item)

    def do(self, lease: Lease, *steps: str) -> Lease:
        """Begins and finishes the steps, all of which succeed."""
        for step in steps:
            assert self.begin(lease, step)["verdict"] == "go"
            assert self.finish(lease, step) == "moved"
        return lease

    def compensate(self, lease: Lease, steps: Sequence[str], to_state: str = "compensating", **facts: Any) -> str:
        item = lease.to(to_state, plan=[self._owed(lease, step) for step in steps], **facts)
        return self._moved(lease, "SELECT * FROM makegood.compensate_workflows(%s, %s::jsonb)", item)["verdict"]

    def begin_undo(self, lease: Lease, step: str, *, window_seconds: float = HOUR_SECONDS) -> Row:
        item = lease.to(lease.state, **self._owed(lease, step))
        return self._one("SELECT * FROM makegood.begin_compensations(%s, 60, %s, %s::jsonb)", item, window_seconds)

    def finish_undo(self, lease: Lease, step: str, attempt: int = 1) -> str:
        item = lease.to(lease.state, **self._owed(lease, step), attempt=attempt, outcome="success")
        item["response"] = {"undone": step}
        return self._moved(lease, "SELECT * FROM makegood.finish_compensations(%s, %s::jsonb)", item)["verdict"]

    def pause_undo(self, lease: Lease, step: str, **facts: Any) -> str:
        item = lease.to(lease.state, **self._owed(lease, step), **facts)
        rows = self.rows("SELECT * FROM makegood.pause_compensations(%s::jsonb)", json.dumps([item]))
        return rows[0]["verdict"]

    def pause(self, lease: Lease, **facts: Any) -> str:
        item = {"id": str(lease.id), "fence": lease.fence, **facts}
        return self.row("SELECT * FROM makegood.pause_steps(%s::jsonb)", json.dumps([item]))["verdict"]

    def renew(self, lease: Lease, lease_seconds: float) -> list[Row]:
        item = {"id": str(lease.id), "fence": lease.fence}
        return self.rows("SELECT makegood.renew_leases(%s, %s::jsonb) AS id", lease_seconds, json.dumps([item]))

    def transition(self, lease: Lease, to_state: str, **metadata: Any) -> bool:
        statement = "SELECT makegood.transition_workflow(%s, %s, %s, %s, %s, %s::jsonb) AS moved"
        done = self.row(statement, lease.id, lease.state, to_state, lease.fence, self.name, json.dumps(metadata))[
            "moved"
        ]
        lease.state = to_state if done else lease.state
        return done

    def cancel(self, entity_id: str, actor: str = "ann", reason: str = "changed her mind") -> str:
        statement = "SELECT * FROM makegood.request_cancel('checkout', %s, %s, %s)"
        return self.row(statement, entity_id, actor, reason)["verdict"]

    def wait_until_blocked(self, other: Worker) -> None:
        """Until the other worker waits for somebody's lock, so that a race is run in the order it is told."""
        pid = other.connection.info.backend_pid
        for _ in range(1000):
            if self.row("SELECT cardinality(pg_blocking_pids(%s)) > 0 AS blocked", pid)["blocked"]:
                return
            self.rows("SELECT pg_sleep(0.01)")
        raise AssertionError(f"{other.name} did not wait for anybody")

    def _forward(self, lease: Lease, step: str) -> Row:
        return {"step": step, "key": f"{step}-{lease.entity_id}", "operation": f"checkout.{step}"}

    def _owed(self, lease: Lease, step: str) -> Row:
        undo = compensation_id(lease.id, step)
        money = {"amount_minor": 1000, "currency": "EUR"} if step == "charge" else {}
        return {
            "compensation_id": str(undo),
            "step": step,
            "position": POSITIONS[step],
            "key": f"{UNDO[step]}-{undo}",
            "operation": f"checkout.{UNDO[step]}",
            "request_hash": digest(f"undo {step}").hex(),
            **money,
        }

    def _one(self, statement: str, item: Row, *common: Any) -> Row:
        return self.row(statement, self.name, *common, json.dumps([item]))

    def _moved(self, lease: Lease, statement: str, item: Row) -> Row:
        row = self._one(statement, item)
        if row["verdict"] == "moved":
            lease.state = item["to_state"]
        return row


def digest(request: str) -> bytes:
    return hashlib.sha256(request.encode()).digest()


@contextlib.contextmanager
def refused(sqlstate: str, match: str | None = None) -> Iterator[None]:
    """The block ends in this error of the database, and no other."""
    with pytest.raises(psycopg.Error, match=match) as caught:
        yield
    assert caught.value.sqlstate == sqlstate, caught.value


@contextlib.contextmanager
def open_database(server: EmbeddedPostgres, *, template: str = MIGRATED, owner: str = "postgres") -> Iterator[str]:
    """The name of a new database, which is gone after the block."""
    name = f"test_{secrets.token_hex(6)}"
    make = sql.SQL("CREATE DATABASE {} TEMPLATE {} OWNER {}")
    with psycopg.connect(server.url("postgres", "postgres"), autocommit=True) as connection:
        connection.execute(make.format(*(sql.Identifier(word) for word in (name, template, owner))))
        try:
            yield name
        finally:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
