"""The breaker of a provider: one row for all workers, one probe at a time, and a late word changes nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from database_worker import Row, Worker, open_database

from makegood.local.postgres import EmbeddedPostgres

CALLERS = 8
BASE_SECONDS, CAP_SECONDS = 5.0, 120.0


@pytest.fixture(scope="module")
def name(server: EmbeddedPostgres) -> Iterator[str]:
    with open_database(server) as name:
        yield name


@pytest.fixture(scope="module")
def jobs(server: EmbeddedPostgres, name: str) -> Iterator[Worker]:
    with Worker(server.url("makegood_jobs", name)) as worker:
        yield worker


@pytest.fixture(scope="module")
def admin(server: EmbeddedPostgres, name: str) -> Iterator[Worker]:
    with Worker(server.url("postgres", name)) as worker:
        yield worker


@pytest.fixture(autouse=True)
def calm(admin: Worker) -> None:
    """Every test begins with nobody down."""
    admin.rows("TRUNCATE makegood.breakers")
    admin.rows("DELETE FROM makegood.outbox")


def trip(worker: Worker, by: str = "worker-1", error: str = "HTTP 503", provider: str = "payments") -> None:
    worker.rows("SELECT makegood.trip_breaker(%s, %s, %s, %s, %s)", provider, by, error, BASE_SECONDS, CAP_SECONDS)


def probe(worker: Worker, by: str = "worker-1", seconds: float = 60, provider: str = "payments") -> bool:
    return worker.row("SELECT makegood.take_probe(%s, %s, %s) AS taken", provider, by, seconds)["taken"]


def close(worker: Worker, by: str = "worker-1", provider: str = "payments") -> bool:
    return worker.row("SELECT makegood.close_breaker(%s, %s) AS closed", provider, by)["closed"]


def read(worker: Worker, provider: str = "payments") -> Row:
    statement = "SELECT *, extract(epoch FROM retry_at - updated_at)::float AS wait FROM makegood.breakers"
    return worker.row(statement + " WHERE provider = %s", provider)


def find_open(worker: Worker) -> dict[str, Row]:
    return {row["provider"]: row for row in worker.rows("SELECT * FROM makegood.open_breakers()")}


def let_time_pass(admin: Worker) -> None:
    """As if the next probe's time, or the end of the last one's, had come."""
    admin.rows(
        "UPDATE makegood.breakers SET retry_at = CASE WHEN retry_at IS NOT NULL THEN now() - interval '1 second' END,"
        " probe_until = CASE WHEN probe_until IS NOT NULL THEN now() - interval '1 second' END"
    )


def fail_probe(admin: Worker, by: str = "worker-1") -> None:
    let_time_pass(admin)
    assert probe(admin, by)
    trip(admin, by)


def read_alerts(worker: Worker) -> list[Any]:
    return [row["payload"] for row in worker.rows("SELECT payload FROM makegood.outbox WHERE topic = 'alert'")]


def test_trip_of_a_provider_never_seen_down_opens_its_breaker(jobs: Worker) -> None:
    assert find_open(jobs) == {}
    trip(jobs)
    row = read(jobs)
    assert (row["state"], row["failed_probes"], row["error"]) == ("open", 0, "HTTP 503")
    assert row["wait"] == pytest.approx(BASE_SECONDS)
    down = find_open(jobs)["payments"]
    assert 0 <= down["open_seconds"] < 5
    assert 0 < down["retry_in_seconds"] <= BASE_SECONDS


def test_trip_of_one_provider_leaves_the_others_alone(jobs: Worker) -> None:
    trip(jobs, provider="payments")
    assert set(find_open(jobs)) == {"payments"}
    trip(jobs, provider="shipping")
    assert set(find_open(jobs)) == {"payments", "shipping"}


def test_probe_before_its_time_is_refused(jobs: Worker) -> None:
    trip(jobs)
    assert probe(jobs) is False
    assert read(jobs)["state"] == "open"


def test_probe_of_a_provider_that_is_not_down_is_refused(jobs: Worker, admin: Worker) -> None:
    assert probe(jobs) is False
    trip(jobs)
    let_time_pass(admin)
    probe(jobs)
    close(jobs)
    assert probe(jobs) is False


def test_probe_by_eight_at_once_is_exactly_one(
    server: EmbeddedPostgres, name: str, jobs: Worker, admin: Worker
) -> None:
    trip(jobs)
    let_time_pass(admin)
    together = threading.Barrier(CALLERS)

    def ask(number: int) -> bool:
        with Worker(server.url("makegood_jobs", name)) as worker:
            together.wait()
            return probe(worker, f"worker-{number}")

    with ThreadPoolExecutor(CALLERS) as pool:
        taken = list(pool.map(ask, range(CALLERS)))
    assert taken.count(True) == 1
    assert read(jobs)["probe_by"] == f"worker-{taken.index(True)}"


def test_probe_by_the_same_worker_twice_is_one(jobs: Worker, admin: Worker) -> None:
    """Two orders of one worker ask at once: one of them calls."""
    trip(jobs)
    let_time_pass(admin)
    assert [probe(jobs), probe(jobs)] == [True, False]


def test_probe_that_said_nothing_in_time_is_given_up_and_another_goes(jobs: Worker, admin: Worker) -> None:
    trip(jobs)
    let_time_pass(admin)
    assert probe(jobs, "dies")
    assert probe(jobs, "waits") is False
    let_time_pass(admin)
    assert probe(jobs, "waits") is True
    assert read(jobs)["probe_by"] == "waits"


def test_probe_given_back_lets_another_go_at_once_and_counts_as_no_failure(jobs: Worker, admin: Worker) -> None:
    give_back = "SELECT makegood.return_probe('payments', %s) AS returned"
    trip(jobs)
    assert jobs.row(give_back, "worker-1")["returned"] is False  # it was never taken
    let_time_pass(admin)
    probe(jobs, "worker-1")
    assert jobs.row(give_back, "worker-2")["returned"] is False  # not its own
    assert read(jobs)["state"] == "half_open"
    assert jobs.row(give_back, "worker-1")["returned"] is True
    assert (read(jobs)["state"], read(jobs)["failed_probes"]) == ("open", 0)
    assert probe(jobs, "worker-2") is True


def test_close_by_the_probing_worker_lets_calls_go_again(jobs: Worker, admin: Worker) -> None:
    trip(jobs)
    let_time_pass(admin)
    probe(jobs)
    assert close(jobs) is True
    row = read(jobs)
    assert (row["state"], row["opened_at"], row["failed_probes"]) == ("closed", None, 0)
    assert find_open(jobs) == {}


@pytest.mark.parametrize("state", ["open", "probed by another", "closed", "never seen"])
def test_close_by_anybody_else_changes_nothing(jobs: Worker, admin: Worker, state: str) -> None:
    """A late answer from before says nothing of now."""
    if state != "never seen":
        trip(jobs)
    if state in {"probed by another", "closed"}:
        let_time_pass(admin)
        probe(jobs, "worker-2")
    if state == "closed":
        close(jobs, "worker-2")
    before = jobs.rows("SELECT * FROM makegood.breakers")
    assert close(jobs, "worker-1") is False
    assert jobs.rows("SELECT * FROM makegood.breakers") == before


def test_close_by_a_probe_that_was_given_up_changes_nothing(jobs: Worker, admin: Worker) -> None:
    trip(jobs)
    let_time_pass(admin)
    probe(jobs, "slow")
    let_time_pass(admin)
    probe(jobs, "other")
    assert close(jobs, "slow") is False
    assert close(jobs, "other") is True


def test_trip_by_the_probing_worker_opens_again_and_waits_twice_as_long_up_to_the_cap(
    jobs: Worker, admin: Worker
) -> None:
    trip(jobs)
    since = read(jobs)["opened_at"]
    waits = []
    for _ in range(7):
        fail_probe(admin)
        waits.append(round(read(jobs)["wait"], 3))
    assert waits == [10, 20, 40, 80, 120, 120, 120]
    assert read(jobs)["opened_at"] == since  # one outage, however many probes


def test_wait_after_very_many_failed_probes_is_still_the_cap(jobs: Worker, admin: Worker) -> None:
    trip(jobs)
    admin.rows("UPDATE makegood.breakers SET failed_probes = 100000")
    fail_probe(admin)
    assert read(jobs)["wait"] == pytest.approx(CAP_SECONDS)


@pytest.mark.parametrize("state", ["open", "half_open"])
def test_trip_by_somebody_whose_call_was_under_way_extends_nothing(jobs: Worker, admin: Worker, state: str) -> None:
    """It failed before, and is heard of now."""
    trip(jobs)
    if state == "half_open":
        let_time_pass(admin)
        probe(jobs, "worker-1")
    before = read(jobs)
    trip(jobs, "worker-2", "an old failure")
    assert read(jobs) == before
    assert read_alerts(jobs) == []


def test_trip_after_it_was_closed_is_a_new_outage_with_short_waits(jobs: Worker, admin: Worker) -> None:
    trip(jobs)
    since = read(jobs)["opened_at"]
    fail_probe(admin)
    let_time_pass(admin)
    probe(jobs)
    close(jobs)
    trip(jobs, error="HTTP 502")
    row = read(jobs)
    assert (row["failed_probes"], row["error"]) == (0, "HTTP 502")
    assert row["wait"] == pytest.approx(BASE_SECONDS)
    assert row["opened_at"] > since


def test_alert_is_one_per_outage_at_the_second_failed_probe(jobs: Worker, admin: Worker) -> None:
    trip(jobs)
    fail_probe(admin)
    assert read_alerts(jobs) == []  # a short hiccup is nobody's business
    for _ in range(4):
        fail_probe(admin)
    (alert,) = read_alerts(jobs)
    assert (alert["kind"], alert["provider"], alert["error"]) == ("provider_down", "payments", "HTTP 503")
    let_time_pass(admin)
    probe(jobs)
    close(jobs)
    trip(jobs)
    for _ in range(3):
        fail_probe(admin)
    assert len(read_alerts(jobs)) == 2  # another outage


def test_trip_by_eight_at_once_is_one_outage(server: EmbeddedPostgres, name: str, jobs: Worker) -> None:
    together = threading.Barrier(CALLERS)

    def fail(number: int) -> None:
        with Worker(server.url("makegood_jobs", name)) as worker:
            together.wait()
            trip(worker, f"worker-{number}")

    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(fail, range(CALLERS)))
    row = read(jobs)
    assert (row["state"], row["failed_probes"]) == ("open", 0)
    assert row["wait"] == pytest.approx(BASE_SECONDS)


def test_trip_with_an_endless_error_keeps_what_fits(jobs: Worker) -> None:
    trip(jobs, error="x" * 9000)
    assert len(read(jobs)["error"]) == 2000


def test_time_of_an_open_breaker_is_the_databases(jobs: Worker, admin: Worker) -> None:
    trip(jobs)
    admin.rows("UPDATE makegood.breakers SET opened_at = opened_at - interval '1 hour'")
    assert find_open(jobs)["payments"]["open_seconds"] == pytest.approx(3600, abs=30)
    let_time_pass(admin)
    assert find_open(jobs)["payments"]["retry_in_seconds"] < 0
    probe(jobs, seconds=60)
    # Its answer is waited for, not the end of its time: the others come back soon, and not before it may be lost.
    assert 0 < find_open(jobs)["payments"]["retry_in_seconds"] <= 2
    admin.rows("UPDATE makegood.breakers SET probe_until = clock_timestamp() - interval '1 second'")
    assert find_open(jobs)["payments"]["retry_in_seconds"] < 0
