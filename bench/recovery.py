"""The recovery's figures: one run of ``makegood recover``, in a process of its own, over many stuck checkouts.

dbos_ratio       stuck checkouts with no-op steps recovered per second, over DBOS Transact recovering its own
pgbench_ratio    committed transitions per second of that recovery, over pgbench's guarded update + insert + commit
                 on the same tables, with as many connections
peak_mb          the most memory the recovering process ever had resident, with 20 thousand stuck
peak_growth      the same with 100 thousand stuck, over with 20 thousand
find_growth      finding and claiming 500 stuck rows beside 5 million finished ones, over beside 100 thousand
call_efficiency  calls per second of a recovery through a shop that takes 50 ms, over what the bound on simultaneous
                 calls allows: the bound over the time of a call made alone

The checkouts are stuck as a killed worker leaves them: the engine itself took them into the step.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from bench.backlog import FEW, MANY, STUCK, fill, take_milliseconds
from bench.checkouts import leave_stuck
from bench.dbos import run_dbos
from bench.environments import ensure_dbos_python
from bench.figures import Figure, Say, alternate, median_of
from bench.pgbench import prepare_pgbench, run_pgbench
from bench.recovering import recover_in_process
from bench.scratch import Scratch, scratch_database
from bench.shop_calls import CALLS_AT_ONCE, FURTHER_CALLS_AT_ONCE, LATENCY_MS, ORDERS, measure_calls

FIGURES = ("dbos_ratio", "pgbench_ratio", "peak_mb", "peak_growth", "find_growth", "call_efficiency")
CHECKOUTS, CHECKOUTS_MANY = 20_000, 100_000
TRANSITIONS_PER_CHECKOUT = 3  # reserved, shipping, completed
CONNECTIONS = 4  # of one recovering process, at most; pgbench gets as many
# Three claims of 500 are under way at once and a no-op calls nobody: the bound is for those who wait for an answer.
NO_OP_CALLS_AT_ONCE = 1_500
# It is a rate, and with 8,000 it is the same: see RESULTS.md.
DBOS_CHECKOUTS = 2_000
# The fastest that was found for two cores, of threads, processes, synchronous and async: see RESULTS.md.
DBOS_OPTIONS = ("--recover", "--stuck-in", "reserve", "--processes", "2", "--threads", "4")


def measure(admin_url: str, jobs_url: str, home: Path, *, runs: int, only: Sequence[str], say: Say) -> list[Figure]:
    """The figures asked for, each from ``runs`` alternating runs."""
    figures = []
    if "dbos_ratio" in only:
        figures.append(measure_dbos(admin_url, jobs_url, home, runs, say))
    if "pgbench_ratio" in only:
        figures.append(measure_pgbench(admin_url, jobs_url, runs, say))
    if "peak_mb" in only or "peak_growth" in only:
        figures += [figure for figure in measure_peak(admin_url, jobs_url, runs, say) if figure.name in only]
    if "find_growth" in only:
        figures.append(measure_find(admin_url, jobs_url, runs, say))
    if "call_efficiency" in only:
        figures.append(measure_efficiency(admin_url, jobs_url, runs, say))
    return figures


def measure_dbos(admin_url: str, jobs_url: str, home: Path, runs: int, say: Say) -> Figure:
    say("dbos_ratio: stuck checkouts recovered per second, makegood and DBOS Transact")
    python = ensure_dbos_python(home / "bench-venv")
    with scratch_database(admin_url, jobs_url) as scratch:
        pairs = alternate(
            runs,
            lambda: recover_per_second(scratch, CHECKOUTS),
            lambda: run_dbos(python, scratch, DBOS_CHECKOUTS, *DBOS_OPTIONS),
            say,
        )
    facts = {
        "makegood_per_second": median_of(pairs, 0),
        "dbos_per_second": median_of(pairs, 1),
        "makegood_workflows": CHECKOUTS,
        "dbos_workflows": DBOS_CHECKOUTS,
        "dbos_options": " ".join(DBOS_OPTIONS),
    }
    says = "stuck checkouts recovered per second over DBOS Transact's"
    return Figure("dbos_ratio", says, [a / b for a, b in pairs], "at least", 20, facts)


def measure_pgbench(admin_url: str, jobs_url: str, runs: int, say: Say) -> Figure:
    say("pgbench_ratio: committed transitions per second, makegood's recovery and pgbench")
    with scratch_database(admin_url, jobs_url) as scratch:
        prepare_pgbench(scratch)
        pairs = alternate(
            runs,
            lambda: recover_per_second(scratch, CHECKOUTS) * TRANSITIONS_PER_CHECKOUT,
            lambda: run_pgbench(scratch, CONNECTIONS),
            say,
        )
    facts = {
        "makegood_per_second": median_of(pairs, 0),
        "pgbench_per_second": median_of(pairs, 1),
        "connections": CONNECTIONS,
    }
    says = "committed transitions per second of a recovery over pgbench's guarded update + insert + commit"
    return Figure("pgbench_ratio", says, [a / b for a, b in pairs], "at least", 0.5, facts)


def measure_peak(admin_url: str, jobs_url: str, runs: int, say: Say) -> list[Figure]:
    say(f"peak_mb, peak_growth: resident memory with {CHECKOUTS_MANY:,} stuck checkouts, and with {CHECKOUTS:,}")
    with scratch_database(admin_url, jobs_url) as scratch:
        pairs = alternate(
            runs,
            lambda: recover_peak_mb(scratch, CHECKOUTS_MANY),
            lambda: recover_peak_mb(scratch, CHECKOUTS),
            say,
        )
    facts = {"with_many_mb": median_of(pairs, 0), "with_few_mb": median_of(pairs, 1)}
    amount = f"peak resident memory in MB of a process that recovers {CHECKOUTS:,} checkouts"
    growth = f"the same with {CHECKOUTS_MANY:,}, over with {CHECKOUTS:,}"
    return [
        Figure("peak_mb", amount, [few for _, few in pairs], "at most", 300, facts),
        Figure("peak_growth", growth, [many / few for many, few in pairs], "at most", 1.15, facts),
    ]


def measure_find(admin_url: str, jobs_url: str, runs: int, say: Say) -> Figure:
    say(f"find_growth: milliseconds to find and claim {STUCK} beside {MANY:,} finished rows, and beside {FEW:,}")
    with scratch_database(admin_url, jobs_url) as many, scratch_database(admin_url, jobs_url) as few:
        say(f"  writing {MANY:,} and {FEW:,} finished rows …")
        fill(many, MANY)
        fill(few, FEW)
        pairs = alternate(
            runs, lambda: take_milliseconds(many, find=True), lambda: take_milliseconds(few, find=True), say
        )
    facts = {"beside_many_ms": median_of(pairs, 0), "beside_few_ms": median_of(pairs, 1)}
    says = f"finding and claiming {STUCK} stuck rows beside {MANY:,} finished ones, over beside {FEW:,}"
    return Figure("find_growth", says, [a / b for a, b in pairs], "at most", 1.3, facts)


def measure_efficiency(admin_url: str, jobs_url: str, runs: int, say: Say) -> Figure:
    say(f"call_efficiency: calls per second through a shop of {LATENCY_MS} ms, and what {CALLS_AT_ONCE} at once allow")
    with scratch_database(admin_url, jobs_url) as scratch:
        pairs = measure_calls(scratch, runs, say)
        further = {}
        for bound in FURTHER_CALLS_AT_ONCE:
            say(f"  the same with {bound} at once")
            more = measure_calls(scratch, runs, say, calls_at_once=bound)
            further[str(bound)] = round(statistics.median(made / allowed for made, allowed in more), 3)
    facts = {
        "calls_per_second": median_of(pairs, 0),
        "allowed_per_second": median_of(pairs, 1),
        "calls_at_once": CALLS_AT_ONCE,
        "latency_ms": LATENCY_MS,
        "orders": ORDERS,
        "with_more_at_once": further,
    }
    says = "calls per second of a recovery over what the bound on simultaneous calls allows"
    return Figure("call_efficiency", says, [a / b for a, b in pairs], "at least", 0.9, facts)


def recover_per_second(scratch: Scratch, count: int) -> float:
    leave_stuck(scratch, count)
    return count / recover_in_process(scratch, count, calls_at_once=NO_OP_CALLS_AT_ONCE).seconds


def recover_peak_mb(scratch: Scratch, count: int) -> float:
    leave_stuck(scratch, count)
    return recover_in_process(scratch, count, calls_at_once=NO_OP_CALLS_AT_ONCE).peak_mb
