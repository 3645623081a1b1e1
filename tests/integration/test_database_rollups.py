"""Counts are those of the rows, whatever order transactions commit in and wherever counting is killed."""

from __future__ import annotations

import contextlib
import math
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from database_worker import Worker, open_database
from psycopg.conninfo import conninfo_to_dict

from makegood.local.postgres import EmbeddedPostgres
from makegood.migrations import sql_folder

PERIODS = {900: 60, 3600: 120, 21600: 900, 86400: 3600, 604800: 21600, 2592000: 86400, 7776000: 259200}
# The published queries, for any period: what a look at all the rows says.
ENDS = """
SELECT workflow_type, current_state AS state, count(*) AS ended,
       array_agg(extract(epoch FROM finished_at - created_at)::float8 ORDER BY finished_at - created_at) AS seconds
  FROM makegood.workflow_executions, makegood.rollup_period(%(period)s) AS p
 WHERE finished_at >= p.since GROUP BY 1, 2
"""
ATTEMPTS = """
SELECT a.step, a.kind, count(*) AS attempts, count(*) FILTER (WHERE outcome = 'failed') AS failed,
       count(*) FILTER (WHERE outcome = 'unknown') AS unknown
  FROM makegood.step_attempts a, makegood.rollup_period(%(period)s) AS p
 WHERE started_at >= p.since AND outcome IS NOT NULL GROUP BY 1, 2
"""
STUCK = """
WITH spans AS MATERIALIZED (
  SELECT t.transitioned_at + interval '5 minutes' AS became, coalesce(n.transitioned_at, 'infinity') AS moved
    FROM makegood.workflow_transitions t
    LEFT JOIN makegood.workflow_transitions n ON n.workflow_id = t.workflow_id AND n.seq = t.seq + 1
   WHERE t.to_state NOT IN ('completed', 'failed', 'compensated')
     AND coalesce(n.transitioned_at, 'infinity') > t.transitioned_at + interval '5 minutes')
SELECT k.slice, count(s.became) AS stuck
  FROM makegood.rollup_period(%(period)s) AS p CROSS JOIN makegood.metric_stuck(%(period)s, %(slice)s) AS k
  LEFT JOIN spans s ON s.became < greatest(k.slice, p.since) AND s.moved >= greatest(k.slice, p.since)
 GROUP BY 1
"""
WAYS = {
    "completed": ("created", "charging", "charged", "reserving", "reserved", "shipping", "completed"),
    "failed": ("created", "charging", "failed"),
    "compensated": ("created", "charging", "charged", "compensating", "compensated"),
    "reserving": ("created", "charging", "charged", "reserving"),
}
EXECUTION = """
INSERT INTO makegood.workflow_executions (id, workflow_type, entity_id, current_state, created_at, updated_at,
  next_attempt_at, deadline_at, finished_at, last_seq, start_hash)
VALUES (%(id)s, 'checkout', %(name)s, %(state)s, now() - %(ages)s[1] * interval '1 s',
        now() - %(last)s * interval '1 s', now(), now(),
        CASE WHEN %(ended)s THEN now() - %(last)s * interval '1 s' END, %(hops)s, '')
"""
CHAIN = """
INSERT INTO makegood.workflow_transitions (workflow_id, entity_id, seq, from_state, to_state, triggered_by,
  transitioned_at)
SELECT %(id)s, %(name)s, n, (%(states)s::text[])[n - 1], (%(states)s::text[])[n], 'test',
       now() - (%(ages)s::float8[])[n] * interval '1 s'
  FROM generate_series(1, %(hops)s) AS n
"""
ATTEMPT = """
INSERT INTO makegood.step_attempts (workflow_id, step, kind, attempt, outcome, error_type, started_at, finished_at,
  worker)
VALUES (%(id)s, %(step)s, %(kind)s, %(attempt)s, %(outcome)s,
        CASE WHEN %(outcome)s::text IN ('failed', 'unknown') THEN 'Timeout' END, now() - %(age)s * interval '1 s',
        CASE WHEN %(outcome)s::text IS NOT NULL THEN now() END, 'test')
"""
CLOSE = """
UPDATE makegood.step_attempts SET outcome = 'unknown', error_type = 'Timeout', finished_at = now() WHERE outcome IS NULL
"""


@pytest.fixture
def url(server: EmbeddedPostgres) -> Iterator[str]:
    with open_database(server) as name:
        url = server.url("postgres", name)
        with Worker(url) as admin:
            admin.register()
        yield url


@pytest.fixture
def admin(url: str) -> Iterator[Worker]:
    with Worker(url) as worker:
        yield worker


def write(worker: Worker, name: str, chance: random.Random) -> None:
    """One whole order, begun at any time in a hundred days, in the caller's transaction if there is one."""
    end = chance.choice(["completed"] * 6 + ["failed", "compensated", "reserving"])
    states = list(WAYS[end])
    begun = math.exp(chance.uniform(math.log(2), math.log(100 * 86400)))  # seconds ago
    pauses = sorted((chance.random() ** 4 for _ in states), reverse=True)
    ages = [begun * pause / pauses[0] for pause in pauses]
    identity = worker.row("SELECT makegood.new_id() AS id")["id"]
    about = {"id": identity, "name": name, "state": end, "ages": ages, "last": ages[-1], "ended": end != "reserving",
             "hops": len(states), "states": states}  # fmt: skip
    with worker.connection.transaction():
        worker.connection.execute(EXECUTION, about)
        worker.connection.execute(CHAIN, about)
        for step, kind in (("charge", "forward"), ("reserve", "forward"), ("charge", "compensation")):
            for attempt in range(1, chance.randint(1, 3)):
                outcome = chance.choice(["success", "success", "failed", "unknown", None])
                call = {"id": identity, "step": step, "kind": kind, "attempt": attempt, "outcome": outcome}
                worker.connection.execute(ATTEMPT, {**call, "age": chance.uniform(0, begun)})


def roll(worker: Worker, batch: int = 10_000) -> int:
    """All that can be counted now."""
    counted = 0
    while some := worker.row("SELECT makegood.roll_up(%s) AS n", batch)["n"]:
        counted += some
        if some < batch:
            break
    return counted


def middle(cell: int) -> float:
    return 0.0005 if cell == 0 else 0.001 * 1.04 ** (cell - 0.5)


def assert_exact(worker: Worker) -> None:
    """Every period, as counts and open rows together say, and as all the rows say: one snapshot for both."""
    for period, slice_ in PERIODS.items():
        with worker.connection.transaction():
            worker.rows("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            about = {"period": period, "slice": slice_}
            ends = worker.connection.execute("SELECT * FROM makegood.metric_ends(%(period)s, %(slice)s)", about)
            assert_ends(ends.fetchall(), worker.connection.execute(ENDS, about).fetchall())
            tries = "SELECT step, kind, sum(attempts) AS attempts, sum(failed) AS failed, sum(unknown) AS unknown"
            tries += " FROM makegood.metric_attempts(%(period)s, %(slice)s) GROUP BY 1, 2"
            assert as_set(worker.connection.execute(tries, about)) == as_set(worker.connection.execute(ATTEMPTS, about))
            stuck = worker.connection.execute("SELECT * FROM makegood.metric_stuck(%(period)s, %(slice)s)", about)
            assert as_set(stuck) == as_set(worker.connection.execute(STUCK, about)), period


def as_set(rows: Any) -> set[tuple[Any, ...]]:
    return {tuple(row.values()) for row in rows}


def assert_ends(counted: list[dict[str, Any]], plain: list[dict[str, Any]]) -> None:
    for row in plain:
        own = [found for found in counted if found["state"] == row["state"]]
        assert sum(found["ended"] for found in own) == row["ended"]
        cells = [c for found in own for c, n in zip(found["cells"], found["counts"], strict=True) for _ in range(n)]
        assert len(cells) == row["ended"]
        for cell, seconds in zip(sorted(cells), row["seconds"], strict=True):
            assert middle(cell) == pytest.approx(seconds, rel=0.0199, abs=0.0006)
    assert {found["state"] for found in counted} == {row["state"] for row in plain}


@pytest.mark.parametrize("seed", range(3))
def test_counts_of_transactions_that_commit_in_any_order_are_those_of_the_rows(
    admin: Worker, url: str, seed: int
) -> None:
    """Eight writers at once, counting between any two of their steps; late rows, late answers, small batches."""
    chance = random.Random(seed)
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(Worker(url)) for _ in range(8)]
        under_way: dict[int, Any] = {}
        for number in range(160):
            writer = chance.randrange(8)
            if writer not in under_way:
                under_way[writer] = writers[writer].connection.transaction()
                under_way[writer].__enter__()
            write(writers[writer], f"order-{number}", chance)
            if chance.random() < 0.4:
                error = RuntimeError() if chance.random() < 0.2 else None  # some give up
                under_way.pop(writer).__exit__(type(error) if error else None, error, None)
            if chance.random() < 0.2:
                admin.row("SELECT makegood.roll_up(%s) AS n", chance.randint(1, 20))
            if chance.random() < 0.1:
                admin.rows(CLOSE)
            if number % 40 == 39:
                assert_exact(admin)
        for transaction in under_way.values():
            transaction.__exit__(None, None, None)
    assert_exact(admin)
    roll(admin, batch=7)
    admin.rows(CLOSE)
    assert_exact(admin)
    roll(admin)
    assert_exact(admin)
    assert tail(admin) == 0
    assert (
        counted(admin)
        == admin.row("SELECT count(*) AS n FROM makegood.workflow_executions WHERE finished_at IS NOT NULL")["n"]
    )


def tail(worker: Worker) -> int:
    return int(worker.row("SELECT count(*) AS n FROM makegood.rollup_tail()")["n"])


def counted(worker: Worker, unit: str = "day") -> int:
    return int(worker.row("SELECT coalesce(sum(ended), 0) AS n FROM makegood.rollup_ends WHERE unit = %s", unit)["n"])


def test_transaction_that_stays_open_is_not_passed_over_by_later_ones(admin: Worker, url: str) -> None:
    """Its number and its times are older than what is committed and counted meanwhile."""
    chance = random.Random(1)
    with Worker(url) as slow, slow.connection.transaction():
        write(slow, "slow", chance)
        for number in range(20):
            write(admin, f"order-{number}", chance)
        assert roll(admin) == 0  # all of them are younger than it: none is final yet
        assert_exact(admin)
    assert roll(admin) == tail_before(admin, 21)
    assert_exact(admin)
    assert tail(admin) == 0


def tail_before(worker: Worker, orders: int) -> int:
    """All ended ones; some of the orders have not ended."""
    found = worker.row("SELECT count(*) AS n, count(finished_at) AS ended FROM makegood.workflow_executions")
    assert found["n"] == orders
    return int(found["ended"])


def test_reader_that_stays_open_holds_up_nothing(admin: Worker, url: str) -> None:
    chance = random.Random(2)
    with Worker(url) as reader, reader.connection.transaction():
        reader.rows("SELECT count(*) FROM makegood.workflow_executions")
        for number in range(10):
            write(admin, f"order-{number}", chance)
        assert roll(admin) > 0
        assert tail(admin) == 0


def test_counting_that_is_killed_anywhere_counts_nothing_twice_and_misses_nothing(admin: Worker, url: str) -> None:
    """Between batches, within one, and before its commit: what was not committed never was."""
    chance = random.Random(3)
    for number in range(60):
        write(admin, f"order-{number}", chance)
    for _ in range(6):
        with Worker(url) as doomed:
            doomed.row("SELECT makegood.roll_up(5) AS n")  # one batch is committed
            with contextlib.suppress(psycopg.OperationalError), doomed.connection.transaction():
                doomed.row("SELECT makegood.roll_up(5) AS n")
                admin.rows("SELECT pg_terminate_backend(%s)", doomed.connection.info.backend_pid)
                doomed.row("SELECT makegood.roll_up(5) AS n")
        assert_exact(admin)
    roll(admin)
    assert_exact(admin)
    assert counted(admin) == counted(admin, "hour") == counted(admin, "minute") == tail_before(admin, 60)


def test_counting_at_once_and_twice_counts_once(admin: Worker, url: str) -> None:
    chance = random.Random(4)
    for number in range(80):
        write(admin, f"order-{number}", chance)
    sums: list[int] = []

    def count() -> None:
        with Worker(url) as worker:
            for _ in range(30):
                sums.append(worker.row("SELECT makegood.roll_up(3) AS n")["n"] or 0)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    roll(admin)
    assert_exact(admin)
    assert sum(sums) <= counted(admin) == tail_before(admin, 80)
    assert roll(admin) == 0


def test_second_of_two_at_once_does_not_wait(admin: Worker, url: str) -> None:
    with Worker(url) as first, first.connection.transaction():
        first.row("SELECT makegood.roll_up() AS n")
        begin = time.monotonic()
        assert admin.row("SELECT makegood.roll_up() AS n")["n"] is None
        assert time.monotonic() - begin < 5


def test_guard_is_the_row_and_not_the_advisory_lock(admin: Worker, url: str) -> None:
    """Somebody who takes another key for the lock would still have to wait for the position."""
    with Worker(url) as first, Worker(url) as second, first.connection.transaction():
        first.row("SELECT makegood.roll_up() AS n")
        second.rows("SET lock_timeout = '200ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            second.rows("SELECT * FROM makegood.rollup_position FOR UPDATE")


def test_answer_that_comes_after_its_order_was_counted_is_counted_once(admin: Worker) -> None:
    """A worker that lost its lease writes what it knows, long after the order has ended elsewhere."""
    chance = random.Random(5)
    for number in range(30):
        write(admin, f"order-{number}", chance)
    roll(admin)
    assert admin.row("SELECT count(*) > 0 AS some FROM makegood.rollup_open_attempts")["some"]
    assert_exact(admin)
    admin.rows(CLOSE)
    assert_exact(admin)  # read from the row
    roll(admin)
    assert_exact(admin)  # counted
    assert admin.row("SELECT count(*) AS n FROM makegood.rollup_open_attempts")["n"] == 0


def test_late_answer_waits_for_the_last_batch_of_a_round_and_is_read_meanwhile(admin: Worker) -> None:
    """What a killed worker left open is looked at one by one, so not with each of many batches."""
    chance = random.Random(7)
    for number in range(30):
        write(admin, f"order-{number}", chance)
    roll(admin)
    admin.rows(CLOSE)
    for number in range(30, 40):
        write(admin, f"order-{number}", chance)
    waiting = "SELECT count(*) FILTER (WHERE a.outcome IS NOT NULL) AS n FROM makegood.rollup_open_attempts AS o"
    waiting += " JOIN makegood.step_attempts AS a USING (workflow_id, kind, step, attempt)"
    assert admin.row("SELECT makegood.roll_up(3) AS n")["n"] == 3  # a full batch: more is to come
    assert admin.row(waiting)["n"] > 0
    assert_exact(admin)
    roll(admin, 3)
    assert admin.row(waiting)["n"] == 0
    assert_exact(admin)


AHEAD = "UPDATE makegood.rollup_position SET server = server + 1, xact = '999999999999', transition_id = 999999999"


@pytest.mark.parametrize("steps_down", [False, True])
def test_restored_database_is_counted_anew_by_a_job_and_never_by_who_only_looks(
    admin: Worker, url: str, server: EmbeddedPostgres, steps_down: bool
) -> None:
    """Counting anew locks the table of transitions: for a job that is a moment, for a look at a page it is too much."""
    chance = random.Random(12)
    for number in range(10):
        write(admin, f"order-{number}", chance)
    roll(admin)
    admin.rows(AHEAD)
    before = admin.row("SELECT * FROM makegood.rollup_position")
    table = "SELECT pg_relation_filenode('makegood.workflow_transitions_ends') AS file"
    file = admin.row(table)
    role = "postgres" if steps_down else "makegood_read"
    with Worker(server.url(role, conninfo_to_dict(url)["dbname"])) as viewer:
        if steps_down:  # a login that may more, as the dashboard uses it
            viewer.rows("SET ROLE makegood_read")
        assert viewer.row("SELECT makegood.roll_up() AS n")["n"] is None
    assert admin.row("SELECT * FROM makegood.rollup_position") == before
    assert admin.row(table) == file
    with Worker(server.url("makegood_jobs", conninfo_to_dict(url)["dbname"])) as job:
        assert job.row("SELECT makegood.roll_up() AS n")["n"] == counted(admin)
    assert_exact(admin)


def test_database_restored_on_another_server_is_counted_anew(admin: Worker) -> None:
    """There the stored numbers of transactions mean nothing: they may be far ahead of its own."""
    chance = random.Random(6)
    for number in range(30):
        write(admin, f"order-{number}", chance)
    roll(admin)
    admin.rows(AHEAD)
    for number in range(30, 40):
        write(admin, f"order-{number}", chance)
    roll(admin, batch=9)
    assert_exact(admin)
    assert counted(admin) == tail_before(admin, 40)
    write(admin, "after", chance)
    roll(admin)
    assert_exact(admin)


def test_counts_nobody_asks_for_are_forgotten_and_no_period_changes(admin: Worker) -> None:
    chance = random.Random(7)
    for number in range(60):
        write(admin, f"order-{number}", chance)
    roll(admin)
    while admin.row("SELECT makegood.tidy_rollups(20) AS n")["n"]:
        pass
    assert_exact(admin)
    old = "unit = 'minute' AND began_at < now() - interval '49 hours'"
    assert admin.row(f"SELECT count(*) AS n FROM makegood.rollup_ends WHERE {old}")["n"] == 0
    assert counted(admin) == tail_before(admin, 60)


def test_counts_of_one_type_are_its_own(admin: Worker) -> None:
    chance = random.Random(8)
    for number in range(20):
        write(admin, f"order-{number}", chance)
    for _ in range(2):
        both = [as_list(admin, "metric_ends", kind) for kind in (None, "checkout")]
        assert sorted(both[0]) == sorted(both[1]) != []
        for name in ("metric_ends", "metric_attempts"):
            assert as_list(admin, name, "errand") == []
        roll(admin)


def as_list(worker: Worker, name: str, kind: str | None) -> list[str]:
    what = "t.state, t.ended" if name == "metric_ends" else "t.step, t.kind, t.attempts"
    rows = worker.connection.execute(
        f"SELECT (t.slice, {what})::text AS t FROM makegood.{name}(7776000, 259200, %s) AS t", (kind,)
    )  # type: ignore[arg-type]
    return [row["t"] for row in rows]


@pytest.mark.parametrize("seconds", [0.0, 0.0004, 0.001, 0.00101, 0.0399, 1, 59.9, 3600, 86400 * 30, 86400 * 4000])
def test_cell_is_within_two_percent_of_what_is_in_it(admin: Worker, seconds: float) -> None:
    cell = admin.row("SELECT makegood.duration_cell(%s * interval '1 second') AS cell", seconds)["cell"]
    assert middle(cell) == pytest.approx(seconds, rel=0.0199, abs=0.0006)


def test_percentile_of_the_cells_is_within_two_percent_of_the_published_one(admin: Worker) -> None:
    from dashboard.rollups import find_percentile

    chance = random.Random(9)
    for number in range(150):
        write(admin, f"order-{number}", chance)
    roll(admin)
    (plain,) = (
        row
        for row in admin.rows(
            (sql_folder() / "queries" / "duration.sql").read_text().replace("FROM ", "FROM makegood.")
        )
        if row["current_state"] == "completed"
    )
    rows = admin.rows("SELECT * FROM makegood.metric_ends(86400, 3600)")
    cells: dict[int, int] = {}
    for row in rows:
        if row["state"] == "completed":
            for cell, n in zip(row["cells"], row["counts"], strict=True):
                cells[cell] = cells.get(cell, 0) + n
    assert sum(cells.values()) == plain["workflows"]
    for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        assert find_percentile(cells, share) == pytest.approx(plain[name].total_seconds(), rel=0.0199)


def test_counting_beside_much_that_is_counted_never_reads_it(admin: Worker, url: str) -> None:
    from test_database_plans import CALLS, FILL, INSTANT, count_scans

    admin.register(INSTANT)
    admin.rows(FILL, 20_000)
    admin.rows("VACUUM ANALYZE")
    roll(admin)
    chance = random.Random(10)
    with Worker(url) as session:
        whole, _ = count_scans(session)
        for number in range(CALLS):
            write(session, f"order-{number}", chance)
            session.row("SELECT makegood.roll_up() AS n")
            for name in ("metric_ends", "metric_attempts", "metric_stuck"):
                session.rows(f"SELECT * FROM makegood.{name}(86400, 3600)")
        assert count_scans(session)[0] == whole


@pytest.mark.parametrize(("text", "found"), [("old-1234", 11), ("-12345", 1), ("d-77", 1), ("nothing", 0)])
def test_part_of_a_number_beside_many_is_found_through_an_index(admin: Worker, text: str, found: int) -> None:
    """By its beginning and by its end, also where the collation is not that of bytes."""
    from test_database_plans import FILL, INSTANT, count_scans

    admin.register(INSTANT)
    admin.rows(FILL, 20_000)
    admin.rows("VACUUM ANALYZE")
    query = (sql_folder() / "queries" / "dashboard" / "orders_by_name.sql").read_text()
    about = {"text": text, "begins": f"{text}%", "ends": f"{text[::-1]}%", "limit": 50}
    whole, _ = count_scans(admin)
    assert len(admin.connection.execute(query, about).fetchall()) == found  # type: ignore[arg-type]
    assert count_scans(admin)[0] == whole
