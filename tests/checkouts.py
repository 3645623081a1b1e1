"""Orders for the tests, and a way to take them to their end without waiting for the clock."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import psycopg

from makegood.engine.definitions import Action, Call, Request, Workflow
from makegood.engine.runner import Runner, Start, open_runner
from makegood.settings import Settings
from makegood.workflows import open_workflows

GOOD = {"payment_method": "pm_card_visa", "sku": "lamp-brass", "quantity": 1, "address": {"country": "SE"}}
NOWHERE = {"address": {"country": "XX"}}
AMOUNT_MINOR, CURRENCY = 1999, "EUR"
ROUNDS_MAX = 40
FORWARD = ["created", "charging", "charged", "reserving", "reserved", "shipping", "completed"]

Change = Callable[[Workflow], Workflow]


class NoWait(random.Random):
    """Every wait is over at once."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0


def order(entity_id: str = "order-1", **context: Any) -> Start:
    return Start("checkout", entity_id, {**GOOD, **context}, AMOUNT_MINOR, CURRENCY)


def hasten(workflow: Workflow, *, timeout_seconds: float = 2.0, attempts_max: int = 4) -> Workflow:
    """The same steps with short deadlines and few attempts."""
    changes: dict[str, Any] = {"timeout_seconds": timeout_seconds, "attempts_max": attempts_max}
    steps = [dataclasses.replace(step, **changes, undo_attempts_max=attempts_max) for step in workflow.steps]
    return dataclasses.replace(workflow, steps=steps)


def after_call(workflow: Workflow, step_name: str, do: Callable[[Call], None]) -> Workflow:
    """Does something when the call of a step has had its effect and its answer is not written yet."""

    def wrapped(action: Action) -> Action:
        async def send(call: Call, request: Request) -> Any:
            answer = await action.send(call, request)
            do(call)
            return answer

        return dataclasses.replace(action, send=send)

    steps = [
        dataclasses.replace(step, action=wrapped(step.action)) if step.name == step_name else step
        for step in workflow.steps
    ]
    return dataclasses.replace(workflow, steps=steps)


@contextlib.asynccontextmanager
async def open_checkouts(
    url: str, settings: Settings, *, change: Change = hasten, **options: Any
) -> AsyncIterator[Runner]:
    """A runner over the real shop, its waits over at once."""
    async with open_workflows(settings) as known:
        workflows = {name: change(workflow) for name, workflow in known.items()}
        async with open_runner(url, workflows, settings, chance=NoWait(), **options) as runner:
            yield runner


async def drive(runner: Runner, database: Any, *, hours: float = 0.0) -> Counter[str]:
    """Runs batch after batch, each time as if every wait were over, until nothing is left to do."""
    ends: Counter[str] = Counter()
    for _ in range(ROUNDS_MAX):
        pass_time(database, hours=hours)
        counts = await runner.run_once()
        if not counts:
            return ends
        ends += counts
    raise AssertionError(f"no end after {ROUNDS_MAX} rounds: {ends}")


async def check_out(
    database: Any, settings: Settings, *starts: Start, change: Change = hasten, before: Callable[[], Any] | None = None
) -> None:
    """Starts the orders and drives them to their ends."""
    async with open_checkouts(database.jobs, settings, change=change) as runner:
        await runner.start(starts, triggered_by="shop")
        if before is not None:
            before()
        await drive(runner, database)


def pass_time(database: Any, *, hours: float = 0.0) -> None:
    """As if every wait were over and every lease had run out; keys grow older by so many hours."""
    with psycopg.connect(database.admin, autocommit=True) as connection:
        connection.execute(
            "UPDATE makegood.workflow_executions SET next_attempt_at = clock_timestamp() - interval '1 second',"
            " lease_until = CASE WHEN lease_until IS NOT NULL THEN clock_timestamp() - interval '1 second' END"
            " WHERE finished_at IS NULL"
        )
        connection.execute(
            "UPDATE makegood.compensations SET next_attempt_at = clock_timestamp() - interval '1 second'"
            " WHERE state <> 'succeeded'"
        )
        if hours:
            connection.execute(
                "UPDATE makegood.idempotency_keys SET first_sent_at = first_sent_at - make_interval(hours => %s)"
                " WHERE first_sent_at IS NOT NULL",
                (hours,),
            )


def let_stick(database: Any, *entity_ids: str, seconds: float = 600) -> None:
    """As if so much time had passed without progress, the deadline among it; of all that is under way, or of these.

    Nothing else can make a row older: when it was started is part of what it is.
    """
    with psycopg.connect(database.admin) as connection:
        connection.execute("ALTER TABLE makegood.workflow_executions DISABLE TRIGGER executions_keep_identity")
        connection.execute(
            "UPDATE makegood.workflow_executions SET deadline_at = clock_timestamp() - interval '1 second',"
            " created_at = created_at - make_interval(secs => %(age)s),"
            " updated_at = updated_at - make_interval(secs => %(age)s)"
            " WHERE finished_at IS NULL AND (%(ids)s::text[] = '{}' OR entity_id = ANY (%(ids)s::text[]))",
            {"age": seconds, "ids": list(entity_ids)},
        )
        connection.execute("ALTER TABLE makegood.workflow_executions ENABLE ALWAYS TRIGGER executions_keep_identity")


def request_cancel(database: Any, entity_id: str = "order-1") -> str:
    rows = database.rows(
        "SELECT * FROM makegood.request_cancel('checkout', %s, 'support', 'customer called')", (entity_id,), role="jobs"
    )
    return str(rows[0]["verdict"])


def get_row(database: Any, entity_id: str = "order-1") -> dict[str, Any]:
    rows = database.rows("SELECT * FROM makegood.workflow_executions WHERE entity_id = %s", (entity_id,))
    assert len(rows) == 1
    return dict(rows[0])


def get_states(database: Any, entity_id: str = "order-1") -> list[str]:
    """The way the order took, after making sure that its numbers have no gap."""
    rows = database.rows(
        "SELECT seq, to_state FROM makegood.workflow_transitions WHERE entity_id = %s ORDER BY seq", (entity_id,)
    )
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    return [row["to_state"] for row in rows]


def get_undone(database: Any) -> dict[str, str]:
    """The state of each compensation, in the order in which they were done."""
    rows = database.rows("SELECT step, state FROM makegood.compensations ORDER BY succeeded_at, position DESC")
    return {row["step"]: row["state"] for row in rows}


def get_attempts(database: Any, step: str, kind: str = "forward") -> list[dict[str, Any]]:
    return list(
        database.rows(
            "SELECT *, extract(epoch FROM finished_at - started_at)::float AS seconds FROM makegood.step_attempts"
            " WHERE step = %s AND kind = %s ORDER BY attempt",
            (step, kind),
        )
    )


def count_rows(database: Any) -> Mapping[str, int]:
    """How many rows each table has that a workflow writes to."""
    tables = (
        "workflow_executions",
        "workflow_transitions",
        "step_attempts",
        "idempotency_keys",
        "compensations",
        "outbox",
    )
    with psycopg.connect(database.admin, autocommit=True) as connection:
        return {name: connection.execute(f"SELECT count(*) FROM makegood.{name}").fetchone()[0] for name in tables}  # type: ignore[index,arg-type]
