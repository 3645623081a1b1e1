"""The two transactions around an outside call: what may be sent, and what is kept of the answer."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from database_worker import DONE, Lease, Row, Worker, digest, open_database
from psycopg import sql

from makegood.local.postgres import EmbeddedPostgres


@pytest.fixture(scope="module")
def name(server: EmbeddedPostgres) -> Iterator[str]:
    """One database for all: every test has an order, and with it keys, of its own."""
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
def order(jobs: Worker) -> Lease:
    return jobs.started(f"order-{uuid.uuid4()}")


def find_keys(jobs: Worker, order: Lease) -> dict[str, Row]:
    """The keys of an order's steps, by step."""
    rows = jobs.rows("SELECT * FROM makegood.idempotency_keys WHERE key LIKE '%%-' || %s::text", order.entity_id)
    return {row["key"].partition("-")[0]: row for row in rows}


def find_messages(jobs: Worker, order: Lease) -> list[Row]:
    return jobs.rows("SELECT * FROM makegood.outbox WHERE key = %s", make_messages(order)[0]["key"])


def make_messages(order: Lease) -> list[Row]:
    topic, payload = "send_confirmation", {"entity_id": order.entity_id}
    return [{"topic": topic, "key": f"{topic}-{order.entity_id}", "payload": payload}]


def read_attempts(jobs: Worker, order: Lease) -> list[tuple[Any, ...]]:
    rows = jobs.rows(
        "SELECT * FROM makegood.step_attempts WHERE workflow_id = %s ORDER BY started_at, attempt", order.id
    )
    return [(row["step"], row["kind"], row["attempt"], row["outcome"], row["error_type"]) for row in rows]


def find_hops(jobs: Worker, order: Lease, order_by: str) -> list[Row]:
    statement = sql.SQL("SELECT * FROM makegood.workflow_transitions WHERE workflow_id = {} ORDER BY {}")
    return jobs.rows(statement.format(sql.Literal(order.id), sql.Identifier(order_by)))


def take_over(admin: Worker, jobs: Worker, order: Lease) -> Lease:
    """The lease ran out and another worker has it: the first is late."""
    admin.rows(
        "UPDATE makegood.workflow_executions SET lease_until = now() - interval '1 second' WHERE id = %s", order.id
    )
    (taken,) = jobs.claim(ids=[order.id])
    return taken


def test_run_of_all_steps_ends_completed_with_a_whole_chain(jobs: Worker, order: Lease) -> None:
    jobs.do(order, "charge", "reserve", "ship")
    row = jobs.read(order)
    assert (row["current_state"], row["last_seq"], row["lease_owner"]) == ("completed", 7, None)
    assert row["context"] == {step: {"ok": True} for step in DONE}
    hops = find_hops(jobs, order, "seq")
    states = ["created", "charging", "charged", "reserving", "reserved", "shipping", "completed"]
    assert [(hop["seq"], hop["from_state"], hop["to_state"]) for hop in hops] == [
        (seq, before, after) for seq, (before, after) in enumerate(zip([None, *states], states, strict=False), start=1)
    ]
    assert read_attempts(jobs, order) == [(step, "forward", 1, "success", None) for step in DONE]
    assert {key["status"] for key in find_keys(jobs, order).values()} == {"recorded"}


def test_begin_for_the_first_time_says_go_with_the_key_stored(jobs: Worker, order: Lease) -> None:
    assert jobs.begin(order, "charge") == {"id": order.id, "verdict": "go", "attempt": 1, "response": None}
    key = find_keys(jobs, order)["charge"]
    assert (key["status"], key["operation"], key["request_hash"]) == ("sent", "checkout.charge", digest("same"))
    row = jobs.read(order)
    assert (row["current_state"], row["attempts"]) == ("charging", 1)
    assert read_attempts(jobs, order) == [("charge", "forward", 1, None, None)]


def test_begin_again_says_go_under_the_same_key_and_counts(jobs: Worker, order: Lease) -> None:
    jobs.begin(order, "charge")
    first_sent_at = find_keys(jobs, order)["charge"]["first_sent_at"]
    assert jobs.begin(order, "charge")["attempt"] == 2
    row = jobs.read(order)
    assert (row["attempts"], row["last_seq"]) == (2, 2)
    # Counted from the first sending: that is when the provider's memory of the key began.
    assert find_keys(jobs, order)["charge"]["first_sent_at"] == first_sent_at


def test_begin_after_a_late_answer_says_known_with_the_answer(jobs: Worker, admin: Worker, order: Lease) -> None:
    jobs.begin(order, "charge")
    taken = take_over(admin, jobs, order)
    assert jobs.finish(order, "charge", response={"id": "ch_1"}) == "lost"
    row = jobs.begin(taken, "charge")
    assert (row["verdict"], row["response"], row["attempt"]) == ("known", {"id": "ch_1"}, None)


def test_begin_while_a_late_answer_is_being_written_says_known(
    jobs: Worker, admin: Worker, order: Lease, server: EmbeddedPostgres, name: str
) -> None:
    """It waits for the key's row, and must then tell what it found there and not what was there before."""
    jobs.begin(order, "charge")
    taken = take_over(admin, jobs, order)
    with Worker(server.url("makegood_jobs", name), "worker-2") as other, ThreadPoolExecutor(1) as pool:
        with jobs.connection.transaction():
            assert jobs.finish(order, "charge", response={"id": "ch_1"}) == "lost"
            beginning = pool.submit(other.begin, taken, "charge")
            admin.wait_until_blocked(other)
        row = beginning.result(timeout=10)
    assert (row["verdict"], row["response"]) == ("known", {"id": "ch_1"})


def test_begin_after_the_window_says_expired(jobs: Worker, admin: Worker, order: Lease) -> None:
    jobs.begin(order, "charge")
    admin.rows(
        "UPDATE makegood.idempotency_keys SET first_sent_at = now() - interval '21 hours' WHERE key = %s",
        f"charge-{order.entity_id}",
    )
    assert jobs.begin(order, "charge", window_seconds=20 * 3600)["verdict"] == "expired"
    assert len(read_attempts(jobs, order)) == 1


def test_begin_with_other_parameters_under_a_sent_key_says_conflict(jobs: Worker, order: Lease) -> None:
    jobs.begin(order, "charge", request="100 EUR")
    assert jobs.begin(order, "charge", request="200 EUR")["verdict"] == "conflict"
    assert find_keys(jobs, order)["charge"]["request_hash"] == digest("100 EUR")


def test_begin_of_a_cancelled_order_says_cancel_and_sends_nothing(jobs: Worker, order: Lease) -> None:
    jobs.cancel(order.entity_id)
    assert jobs.begin(order, "charge")["verdict"] == "cancel"
    assert jobs.read(order)["current_state"] == "created"
    assert find_keys(jobs, order) == {}


def test_begin_again_of_a_cancelled_order_says_go(jobs: Worker, order: Lease) -> None:
    """A call may be under way: its outcome is found out before anything is undone."""
    jobs.begin(order, "charge")
    jobs.cancel(order.entity_id)
    assert jobs.begin(order, "charge")["verdict"] == "go"


@pytest.mark.parametrize("seen", [{"fence": 0}, {"state": "charged"}])
def test_begin_by_who_does_not_hold_it_says_lost_and_sends_nothing(
    jobs: Worker, order: Lease, seen: dict[str, Any]
) -> None:
    assert jobs.begin(replace(order, **seen), "charge")["verdict"] == "lost"
    assert find_keys(jobs, order) == {}
    assert read_attempts(jobs, order) == []


def test_finish_keeps_state_result_attempt_key_and_messages_together(jobs: Worker, order: Lease) -> None:
    jobs.do(order, "charge", "reserve")
    jobs.begin(order, "ship")
    assert (
        jobs.finish(order, "ship", response={"id": "sh_1"}, patch={"ship": {"id": "sh_1"}}, outbox=make_messages(order))
        == "moved"
    )
    assert jobs.read(order)["context"]["ship"] == {"id": "sh_1"}
    key = find_keys(jobs, order)["ship"]
    assert (key["status"], key["response"]) == ("recorded", {"id": "sh_1"})
    (message,) = find_messages(jobs, order)
    assert (message["topic"], message["payload"], message["published_at"]) == (
        *("send_confirmation", {"entity_id": order.entity_id}, None),
    )


def test_finish_again_says_lost_and_tells_nobody_twice(jobs: Worker, order: Lease) -> None:
    jobs.do(order, "charge", "reserve")
    jobs.begin(order, "ship")
    again = replace(order)
    assert jobs.finish(order, "ship", outbox=make_messages(order)) == "moved"
    assert jobs.finish(again, "ship", outbox=make_messages(order), response={"id": "other"}) == "lost"
    assert len(find_messages(jobs, order)) == 1
    assert find_keys(jobs, order)["ship"]["response"] == {"step": "ship"}


def test_finish_by_a_late_worker_says_lost_and_keeps_the_answer(jobs: Worker, admin: Worker, order: Lease) -> None:
    jobs.begin(order, "charge")
    take_over(admin, jobs, order)
    assert jobs.finish(order, "charge", response={"id": "ch_1"}, outbox=make_messages(order)) == "lost"
    row = jobs.read(order)
    assert (row["current_state"], row["context"]) == ("charging", {})
    key = find_keys(jobs, order)["charge"]
    assert (key["status"], key["response"]) == ("known", {"id": "ch_1"})
    assert read_attempts(jobs, order) == [("charge", "forward", 1, "success", None)]
    assert find_messages(jobs, order) == []


def test_finish_of_the_last_step_of_a_cancelled_order_says_cancel_and_keeps_the_answer(
    jobs: Worker, order: Lease
) -> None:
    jobs.do(order, "charge", "reserve")
    jobs.begin(order, "ship")
    assert jobs.cancel(order.entity_id) == "requested"
    assert jobs.finish(order, "ship", outbox=make_messages(order)) == "cancel"
    assert jobs.read(order)["current_state"] == "shipping"
    assert find_keys(jobs, order)["ship"]["status"] == "known"
    assert find_messages(jobs, order) == []


def test_finish_of_an_earlier_step_of_a_cancelled_order_says_moved(jobs: Worker, order: Lease) -> None:
    """Up to the border: the next step is what does not begin."""
    jobs.begin(order, "charge")
    jobs.cancel(order.entity_id)
    assert jobs.finish(order, "charge") == "moved"
    assert jobs.begin(order, "reserve")["verdict"] == "cancel"


def next_step(order: Lease, step: str, request: str = "same") -> Row:
    return {
        "step": step,
        "key": f"{step}-{order.entity_id}",
        "operation": f"checkout.{step}",
        "request_hash": digest(request).hex(),
    }


def test_finish_with_the_next_step_begins_it_in_the_same_write(jobs: Worker, order: Lease) -> None:
    jobs.begin(order, "charge")
    facts = {"via": "charged", "to_state": "reserving", "next": next_step(order, "reserve")}
    row = jobs.finish_row(order, "charge", **facts)
    assert (row["verdict"], row["next_verdict"], row["attempt"]) == ("moved", "go", 1)
    assert jobs.read(order)["current_state"] == "reserving"
    assert find_keys(jobs, order)["reserve"]["status"] == "sent"


def test_finish_with_the_next_step_writes_both_transitions_in_their_order(jobs: Worker, order: Lease) -> None:
    """People order by number, by id or by time, and must read the same story."""
    jobs.begin(order, "charge")
    jobs.finish_row(order, "charge", via="charged", to_state="reserving", next=next_step(order, "reserve"))
    by_id = find_hops(jobs, order, "id")
    by_seq = find_hops(jobs, order, "seq")
    states = ["created", "charging", "charged", "reserving"]
    assert [row["to_state"] for row in by_id] == [row["to_state"] for row in by_seq] == states
    times = [row["transitioned_at"] for row in by_seq]
    assert times == sorted(set(times))
    assert times[-1] == jobs.read(order)["updated_at"]


def test_finish_with_the_next_step_of_a_cancelled_order_stops_at_the_border(jobs: Worker, order: Lease) -> None:
    jobs.begin(order, "charge")
    jobs.cancel(order.entity_id)
    row = jobs.finish_row(order, "charge", via="charged", to_state="reserving", next=next_step(order, "reserve"))
    assert (row["verdict"], row["next_verdict"]) == ("moved", None)
    after = jobs.read(order)
    assert (after["current_state"], after["last_seq"]) == ("charged", 3)
    assert "reserve" not in find_keys(jobs, order)


def test_pause_records_an_unknown_outcome_and_leaves_the_key_sent(jobs: Worker, order: Lease) -> None:
    jobs.begin(order, "charge")
    facts = {"step": "charge", "attempt": 1, "outcome": "unknown", "error_type": "timeout", "error": "y" * 3000}
    assert jobs.pause(order, wait_seconds=5, **facts) == "moved"
    assert read_attempts(jobs, order) == [("charge", "forward", 1, "unknown", "timeout")]
    assert find_keys(jobs, order)["charge"]["status"] == "sent"
    assert jobs.read(order)["current_state"] == "charging"


def test_outcome_once_recorded_stays(jobs: Worker, order: Lease) -> None:
    jobs.begin(order, "charge")
    jobs.pause(order, step="charge", attempt=1, outcome="unknown", error_type="timeout")
    jobs.pause(order, step="charge", attempt=1, outcome="failed", error_type="declined")
    assert read_attempts(jobs, order) == [("charge", "forward", 1, "unknown", "timeout")]
