"""The two transactions around an outside call: what may be sent, and what is kept of the answer."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from database_worker import DONE, Lease, Row, Worker, digest

OUTBOX = [{"topic": "send_confirmation", "key": "send_confirmation-order-1", "payload": {"entity_id": "order-1"}}]


@pytest.fixture
def jobs(database: Any) -> Iterator[Worker]:
    with Worker(database.jobs) as worker:
        worker.register()
        yield worker


@pytest.fixture
def admin(database: Any) -> Iterator[Worker]:
    with Worker(database.admin) as worker:
        yield worker


@pytest.fixture
def order(jobs: Worker) -> Lease:
    return jobs.started("order-1")


def read_key(jobs: Worker, key: str) -> Row:
    return jobs.row("SELECT * FROM makegood.idempotency_keys WHERE key = %s", key)


def read_attempts(jobs: Worker) -> list[tuple[Any, ...]]:
    rows = jobs.rows("SELECT * FROM makegood.step_attempts ORDER BY started_at, attempt")
    return [(row["step"], row["kind"], row["attempt"], row["outcome"], row["error_type"]) for row in rows]


def take_over(admin: Worker, jobs: Worker, order: Lease) -> Lease:
    """The lease ran out and another worker has it: the first is late."""
    admin.rows("UPDATE makegood.workflow_executions SET lease_until = now() - interval '1 second'")
    (taken,) = jobs.claim(ids=[order.id])
    return taken


def test_run_of_all_steps_ends_completed_with_a_whole_chain(jobs: Worker, order: Lease) -> None:
    jobs.do(order, "charge", "reserve", "ship")
    row = jobs.read(order)
    assert (row["current_state"], row["last_seq"], row["lease_owner"]) == ("completed", 7, None)
    assert row["context"] == {step: {"ok": True} for step in DONE}
    hops = jobs.rows("SELECT seq, from_state, to_state FROM makegood.workflow_transitions ORDER BY seq")
    states = ["created", "charging", "charged", "reserving", "reserved", "shipping", "completed"]
    assert [(hop["seq"], hop["from_state"], hop["to_state"]) for hop in hops] == [
        (seq, before, after) for seq, (before, after) in enumerate(zip([None, *states], states, strict=False), start=1)
    ]
    assert read_attempts(jobs) == [(step, "forward", 1, "success", None) for step in DONE]
    assert {row["status"] for row in jobs.rows("SELECT status FROM makegood.idempotency_keys")} == {"recorded"}


def test_begin_for_the_first_time_says_go_with_the_key_stored(jobs: Worker, order: Lease) -> None:
    assert jobs.begin(order, "charge") == {"id": order.id, "verdict": "go", "attempt": 1, "response": None}
    key = read_key(jobs, "charge-order-1")
    assert (key["status"], key["operation"], key["request_hash"]) == ("sent", "checkout.charge", digest("same"))
    row = jobs.read(order)
    assert (row["current_state"], row["attempts"]) == ("charging", 1)
    assert read_attempts(jobs) == [("charge", "forward", 1, None, None)]


def test_begin_again_says_go_under_the_same_key_and_counts(jobs: Worker, order: Lease) -> None:
    jobs.begin(order, "charge")
    first_sent_at = read_key(jobs, "charge-order-1")["first_sent_at"]
    assert jobs.begin(order, "charge")["attempt"] == 2
    row = jobs.read(order)
    assert (row["attempts"], row["last_seq"]) == (2, 2)
    # Counted from the first sending: that is when the provider's memory of the key began.
    assert read_key(jobs, "charge-order-1")["first_sent_at"] == first_sent_at


def test_begin_after_a_late_answer_says_known_with_the_answer(jobs: Worker, admin: Worker, order: Lease) -> None:
    jobs.begin(order, "charge")
    taken = take_over(admin, jobs, order)
    assert jobs.finish(order, "charge", response={"id": "ch_1"}) == "lost"
    row = jobs.begin(taken, "charge")
    assert (row["verdict"], row["response"], row["attempt"]) == ("known", {"id": "ch_1"}, None)


def test_begin_while_a_late_answer_is_being_written_says_known(
    jobs: Worker, admin: Worker, order: Lease, database: Any
) -> None:
    """It waits for the key's row, and must then tell what it found there and not what was there before."""
    jobs.begin(order, "charge")
    taken = take_over(admin, jobs, order)
    with Worker(database.jobs, "worker-2") as other, ThreadPoolExecutor(1) as pool:
        with jobs.connection.transaction():
            assert jobs.finish(order, "charge", response={"id": "ch_1"}) == "lost"
            beginning = pool.submit(other.begin, taken, "charge")
            admin.wait_until_blocked(other)
        row = beginning.result(timeout=10)
    assert (row["verdict"], row["response"]) == ("known", {"id": "ch_1"})


def test_begin_after_the_window_says_expired(jobs: Worker, admin: Worker, order: Lease) -> None:
    jobs.begin(order, "charge")
    admin.rows("UPDATE makegood.idempotency_keys SET first_sent_at = now() - interval '21 hours'")
    assert jobs.begin(order, "charge", window_seconds=20 * 3600)["verdict"] == "expired"
    assert len(read_attempts(jobs)) == 1


def test_begin_with_other_parameters_under_a_sent_key_says_conflict(jobs: Worker, order: Lease) -> None:
    jobs.begin(order, "charge", request="100 EUR")
    assert jobs.begin(order, "charge", request="200 EUR")["verdict"] == "conflict"
    assert read_key(jobs, "charge-order-1")["request_hash"] == digest("100 EUR")


def test_begin_of_a_cancelled_order_says_cancel_and_sends_nothing(jobs: Worker, order: Lease) -> None:
    jobs.cancel("order-1")
    assert jobs.begin(order, "charge")["verdict"] == "cancel"
    assert jobs.read(order)["current_state"] == "created"
    assert jobs.rows("SELECT 1 FROM makegood.idempotency_keys") == []


def test_begin_again_of_a_cancelled_order_says_go(jobs: Worker, order: Lease) -> None:
    """A call may be under way: its outcome is found out before anything is undone."""
    jobs.begin(order, "charge")
    jobs.cancel("order-1")
    assert jobs.begin(order, "charge")["verdict"] == "go"


@pytest.mark.parametrize("seen", [{"fence": 0}, {"state": "charged"}])
def test_begin_by_who_does_not_hold_it_says_lost_and_sends_nothing(
    jobs: Worker, order: Lease, seen: dict[str, Any]
) -> None:
    assert jobs.begin(replace(order, **seen), "charge")["verdict"] == "lost"
    assert jobs.rows("SELECT 1 FROM makegood.idempotency_keys") == []
    assert read_attempts(jobs) == []


def test_finish_keeps_state_result_attempt_key_and_messages_together(jobs: Worker, order: Lease) -> None:
    jobs.do(order, "charge", "reserve")
    jobs.begin(order, "ship")
    assert jobs.finish(order, "ship", response={"id": "sh_1"}, patch={"ship": {"id": "sh_1"}}, outbox=OUTBOX) == "moved"
    assert jobs.read(order)["context"]["ship"] == {"id": "sh_1"}
    key = read_key(jobs, "ship-order-1")
    assert (key["status"], key["response"]) == ("recorded", {"id": "sh_1"})
    (message,) = jobs.rows("SELECT * FROM makegood.outbox")
    assert (message["topic"], message["payload"], message["published_at"]) == (
        *("send_confirmation", {"entity_id": "order-1"}, None),
    )


def test_finish_again_says_lost_and_tells_nobody_twice(jobs: Worker, order: Lease) -> None:
    jobs.do(order, "charge", "reserve")
    jobs.begin(order, "ship")
    again = replace(order)
    assert jobs.finish(order, "ship", outbox=OUTBOX) == "moved"
    assert jobs.finish(again, "ship", outbox=OUTBOX, response={"id": "other"}) == "lost"
    assert len(jobs.rows("SELECT 1 FROM makegood.outbox")) == 1
    assert read_key(jobs, "ship-order-1")["response"] == {"step": "ship"}


def test_finish_by_a_late_worker_says_lost_and_keeps_the_answer(jobs: Worker, admin: Worker, order: Lease) -> None:
    jobs.begin(order, "charge")
    take_over(admin, jobs, order)
    assert jobs.finish(order, "charge", response={"id": "ch_1"}, outbox=OUTBOX) == "lost"
    row = jobs.read(order)
    assert (row["current_state"], row["context"]) == ("charging", {})
    key = read_key(jobs, "charge-order-1")
    assert (key["status"], key["response"]) == ("known", {"id": "ch_1"})
    assert read_attempts(jobs) == [("charge", "forward", 1, "success", None)]
    assert jobs.rows("SELECT 1 FROM makegood.outbox") == []


def test_finish_of_the_last_step_of_a_cancelled_order_says_cancel_and_keeps_the_answer(
    jobs: Worker, order: Lease
) -> None:
    jobs.do(order, "charge", "reserve")
    jobs.begin(order, "ship")
    assert jobs.cancel("order-1") == "requested"
    assert jobs.finish(order, "ship", outbox=OUTBOX) == "cancel"
    assert jobs.read(order)["current_state"] == "shipping"
    assert read_key(jobs, "ship-order-1")["status"] == "known"
    assert jobs.rows("SELECT 1 FROM makegood.outbox") == []


def test_finish_of_an_earlier_step_of_a_cancelled_order_says_moved(jobs: Worker, order: Lease) -> None:
    """Up to the border: the next step is what does not begin."""
    jobs.begin(order, "charge")
    jobs.cancel("order-1")
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
    assert read_key(jobs, "reserve-order-1")["status"] == "sent"


def test_finish_with_the_next_step_writes_both_transitions_in_their_order(jobs: Worker, order: Lease) -> None:
    """People order by number, by id or by time, and must read the same story."""
    jobs.begin(order, "charge")
    jobs.finish_row(order, "charge", via="charged", to_state="reserving", next=next_step(order, "reserve"))
    by_id = jobs.rows("SELECT to_state FROM makegood.workflow_transitions ORDER BY id")
    by_seq = jobs.rows("SELECT to_state, transitioned_at FROM makegood.workflow_transitions ORDER BY seq")
    states = ["created", "charging", "charged", "reserving"]
    assert [row["to_state"] for row in by_id] == [row["to_state"] for row in by_seq] == states
    times = [row["transitioned_at"] for row in by_seq]
    assert times == sorted(set(times))
    assert times[-1] == jobs.read(order)["updated_at"]


def test_finish_with_the_next_step_of_a_cancelled_order_stops_at_the_border(jobs: Worker, order: Lease) -> None:
    jobs.begin(order, "charge")
    jobs.cancel("order-1")
    row = jobs.finish_row(order, "charge", via="charged", to_state="reserving", next=next_step(order, "reserve"))
    assert (row["verdict"], row["next_verdict"]) == ("moved", None)
    after = jobs.read(order)
    assert (after["current_state"], after["last_seq"]) == ("charged", 3)
    assert jobs.rows("SELECT 1 FROM makegood.idempotency_keys WHERE key = 'reserve-order-1'") == []


def test_pause_records_an_unknown_outcome_and_leaves_the_key_sent(jobs: Worker, order: Lease) -> None:
    jobs.begin(order, "charge")
    facts = {"step": "charge", "attempt": 1, "outcome": "unknown", "error_type": "timeout", "error": "y" * 3000}
    assert jobs.pause(order, wait_seconds=5, **facts) == "moved"
    assert read_attempts(jobs) == [("charge", "forward", 1, "unknown", "timeout")]
    assert read_key(jobs, "charge-order-1")["status"] == "sent"
    assert jobs.read(order)["current_state"] == "charging"


def test_outcome_once_recorded_stays(jobs: Worker, order: Lease) -> None:
    jobs.begin(order, "charge")
    jobs.pause(order, step="charge", attempt=1, outcome="unknown", error_type="timeout")
    jobs.pause(order, step="charge", attempt=1, outcome="failed", error_type="declined")
    assert read_attempts(jobs) == [("charge", "forward", 1, "unknown", "timeout")]
