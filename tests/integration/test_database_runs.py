"""Runs of jobs: one row however often a begin, a part or an end is told; and the count of what is stuck."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from checkouts import let_stick
from database_worker import DEFINITION, Row, Worker, open_database, refused
from test_database_plans import CALLS, FILL, FINISHED, INSTANT, count_scans

from makegood.local.postgres import EmbeddedPostgres


@pytest.fixture(scope="module")
def name(server: EmbeddedPostgres) -> Iterator[str]:
    with open_database(server) as name:
        yield name


@pytest.fixture(scope="module")
def jobs(server: EmbeddedPostgres, name: str) -> Iterator[Worker]:
    with Worker(server.url("makegood_jobs", name)) as worker:
        worker.register()
        yield worker


@pytest.fixture(scope="module")
def admin(server: EmbeddedPostgres, name: str) -> Iterator[Worker]:
    with Worker(server.url("postgres", name)) as worker:
        yield worker


@pytest.fixture
def key() -> str:
    return str(uuid.uuid4())


def begin(worker: Worker, key: str, *, job: str = "recover", seconds_max: float = 600) -> uuid.UUID:
    statement = "SELECT makegood.begin_run(%s, %s, 'schedule', '{\"limit\": 5}', %s) AS id"
    return worker.row(statement, job, key, seconds_max)["id"]


def count_part(worker: Worker, run: uuid.UUID, part: str, **counts: int) -> None:
    worker.rows("SELECT makegood.count_part(%s, %s, %s::jsonb)", run, part, json.dumps(counts))


def finish(worker: Worker, run: uuid.UUID, error: str | None = None) -> Any:
    return worker.row("SELECT makegood.finish_run(%s, %s) AS counts", run, error)["counts"]


def read(worker: Worker, run: uuid.UUID) -> Row:
    return worker.row("SELECT * FROM makegood.job_runs WHERE id = %s", run)


def let_it_expire(admin: Worker, run: uuid.UUID) -> None:
    admin.rows(
        "UPDATE makegood.job_runs SET started_at = started_at - interval '1 hour',"
        " expires_at = now() - interval '1 second' WHERE id = %s",
        run,
    )


def test_begin_opens_a_run_with_what_it_was_asked(jobs: Worker, key: str) -> None:
    row = read(jobs, begin(jobs, key))
    assert (row["job"], row["run_key"], row["triggered_by"]) == ("recover", key, "schedule")
    assert (row["parameters"], row["state"], row["counts"], row["finished_at"]) == ({"limit": 5}, "running", {}, None)
    assert 590 < (row["expires_at"] - row["started_at"]).total_seconds() <= 600


def test_begin_twice_with_one_key_is_one_run(jobs: Worker, key: str) -> None:
    first = begin(jobs, key)
    count_part(jobs, first, "batch-1", taken=3)
    before = read(jobs, first)
    assert begin(jobs, key, seconds_max=1) == first
    assert read(jobs, first) == before


def test_begin_with_one_key_of_two_jobs_is_two_runs(jobs: Worker, key: str) -> None:
    assert begin(jobs, key, job="recover") != begin(jobs, key, job="compensate")


def test_begin_by_eight_at_once_with_one_key_is_one_run(
    server: EmbeddedPostgres, name: str, jobs: Worker, key: str
) -> None:
    together = threading.Barrier(8)

    def ask(_: int) -> uuid.UUID:
        with Worker(server.url("makegood_jobs", name)) as worker:
            together.wait()
            return begin(worker, key)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(ask, range(8)))) == 1


def test_begin_again_after_the_end_does_not_open_it_again(jobs: Worker, key: str) -> None:
    run = begin(jobs, key)
    finish(jobs, run)
    before = read(jobs, run)
    assert begin(jobs, key) == run
    assert read(jobs, run) == before


def test_part_told_again_replaces_what_it_said_and_leaves_the_others(jobs: Worker, key: str) -> None:
    run = begin(jobs, key)
    count_part(jobs, run, "batch-1", taken=2)
    count_part(jobs, run, "batch-2", taken=5, held=1)
    count_part(jobs, run, "batch-1", taken=4, completed=4)
    assert read(jobs, run)["parts"] == {
        **{"batch-1": {"taken": 4, "completed": 4}, "batch-2": {"taken": 5, "held": 1}},
    }


def test_parts_told_at_once_are_all_kept(server: EmbeddedPostgres, name: str, jobs: Worker, key: str) -> None:
    run = begin(jobs, key)

    def tell(number: int) -> None:
        with Worker(server.url("makegood_jobs", name)) as worker:
            for taken in range(1, 6):
                count_part(worker, run, f"batch-{number}", taken=taken)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(tell, range(8)))
    assert finish(jobs, run) == {"taken": 40}


def test_finish_sums_the_parts_and_says_so_again(jobs: Worker, key: str) -> None:
    run = begin(jobs, key)
    count_part(jobs, run, "found", due=9)
    count_part(jobs, run, "batch-1", taken=4, completed=4)
    count_part(jobs, run, "batch-2", taken=5, held=1)
    counts = {"due": 9, "taken": 9, "completed": 4, "held": 1}
    assert finish(jobs, run) == counts
    row = read(jobs, run)
    assert (row["state"], row["counts"], row["error"]) == ("done", counts, None)
    assert finish(jobs, run) == counts
    assert read(jobs, run) == row


def test_finish_of_a_run_without_parts_is_an_empty_count(jobs: Worker, key: str) -> None:
    run = begin(jobs, key)
    assert finish(jobs, run) == {}
    assert read(jobs, run)["state"] == "done"


def test_finish_after_a_part_that_came_late_counts_it(jobs: Worker, key: str) -> None:
    """A batch was tried again after the end was told."""
    run = begin(jobs, key)
    count_part(jobs, run, "batch-1", taken=1)
    finish(jobs, run)
    ended = read(jobs, run)["finished_at"]
    count_part(jobs, run, "batch-2", taken=2)
    assert finish(jobs, run) == {"taken": 3}
    assert read(jobs, run)["finished_at"] == ended


@pytest.mark.parametrize(
    ("parts", "error", "kept"),
    [
        ({"batch-1": {"batches_failed": 1}, "batch-2": {"batches_failed": 1}}, None, "2 batches failed"),
        ({"batch-1": {"taken": 1}}, "DatabaseUnavailable: gone", "DatabaseUnavailable: gone"),
        ({"batch-1": {"batches_failed": 1}}, "x" * 3000, "x" * 2000),  # the cause, as far as there is room
    ],
)
def test_finish_of_a_run_with_something_wrong_is_failed(
    jobs: Worker, key: str, parts: dict[str, Any], error: str | None, kept: str
) -> None:
    run = begin(jobs, key)
    for part, counts in parts.items():
        count_part(jobs, run, part, **counts)
    finish(jobs, run, error)
    row = read(jobs, run)
    assert (row["state"], row["error"]) == ("failed", kept)
    assert row["finished_at"] is not None


def test_finish_told_again_without_the_error_does_not_make_a_failed_run_good(jobs: Worker, key: str) -> None:
    run = begin(jobs, key)
    finish(jobs, run, "it broke")
    before = read(jobs, run)
    finish(jobs, run)
    assert read(jobs, run) == before


def expect(worker: Worker, run: uuid.UUID, *batches: str) -> None:
    worker.rows("SELECT makegood.expect_batches(%s, %s)", run, list(batches))


def mark(worker: Worker, run: uuid.UUID, batch: str, state: str) -> None:
    worker.rows("SELECT makegood.mark_batch(%s, %s, %s)", run, batch, state)


@pytest.mark.parametrize(
    ("told", "state", "error", "failed"),
    [
        # Each came to its end.
        ([("a", "running"), ("a", "done"), ("b", "done")], "done", None, None),
        # The first try failed for a moment, the next one did not.
        ([("a", "running"), ("a", "failed"), ("a", "running"), ("a", "done"), ("b", "done")], "done", None, None),
        # It never began: every try was killed before it said anything.
        ([("a", "done")], "failed", "1 batches did not come to their end", 1),
        # Killed in the midst of its last try, whatever the one before said.
        ([("a", "done"), ("a", "running"), ("b", "done")], "failed", "1 batches did not come to their end", 1),
        ([("a", "failed"), ("b", "done")], "failed", "1 batches failed", 1),
        ([("a", "failed"), ("b", "running")], "failed", "1 batches failed, 1 batches did not come to their end", 2),
    ],
)
def test_finish_says_of_the_batches_what_the_last_try_of_each_came_to(
    jobs: Worker, key: str, told: list[tuple[str, str]], state: str, error: str | None, failed: int | None
) -> None:
    run = begin(jobs, key)
    expect(jobs, run, "a", "b")
    for batch, said in told:
        mark(jobs, run, batch, said)
    assert finish(jobs, run).get("batches_failed") == failed
    row = read(jobs, run)
    assert (row["state"], row["error"]) == (state, error)


def test_finish_after_a_failed_batch_was_tried_again_is_the_new_end(jobs: Worker, key: str) -> None:
    """Somebody cleared the red task: the run is green there, and done here."""
    run = begin(jobs, key)
    expect(jobs, run, "a")
    mark(jobs, run, "a", "failed")
    finish(jobs, run)
    mark(jobs, run, "a", "done")
    assert finish(jobs, run) == {}
    row = read(jobs, run)
    assert (row["state"], row["error"]) == ("done", None)


def test_begin_that_is_repeated_expects_its_new_plan_only(jobs: Worker, key: str) -> None:
    run = begin(jobs, key)
    expect(jobs, run, "a", "b", "c")
    expect(jobs, run, "a")
    mark(jobs, run, "a", "done")
    finish(jobs, run)
    assert read(jobs, run)["state"] == "done"


def test_run_that_expired_is_called_abandoned_by_the_next_with_what_it_had_done(
    jobs: Worker, admin: Worker, key: str
) -> None:
    dead, alive = begin(jobs, key), begin(jobs, key + "-alive")
    count_part(jobs, dead, "batch-1", taken=7)
    let_it_expire(admin, dead)
    begin(jobs, key + "-next", job="another")
    row = read(jobs, dead)
    assert (row["state"], row["counts"]) == ("abandoned", {"taken": 7})
    assert row["finished_at"] is not None
    assert read(jobs, alive)["state"] == "running"


def test_run_that_was_abandoned_and_ends_after_all_has_ended(jobs: Worker, admin: Worker, key: str) -> None:
    run = begin(jobs, key)
    let_it_expire(admin, run)
    begin(jobs, key + "-next")
    abandoned = read(jobs, run)
    count_part(jobs, run, "batch-1", taken=1)
    assert finish(jobs, run) == {"taken": 1}
    row = read(jobs, run)
    assert row["state"] == "done"
    assert row["finished_at"] > abandoned["finished_at"]


def test_run_of_a_badly_named_job_is_refused(jobs: Worker, key: str) -> None:
    with refused("23514"):
        begin(jobs, key, job="Recover; DROP")


def test_decisions_are_kept_with_their_reasons_within_bounds(jobs: Worker, key: str) -> None:
    run = begin(jobs, key)
    given = {"entity_id": "order-1", "state": "charging"}
    items = [
        {**given, "id": str(uuid.UUID(int=1)), "decision": "resume", "reason": "its worker went"},
        {**given, "id": str(uuid.UUID(int=2)), "decision": "park", "reason": "x" * 5000},
    ]
    jobs.rows("SELECT makegood.record_decisions(%s, %s::jsonb)", run, json.dumps(items))
    rows = jobs.rows("SELECT decision, reason FROM makegood.job_decisions WHERE run_id = %s ORDER BY id", run)
    assert [tuple(row.values()) for row in rows] == [("resume", "its worker went"), ("park", "x" * 2000)]
    with refused("23514"):
        guess = [{**items[0], "decision": "guess"}]
        jobs.rows("SELECT makegood.record_decisions(%s, %s::jsonb)", run, json.dumps(guess))


# What is stuck


@pytest.fixture
def shop(database: Any) -> Iterator[tuple[Worker, Worker]]:
    """A database of its own, as jobs and as admin."""
    with Worker(database.jobs) as jobs, Worker(database.admin) as admin:
        jobs.register()
        yield jobs, admin


def count_stuck(worker: Worker, older_than_seconds: float | None = None, types: list[str] | None = None) -> Any:
    rows = worker.rows("SELECT * FROM makegood.count_stuck(%s, %s)", older_than_seconds, types)
    return {(row["workflow_type"], row["current_state"]): row for row in rows}


def numbers(row: Row) -> tuple[int, int, int]:
    return row["due"], row["waiting"], row["leased"]


def test_count_of_nothing_is_nothing(shop: tuple[Worker, Worker]) -> None:
    jobs, _ = shop
    jobs.start("order-1")  # not past its deadline
    assert count_stuck(jobs) == {}


def test_count_tells_due_waiting_and_leased_apart(database: Any, shop: tuple[Worker, Worker]) -> None:
    jobs, admin = shop
    leases = [jobs.started(f"order-{n}") for n in range(7)]
    for lease in leases[:2]:
        jobs.pause(lease)  # due
    for lease in leases[2:5]:
        jobs.pause(lease, wait_seconds=600)
    let_stick(database, *(lease.entity_id for lease in leases))
    admin.rows("UPDATE makegood.workflow_executions SET lease_until = now() WHERE entity_id = 'order-5'")
    ((kind, row),) = count_stuck(jobs).items()
    assert kind == ("checkout", "created")
    assert numbers(row) == (3, 3, 1)  # one of the due is a dead worker's
    assert row["oldest_seconds"] == pytest.approx(600, abs=30)


def test_count_is_of_what_a_claim_would_find(database: Any, shop: tuple[Worker, Worker]) -> None:
    jobs, _ = shop
    for number in range(9):
        jobs.start(f"order-{number}")
    let_stick(database, "order-1", "order-2", "order-3")
    assert numbers(count_stuck(jobs)["checkout", "created"])[0] == len(jobs.claim(stuck_only=True)) == 3


def test_count_is_per_type_and_state_and_leaves_held_and_finished_out(
    database: Any, shop: tuple[Worker, Worker]
) -> None:
    jobs, _ = shop
    jobs.register({**DEFINITION, "name": "rental"})
    jobs.rows("SELECT makegood.start_workflow('rental', 'car-1')")
    charging, held, done = (jobs.started(name) for name in ("charging", "held", "done"))
    jobs.begin(charging, "charge")
    jobs.pause(charging)
    jobs.pause(held, hold_reason="a person looks")
    jobs.do(done, "charge", "reserve", "ship")
    let_stick(database, "car-1", "charging", "held", "done")
    assert {key: numbers(row) for key, row in count_stuck(jobs).items()} == {
        **{("checkout", "charging"): (1, 0, 0), ("rental", "created"): (1, 0, 0)},
    }
    assert set(count_stuck(jobs, types=["rental"])) == {("rental", "created")}
    assert count_stuck(jobs, types=[]) == {}


def test_count_by_age_asks_for_progress_not_for_the_deadline(database: Any, shop: tuple[Worker, Worker]) -> None:
    jobs, admin = shop
    for name in ("young", "middle", "old"):
        jobs.start(name)
    let_stick(database, "middle", seconds=60)
    let_stick(database, "old", seconds=3600)
    admin.rows("UPDATE makegood.workflow_executions SET deadline_at = now() + interval '1 day'")
    assert count_stuck(jobs) == {}
    found = [numbers(count_stuck(jobs, age)["checkout", "created"])[0] for age in (0, 30, 600)]
    assert found == [3, 2, 1]
    assert count_stuck(jobs, 86_400) == {}


def test_count_has_what_is_being_undone_whatever_its_deadline(shop: tuple[Worker, Worker]) -> None:
    jobs, _ = shop
    lease = jobs.do(jobs.started("order-1"), "charge")
    jobs.compensate(lease, ["charge"])
    jobs.pause(lease)
    assert numbers(count_stuck(jobs)["checkout", "compensating"]) == (1, 0, 0)
    assert count_stuck(jobs, 600) == {}  # by age it is asked like the others


def test_count_beside_much_finished_work_never_reads_it(database: Any) -> None:
    with Worker(database.admin) as admin, Worker(database.jobs) as jobs:
        admin.register()
        admin.register(INSTANT)
        admin.rows(FILL, FINISHED)
        admin.rows("VACUUM ANALYZE")
        for number in range(50):
            admin.start(f"order-{number}")
        count_scans(admin)
        whole, _ = count_scans(jobs)
        for _ in range(CALLS):
            assert numbers(count_stuck(jobs, 0)["checkout", "created"]) == (50, 0, 0)
            count_stuck(jobs)
            count_stuck(jobs, types=["checkout"])
        assert count_scans(jobs)[0] == whole
