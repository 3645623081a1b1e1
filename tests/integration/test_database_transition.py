"""One guarded change of state: it happens from the state and under the fence the caller saw, or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from database_worker import Lease, Worker, open_database, refused

from makegood.local.postgres import EmbeddedPostgres

ROUNDS = 50


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


def test_transition_from_the_state_seen_happens_and_is_written_down(jobs: Worker, order: Lease) -> None:
    before = jobs.read(order)
    assert jobs.transition(order, "charging", why="because") is True
    after = jobs.read(order)
    assert (after["current_state"], after["last_seq"]) == ("charging", 2)
    assert after["updated_at"] > before["updated_at"]
    written = jobs.row("SELECT * FROM makegood.workflow_transitions WHERE workflow_id = %s AND seq = 2", order.id)
    assert (written["from_state"], written["to_state"]) == ("created", "charging")
    assert (written["triggered_by"], written["metadata"]) == ("worker-1", {"why": "because"})
    assert written["transitioned_at"] == after["updated_at"]


def test_transition_to_a_terminal_state_ends_the_lease(jobs: Worker, order: Lease) -> None:
    jobs.do(order, "charge", "reserve")
    jobs.begin(order, "ship")
    assert jobs.transition(order, "completed")
    row = jobs.read(order)
    assert row["finished_at"] == row["updated_at"]
    assert (row["lease_owner"], row["lease_until"]) == (None, None)


@pytest.mark.parametrize(
    ("seen", "to_state"),
    [
        ({"state": "charging"}, "charged"),  # it is not there yet
        ({"fence": 0}, "charging"),  # a lease from before
        ({"fence": 2}, "charging"),  # a lease nobody gave
        ({"id": uuid.UUID(int=1)}, "charging"),  # no such workflow
    ],
)
def test_transition_by_who_does_not_hold_it_is_false_and_changes_nothing(
    jobs: Worker, order: Lease, seen: dict[str, Any], to_state: str
) -> None:
    before = jobs.read(order)
    assert jobs.transition(replace(order, **seen), to_state) is False
    assert jobs.read(order) == before


@pytest.mark.parametrize("to_state", ["charged", "completed", "compensated", "failed", "nowhere", "created"])
def test_transition_that_is_illegal_is_an_error_and_changes_nothing(jobs: Worker, order: Lease, to_state: str) -> None:
    before = jobs.read(order)
    with refused("MG001", "illegal transition"):
        jobs.transition(order, to_state)
    assert jobs.read(order) == before


def test_transition_again_is_false(jobs: Worker, order: Lease) -> None:
    again = replace(order)
    assert jobs.transition(order, "charging") is True
    assert jobs.transition(again, "charging") is False


def test_transition_by_two_at_once_happens_once(jobs: Worker, url: str) -> None:
    with Worker(url, "worker-2") as other, ThreadPoolExecutor(2) as pool:
        for _ in range(ROUNDS):
            order = jobs.started(f"order-{uuid.uuid4()}")
            answers = [pool.submit(worker.transition, replace(order), "charging") for worker in (jobs, other)]
            assert sorted(answer.result() for answer in answers) == [False, True]
            assert jobs.read(order)["last_seq"] == 2


def test_transition_into_compensating_without_what_is_owed_is_refused(jobs: Worker, order: Lease) -> None:
    """Otherwise charged → compensating → compensated would end without a refund."""
    with refused("MG001", "only with what is owed"):
        jobs.rows("SELECT makegood.transition_workflow(%s, 'created', 'compensating', %s)", order.id, order.fence)
