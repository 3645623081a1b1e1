"""A claim takes what is due and free, once, and raises the fence; nothing about a lease counts as progress."""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from checkouts import let_stick
from database_worker import DEFINITION, Lease, Worker, refused

CLAIMERS = 8


@pytest.fixture
def jobs(database: Any) -> Iterator[Worker]:
    with Worker(database.jobs) as worker:
        worker.register()
        yield worker


@pytest.fixture
def admin(database: Any) -> Iterator[Worker]:
    with Worker(database.admin) as worker:
        yield worker


def start_orders(jobs: Worker, count: int) -> None:
    jobs.rows("SELECT makegood.start_workflow('checkout', 'order-' || n) FROM generate_series(1, %s) AS n", count)


def change(admin: Worker, assignments: str) -> None:
    """What no function does: time that has passed, seen from the row."""
    admin.rows(f"UPDATE makegood.workflow_executions SET {assignments}")


def test_claim_of_nothing_returns_nothing(jobs: Worker) -> None:
    assert jobs.claim() == []


def test_claim_leases_the_row_and_raises_its_fence(jobs: Worker) -> None:
    jobs.start("order-1")
    (lease,) = jobs.claim(lease_seconds=30)
    row = jobs.row("SELECT *, lease_until - clock_timestamp() AS remaining FROM makegood.workflow_executions")
    assert (row["lease_owner"], row["fence"], lease.fence) == ("worker-1", 1, 1)
    assert 20 < row["remaining"].total_seconds() <= 30


@pytest.mark.parametrize(("batch", "taken"), [(0, 0), (1, 1), (4, 4), (5, 5), (6, 5)])
def test_claim_takes_no_more_than_its_batch(jobs: Worker, batch: int, taken: int) -> None:
    start_orders(jobs, 5)
    assert len(jobs.claim(batch)) == taken


def test_claim_takes_the_longest_due_first(jobs: Worker, admin: Worker) -> None:
    start_orders(jobs, 5)
    change(admin, "next_attempt_at = now() - make_interval(mins => right(entity_id, 1)::integer)")
    assert {lease.entity_id for lease in jobs.claim(2)} == {"order-4", "order-5"}


@pytest.mark.parametrize(
    "assignments",
    [
        "held_at = now(), held_reason = 'a person looks'",
        "lease_owner = 'worker-2', lease_until = now() + interval '1 minute'",
        "next_attempt_at = now() + interval '1 minute'",
    ],
)
def test_claim_leaves_what_is_not_free_or_not_due(jobs: Worker, admin: Worker, assignments: str) -> None:
    wanted = jobs.start("order-1")
    change(admin, f"deadline_at = now() - interval '1 minute', {assignments}")
    for options in ({}, {"stuck_only": True}, {"types": ["checkout"]}, {"ids": [wanted]}):
        assert jobs.claim(**options) == []


def test_claim_leaves_what_is_finished(jobs: Worker) -> None:
    jobs.do(jobs.started("order-1"), "charge", "reserve", "ship")
    assert jobs.claim() == []


def test_claim_after_the_lease_ran_out_has_a_higher_fence(jobs: Worker, admin: Worker, database: Any) -> None:
    first = jobs.started("order-1")
    change(admin, "lease_until = now() - interval '1 second'")
    with Worker(database.jobs, "worker-2") as other:
        (second,) = other.claim()
        assert (second.fence, other.read(second)["lease_owner"]) == (first.fence + 1, "worker-2")
    assert jobs.begin(first, "charge")["verdict"] == "lost"
    assert jobs.transition(first, "charging") is False
    assert jobs.renew(first, 60) == []
    assert jobs.pause(first, wait_seconds=5) == "lost"


def test_claim_of_the_stuck_takes_only_what_is_past_its_deadline(jobs: Worker, admin: Worker) -> None:
    start_orders(jobs, 3)
    change(admin, "deadline_at = now() + make_interval(secs => CASE entity_id WHEN 'order-2' THEN -1 ELSE 60 END)")
    assert [lease.entity_id for lease in jobs.claim(stuck_only=True)] == ["order-2"]


def test_claim_by_type_takes_only_those(jobs: Worker) -> None:
    jobs.register({**DEFINITION, "name": "rental"})
    start_orders(jobs, 2)
    jobs.rows("SELECT makegood.start_workflow('rental', 'car-1')")
    assert jobs.claim(types=[]) == []
    assert [lease.entity_id for lease in jobs.claim(types=["rental"])] == ["car-1"]
    assert len(jobs.claim(types=["checkout", "rental"])) == 2


def test_claim_by_id_takes_only_those(jobs: Worker) -> None:
    start_orders(jobs, 2)
    wanted = jobs.start("order-1", None, None)
    assert jobs.claim(ids=[uuid.uuid4()]) == []
    assert [lease.id for lease in jobs.claim(ids=[wanted])] == [wanted]


def test_claim_by_state_takes_only_those(jobs: Worker) -> None:
    start_orders(jobs, 2)
    charging = jobs.started("charging")
    jobs.begin(charging, "charge")
    jobs.pause(charging)
    assert jobs.claim(states=[]) == []
    assert jobs.claim(states=["charged"]) == []
    assert [lease.entity_id for lease in jobs.claim(states=["charging", "reserving"])] == ["charging"]
    assert len(jobs.claim(states=["created", "charging"])) == 2


def test_claim_by_age_asks_for_progress_whatever_the_deadline(jobs: Worker, admin: Worker, database: Any) -> None:
    start_orders(jobs, 3)
    let_stick(database, "order-1", seconds=600)
    let_stick(database, "order-2", seconds=60)
    change(admin, "deadline_at = now() + interval '1 day'")
    assert jobs.claim(older_than_seconds=3600) == []
    assert jobs.claim(older_than_seconds=30, stuck_only=True) == []  # both, where both are asked for
    assert [lease.entity_id for lease in jobs.claim(older_than_seconds=300)] == ["order-1"]
    assert [lease.entity_id for lease in jobs.claim(older_than_seconds=30)] == ["order-2"]
    assert [lease.entity_id for lease in jobs.claim(older_than_seconds=0)] == ["order-3"]


def test_claim_leaves_what_a_dead_worker_left_to_recovery_for_a_while(jobs: Worker, admin: Worker) -> None:
    """A worker that takes new orders does not race it, and comes for it all the same when recovery does not."""
    jobs.started("dead")
    change(admin, "lease_until = now() - interval '10 minutes'")
    jobs.start("new")
    given_back = jobs.started("given back")
    jobs.pause(given_back)
    assert {lease.entity_id for lease in jobs.claim(take_over_after_seconds=660)} == {"new", "given back"}
    assert [lease.entity_id for lease in jobs.claim(take_over_after_seconds=540)] == ["dead"]


def test_claim_by_eight_at_once_takes_every_row_once(jobs: Worker, database: Any) -> None:
    start_orders(jobs, 500)
    together = threading.Barrier(CLAIMERS)

    def claim_all(number: int) -> list[str]:
        """Until nothing is left; an empty answer may also mean that the others hold the locks just now."""
        taken: list[str] = []
        with Worker(database.jobs, f"worker-{number}") as worker:
            together.wait()
            empty = 0
            while empty < 3:
                leases = worker.claim(7)
                assert all(lease.fence == 1 for lease in leases)
                assert len(leases) <= 7
                taken += [lease.entity_id for lease in leases]
                empty = 0 if leases else empty + 1
        return taken

    with ThreadPoolExecutor(CLAIMERS) as pool:
        taken = Counter(entity for found in pool.map(claim_all, range(CLAIMERS)) for entity in found)
    assert len(taken) == 500
    assert set(taken.values()) == {1}


def test_claim_while_another_transaction_holds_a_row_goes_past_it(jobs: Worker, admin: Worker) -> None:
    start_orders(jobs, 2)
    with admin.connection.transaction():
        admin.rows("SELECT 1 FROM makegood.workflow_executions WHERE entity_id = 'order-1' FOR UPDATE")
        assert [lease.entity_id for lease in jobs.claim()] == ["order-2"]


def begin_again(jobs: Worker, lease: Lease) -> None:
    assert jobs.begin(lease, "charge")["verdict"] == "go"


LEAVE_IT_ALONE: dict[str, Callable[[Worker, Lease], Any]] = {
    "begin_again": begin_again,
    "renew": lambda jobs, lease: jobs.renew(lease, 600),
    "pause": lambda jobs, lease: jobs.pause(lease, wait_seconds=5),
    "hold": lambda jobs, lease: jobs.pause(lease, hold_reason="a person looks"),
    "cancel": lambda jobs, lease: jobs.cancel(lease.entity_id),
}


@pytest.mark.parametrize("name", LEAVE_IT_ALONE)
def test_progress_is_not_what_leases_attempts_and_waits_are(jobs: Worker, name: str) -> None:
    """`updated_at` older than five minutes must stay true of a workflow that is only being tried again."""
    lease = jobs.started("order-1")
    jobs.begin(lease, "charge")
    before = jobs.read(lease)
    LEAVE_IT_ALONE[name](jobs, lease)
    after = jobs.read(lease)
    assert after != before
    assert (after["updated_at"], after["deadline_at"], after["last_seq"]) == (
        *(before["updated_at"], before["deadline_at"], before["last_seq"]),
    )


def test_progress_is_not_what_a_claim_is(jobs: Worker) -> None:
    jobs.start("order-1")
    before = jobs.row("SELECT * FROM makegood.workflow_executions")
    (lease,) = jobs.claim()
    after = jobs.read(lease)
    assert (after["updated_at"], after["deadline_at"]) == (before["updated_at"], before["deadline_at"])


def test_renew_extends_only_leases_that_are_still_held(jobs: Worker) -> None:
    lease = jobs.started("order-1")
    before = jobs.read(lease)["lease_until"]
    assert jobs.renew(lease, 600) == [{"id": lease.id}]
    assert (jobs.read(lease)["lease_until"] - before).total_seconds() > 500
    jobs.pause(lease)
    assert jobs.renew(lease, 600) == []


def test_pause_gives_the_row_back_until_its_time(jobs: Worker, admin: Worker) -> None:
    lease = jobs.started("order-1")
    assert jobs.pause(lease, wait_seconds=30) == "moved"
    row = jobs.row("SELECT *, next_attempt_at - clock_timestamp() AS wait FROM makegood.workflow_executions")
    assert (row["lease_owner"], row["held_at"]) == (None, None)
    assert 20 < row["wait"].total_seconds() <= 30
    assert jobs.claim() == []
    change(admin, "next_attempt_at = now()")
    assert len(jobs.claim()) == 1


def test_pause_with_a_reason_parks_the_row_for_a_person(jobs: Worker) -> None:
    lease = jobs.started("order-1")
    assert jobs.pause(lease, hold_reason="x" * 3000) == "moved"
    row = jobs.read(lease)
    assert (row["held_at"] is not None, row["held_reason"], row["lease_owner"]) == (True, "x" * 2000, None)
    assert jobs.claim() == []
    assert jobs.transition(lease, "charging") is False
    assert jobs.begin(lease, "charge")["verdict"] == "lost"


def test_reread_returns_only_rows_still_held_under_the_fence(jobs: Worker) -> None:
    lease = jobs.started("order-1")
    read = "SELECT current_state FROM makegood.reread_workflows(%s::jsonb)"
    items = [{"id": str(lease.id), "fence": lease.fence}, {"id": str(uuid.uuid4()), "fence": 1}]
    assert jobs.rows(read, json.dumps(items)) == [{"current_state": "created"}]
    assert jobs.rows(read, json.dumps([{"id": str(lease.id), "fence": lease.fence + 1}])) == []
    jobs.pause(lease)
    assert jobs.rows(read, json.dumps(items)) == []


def test_claim_of_a_negative_batch_is_refused(jobs: Worker) -> None:
    with refused("2201W"):
        jobs.claim(-1)
