"""A workflow's transitions are one legal chain, and its state is the end of it: the constraint itself speaks here.

Everything is done as the superuser and by plain SQL, around every function that would not do such a thing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from database_worker import Lease, Worker, open_database, refused

from makegood.local.postgres import EmbeddedPostgres


@pytest.fixture(scope="module")
def admin(server: EmbeddedPostgres) -> Iterator[Worker]:
    with open_database(server) as name, Worker(server.url("postgres", name)) as worker:
        worker.register()
        yield worker


@pytest.fixture
def order(admin: Worker) -> Lease:
    """Stands in `created`, after its first transition."""
    return admin.started(f"order-{uuid.uuid4()}")


def set_state(admin: Worker, order: Lease, state: str, last_seq: int) -> None:
    admin.rows(
        "UPDATE makegood.workflow_executions AS e SET current_state = n.state, last_seq = n.seq, lease_owner = NULL,"
        " lease_until = NULL, finished_at = CASE WHEN n.state IN ('completed', 'failed', 'compensated') THEN now() END"
        " FROM (SELECT %s::uuid AS id, %s::text AS state, %s::int AS seq) AS n WHERE e.id = n.id",
        *(order.id, state, last_seq),
    )


def add_transition(
    admin: Worker, order: Lease, seq: int, from_state: str | None, to_state: str, entity_id: str | None = None
) -> None:
    admin.rows(
        "INSERT INTO makegood.workflow_transitions (workflow_id, entity_id, seq, from_state, to_state, triggered_by)"
        " VALUES (%s, %s, %s, %s, %s, 'by hand')",
        *(order.id, entity_id or order.entity_id, seq, from_state, to_state),
    )


def insert_execution(admin: Worker, state: str) -> Lease:
    new = Lease(uuid.uuid4(), f"order-{uuid.uuid4()}", 0, state)
    admin.rows(
        "INSERT INTO makegood.workflow_executions (id, workflow_type, entity_id, current_state, created_at, updated_at,"
        " next_attempt_at, deadline_at, last_seq, start_hash)"
        " VALUES (%s, 'checkout', %s, %s, now(), now(), now(), now(), 1, '')",
        *(new.id, new.entity_id, state),
    )
    return new


def test_chain_continued_by_hand_with_state_and_transition_is_accepted(admin: Worker, order: Lease) -> None:
    with admin.connection.transaction():
        set_state(admin, order, "charging", 2)
        add_transition(admin, order, 2, "created", "charging")
    assert admin.read(order)["current_state"] == "charging"


def test_chain_moved_twice_in_one_transaction_is_accepted(admin: Worker, order: Lease) -> None:
    with admin.connection.transaction():
        set_state(admin, order, "charging", 2)
        add_transition(admin, order, 2, "created", "charging")
        set_state(admin, order, "charged", 3)
        add_transition(admin, order, 3, "charging", "charged")
    assert admin.read(order)["current_state"] == "charged"


@pytest.mark.parametrize(
    "to_state",
    [
        "charged",  # leaves out the charge itself
        "completed",  # leaves out everything
        "compensated",  # without having been compensating
        "failed",  # nothing was tried
        "nowhere",  # not a state of this type
        "Charging",  # nor is this
    ],
)
@pytest.mark.parametrize("replication_role", ["origin", "replica"])
def test_transition_along_no_edge_is_refused(admin: Worker, order: Lease, to_state: str, replication_role: str) -> None:
    """Also for a session that says it is a replica, which ordinary triggers let pass."""
    with refused("MG001", "is not in the graph"), admin.connection.transaction():
        admin.rows("SELECT set_config('session_replication_role', %s, true)", replication_role)
        set_state(admin, order, to_state, 2)
        add_transition(admin, order, 2, "created", to_state)


def test_transition_out_of_a_terminal_state_is_refused(admin: Worker, order: Lease) -> None:
    admin.begin(order, "charge")
    admin.compensate(order, [], "failed")
    with refused("MG001"), admin.connection.transaction():
        set_state(admin, order, "charging", 4)
        add_transition(admin, order, 4, "failed", "charging")


def test_first_transition_into_another_state_than_the_initial_is_refused(admin: Worker) -> None:
    with refused("MG001"), admin.connection.transaction():
        add_transition(admin, insert_execution(admin, "charging"), 1, None, "charging")


def test_transition_after_a_gap_is_refused(admin: Worker, order: Lease) -> None:
    with refused("MG001", "does not continue its chain"), admin.connection.transaction():
        set_state(admin, order, "charging", 3)
        add_transition(admin, order, 3, "created", "charging")


def test_transition_from_another_state_than_the_last_is_refused(admin: Worker, order: Lease) -> None:
    """The edge is legal, but it is not where the workflow stands."""
    with refused("MG001", "does not continue its chain"), admin.connection.transaction():
        set_state(admin, order, "reserving", 2)
        add_transition(admin, order, 2, "charged", "reserving")


def test_transition_under_another_entity_is_refused(admin: Worker, order: Lease) -> None:
    with refused("MG001", "entity matches: f"), admin.connection.transaction():
        set_state(admin, order, "charging", 2)
        add_transition(admin, order, 2, "created", "charging", entity_id="order-of-somebody-else")


def test_transition_with_a_number_that_is_taken_is_refused(admin: Worker, order: Lease) -> None:
    with refused("23505"):
        add_transition(admin, order, 1, None, "created")


def test_transition_of_no_workflow_is_refused(admin: Worker) -> None:
    with refused("MG001", "belongs to no workflow"):
        add_transition(admin, Lease(uuid.uuid4(), "order-1", 0, "created"), 1, None, "created")


def test_transition_without_a_change_of_state_is_refused(admin: Worker, order: Lease) -> None:
    with refused("MG003"):
        add_transition(admin, order, 2, "created", "charging")


@pytest.mark.parametrize("replication_role", ["origin", "replica"])
def test_state_changed_without_a_transition_is_refused_at_commit(
    admin: Worker, order: Lease, replication_role: str
) -> None:
    with refused("MG003"), admin.connection.transaction():
        admin.rows("SELECT set_config('session_replication_role', %s, true)", replication_role)
        set_state(admin, order, "charging", 1)
    assert admin.read(order)["current_state"] == "created"


def test_number_raised_without_a_transition_is_refused_at_commit(admin: Worker, order: Lease) -> None:
    with refused("MG003"):
        set_state(admin, order, "created", 2)


def test_state_other_than_the_transition_says_is_refused_at_commit(admin: Worker, order: Lease) -> None:
    with refused("MG003"), admin.connection.transaction():
        set_state(admin, order, "compensating", 2)
        add_transition(admin, order, 2, "created", "charging")


def test_state_taken_back_after_its_transition_is_refused_at_commit(admin: Worker, order: Lease) -> None:
    with refused("MG003"), admin.connection.transaction():
        set_state(admin, order, "charging", 2)
        add_transition(admin, order, 2, "created", "charging")
        set_state(admin, order, "created", 1)


def test_workflow_without_a_first_transition_is_refused_at_commit(admin: Worker) -> None:
    with refused("MG003"):
        insert_execution(admin, "created")
