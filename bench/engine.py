"""The engine's figures: against DBOS Transact, against pgbench, and beside five million finished rows.

dbos_ratio     forward checkouts per second with no-op steps, over DBOS doing the same three durable steps
pgbench_ratio  committed transitions per second of that run, over pgbench's guarded update + insert + commit
               on the same tables, with as many connections
claim_growth   claiming 500 stuck rows beside 5 million finished ones, over beside 100 thousand
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg

from bench.environments import ensure_dbos_python
from bench.figures import Figure, alternate
from bench.scratch import Scratch, scratch_database, to_url
from makegood.engine.definitions import Action, Call, Request
from makegood.engine.runner import Runner, Start, open_runner
from makegood.errors import ConfigurationError
from makegood.local.binaries import find_binaries
from makegood.settings import Settings
from makegood.workflows.checkout import make_checkout

HERE = Path(__file__).resolve().parent
CHECKOUTS, BATCH, BATCHES_AT_ONCE = 12_000, 500, 3
DBOS_CHECKOUTS = 1_500
TRANSITIONS_PER_CHECKOUT = 7
WRITERS = 2  # connections of one engine; pgbench gets as many
PGBENCH_ROWS, PGBENCH_SECONDS = 20_000, 8
FEW, MANY, STUCK = 100_000, 5_000_000, 500
CLAIMS_PER_RUN = 5

Say = Callable[[str], None]


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
        pairs = alternate(runs, lambda: run_checkouts(scratch), lambda: run_dbos(python, scratch), say)
    facts = {
        "makegood_per_second": _medians(pairs, 0),
        "dbos_per_second": _medians(pairs, 1),
    }
    says = "forward checkouts per second over DBOS Transact's"
    return Figure("dbos_ratio", says, [a / b for a, b in pairs], "at least", 10, facts)


def measure_pgbench(admin_url: str, jobs_url: str, runs: int, say: Say) -> Figure:
    say("pgbench_ratio: committed transitions per second, makegood and pgbench")
    with scratch_database(admin_url, jobs_url) as scratch:
        prepare_pgbench(scratch)

        def transitions() -> float:
            return run_checkouts(scratch) * TRANSITIONS_PER_CHECKOUT

        pairs = alternate(runs, transitions, lambda: run_pgbench(scratch), say)
    facts = {
        "makegood_per_second": _medians(pairs, 0),
        "pgbench_per_second": _medians(pairs, 1),
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
        pairs = alternate(runs, lambda: claim_milliseconds(many), lambda: claim_milliseconds(few), say)
    facts = {"beside_many_ms": _medians(pairs, 0), "beside_few_ms": _medians(pairs, 1)}
    says = f"claiming {STUCK} stuck rows beside {MANY:,} finished ones, over beside {FEW:,}"
    return Figure("claim_growth", says, [a / b for a, b in pairs], "at most", 1.3, facts)


# makegood


def run_checkouts(scratch: Scratch) -> float:
    """Checkouts per second, from start to completed, each with all of its guards; counted in the tables."""
    return asyncio.run(_run_checkouts(scratch.jobs_url))


async def _run_checkouts(url: str) -> float:
    async def nothing(call: Call, request: Request) -> dict[str, Any]:
        return {"ok": True}

    no_op = Action(send=nothing)
    checkout = make_checkout(
        charge=no_op, refund=no_op, reserve=no_op, release=no_op, ship=no_op, cancel_shipment=no_op
    )
    settings = Settings(calls_at_once=BATCH * BATCHES_AT_ONCE)
    run = uuid.uuid4().hex[:8]
    async with open_runner(url, {"checkout": checkout}, settings) as runner:
        await _drive(runner, f"warm-{run}", BATCH)
        begin = time.perf_counter()
        await _drive(runner, run, CHECKOUTS)
        seconds = time.perf_counter() - begin
        rows = await runner.database.call(
            "SELECT count(*) AS n FROM makegood.workflow_executions WHERE current_state = 'completed'"
            " AND entity_id LIKE %s",
            (f"order-{run}-%",),
        )
    if rows[0]["n"] != CHECKOUTS:
        raise ConfigurationError(f"only {rows[0]['n']} of {CHECKOUTS} checkouts completed; the run is void")
    return CHECKOUTS / seconds


async def _drive(runner: Runner, run: str, count: int) -> None:
    numbers = iter(range(0, count, BATCH))

    async def drive_batches() -> None:
        for first in numbers:
            starts = [
                Start("checkout", f"order-{run}-{first + i}", {"payment_method": "none"}, 1999, "EUR")
                for i in range(BATCH)
            ]
            started = await runner.start(starts, triggered_by="bench", worker="bench")
            await runner.engine.advance(started)

    await asyncio.gather(*(drive_batches() for _ in range(BATCHES_AT_ONCE)))


# DBOS


def run_dbos(python: Path, scratch: Scratch) -> float:
    """DBOS's checkouts per second, in its own environment, in the configuration that was fastest here."""
    command = [str(python), str(HERE / "dbos_side.py"), "--workflows", str(DBOS_CHECKOUTS)]
    done = subprocess.run([*command, "--url", to_url(scratch.admin_url)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigurationError(f"the DBOS side did not run: {done.stderr.strip()[-500:]}")
    return float(json.loads(done.stdout.strip().splitlines()[-1])["per_second"])


# pgbench

PING_PONG = {
    "name": "pgbench",
    "states": [
        {"state": "created", "kind": "initial", "step": None, "stuck_after_seconds": 300},
        {"state": "ping", "kind": "doing", "step": "play", "stuck_after_seconds": 300},
        {"state": "pong", "kind": "done", "step": "play", "stuck_after_seconds": 300},
    ],
    "edges": [["created", "ping"], ["ping", "pong"], ["pong", "ping"]],
}
# What a careful user writes by hand: the guard in the UPDATE's own WHERE, the transition with it.
PGBENCH_SCRIPT = r"""
\set n random(1, :rows)
BEGIN;
WITH moved AS (
  UPDATE makegood.workflow_executions e
     SET current_state = CASE e.current_state WHEN 'ping' THEN 'pong' ELSE 'ping' END,
         last_seq = e.last_seq + 1, updated_at = clock_timestamp(),
         deadline_at = clock_timestamp() + interval '5 minutes'
   WHERE e.id = (SELECT id FROM public.pgbench_ids WHERE n = :n) AND e.current_state <> 'created' AND e.fence = 0
  RETURNING e.id, e.entity_id, e.last_seq, e.current_state)
INSERT INTO makegood.workflow_transitions (workflow_id, entity_id, seq, from_state, to_state, triggered_by)
SELECT id, entity_id, last_seq, CASE current_state WHEN 'ping' THEN 'pong' ELSE 'ping' END, current_state, 'pgbench'
  FROM moved;
COMMIT;
"""


def prepare_pgbench(scratch: Scratch) -> None:
    with psycopg.connect(scratch.admin_url, autocommit=True) as connection:
        connection.execute("SELECT makegood.register_workflow(%s::jsonb)", (json.dumps(PING_PONG),))
        connection.execute("CREATE TABLE public.pgbench_ids (n integer PRIMARY KEY, id uuid NOT NULL)")
        connection.execute(
            "INSERT INTO public.pgbench_ids SELECT n, makegood.start_workflow('pgbench', 'row-' || n)"
            " FROM generate_series(1, %s) AS n",
            (PGBENCH_ROWS,),
        )
        connection.execute(
            "SELECT count(makegood.transition_workflow(id, 'created', 'ping', 0)) FROM public.pgbench_ids"
        )
        connection.execute("VACUUM ANALYZE")


def run_pgbench(scratch: Scratch) -> float:
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(PGBENCH_SCRIPT)
        script.flush()
        options = ["-n", "-c", str(WRITERS), "-j", str(WRITERS), "-T", str(PGBENCH_SECONDS), "-M", "prepared"]
        command = [str(find_binaries().program("pgbench")), *options, "-D", f"rows={PGBENCH_ROWS}", "-f", script.name]
        done = subprocess.run([*command, scratch.admin_url], capture_output=True, text=True, check=False)
    found = re.search(r"tps = ([0-9.]+)", done.stdout)
    if done.returncode or not found:
        raise ConfigurationError(f"pgbench did not run: {done.stderr.strip()[-500:]}")
    return float(found[1])


# Claims


def fill(scratch: Scratch, finished: int) -> None:
    """Finished rows, and the stuck ones among them. Without the guards, which would take hours to say yes."""
    with psycopg.connect(scratch.admin_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE makegood.workflow_executions DISABLE TRIGGER USER")
        connection.execute(
            """
            INSERT INTO makegood.workflow_executions (
              id, workflow_type, entity_id, current_state, context, created_at, updated_at, amount_minor, currency,
              next_attempt_at, deadline_at, fence, finished_at, last_seq, start_hash)
            SELECT gen_random_uuid(), 'checkout', 'order-' || n, CASE WHEN stuck THEN 'charging' ELSE 'completed' END,
                   '{}', t, t, 1999, 'EUR', t, t, 1, CASE WHEN NOT stuck THEN t END, 7, ''
              FROM (SELECT n, n %% %s = 0 AS stuck, clock_timestamp() - interval '1 day' AS t
                      FROM generate_series(1, %s) AS n) AS rows
            """,
            (finished // STUCK, finished),
        )
        connection.execute("ALTER TABLE makegood.workflow_executions ENABLE TRIGGER USER")
        connection.execute(
            "ALTER TABLE makegood.workflow_executions ENABLE ALWAYS TRIGGER execution_follows_chain_when_new"
        )
        connection.execute("VACUUM ANALYZE makegood.workflow_executions")


def claim_milliseconds(scratch: Scratch) -> float:
    """The median of a few claims of all the stuck rows, each given back before the next."""
    times = []
    with psycopg.connect(scratch.admin_url, autocommit=True) as connection:
        for _ in range(CLAIMS_PER_RUN + 1):
            begin = time.perf_counter()
            claimed = connection.execute(
                "SELECT id, fence FROM makegood.claim_workflows('bench', 60, %s, NULL, true)", (STUCK,)
            ).fetchall()
            times.append((time.perf_counter() - begin) * 1000)
            if len(claimed) != STUCK:
                raise ConfigurationError(f"{len(claimed)} rows claimed instead of {STUCK}; the run is void")
            items = json.dumps([{"id": str(identity), "fence": fence} for identity, fence in claimed])
            connection.execute("SELECT count(*) FROM makegood.pause_workflows(%s::jsonb)", (items,))
    return statistics.median(times[1:])  # the first one warms the cache


def _medians(pairs: Sequence[tuple[float, float]], side: int) -> float:
    return round(statistics.median(pair[side] for pair in pairs), 1)
