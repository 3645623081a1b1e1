"""A key stands for one effect: of many callers one calls, all get its answer, and it is never used for another."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from database_worker import Row, Worker, digest, open_database, refused

from makegood.local.postgres import EmbeddedPostgres

CALLERS = 8
TAKES = 100
LONG_SECONDS = 3600.0


@pytest.fixture(scope="module")
def name(server: EmbeddedPostgres) -> Iterator[str]:
    """One database for all: every test has a key of its own."""
    with open_database(server) as name:
        yield name


@pytest.fixture(scope="module")
def url(server: EmbeddedPostgres, name: str) -> str:
    return server.url("makegood_jobs", name)


@pytest.fixture(scope="module")
def jobs(url: str) -> Iterator[Worker]:
    with Worker(url) as worker:
        yield worker


@pytest.fixture(scope="module")
def admin(server: EmbeddedPostgres, name: str) -> Iterator[Worker]:
    with Worker(server.url("postgres", name)) as worker:
        yield worker


@pytest.fixture
def key() -> str:
    return f"refund-{uuid.uuid4()}"


def take(
    worker: Worker,
    key: str,
    *,
    request: str = "same",
    operation: str = "refund",
    call_seconds: float = LONG_SECONDS,
) -> tuple[str, Any]:
    row = worker.row(
        "SELECT * FROM makegood.take_key(%s, %s, %s, %s, %s, %s)",
        *(key, operation, digest(request), worker.name, call_seconds, LONG_SECONDS),
    )
    return row["verdict"], row["response"]


def answer(worker: Worker, key: str, response: Row) -> Any:
    return worker.row("SELECT makegood.answer_key(%s, %s::jsonb) AS kept", key, json.dumps(response))["kept"]


def give_up(worker: Worker, key: str, caller: str | None = None) -> None:
    worker.rows("SELECT makegood.give_up_key(%s, %s)", key, caller or worker.name)


def test_key_taken_for_the_first_time_says_go(jobs: Worker, key: str) -> None:
    assert take(jobs, key) == ("go", None)
    row = jobs.row("SELECT * FROM makegood.idempotency_keys WHERE key = %s", key)
    assert (row["status"], row["caller"], row["first_sent_at"] is not None) == ("sent", "worker-1", True)


def test_key_taken_during_the_call_says_busy(jobs: Worker, key: str) -> None:
    take(jobs, key)
    assert take(jobs, key) == ("busy", None)


def test_key_taken_after_the_answer_says_known_with_it(jobs: Worker, key: str) -> None:
    take(jobs, key)
    assert answer(jobs, key, {"id": "re_1"}) == {"id": "re_1"}
    assert take(jobs, key) == ("known", {"id": "re_1"})


def test_key_taken_after_the_caller_ran_out_of_time_says_go(jobs: Worker, key: str) -> None:
    take(jobs, key, call_seconds=0)
    assert take(jobs, key)[0] == "go"


def test_key_taken_after_the_caller_gave_up_says_go(jobs: Worker, key: str) -> None:
    take(jobs, key)
    give_up(jobs, key)
    assert take(jobs, key)[0] == "go"


def test_key_given_up_by_somebody_else_stays_busy(jobs: Worker, key: str) -> None:
    take(jobs, key)
    give_up(jobs, key, "worker-2")
    assert take(jobs, key)[0] == "busy"


def test_key_taken_after_the_window_says_expired(jobs: Worker, admin: Worker, key: str) -> None:
    take(jobs, key)
    give_up(jobs, key)
    admin.rows("UPDATE makegood.idempotency_keys SET first_sent_at = now() - interval '2 hours' WHERE key = %s", key)
    assert take(jobs, key)[0] == "expired"


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize("other", [{"request": "other"}, {"operation": "charge"}])
def test_key_taken_for_something_else_says_conflict(
    jobs: Worker, key: str, other: dict[str, str], answered: bool
) -> None:
    take(jobs, key)
    if answered:
        answer(jobs, key, {"id": "re_1"})
    assert take(jobs, key, **other)[0] == "conflict"


def test_key_taken_by_eight_at_once_goes_to_one_and_all_get_its_answer(url: str, key: str) -> None:
    together = threading.Barrier(CALLERS)

    def call(number: int) -> tuple[str, Any]:
        with Worker(url, f"caller-{number}") as worker:
            together.wait()
            first = take(worker, key)
            together.wait()
            if first[0] == "go":
                answer(worker, key, {"by": number})
            while (last := take(worker, key))[0] == "busy":
                time.sleep(0.005)
        return first[0], last

    with ThreadPoolExecutor(CALLERS) as pool:
        answers = list(pool.map(call, range(CALLERS)))
    assert Counter(first for first, _ in answers) == {"go": 1, "busy": CALLERS - 1}
    winner = next(number for number, (first, _) in enumerate(answers) if first == "go")
    assert [last for _, last in answers] == [("known", {"by": winner})] * CALLERS


def test_key_taken_while_others_give_it_up_is_never_said_to_be_expired(url: str, key: str) -> None:
    """Expired sends a person to look, so it is said only when the provider may have forgotten the key."""
    together = threading.Barrier(CALLERS)

    def take_and_give_up(number: int) -> Counter[str]:
        verdicts: Counter[str] = Counter()
        with Worker(url, f"caller-{number}") as worker:
            together.wait()
            for _ in range(TAKES):
                verdict, _ = take(worker, key)
                verdicts[verdict] += 1
                if verdict == "go":
                    give_up(worker, key)
        return verdicts

    with ThreadPoolExecutor(CALLERS) as pool:
        verdicts = sum(pool.map(take_and_give_up, range(CALLERS)), Counter[str]())
    assert set(verdicts) <= {"go", "busy"}, verdicts


def test_answer_brought_second_is_not_kept(jobs: Worker, key: str) -> None:
    take(jobs, key)
    assert answer(jobs, key, {"id": "re_1"}) == {"id": "re_1"}
    assert answer(jobs, key, {"id": "re_2"}) == {"id": "re_1"}


def test_answer_to_what_was_never_sent_is_not_kept(jobs: Worker, key: str) -> None:
    assert answer(jobs, key, {"id": "re_1"}) is None


@pytest.mark.parametrize(
    ("before", "after"),
    [("sent", "intent"), ("known", "sent"), ("known", "intent"), ("recorded", "known"), ("recorded", "sent")],
)
@pytest.mark.parametrize("replication_role", ["origin", "replica"])
def test_key_moved_back_is_refused(admin: Worker, before: str, after: str, replication_role: str) -> None:
    (key,) = insert_keys(admin, 1, before)
    with refused("MG001", f"from {before} to {after}"), admin.connection.transaction():
        admin.rows("SELECT set_config('session_replication_role', %s, true)", replication_role)
        admin.rows(
            "UPDATE makegood.idempotency_keys SET status = n.status,"
            " response = CASE WHEN n.status = 'known' THEN '{}'::jsonb END,"
            " first_sent_at = CASE WHEN n.status <> 'intent' THEN now() END"
            " FROM (SELECT %s::text AS status) AS n WHERE key = %s",
            *(after, key),
        )


@pytest.mark.parametrize("status", ["sent", "known", "recorded"])
@pytest.mark.parametrize("change", ["request_hash = sha256('other')", "operation = 'charge'"])
def test_key_made_to_stand_for_something_else_once_sent_is_refused(admin: Worker, status: str, change: str) -> None:
    (key,) = insert_keys(admin, 1, status)
    with refused("MG007", "already used with other parameters"):
        admin.rows(f"UPDATE makegood.idempotency_keys SET {change} WHERE key = %s", key)


def test_key_made_to_stand_for_something_else_before_it_is_sent_is_accepted(admin: Worker) -> None:
    (key,) = insert_keys(admin, 1, "intent")
    admin.rows("UPDATE makegood.idempotency_keys SET request_hash = sha256('other') WHERE key = %s", key)


def insert_keys(admin: Worker, count: int, status: str, *, expired: bool = False) -> list[str]:
    rows = admin.rows(
        "INSERT INTO makegood.idempotency_keys (key, operation, request_hash, status, first_sent_at, response,"
        " created_at, expires_at)"
        " SELECT gen_random_uuid(), 'refund', sha256(''), s.status, CASE WHEN s.status <> 'intent' THEN now() END,"
        " CASE WHEN s.status IN ('known', 'recorded') THEN '{}'::jsonb END, now() - interval '40 days',"
        " now() + CASE WHEN s.expired THEN -1 ELSE 1 END * interval '1 day'"
        " FROM (SELECT %s::text AS status, %s::boolean AS expired) AS s, generate_series(1, %s) AS n RETURNING key",
        *(status, expired, count),
    )
    return [row["key"] for row in rows]


def forget(jobs: Worker, batch: int = 10_000) -> int:
    return jobs.row("SELECT makegood.forget_keys(%s) AS n", batch)["n"]


def test_forget_takes_only_keys_that_are_recorded_and_past_their_time(jobs: Worker, admin: Worker) -> None:
    """One whose effect is not recorded is kept for ever: forgetting it could repeat the effect."""
    kept = [key for status in ("intent", "sent", "known") for key in insert_keys(admin, 2, status, expired=True)]
    kept += insert_keys(admin, 2, "recorded")
    insert_keys(admin, 2, "recorded", expired=True)
    assert forget(jobs) == 2
    left = jobs.rows("SELECT key FROM makegood.idempotency_keys WHERE key = ANY (%s)", kept)
    assert {row["key"] for row in left} == set(kept)


def test_forget_takes_no_more_than_its_batch(jobs: Worker, admin: Worker) -> None:
    insert_keys(admin, 5, "recorded", expired=True)
    assert [forget(jobs, 2) for _ in range(4)] == [2, 2, 1, 0]
