"""The engine's figures: against DBOS Transact, against pgbench, and beside five million finished rows.

dbos_ratio     forward checkouts per second with no-op steps, over DBOS doing the same three durable steps
pgbench_ratio  committed transitions per second of that run, over pgbench's guarded update + insert + commit
               on the same tables, with as many connections
claim_growth   claiming 500 stuck rows beside 5 million finished ones, over beside 100 thousand
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from bench.backlog import FEW, MANY, STUCK, fill, take_milliseconds
from bench.checkouts import BATCH, BATCHES_AT_ONCE, NAME, make_no_op, make_starts, open_quick_runner
from bench.dbos import run_dbos
from bench.environments import ensure_dbos_python
from bench.figures import Figure, Say, alternate, median_of
from bench.pgbench import prepare_pgbench, run_pgbench
from bench.scratch import Scratch, scratch_database
from makegood.engine.runner import Runner
from makegood.errors import ConfigurationError

FIGURES = ("dbos_ratio", "pgbench_ratio", "claim_growth")
CHECKOUTS = 12_000
DBOS_CHECKOUTS = 1_500
TRANSITIONS_PER_CHECKOUT = 7
WRITERS = 2  # connections of one engine; pgbench gets as many


def measure(admin_url: str, jobs_url: str, home: Path, *, runs: int, only: Sequence[str], say: Say) -> list[Figure]:
    """The figures asked for, each from ``runs`` alternating runs."""
    figures = []
    if "dbos_ratio" in only:
        figures.append(measure_dbos(admin_url, jobs_url, home, runs, say))
    if "pgbench_ratio" in only:
        figures.append(measure_pgbench(admin_url, jobs_url, runs, say))
    if "claim_growth" in only:
        figures.append(measure_claims(admin_url, jobs_url, runs, say))
    return figures


def measure_dbos(admin_url: str, jobs_url: str, home: Path, runs: int, say: Say) -> Figure:
    say("dbos_ratio: checkouts per second, makegood and DBOS Transact")
    python = ensure_dbos_python(home / "bench-venv")
    with scratch_database(admin_url, jobs_url) as scratch:
        pairs = alternate(runs, lambda: run_checkouts(scratch), lambda: run_dbos(python, scratch, DBOS_CHECKOUTS), say)
    facts = {
        "makegood_per_second": median_of(pairs, 0),
        "dbos_per_second": median_of(pairs, 1),
    }
    says = "forward checkouts per second over DBOS Transact's"
    return Figure("dbos_ratio", says, [a / b for a, b in pairs], "at least", 10, facts)


def measure_pgbench(admin_url: str, jobs_url: str, runs: int, say: Say) -> Figure:
    say("pgbench_ratio: committed transitions per second, makegood and pgbench")
    with scratch_database(admin_url, jobs_url) as scratch:
        prepare_pgbench(scratch)

        def transitions() -> float:
            return run_checkouts(scratch) * TRANSITIONS_PER_CHECKOUT

        pairs = alternate(runs, transitions, lambda: run_pgbench(scratch, WRITERS), say)
    facts = {
        "makegood_per_second": median_of(pairs, 0),
        "pgbench_per_second": median_of(pairs, 1),
        "connections": WRITERS,
    }
    says = "committed transitions per second over pgbench's guarded update + insert + commit"
    return Figure("pgbench_ratio", says, [a / b for a, b in pairs], "at least", 0.5, facts)


def measure_claims(admin_url: str, jobs_url: str, runs: int, say: Say) -> Figure:
    say(f"claim_growth: milliseconds to claim {STUCK} beside {MANY:,} finished rows, and beside {FEW:,}")
    with scratch_database(admin_url, jobs_url) as many, scratch_database(admin_url, jobs_url) as few:
        say(f"  writing {MANY:,} and {FEW:,} finished rows …")
        fill(many, MANY)
        fill(few, FEW)
        pairs = alternate(
            runs, lambda: take_milliseconds(many, find=False), lambda: take_milliseconds(few, find=False), say
        )
    facts = {"beside_many_ms": median_of(pairs, 0), "beside_few_ms": median_of(pairs, 1)}
    says = f"claiming {STUCK} stuck rows beside {MANY:,} finished ones, over beside {FEW:,}"
    return Figure("claim_growth", says, [a / b for a, b in pairs], "at most", 1.3, facts)


def run_checkouts(scratch: Scratch, checkouts: int = CHECKOUTS) -> float:
    """Checkouts per second, from start to completed, each with all of its guards; counted in the tables."""
    return asyncio.run(_run_checkouts(scratch.jobs_url, checkouts))


async def _run_checkouts(url: str, checkouts: int) -> float:
    run = uuid.uuid4().hex[:8]
    async with open_quick_runner(url, make_no_op()) as runner:
        await _drive(runner, f"warm-{run}", BATCH)
        begin = time.perf_counter()
        await _drive(runner, run, checkouts)
        seconds = time.perf_counter() - begin
        rows = await runner.database.call(
            "SELECT count(*) AS n FROM makegood.workflow_executions WHERE current_state = 'completed'"
            " AND workflow_type = %s AND entity_id LIKE %s",
            (NAME, f"order-{run}-%"),
        )
    if rows[0]["n"] != checkouts:
        raise ConfigurationError(f"only {rows[0]['n']} of {checkouts} checkouts completed; the run is void")
    return checkouts / seconds


async def _drive(runner: Runner, run: str, count: int) -> None:
    batches = iter(make_starts(run, range(first, min(first + BATCH, count))) for first in range(0, count, BATCH))

    async def drive_batches() -> None:
        for starts in batches:
            started = await runner.start(starts, triggered_by="bench", worker="bench")
            await runner.engine.advance(started)

    await asyncio.gather(*(drive_batches() for _ in range(BATCHES_AT_ONCE)))
