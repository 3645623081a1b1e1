"""Checkouts whose steps do nothing, so that what is measured is the engine; and many of them stuck.

Named in MAKEGOOD_WORKFLOWS this module also gives a process of its own the type ``bench_checkout``, beside the
real ``checkout``.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

import psycopg

from bench.scratch import Scratch
from makegood.engine.definitions import Action, Call, Request, Step, Workflow
from makegood.engine.runner import Runner, Start, open_runner
from makegood.errors import ConfigurationError
from makegood.session import collecting_less
from makegood.settings import Settings
from makegood.workflows.checkout import make_checkout

NAME = "bench_checkout"
STUCK_STEP, STUCK_STATE = "reserve", "reserving"  # where the DBOS side's are stuck too
BATCH, BATCHES_AT_ONCE = 500, 3
CONTEXT = {"payment_method": "none"}


class Killed(BaseException):
    """The worker ends here. No handler of the engine sees it, so nothing is written after it."""


def make_no_op(name: str = NAME) -> Workflow:
    """The checkout with all of its guards and no-op steps."""

    async def nothing(call: Call, request: Request) -> dict[str, Any]:
        return {"ok": True}

    no_op = Action(send=nothing)
    checkout = make_checkout(
        charge=no_op, refund=no_op, reserve=no_op, release=no_op, ship=no_op, cancel_shipment=no_op
    )
    return dataclasses.replace(checkout, name=name)


def workflows(_settings: Settings) -> list[Workflow]:
    """What MAKEGOOD_WORKFLOWS asks this module for."""
    return [make_no_op()]


def make_starts(run: str, numbers: Sequence[int], workflow_type: str = NAME) -> list[Start]:
    return [Start(workflow_type, f"order-{run}-{n}", CONTEXT, 1999, "EUR") for n in numbers]


def leave_stuck(scratch: Scratch, count: int) -> None:
    """Leaves ``count`` no-op checkouts as a killed worker does, past their deadline.

    Inside the step ``reserve``: its key sent, its attempt open, the lease of the dead worker run out.
    """
    run = uuid.uuid4().hex[:8]
    asyncio.run(strand(scratch, make_no_op(), STUCK_STEP, make_starts(run, range(count))))
    age(scratch, run, STUCK_STATE, count)


async def strand(scratch: Scratch, workflow: Workflow, step: str, starts: Sequence[Start]) -> None:
    """Starts the workflows and drives them with the engine itself, until it is killed inside the step."""
    batches = iter([starts[first : first + BATCH] for first in range(0, len(starts), BATCH)])

    async def work(runner: Runner) -> None:
        for batch in batches:
            started = await runner.start(batch, triggered_by="bench", worker="killed")
            with contextlib.suppress(Killed):
                await runner.engine.advance(started)

    async with open_quick_runner(scratch.jobs_url, kill_inside(workflow, step)) as runner:
        await asyncio.gather(*(work(runner) for _ in range(BATCHES_AT_ONCE)))


def kill_inside(workflow: Workflow, name: str) -> Workflow:
    """The same workflow, whose worker ends where the call of one step would be made."""

    async def die(call: Call, request: Request) -> None:
        raise Killed

    def deadly(step: Step) -> Step:
        return dataclasses.replace(step, action=dataclasses.replace(step.action, send=die))

    return dataclasses.replace(workflow, steps=[deadly(s) if s.name == name else s for s in workflow.steps])


def age(scratch: Scratch, run: str, state: str, count: int) -> None:
    """As if an hour had gone by since the worker was killed; refuses a run that is not stuck where it should be."""
    with psycopg.connect(scratch.admin_url, autocommit=True) as connection:
        aged = connection.execute(
            "UPDATE makegood.workflow_executions SET lease_until = lease_until - interval '1 hour',"
            " next_attempt_at = next_attempt_at - interval '1 hour', deadline_at = deadline_at - interval '1 hour'"
            " WHERE entity_id LIKE %s AND current_state = %s AND lease_until IS NOT NULL",
            (f"order-{run}-%", state),
        )
        if aged.rowcount != count:
            raise ConfigurationError(f"{aged.rowcount} of {count} checkouts are {state}; the run is void")
        connection.execute("VACUUM ANALYZE")  # what autovacuum would have done in that hour


@contextlib.asynccontextmanager
async def open_quick_runner(url: str, workflow: Workflow) -> AsyncIterator[Runner]:
    """A runner whose bound on calls is never met: no-op steps call nobody."""
    settings = Settings(calls_at_once=BATCH * BATCHES_AT_ONCE)
    async with open_runner(url, {workflow.name: workflow}, settings) as runner:
        with collecting_less():  # as every process of ours that drives orders
            yield runner
