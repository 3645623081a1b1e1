"""One real worker process, forked, that takes one order as far as it goes and may be struck on the way."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import logging
import os
import random
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psycopg
import structlog

from makegood import jobs as scheduled
from makegood.engine.definitions import Workflow
from makegood.engine.runner import Runner, Start, open_runner
from makegood.jobs import Report, run_compensation, run_recovery
from makegood.notify import Send
from makegood.reconciliation.remedy import find_run, remedy_findings
from makegood.runs.model import Options
from makegood.workflows.checkout import open_checkout
from makegood.workflows.remedy import open_remedy
from prover.ground import Ground
from prover.scenarios import Scenario
from prover.tripwire import Tripwire, WiredConnection, wire_workflow

AMOUNT_MINOR, CURRENCY = 1999, "EUR"
# Small, so that spent attempts are reached in a proof; the engine is the same.
ATTEMPTS_MAX = 3
CALL_SECONDS = 5.0
ROUNDS_MAX = 20
PR_SET_PDEATHSIG = 1  # linux/prctl.h

Change = Callable[[Workflow], Workflow]
"""What a mutant changes about the workflow."""


class NoWait(random.Random):
    """Every wait is over at once: time is not what is proved here."""

    def uniform(self, a: float, b: float) -> float:
        return 0.0


@dataclass(frozen=True)
class Task:
    """What one worker is to do: which order of which kind, under which name, and how it tells people."""

    scenario: Scenario
    order_id: str
    name: str
    send: Send

    @property
    def struck(self) -> bool:
        """Whether it is the worker that the proof is about; the others come afterwards."""
        return self.name == "first"


Job = Callable[[Runner, Task], Awaitable[None]]


async def check_out(runner: Runner, task: Task) -> None:
    """The first worker starts the order and drives it; every other claims what is due."""
    scenario, order_id = task.scenario, task.order_id
    if task.name in {"first", "abandoning"}:
        start = Start("checkout", order_id, scenario.full_context(), AMOUNT_MINOR, CURRENCY)
        started = await runner.start([start], triggered_by="shop", worker=task.name)
        if scenario.cancel_before_start:
            request_cancel(runner, order_id)
        await runner.engine.advance(started)
    for _ in range(ROUNDS_MAX):
        if not await runner.run_once():
            return


async def recover(runner: Runner, task: Task) -> None:
    """The recovery until it finds nothing more; whoever comes afterwards runs both jobs, as a schedule would."""
    jobs = [run_recovery] if task.struck else [run_recovery, run_compensation]
    await _sweep(runner, task, jobs)


async def compensate(runner: Runner, task: Task) -> None:
    """The compensations, likewise."""
    jobs = [run_compensation] if task.struck else [run_recovery, run_compensation]
    await _sweep(runner, task, jobs)


async def _sweep(runner: Runner, task: Task, jobs: Sequence[Callable[..., Awaitable[Report]]]) -> None:
    for _ in range(ROUNDS_MAX):
        taken = 0
        for job in jobs:
            report = await job(runner, Options(limit=10), triggered_by="proof", send=task.send)
            taken += report.counts.get("taken", 0)
        if not taken:
            return


async def put_right(runner: Runner, task: Task) -> None:
    """The remedies of the last run; whoever comes afterwards runs the recovery too, as a schedule would."""
    for _ in range(ROUNDS_MAX):
        taken = 0
        if not task.struck:
            report = await run_recovery(runner, Options(limit=10), triggered_by="proof", send=task.send)
            taken = report.counts.get("taken", 0)
        run_id = await find_run(runner)
        if run_id is None or not (await remedy_findings(runner, run_id, dry_run=False, actor=task.name) or taken):
            return


JOBS: Mapping[str, Job] = {
    "checkout": check_out,
    "recover": recover,
    "compensate": compensate,
    "remedy": put_right,
}


def request_cancel(runner: Runner | None, order_id: str, url: str | None = None) -> None:
    with psycopg.connect(url or JOBS_URL[0], autocommit=True) as connection:
        connection.execute("SELECT makegood.request_cancel('checkout', %s, 'customer', 'changed my mind')", (order_id,))


JOBS_URL: list[str] = [""]  # of this worker process; set once it was forked


@dataclass
class Worker:
    """A child process. ``wait`` returns when it ended or stopped."""

    pid: int
    report: Path

    def wait(self) -> str:
        """``done``, ``killed``, ``stopped`` or ``failed``."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            return "stopped"
        if os.WIFSIGNALED(status):
            return "killed" if os.WTERMSIG(status) == signal.SIGKILL else "failed"
        return "done" if os.WEXITSTATUS(status) == 0 else "failed"

    def resume(self) -> str:
        os.kill(self.pid, signal.SIGCONT)
        return self.wait()

    def labels(self) -> list[str]:
        return list(json.loads(self.report.read_text())) if self.report.exists() else []


def start_worker(ground: Ground, job: Job, change: Change, task: Task, wire: Tripwire, report: Path) -> Worker:
    """Forks: a real process of its own, that can be killed, and up in milliseconds."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Worker(pid, report)
    code = 1
    try:
        end_with_parent()
        scheduled.ALERT_SECONDS = 86400.0  # points are counted: how long a run takes must not change how many
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
        asyncio.run(_work(ground, job, change, task, wire))
        report.write_text(json.dumps(wire.labels))
        code = 0
    except BaseException:
        report.with_suffix(".error").write_text(traceback.format_exc())
    finally:
        os._exit(code)  # nothing of the parent's is closed or flushed twice


def end_with_parent() -> None:
    """A prover that is killed leaves no stopped worker behind. Linux only; elsewhere they are to be looked for."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


async def _work(ground: Ground, job: Job, change: Change, task: Task, wire: Tripwire) -> None:
    scenario, order_id = task.scenario, task.order_id
    failures = scenario.breaker_failures
    settings = ground.settings(**({} if failures is None else {"breaker_failures": failures}))
    WiredConnection.wire = wire
    JOBS_URL[0] = ground.jobs_url

    def after_call(label: str) -> None:
        if scenario.cancel_after_call == label:
            request_cancel(None, order_id)

    async with contextlib.AsyncExitStack() as stack:
        checkout = change(hasten(await stack.enter_async_context(open_checkout(settings))))
        workflows = {"checkout": wire_workflow(checkout, wire, after_call)}
        if scenario.job == "remedy":
            opened = open_remedy(settings, ground.jobs_url, connection_class=WiredConnection)
            remedy = change(hasten(await stack.enter_async_context(opened)))
            workflows["remedy"] = wire_workflow(remedy, wire, after_call)
        runner = await stack.enter_async_context(
            open_runner(
                ground.jobs_url,
                workflows,
                settings,
                worker=task.name,
                chance=NoWait(),
                connection_class=WiredConnection,
                register=False,
            )
        )
        await job(runner, replace(task, send=_wired(task.send, wire)))


def _wired(send: Send, wire: Tripwire) -> Send:
    """Telling people is a point too: it happened, and nobody heard that it did."""

    async def wired(title: str, body: str) -> bool:
        return bool(await wire.around("call alert", lambda: send(title, body), lambda _: False))

    return wired


def hasten(workflow: Workflow) -> Workflow:
    """The same steps with few attempts and short deadlines."""
    steps = [
        replace(step, attempts_max=ATTEMPTS_MAX, undo_attempts_max=ATTEMPTS_MAX, timeout_seconds=CALL_SECONDS)
        for step in workflow.steps
    ]
    return Workflow(workflow.name, steps, workflow.topics_on_completed, workflow.stuck_after_seconds)
