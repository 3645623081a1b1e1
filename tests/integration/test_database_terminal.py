"""The terminal state comes dead last: `compensated` when every undo is done, `failed` when there is none."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from database_worker import Lease, Worker, open_database, refused

from makegood.engine.definitions import compensation_id
from makegood.local.postgres import EmbeddedPostgres


@pytest.fixture(scope="module")
def url(server: EmbeddedPostgres) -> Iterator[str]:
    with open_database(server) as name:
        yield server.url("postgres", name)


@pytest.fixture(scope="module")
def admin(url: str) -> Iterator[Worker]:
    with Worker(url) as worker:
        worker.register()
        yield worker


@pytest.fixture
def owing(admin: Worker) -> Lease:
    """Stands in `compensating` and owes the refund of its charge."""
    order = admin.do(admin.started(f"order-{uuid.uuid4()}"), "charge")
    assert admin.compensate(order, ["charge"]) == "moved"
    return order


def set_undo(admin: Worker, order: Lease, state: str) -> None:
    admin.rows(
        "UPDATE makegood.compensations SET state = n.state,"
        " succeeded_at = CASE WHEN n.state = 'succeeded' THEN now() END"
        " FROM (SELECT %s::uuid AS id, %s::text AS state) AS n WHERE workflow_id = n.id",
        *(order.id, state),
    )


def owe(admin: Worker, order: Lease, currency: str = "EUR") -> None:
    admin.rows(
        "INSERT INTO makegood.compensations (id, workflow_id, step, position, next_attempt_at, idempotency_key,"
        " amount_minor, currency, created_at) VALUES (%s, %s, 'charge', 1, now(), %s, 1000, %s, now())",
        *(compensation_id(order.id, "charge"), order.id, f"refund-{order.id}", currency),
    )


@pytest.mark.parametrize("state", ["pending", "running", "held"])
def test_workflow_compensated_while_an_undo_is_open_is_refused(admin: Worker, owing: Lease, state: str) -> None:
    if state != "pending":
        set_undo(admin, owing, state)
    with refused("MG002", "the undo of step charge is not done"):
        admin.transition(owing, "compensated")
    assert admin.read(owing)["current_state"] == "compensating"


def test_workflow_compensated_once_every_undo_is_done_is_accepted(admin: Worker, owing: Lease) -> None:
    set_undo(admin, owing, "succeeded")
    assert admin.transition(owing, "compensated")
    assert admin.read(owing)["finished_at"] is not None


@pytest.mark.parametrize("state", ["pending", "succeeded"])
def test_workflow_failed_with_something_to_undo_is_refused(admin: Worker, state: str) -> None:
    """`failed` says that nothing was done, so also an undo that succeeded contradicts it."""
    order = admin.started(f"order-{uuid.uuid4()}")
    admin.begin(order, "charge")
    owe(admin, order)
    set_undo(admin, order, state) if state != "pending" else None
    with refused("MG002"):
        admin.compensate(order, [], "failed")


def test_workflow_failed_with_a_plan_in_the_same_call_is_refused(admin: Worker) -> None:
    order = admin.started(f"order-{uuid.uuid4()}")
    admin.begin(order, "charge")
    with refused("MG002"):
        admin.compensate(order, ["charge"], "failed")
    assert admin.read(order)["current_state"] == "charging"


def test_undo_owed_after_the_end_is_refused(admin: Worker) -> None:
    order = admin.started(f"order-{uuid.uuid4()}")
    admin.compensate(order, [])
    admin.transition(order, "compensated")
    with refused("MG002", "is finished"):
        owe(admin, order)


def test_undo_owed_while_another_writer_ends_the_workflow_keeps_it_open(admin: Worker, url: str) -> None:
    order = admin.started(f"order-{uuid.uuid4()}")
    admin.compensate(order, [])
    with Worker(url, "worker-2") as other, Worker(url) as watcher, ThreadPoolExecutor(1) as pool:
        with admin.connection.transaction():
            owe(admin, order)
            ending = pool.submit(other.transition, order, "compensated")
            watcher.wait_until_blocked(other)
        with refused("MG002"):
            ending.result(timeout=10)
    assert admin.read(order)["current_state"] == "compensating"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("succeeded", "pending"),  # would be paid back a second time
        ("succeeded", "running"),
        ("succeeded", "held"),
        ("held", "running"),  # a person gives it back first
    ],
)
@pytest.mark.parametrize("replication_role", ["origin", "replica"])
def test_undo_moved_backwards_is_refused(
    admin: Worker, owing: Lease, before: str, after: str, replication_role: str
) -> None:
    set_undo(admin, owing, before)
    with refused("MG001", f"{before} → {after}"), admin.connection.transaction():
        admin.rows("SELECT set_config('session_replication_role', %s, true)", replication_role)
        set_undo(admin, owing, after)


@pytest.mark.parametrize("currency", ["XXX", "eur", "EURO"])
def test_undo_in_a_currency_that_does_not_exist_is_refused(admin: Worker, currency: str) -> None:
    order = admin.started(f"order-{uuid.uuid4()}")
    admin.compensate(order, [])
    with refused("MG005"):
        owe(admin, order, currency)


def test_undo_owed_twice_for_one_step_is_refused(admin: Worker, owing: Lease) -> None:
    with refused("23505"):
        owe(admin, owing)
