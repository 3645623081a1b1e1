"""Undoing: what is owed is written first, undone strictly in reverse, and never dropped."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from database_worker import Lease, Row, Worker, digest, open_database, refused

from makegood.engine.definitions import compensation_id
from makegood.local.postgres import EmbeddedPostgres


@pytest.fixture(scope="module")
def name(server: EmbeddedPostgres) -> Iterator[str]:
    """One database for all: every test has an order, and with it undos, of its own."""
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


@pytest.fixture
def owing(jobs: Worker, order: Lease) -> Lease:
    """Charged and reserved, could not be shipped, owes both undos."""
    jobs.do(order, "charge", "reserve")
    jobs.begin(order, "ship")
    assert jobs.compensate(order, ["charge", "reserve"]) == "moved"
    return order


def read_undos(jobs: Worker, order: Lease) -> dict[str, Row]:
    """What an order owes, by step."""
    rows = jobs.rows("SELECT * FROM makegood.compensations WHERE workflow_id = %s", order.id)
    return {row["step"]: row for row in rows}


def read_keys(jobs: Worker, order: Lease) -> dict[str, Row]:
    """The keys of what an order owes, by step."""
    rows = jobs.rows(
        "SELECT c.step, k.* FROM makegood.compensations c JOIN makegood.idempotency_keys k ON k.key = c.idempotency_key"
        " WHERE c.workflow_id = %s",
        order.id,
    )
    return {row["step"]: row for row in rows}


def run_out_of_time(admin: Worker, jobs: Worker, order: Lease) -> Lease:
    """Another worker has it now: the first is late."""
    admin.rows(
        "UPDATE makegood.workflow_executions SET lease_until = now() - interval '1 second' WHERE id = %s", order.id
    )
    (taken,) = jobs.claim(ids=[order.id])
    return taken


def undo(jobs: Worker, order: Lease, *steps: str) -> None:
    for step in steps:
        assert jobs.begin_undo(order, step)["verdict"] == "go"
        assert jobs.finish_undo(order, step) == "moved"


def test_compensate_writes_what_is_owed_with_its_keys(jobs: Worker, owing: Lease) -> None:
    undos = read_undos(jobs, owing)
    assert {step: (row["position"], row["state"]) for step, row in undos.items()} == {
        **{"charge": (1, "pending"), "reserve": (2, "pending")},
    }
    assert (undos["charge"]["amount_minor"], undos["charge"]["currency"]) == (1000, "EUR")
    assert {step: key["status"] for step, key in read_keys(jobs, owing).items()} == {
        **{"charge": "intent", "reserve": "intent"},
    }


def test_compensate_records_the_failed_attempt_and_its_answer(jobs: Worker, order: Lease) -> None:
    jobs.begin(order, "charge")
    facts = {"step": "charge", "attempt": 1, "outcome": "failed", "error_type": "declined", "error": "no funds"}
    answer = {"key": f"charge-{order.entity_id}", "response": {"failed": "declined"}}
    assert jobs.compensate(order, [], "failed", **facts, **answer, metadata={"failed_step": "charge"}) == "moved"
    row = jobs.read(order)
    assert (row["current_state"], row["finished_at"] is not None) == ("failed", True)
    (attempt,) = jobs.rows("SELECT * FROM makegood.step_attempts WHERE workflow_id = %s", order.id)
    assert (attempt["outcome"], attempt["error_type"], attempt["error"]) == ("failed", "declined", "no funds")
    key = jobs.row("SELECT * FROM makegood.idempotency_keys WHERE key = %s", answer["key"])
    assert (key["status"], key["response"]) == ("recorded", {"failed": "declined"})
    last = jobs.row("SELECT * FROM makegood.workflow_transitions WHERE workflow_id = %s AND seq = 3", order.id)
    assert last["metadata"] == {"failed_step": "charge"}


def test_compensate_by_who_does_not_hold_it_says_lost_and_owes_nothing(jobs: Worker, order: Lease) -> None:
    jobs.do(order, "charge")
    assert jobs.compensate(replace(order, fence=0), ["charge"]) == "lost"
    assert read_undos(jobs, order) == {}
    owed = f"refund-{compensation_id(order.id, 'charge')}"
    assert jobs.rows("SELECT 1 FROM makegood.idempotency_keys WHERE key = %s", owed) == []


def test_undo_of_everything_in_reverse_ends_compensated(jobs: Worker, owing: Lease) -> None:
    undo(jobs, owing, "reserve", "charge")
    assert jobs.transition(owing, "compensated")
    undos = read_undos(jobs, owing)
    assert {row["state"] for row in undos.values()} == {"succeeded"}
    assert undos["charge"]["result"] == {"undone": "charge"}
    assert undos["reserve"]["succeeded_at"] <= undos["charge"]["succeeded_at"]
    attempts = jobs.rows(
        "SELECT step, outcome FROM makegood.step_attempts WHERE kind = 'compensation' AND workflow_id = %s"
        " ORDER BY started_at",
        owing.id,
    )
    assert [(row["step"], row["outcome"]) for row in attempts] == [("reserve", "success"), ("charge", "success")]


@pytest.mark.parametrize("state", ["pending", "running", "held"])
def test_undo_before_a_later_step_is_undone_says_lost_and_sends_nothing(
    jobs: Worker, admin: Worker, owing: Lease, state: str
) -> None:
    if state != "pending":
        change = "UPDATE makegood.compensations SET state = %s WHERE step = 'reserve' AND workflow_id = %s"
        admin.rows(change, state, owing.id)
    assert jobs.begin_undo(owing, "charge")["verdict"] == "lost"
    assert read_undos(jobs, owing)["charge"]["attempts"] == 0
    assert read_keys(jobs, owing)["charge"]["status"] == "intent"


def test_undo_before_everything_is_undone_does_not_end_the_workflow(jobs: Worker, owing: Lease) -> None:
    undo(jobs, owing, "reserve")
    with refused("MG002", "the undo of step charge is not done"):
        jobs.transition(owing, "compensated")


def test_undo_begun_again_goes_under_the_same_key_and_counts(jobs: Worker, owing: Lease) -> None:
    assert jobs.begin_undo(owing, "reserve")["attempt"] == 1
    assert jobs.begin_undo(owing, "reserve")["attempt"] == 2
    row = read_undos(jobs, owing)["reserve"]
    assert (row["state"], row["attempts"]) == ("running", 2)
    assert read_keys(jobs, owing)["reserve"]["status"] == "sent"


def test_undo_by_a_late_worker_says_lost_and_its_answer_is_known_to_the_next(
    jobs: Worker, admin: Worker, owing: Lease
) -> None:
    jobs.begin_undo(owing, "reserve")
    taken = run_out_of_time(admin, jobs, owing)
    assert jobs.finish_undo(owing, "reserve") == "lost"
    assert read_undos(jobs, owing)["reserve"]["state"] == "running"
    row = jobs.begin_undo(taken, "reserve")
    assert (row["verdict"], row["response"]) == ("known", {"undone": "reserve"})


def test_undo_after_the_window_says_expired(jobs: Worker, admin: Worker, owing: Lease) -> None:
    jobs.begin_undo(owing, "reserve")
    key = read_keys(jobs, owing)["reserve"]["key"]
    admin.rows("UPDATE makegood.idempotency_keys SET first_sent_at = now() - interval '2 hours' WHERE key = %s", key)
    assert jobs.begin_undo(owing, "reserve")["verdict"] == "expired"


def test_undo_finished_again_changes_nothing(jobs: Worker, owing: Lease) -> None:
    undo(jobs, owing, "reserve")
    before = read_undos(jobs, owing)["reserve"]
    jobs.finish_undo(owing, "reserve")
    assert read_undos(jobs, owing)["reserve"] == before
    assert jobs.begin_undo(owing, "reserve")["verdict"] == "lost"


def test_pause_of_an_undo_waits_with_the_reason(jobs: Worker, owing: Lease) -> None:
    jobs.begin_undo(owing, "reserve")
    facts = {"attempt": 1, "outcome": "unknown", "error_type": "timeout", "error": "no answer", "wait_seconds": 30}
    assert jobs.pause_undo(owing, "reserve", **facts) == "moved"
    row = read_undos(jobs, owing)["reserve"]
    assert (row["state"], row["last_error"]) == ("pending", "timeout: no answer")
    execution = jobs.read(owing)
    assert (execution["current_state"], execution["lease_owner"]) == ("compensating", None)
    assert jobs.claim(ids=[owing.id]) == []
    (owed,) = jobs.rows("SELECT * FROM makegood.owed_compensations(%s::jsonb)", f'[{{"id": "{owing.id}"}}]')
    waits = {entry["step"]: entry["wait_seconds"] for entry in owed["compensations"]}
    assert waits["charge"] <= 0 < waits["reserve"] <= 30


def test_pause_of_an_undo_with_a_hold_parks_it_with_its_workflow(jobs: Worker, owing: Lease) -> None:
    jobs.begin_undo(owing, "reserve")
    facts = {"attempt": 1, "outcome": "failed", "error_type": "gone", "error": "no such reservation"}
    assert jobs.pause_undo(owing, "reserve", hold_reason="a person must look", **facts) == "moved"
    execution = jobs.read(owing)
    assert (execution["current_state"], execution["held_reason"]) == ("compensating", "a person must look")
    undos = read_undos(jobs, owing)
    assert (undos["reserve"]["state"], undos["charge"]["state"]) == ("held", "pending")
    assert jobs.claim(ids=[owing.id]) == []
    assert jobs.begin_undo(owing, "reserve")["verdict"] == "lost"


def test_pause_of_an_undo_by_a_late_worker_says_lost_and_holds_nothing(
    jobs: Worker, admin: Worker, owing: Lease
) -> None:
    jobs.begin_undo(owing, "reserve")
    run_out_of_time(admin, jobs, owing)
    assert jobs.pause_undo(owing, "reserve", hold_reason="late") == "lost"
    assert (jobs.read(owing)["held_at"], read_undos(jobs, owing)["reserve"]["state"]) == (None, "running")


def test_key_of_an_undo_asked_for_before_it_was_sent_takes_the_request_that_is_sent(
    jobs: Worker, owing: Lease, admin: Worker
) -> None:
    """Between the plan and the call the definition may have been deployed anew; nothing was sent yet."""
    key = read_keys(jobs, owing)["reserve"]["key"]
    admin.rows("UPDATE makegood.idempotency_keys SET request_hash = sha256('other') WHERE key = %s", key)
    assert jobs.begin_undo(owing, "reserve")["verdict"] == "go"
    assert read_keys(jobs, owing)["reserve"]["request_hash"] == digest("undo reserve")
