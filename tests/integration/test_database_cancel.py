"""Asking for an order to be undone: honoured at the next border, with who and why, or refused because it is done."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from database_worker import Lease, Worker, open_database, refused

from makegood.local.postgres import EmbeddedPostgres

RACES = 200


@pytest.fixture(scope="module")
def url(server: EmbeddedPostgres) -> Iterator[str]:
    with open_database(server) as name:
        yield server.url("makegood_jobs", name)


@pytest.fixture(scope="module")
def jobs(url: str) -> Iterator[Worker]:
    with Worker(url) as worker:
        worker.register()
        yield worker


@pytest.fixture
def order(jobs: Worker) -> Lease:
    return jobs.started(f"order-{uuid.uuid4()}")


def find_actions(jobs: Worker, order: Lease) -> list[dict[str, object]]:
    return jobs.rows("SELECT * FROM makegood.operator_actions WHERE subject = %s", order.entity_id)


def test_cancel_of_an_order_under_way_is_requested_with_an_audit_row(jobs: Worker, order: Lease) -> None:
    jobs.begin(order, "charge")
    assert jobs.cancel(order.entity_id, "ann", "changed her mind") == "requested"
    row = jobs.read(order)
    assert (row["cancel_requested"], row["cancel_requested_by"], row["cancel_reason"]) == (
        *(True, "ann", "changed her mind"),
    )
    assert row["current_state"] == "charging"
    (action,) = find_actions(jobs, order)
    assert (action["actor"], action["action"], action["reason"]) == ("ann", "cancel", "changed her mind")
    assert action["details"] == {"workflow_type": "checkout", "workflow_id": str(order.id), "state": "charging"}


def test_cancel_again_says_so_and_keeps_who_was_first(jobs: Worker, order: Lease) -> None:
    jobs.cancel(order.entity_id, "ann", "changed her mind")
    assert jobs.cancel(order.entity_id, "bob", "fraud") == "already_requested"
    assert jobs.read(order)["cancel_requested_by"] == "ann"
    assert len(find_actions(jobs, order)) == 1


def test_cancel_of_an_order_being_undone_says_so(jobs: Worker, order: Lease) -> None:
    jobs.compensate(order, [])
    assert jobs.cancel(order.entity_id) == "compensating"
    assert find_actions(jobs, order) == []


@pytest.mark.parametrize("end", ["completed", "failed", "compensated"])
def test_cancel_of_an_order_that_is_finished_is_too_late(jobs: Worker, order: Lease, end: str) -> None:
    if end == "completed":
        jobs.do(order, "charge", "reserve", "ship")
    elif end == "failed":
        jobs.begin(order, "charge")
        jobs.compensate(order, [], "failed")
    else:
        jobs.compensate(order, [])
        jobs.transition(order, "compensated")
    assert jobs.read(order)["current_state"] == end
    assert jobs.cancel(order.entity_id) == "too_late"
    assert jobs.read(order)["cancel_requested"] is False
    assert find_actions(jobs, order) == []


def test_cancel_of_an_unknown_order_says_so(jobs: Worker) -> None:
    assert jobs.cancel("order-of-nobody") == "unknown"


@pytest.mark.parametrize(("actor", "reason"), [("", "why"), ("ann", ""), ("ann", "  "), (" ", "why"), (None, None)])
def test_cancel_without_who_or_why_is_refused(jobs: Worker, order: Lease, actor: str, reason: str) -> None:
    with refused("MG011"):
        jobs.cancel(order.entity_id, actor, reason)
    assert jobs.read(order)["cancel_requested"] is False


@pytest.mark.parametrize("reason", ["x" * 5000, "  " + "x" * 2000, "é" * 2500])
def test_cancel_with_a_long_reason_keeps_the_beginning_of_it(jobs: Worker, order: Lease, reason: str) -> None:
    assert jobs.cancel(order.entity_id, "ann", reason) == "requested"
    (action,) = find_actions(jobs, order)
    assert action["reason"] == jobs.read(order)["cancel_reason"] == reason.strip()[:2000]


def test_cancel_leaves_who_and_why_in_the_transition_that_honours_it(jobs: Worker, order: Lease) -> None:
    jobs.do(order, "charge")
    jobs.cancel(order.entity_id, "ann", "changed her mind")
    assert jobs.compensate(order, ["charge"], metadata={"at": "the border"}) == "moved"
    hop = jobs.row(
        "SELECT metadata FROM makegood.workflow_transitions WHERE workflow_id = %s AND to_state = 'compensating'",
        order.id,
    )
    assert hop["metadata"] == {
        "at": "the border",
        "cancel_requested_by": "ann",
        "cancel_reason": "changed her mind",
    }


def test_cancel_before_anything_was_done_ends_compensated(jobs: Worker, order: Lease) -> None:
    jobs.cancel(order.entity_id)
    assert jobs.begin(order, "charge")["verdict"] == "cancel"
    assert jobs.compensate(order, []) == "moved"
    assert jobs.transition(order, "compensated")


def test_cancel_racing_the_completion_has_exactly_one_winner(jobs: Worker, url: str) -> None:
    """The order is finished and the cancel too late, or the cancel is on record and the order is undone."""
    orders = []
    for number in range(RACES):
        order = jobs.do(jobs.started(f"race-{number}"), "charge", "reserve")
        assert jobs.begin(order, "ship")["verdict"] == "go"
        orders.append(order)
    asked: list[str] = []
    together = threading.Barrier(2)

    def ask() -> None:
        with Worker(url, "operator") as operator:
            for order in orders:
                together.wait()
                asked.append(operator.cancel(order.entity_id))

    asking = threading.Thread(target=ask)
    asking.start()
    answered = []
    for order in orders:
        together.wait()
        answered.append(jobs.finish(replace(order), "ship"))
    asking.join()
    outcomes = Counter(zip(answered, asked, strict=True))
    assert set(outcomes) <= {("moved", "too_late"), ("cancel", "requested")}, outcomes
    for order, (finished, _) in zip(orders, zip(answered, asked, strict=True), strict=True):
        row = jobs.read(order)
        assert row["cancel_requested"] is (finished == "cancel")
        assert row["current_state"] == ("completed" if finished == "moved" else "shipping")
        if finished == "cancel":
            assert jobs.compensate(replace(order, state="shipping"), ["charge", "reserve", "ship"]) == "moved"
