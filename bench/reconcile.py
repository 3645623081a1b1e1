"""The reconciliation's figures, over ledgers with planted discrepancies (1 % broken, 2 % sound but not plain).

full_vs_join        a full run of 2 million orders and charges to findings written, over the bare FULL JOIN count of
                    the two tables, with the same working memory
pandas_ratio        the time of pandas doing the same by `read_sql` and merges (comparing_pandas.py), over a full run's:
                    every verdict with its amount at risk, currency and remedy, from the same tables into a table
datacompy_ratio     the time of datacompy reading both sides, comparing them by payment and writing the rows that differ
                    (comparing_datacompy.py), over a full run's; it can do no more
peak_mb             the most memory our process had resident in that full run
incremental_growth  an incremental run with 10 thousand changed orders beside 10 million, over beside 100 thousand
incremental_share   an incremental run with 1 % changed, over a full run's time
sync_efficiency     pages per second of a fetch, over what the shop can serve within the allowed rate
ten_million         a full run of 10 million by 10 million completes: its minutes, with what the server used beside it

A run that misses or invents a single planted discrepancy is void, ours and pandas' alike. pandas was once asked six
questions about amounts only, and charges were joined by payment only; that was not the same, and could not be checked.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg

from bench.environments import ensure_datacompy_python
from bench.figures import Figure, Say, alternate, median_of
from bench.matching import Run, match_in_process
from bench.scratch import Scratch, scratch_database, to_url
from bench.syncing import CHARGES, measure_sync
from makegood.errors import ConfigurationError
from makegood.reconciliation.terms import Terms
from prover.ledgers import rows
from prover.ledgers.comparing import count_differences_in_many
from prover.ledgers.loading import set_watermark
from prover.ledgers.many import plant_many
from prover.ledgers.proof import to_terms

FIGURES = (
    "full_vs_join",
    "pandas_ratio",
    "datacompy_ratio",
    "peak_mb",
    "incremental_growth",
    "incremental_share",
    "sync_efficiency",
    "ten_million",
)
ORDERS, HISTORY, FEW, HUGE = 2_000_000, 10_000_000, 100_000, 10_000_000
CHANGED, SHARE = 10_000, 0.01
JOIN = "SELECT count(*) FROM makegood.orders o FULL JOIN makegood.provider_charges c ON c.payment_ref = o.payment_ref"
WORK_MEM = "SET work_mem = '128MB'"  # as the matcher has it
TOUCHED = """
CREATE TEMPORARY TABLE touched ON COMMIT DROP AS
SELECT payment_ref FROM makegood.orders WHERE payment_ref IS NOT NULL ORDER BY ctid DESC LIMIT %s
"""
TOUCH_ORDERS = """
UPDATE makegood.orders o SET changed_xid = pg_current_xact_id() FROM touched t WHERE o.payment_ref = t.payment_ref
"""
TOUCH_CHARGES = """
UPDATE makegood.provider_charges c SET changed_xid = pg_current_xact_id()
  FROM touched t WHERE c.payment_ref = t.payment_ref
"""
WITH_ALL = ("full_vs_join", "pandas_ratio", "datacompy_ratio", "peak_mb", "incremental_share")


def measure(admin_url: str, jobs_url: str, home: Path, *, runs: int, only: Sequence[str], say: Say) -> list[Figure]:
    """The figures asked for, each from ``runs`` alternating runs."""
    figures: list[Figure] = []
    if set(WITH_ALL) & set(only):
        with scratch_database(admin_url, jobs_url) as scratch:
            say(f"planting {ORDERS:,} orders and charges …")
            terms = plant(scratch, ORDERS)
            figures += measure_full(scratch, terms, home, runs, only, say)
    if "incremental_growth" in only:
        figures.append(measure_growth(admin_url, jobs_url, runs, say))
    if "sync_efficiency" in only:
        figures.append(measure_efficiency(admin_url, jobs_url, runs, say))
    if "ten_million" in only:
        figures.append(measure_huge(admin_url, jobs_url, say))
    return figures


def plant(scratch: Scratch, orders: int) -> Terms:
    with psycopg.connect(scratch.admin_url, autocommit=True) as connection:
        watermark = fetch_one(connection, "SELECT clock_timestamp()")
        assert isinstance(watermark, datetime)
        set_watermark(connection, watermark)
        planted = rows.Terms()
        plant_many(connection, orders, 1, watermark, planted)
    return to_terms(planted)


def measure_full(scratch: Scratch, terms: Terms, home: Path, runs: int, only: Sequence[str], say: Say) -> list[Figure]:
    done: list[Run] = []

    def full() -> float:
        forget(scratch)
        done.append(match_in_process(scratch, "full", terms))
        check(scratch)
        return done[-1].seconds * 1000

    figures: list[Figure] = []
    say("full_vs_join: milliseconds of a full run, and of the bare join")
    pairs = alternate(runs, full, lambda: join_milliseconds(scratch), say)
    facts = {"full_ms": median_of(pairs, 0), "join_ms": median_of(pairs, 1), "orders": ORDERS, "found": done[-1].opened}
    says = f"a full run of {ORDERS:,} orders and charges to findings written, over the bare FULL JOIN count"
    figures.append(Figure("full_vs_join", says, [a / b for a, b in pairs], "at most", 2, facts))
    says = "peak resident memory in MB of the process that runs it"
    figures.append(Figure("peak_mb", says, [one.peak_mb for one in done], "at most", 300))
    limits = {"pandas": 20, "datacompy": 8}
    for tool in [name for name in limits if f"{name}_ratio" in only]:
        say(f"{tool}_ratio: milliseconds of a full run, and of {tool}")
        theirs: list[dict[str, float]] = []

        def elsewhere(tool: str = tool, theirs: list[dict[str, float]] = theirs) -> float:
            theirs.append(run_elsewhere(home, tool, scratch, terms))
            return theirs[-1]["seconds"] * 1000

        pairs = alternate(min(runs, 3), full, elsewhere, say)
        facts = {
            "full_ms": median_of(pairs, 0), f"{tool}_ms": median_of(pairs, 1), f"{tool}_found": theirs[-1]["found"],
            f"{tool}_peak_mb": max(one["peak_mb"] for one in theirs),
        }  # fmt: skip
        says = f"{tool} end to end, over a full run"
        figures.append(Figure(f"{tool}_ratio", says, [b / a for a, b in pairs], "at least", limits[tool], facts))
    if "incremental_share" in only:
        figures.append(measure_share(scratch, terms, runs, full, say))
    return [figure for figure in figures if figure.name in only]


def measure_share(scratch: Scratch, terms: Terms, runs: int, full: Any, say: Say) -> Figure:
    changed = int(ORDERS * SHARE)
    say(f"incremental_share: milliseconds of a run with {changed:,} changed orders, and of a full run")

    def incremental() -> float:
        touch(scratch, changed)
        return match_in_process(scratch, "incremental", terms).seconds * 1000

    full()
    pairs = alternate(runs, incremental, full, say)
    facts = {"incremental_ms": median_of(pairs, 0), "full_ms": median_of(pairs, 1), "changed": changed}
    says = "an incremental run with 1 % changed, over a full run"
    return Figure("incremental_share", says, [a / b for a, b in pairs], "at most", 0.03, facts)


def measure_growth(admin_url: str, jobs_url: str, runs: int, say: Say) -> Figure:
    say(f"incremental_growth: milliseconds with {CHANGED:,} changed orders beside {HISTORY:,}, and beside {FEW:,}")
    with scratch_database(admin_url, jobs_url) as many, scratch_database(admin_url, jobs_url) as few:
        terms = [(scratch, plant(scratch, orders)) for scratch, orders in ((many, HISTORY), (few, FEW))]
        for scratch, its in terms:
            match_in_process(scratch, "full", its)

        def incremental(scratch: Scratch, its: Terms) -> float:
            touch(scratch, CHANGED)
            return match_in_process(scratch, "incremental", its).seconds * 1000

        (beside_many, beside_few) = terms
        incremental(*beside_many), incremental(*beside_few)
        pairs = alternate(runs, lambda: incremental(*beside_many), lambda: incremental(*beside_few), say)
    facts = {"beside_many_ms": median_of(pairs, 0), "beside_few_ms": median_of(pairs, 1), "changed": CHANGED}
    says = f"an incremental run with {CHANGED:,} changed orders beside {HISTORY:,}, over beside {FEW:,}"
    return Figure("incremental_growth", says, [a / b for a, b in pairs], "at most", 1.3, facts)


def measure_efficiency(admin_url: str, jobs_url: str, runs: int, say: Say) -> Figure:
    say("sync_efficiency: pages per second as fetched, and as the shop and the rate allow")
    with scratch_database(admin_url, jobs_url) as scratch:
        pairs = measure_sync(scratch, runs, say)
    facts = {"fetched_per_second": median_of(pairs, 0), "allowed_per_second": median_of(pairs, 1), "charges": CHARGES}
    says = "pages per second of a fetch, over what the shop can serve within the allowed rate"
    return Figure("sync_efficiency", says, [a / b for a, b in pairs], "at least", 0.8, facts)


def measure_huge(admin_url: str, jobs_url: str, say: Say) -> Figure:
    say(f"ten_million: minutes of a full run of {HUGE:,} by {HUGE:,}")
    with scratch_database(admin_url, jobs_url) as scratch:
        terms = plant(scratch, HUGE)
        done = match_in_process(scratch, "full", terms)
        check(scratch)
        join_ms = join_milliseconds(scratch)
        with psycopg.connect(scratch.admin_url, autocommit=True) as connection:
            size = fetch_one(connection, "SELECT pg_database_size(current_database()) / 1048576")
    facts = {
        "peak_mb": round(done.peak_mb, 1), "found": done.opened, "over_join": round(done.seconds * 1000 / join_ms, 2),
        "database_mb": int(size),
    }  # fmt: skip
    return Figure("ten_million", "minutes of a full run", [done.seconds / 60], "at most", 60, facts)


def touch(scratch: Scratch, count: int) -> None:
    """The orders of an hour are placed, paid and fulfilled: both sides of so many pairs were written since."""
    with psycopg.connect(scratch.admin_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE makegood.orders DISABLE TRIGGER orders_stamp_change")
        with connection.transaction():
            connection.execute(TOUCHED, (count,))
            connection.execute(TOUCH_ORDERS)
            connection.execute(TOUCH_CHARGES)
        connection.execute("ALTER TABLE makegood.orders ENABLE ALWAYS TRIGGER orders_stamp_change")
        connection.execute("VACUUM ANALYZE makegood.orders, makegood.provider_charges")


def forget(scratch: Scratch) -> None:
    """As if no run had been: every full run writes all its findings."""
    with psycopg.connect(scratch.admin_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE makegood.reconciliation_history DISABLE TRIGGER ALL")
        connection.execute("TRUNCATE makegood.reconciliation_runs, makegood.reconciliation_findings,"
                           " makegood.reconciliation_units CASCADE")  # fmt: skip


def check(scratch: Scratch) -> None:
    with psycopg.connect(scratch.admin_url, autocommit=True) as connection:
        refuse(count_differences_in_many(connection))


def refuse(differences: dict[str, int]) -> None:
    if differences["wrong"] or differences["absent"]:
        raise ConfigurationError(f"the run found something else than was planted: {differences}; it is void")


def join_milliseconds(scratch: Scratch) -> float:
    with psycopg.connect(scratch.jobs_url, autocommit=True) as connection:
        connection.execute(WORK_MEM)
        began = time.perf_counter()
        connection.execute(JOIN)
        return (time.perf_counter() - began) * 1000


def run_elsewhere(home: Path, tool: str, scratch: Scratch, terms: Terms) -> dict[str, float]:
    """Seconds, peak memory and how much was found. pandas is the newest, ours; datacompy takes an older one with it."""
    python = ensure_datacompy_python(home / "bench-datacompy") if tool == "datacompy" else sys.executable
    url = to_url(scratch.jobs_url).replace("postgresql://", "postgresql+psycopg://", 1)
    script = str(Path(__file__).with_name("comparing.py"))
    lay_out_elsewhere(scratch)
    command = [str(python), script, tool, url, "elsewhere.findings", json.dumps(terms.to_document())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigurationError(f"{tool} did not run: {done.stderr.strip()[-500:]}")
    if tool == "pandas":
        check_elsewhere(scratch)
    said: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return said


def lay_out_elsewhere(scratch: Scratch) -> None:
    """A schema of its own for what others find, empty."""
    with psycopg.connect(scratch.admin_url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS elsewhere CASCADE")
        connection.execute("CREATE SCHEMA elsewhere")
        connection.execute("GRANT ALL ON SCHEMA elsewhere TO makegood_jobs")


def check_elsewhere(scratch: Scratch) -> None:
    """By the same question as ours, and nothing twice."""
    with psycopg.connect(scratch.admin_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE elsewhere.findings ADD PRIMARY KEY (unit)")
        refuse(count_differences_in_many(connection, "SELECT * FROM elsewhere.findings"))


def fetch_one(connection: psycopg.Connection[Any], statement: str) -> Any:
    row = connection.execute(statement).fetchone()
    return row[0] if row else None
