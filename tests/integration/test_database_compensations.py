"""Undoing: what is owed is written first, undone strictly in reverse, and never dropped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from database_worker import Lease, Row, Worker, digest, refused


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
def owing(jobs: Worker) -> Lease:
    """Charged and reserved, could not be shipped, owes both undos."""
    order = jobs.do(jobs.started("order-1"), "charge", "reserve")
    jobs.begin(order, "ship")
    assert jobs.compensate(order, ["charge", "reserve"]) == "moved"
    return order


def read_undos(jobs: Worker) -> dict[str, Row]:
    return {row["step"]: row for row in jobs.rows("SELECT * FROM makegood.compensations")}


def undo(jobs: Worker, order: Lease, *steps: str) -> None:
    for step in steps:
        assert jobs.begin_undo(order, step)["verdict"] == "go"
        assert jobs.finish_undo(order, step) == "moved"


def test_compensate_writes_what_is_owed_with_its_keys(jobs: Worker, owing: Lease) -> None:
    undos = read_undos(jobs)
    assert {step: (row["position"], row["state"]) for step, row in undos.items()} == {
        **{"charge": (1, "pending"), "reserve": (2, "pending")},
    }
    assert (undos["charge"]["amount_minor"], undos["charge"]["currency"]) == (1000, "EUR")
    keys = jobs.rows("SELECT key, status FROM makegood.idempotency_keys WHERE operation LIKE '%.re%' ORDER BY key")
    owed = sorted(row["idempotency_key"] for row in undos.values())
    assert {row["key"]: row["status"] for row in keys if row["key"] in owed} == dict.fromkeys(owed, "intent")


def test_compensate_records_the_failed_attempt_and_its_answer(jobs: Worker) -> None:
    order = jobs.started("order-1")
    jobs.begin(order, "charge")
    facts = {"step": "charge", "attempt": 1, "outcome": "failed", "error_type": "declined", "error": "no funds"}
    answer = {"key": "charge-order-1", "response": {"failed": "declined"}, "metadata": {"failed_step": "charge"}}
    assert jobs.compensate(order, [], "failed", **facts, **answer) == "moved"
    row = jobs.read(order)
    assert (row["current_state"], row["finished_at"] is not None) == ("failed", True)
    (attempt,) = jobs.rows("SELECT * FROM makegood.step_attempts")
    assert (attempt["outcome"], attempt["error_type"], attempt["error"]) == ("failed", "declined", "no funds")
    key = jobs.row("SELECT * FROM makegood.idempotency_keys")
    assert (key["status"], key["response"]) == ("recorded", {"failed": "declined"})
    last = jobs.row("SELECT * FROM makegood.workflow_transitions WHERE to_state = 'failed'")
    assert last["metadata"] == {"failed_step": "charge"}


def test_compensate_by_who_does_not_hold_it_says_lost_and_owes_nothing(jobs: Worker) -> None:
    order = jobs.do(jobs.started("order-1"), "charge")
    assert jobs.compensate(replace(order, fence=0), ["charge"]) == "lost"
    assert read_undos(jobs) == {}
    assert jobs.rows("SELECT 1 FROM makegood.idempotency_keys WHERE status = 'intent'") == []


def test_undo_of_everything_in_reverse_ends_compensated(jobs: Worker, owing: Lease) -> None:
    undo(jobs, owing, "reserve", "charge")
    assert jobs.transition(owing, "compensated")
    undos = read_undos(jobs)
    assert {row["state"] for row in undos.values()} == {"succeeded"}
    assert undos["charge"]["result"] == {"undone": "charge"}
    assert undos["reserve"]["succeeded_at"] <= undos["charge"]["succeeded_at"]
    attempts = jobs.rows(
        "SELECT step, outcome FROM makegood.step_attempts WHERE kind = 'compensation' ORDER BY started_at"
    )
    assert [(row["step"], row["outcome"]) for row in attempts] == [("reserve", "success"), ("charge", "success")]


@pytest.mark.parametrize("state", ["pending", "running", "held"])
def test_undo_before_a_later_step_is_undone_says_lost_and_sends_nothing(
    jobs: Worker, admin: Worker, owing: Lease, state: str
) -> None:
    if state != "pending":
        admin.rows("UPDATE makegood.compensations SET state = %s WHERE step = 'reserve'", state)
    assert jobs.begin_undo(owing, "charge")["verdict"] == "lost"
    assert read_undos(jobs)["charge"]["attempts"] == 0
    keys = jobs.rows("SELECT 1 FROM makegood.idempotency_keys WHERE key LIKE 'refund-%' AND status <> 'intent'")
    assert keys == []


def test_undo_before_everything_is_undone_does_not_end_the_workflow(jobs: Worker, owing: Lease) -> None:
    undo(jobs, owing, "reserve")
    with refused("MG002", "the undo of step charge is not done"):
        jobs.transition(owing, "compensated")


def test_undo_begun_again_goes_under_the_same_key_and_counts(jobs: Worker, owing: Lease) -> None:
    assert jobs.begin_undo(owing, "reserve")["attempt"] == 1
    assert jobs.begin_undo(owing, "reserve")["attempt"] == 2
    row = read_undos(jobs)["reserve"]
    assert (row["state"], row["attempts"]) == ("running", 2)
    assert len(jobs.rows("SELECT 1 FROM makegood.idempotency_keys WHERE key = %s", row["idempotency_key"])) == 1


def test_undo_by_a_late_worker_says_lost_and_its_answer_is_known_to_the_next(
    jobs: Worker, admin: Worker, owing: Lease
) -> None:
    jobs.begin_undo(owing, "reserve")
    admin.rows("UPDATE makegood.workflow_executions SET lease_until = now() - interval '1 second'")
    (taken,) = jobs.claim()
    assert jobs.finish_undo(owing, "reserve") == "lost"
    assert read_undos(jobs)["reserve"]["state"] == "running"
    row = jobs.begin_undo(taken, "reserve")
    assert (row["verdict"], row["response"]) == ("known", {"undone": "reserve"})


def test_undo_after_the_window_says_expired(jobs: Worker, admin: Worker, owing: Lease) -> None:
    jobs.begin_undo(owing, "reserve")
    admin.rows("UPDATE makegood.idempotency_keys SET first_sent_at = now() - interval '2 hours' WHERE status = 'sent'")
    assert jobs.begin_undo(owing, "reserve")["verdict"] == "expired"


def test_undo_finished_again_changes_nothing(jobs: Worker, owing: Lease) -> None:
    undo(jobs, owing, "reserve")
    before = read_undos(jobs)["reserve"]
    jobs.finish_undo(owing, "reserve")
    assert read_undos(jobs)["reserve"] == before
    assert jobs.begin_undo(owing, "reserve")["verdict"] == "lost"


def test_pause_of_an_undo_waits_with_the_reason(jobs: Worker, owing: Lease) -> None:
    jobs.begin_undo(owing, "reserve")
    facts = {"attempt": 1, "outcome": "unknown", "error_type": "timeout", "error": "no answer", "wait_seconds": 30}
    assert jobs.pause_undo(owing, "reserve", **facts) == "moved"
    row = read_undos(jobs)["reserve"]
    assert (row["state"], row["last_error"]) == ("pending", "timeout: no answer")
    execution = jobs.read(owing)
    assert (execution["current_state"], execution["lease_owner"]) == ("compensating", None)
    assert jobs.claim() == []
    (owed,) = jobs.rows("SELECT * FROM makegood.owed_compensations(%s::jsonb)", f'[{{"id": "{owing.id}"}}]')
    waits = {entry["step"]: entry["wait_seconds"] for entry in owed["compensations"]}
    assert waits["charge"] <= 0 < waits["reserve"] <= 30


def test_pause_of_an_undo_with_a_hold_parks_it_with_its_workflow(jobs: Worker, owing: Lease) -> None:
    jobs.begin_undo(owing, "reserve")
    facts = {"attempt": 1, "outcome": "failed", "error_type": "gone", "error": "no such reservation"}
    assert jobs.pause_undo(owing, "reserve", hold_reason="a person must look", **facts) == "moved"
    execution = jobs.read(owing)
    assert (execution["current_state"], execution["held_reason"]) == ("compensating", "a person must look")
    undos = read_undos(jobs)
    assert (undos["reserve"]["state"], undos["charge"]["state"]) == ("held", "pending")
    assert jobs.claim() == []
    assert jobs.begin_undo(owing, "reserve")["verdict"] == "lost"


def test_pause_of_an_undo_by_a_late_worker_says_lost_and_holds_nothing(
    jobs: Worker, admin: Worker, owing: Lease
) -> None:
    jobs.begin_undo(owing, "reserve")
    admin.rows("UPDATE makegood.workflow_executions SET lease_until = now() - interval '1 second'")
    jobs.claim()
    assert jobs.pause_undo(owing, "reserve", hold_reason="late") == "lost"
    assert (jobs.read(owing)["held_at"], read_undos(jobs)["reserve"]["state"]) == (None, "running")


def test_key_of_an_undo_asked_for_before_it_was_sent_takes_the_request_that_is_sent(
    jobs: Worker, owing: Lease, admin: Worker
) -> None:
    """Between the plan and the call the definition may have been deployed anew; nothing was sent yet."""
    admin.rows("UPDATE makegood.idempotency_keys SET request_hash = sha256('other') WHERE status = 'intent'")
    assert jobs.begin_undo(owing, "reserve")["verdict"] == "go"
    key = jobs.row("SELECT request_hash FROM makegood.idempotency_keys WHERE key LIKE 'release-%'")
    assert key["request_hash"] == digest("undo reserve")
