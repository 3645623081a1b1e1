"""What happened is never rewritten, and what a workflow is about never changes: not even by the superuser's slip."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from database_worker import Lease, Worker, open_database, refused
from psycopg import sql

from makegood.local.postgres import EmbeddedPostgres


@pytest.fixture(scope="module")
def admin(server: EmbeddedPostgres) -> Iterator[Worker]:
    with open_database(server) as name, Worker(server.url("postgres", name)) as worker:
        worker.register()
        yield worker


@pytest.fixture
def order(admin: Worker) -> Lease:
    order = admin.started(f"order-{uuid.uuid4()}")
    assert admin.cancel(order.entity_id) == "requested"
    return order


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE makegood.{} SET id = DEFAULT",
        "UPDATE makegood.{} SET id = DEFAULT WHERE false",  # the attempt is refused, whether it would hit a row or not
        "DELETE FROM makegood.{}",
        "TRUNCATE makegood.{}",
        "TRUNCATE makegood.{} CASCADE",
    ],
)
@pytest.mark.parametrize("table", ["workflow_transitions", "operator_actions"])
@pytest.mark.parametrize("replication_role", ["origin", "replica"])
def test_history_rewritten_by_the_superuser_is_refused(
    admin: Worker, order: Lease, statement: str, table: str, replication_role: str
) -> None:
    with refused("MG006", f"{table} is append-only"), admin.connection.transaction():
        admin.rows("SELECT set_config('session_replication_role', %s, true)", replication_role)
        admin.rows(sql.SQL(statement).format(sql.Identifier(table)))


def test_workflows_truncated_are_kept(admin: Worker, order: Lease) -> None:
    with refused("MG006", "workflows are kept"):
        admin.rows("TRUNCATE makegood.workflow_executions CASCADE")


def test_workflow_deleted_is_kept(admin: Worker, order: Lease) -> None:
    with refused("MG006", "workflows are kept"):
        admin.rows("DELETE FROM makegood.workflow_executions WHERE id = %s", order.id)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("id", "gen_random_uuid()"),
        ("workflow_type", "'another'"),
        ("entity_id", "'order-of-somebody-else'"),
        ("created_at", "now() - interval '1 day'"),
        ("amount_minor", "amount_minor + 1"),
        ("currency", "'USD'"),
        ("start_hash", "''"),
    ],
)
@pytest.mark.parametrize("replication_role", ["origin", "replica"])
def test_identity_of_a_workflow_changed_is_refused(
    admin: Worker, order: Lease, column: str, value: str, replication_role: str
) -> None:
    change = sql.SQL("UPDATE makegood.workflow_executions SET {} = {} WHERE id = {}")
    with refused("MG004"), admin.connection.transaction():
        admin.rows("SELECT set_config('session_replication_role', %s, true)", replication_role)
        admin.rows(change.format(sql.Identifier(column), sql.SQL(value), sql.Literal(order.id)))


def test_fence_lowered_is_refused(admin: Worker, order: Lease) -> None:
    with refused("MG004"):
        admin.rows("UPDATE makegood.workflow_executions SET fence = fence - 1 WHERE id = %s", order.id)


def test_fence_raised_or_left_is_accepted(admin: Worker, order: Lease) -> None:
    admin.rows("UPDATE makegood.workflow_executions SET fence = fence WHERE id = %s", order.id)
    admin.rows("UPDATE makegood.workflow_executions SET fence = fence + 1 WHERE id = %s", order.id)
    assert admin.read(order)["fence"] == order.fence + 1
