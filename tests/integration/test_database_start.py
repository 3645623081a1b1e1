"""A workflow is started once per entity, however often and by however many it is asked for."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from database_worker import DEFINITION, Row, Worker, open_database, refused

from makegood.local.postgres import EmbeddedPostgres

STARTERS = 8


@pytest.fixture
def jobs(database: Any) -> Iterator[Worker]:
    with Worker(database.jobs) as worker:
        worker.register()
        yield worker


@pytest.fixture(scope="module")
def refusing(server: EmbeddedPostgres) -> Iterator[Worker]:
    """For tests that leave nothing behind, which is what they claim."""
    with open_database(server) as name, Worker(server.url("makegood_jobs", name)) as worker:
        worker.register()
        yield worker


def start_many(jobs: Worker, items: list[Row], worker: str | None = None) -> list[Row]:
    return jobs.rows("SELECT * FROM makegood.start_workflows('shop', %s, 60, %s::jsonb)", worker, json.dumps(items))


def item(entity_id: str, **facts: Any) -> Row:
    return {"workflow_type": "checkout", "entity_id": entity_id, "amount_minor": 1000, "currency": "EUR", **facts}


def test_start_once_writes_the_workflow_and_its_first_transition(jobs: Worker) -> None:
    found = jobs.start("order-1")
    row = jobs.row("SELECT * FROM makegood.workflow_executions")
    assert (row["id"], row["current_state"], row["fence"], row["lease_owner"]) == (found, "created", 0, None)
    assert (row["amount_minor"], row["currency"], row["context"]) == (1000, "EUR", {})
    (first,) = jobs.rows("SELECT * FROM makegood.workflow_transitions")
    assert (first["seq"], first["from_state"], first["to_state"]) == (1, None, "created")
    assert first["triggered_by"] == "makegood_jobs"
    assert row["created_at"] == row["updated_at"] == first["transitioned_at"]


def test_start_again_with_the_same_parameters_returns_the_same_id(jobs: Worker) -> None:
    assert jobs.start("order-1") == jobs.start("order-1")
    assert len(jobs.rows("SELECT 1 FROM makegood.workflow_transitions")) == 1


def test_start_again_after_the_end_returns_the_same_id_and_starts_nothing(jobs: Worker) -> None:
    order = jobs.do(jobs.started("order-1"), "charge", "reserve", "ship")
    assert jobs.start("order-1") == order.id
    assert jobs.read(order)["current_state"] == "completed"


@pytest.mark.parametrize(
    ("context", "amount_minor", "currency"),
    [
        ("{}", 1001, "EUR"),  # another amount
        ("{}", 1000, "USD"),  # another currency
        ('{"card": "pm_other"}', 1000, "EUR"),  # another card
        ("{}", None, None),  # no money at all
    ],
)
def test_start_again_with_other_parameters_is_refused(
    jobs: Worker, context: str, amount_minor: int | None, currency: str | None
) -> None:
    jobs.start("order-1")
    with refused("MG010", "other parameters"):
        jobs.rows(
            "SELECT makegood.start_workflow('checkout', 'order-1', %s::jsonb, %s, %s)", context, amount_minor, currency
        )


def test_start_of_an_unknown_type_is_refused(jobs: Worker) -> None:
    with refused("MG009", "unknown workflow type refund"):
        jobs.rows("SELECT makegood.start_workflow('refund', 'order-1')")


@pytest.mark.parametrize(
    ("arguments", "sqlstate"),
    [
        ("'checkout', 'order-1', '{}', -1, 'EUR'", "23514"),  # a negative amount
        ("'checkout', 'order-1', '{}', 1000, NULL", "23514"),  # of no currency
        ("'checkout', 'order-1', '{}', 1000, 'XXX'", "MG005"),  # of one that does not exist
        ("'checkout', '', '{}', 1000, 'EUR'", "23514"),  # of no order
        ("'checkout', NULL, '{}', 1000, 'EUR'", "23502"),
        ("'checkout', 'order-1', '[]', 1000, 'EUR'", "23514"),  # a context without names
        ("'checkout', 'order-1', jsonb_build_object('a', repeat('x', 70000)), 1000, 'EUR'", "23514"),
        ("'checkout', 'order-1', '{}', 1000, 'EUR', ''", "23514"),  # by nobody
    ],
)
def test_start_with_a_bad_value_is_refused_and_writes_nothing(refusing: Worker, arguments: str, sqlstate: str) -> None:
    with refused(sqlstate):
        refusing.rows(f"SELECT makegood.start_workflow({arguments})")
    assert refusing.rows("SELECT 1 FROM makegood.workflow_executions") == []


def test_start_of_many_tells_what_became_of_each(jobs: Worker) -> None:
    jobs.start("order-1")
    jobs.start("order-2")
    rows = start_many(
        jobs,
        [
            item("order-1"),
            item("order-2", amount_minor=1),
            item("order-3"),
            item("order-4", workflow_type="refund"),
        ],
    )
    verdicts = {row["entity_id"]: row["verdict"] for row in rows}
    assert verdicts == {
        "order-1": "existing",
        "order-2": "conflict",
        "order-3": "started",
        "order-4": "unknown_type",
    }


def test_start_of_many_with_a_worker_leases_the_new_ones_only(jobs: Worker) -> None:
    jobs.start("order-1")
    rows = start_many(jobs, [item("order-1"), item("order-2")], worker="worker-1")
    assert {row["entity_id"]: row["fence"] for row in rows} == {"order-1": 0, "order-2": 1}
    leased = jobs.rows("SELECT entity_id FROM makegood.workflow_executions WHERE lease_owner = 'worker-1'")
    assert leased == [{"entity_id": "order-2"}]


def test_start_of_one_entity_twice_in_one_call_with_other_parameters_tells_of_the_conflict(jobs: Worker) -> None:
    rows = start_many(jobs, [item("order-1"), item("order-1", amount_minor=2000)])
    kept = jobs.row("SELECT amount_minor FROM makegood.workflow_executions")["amount_minor"]
    assert kept in {1000, 2000}
    assert sorted(row["verdict"] for row in rows) == ["conflict", "started"]


def test_start_by_eight_at_once_starts_one(jobs: Worker, database: Any) -> None:
    together = threading.Barrier(STARTERS)

    def start_all(number: int) -> list[Any]:
        with Worker(database.jobs, f"worker-{number}") as worker:
            together.wait()
            return [worker.start(f"order-{order}") for order in range(20)]

    with ThreadPoolExecutor(STARTERS) as pool:
        answers = list(pool.map(start_all, range(STARTERS)))
    assert all(answer == answers[0] for answer in answers)
    (count,) = jobs.rows("SELECT count(*) AS n, count(DISTINCT workflow_id) AS m FROM makegood.workflow_transitions")
    assert (count["n"], count["m"]) == (20, 20)


def test_register_again_with_the_same_definition_changes_nothing(jobs: Worker) -> None:
    before = jobs.rows("SELECT * FROM makegood.workflow_types")
    jobs.register()
    assert jobs.rows("SELECT * FROM makegood.workflow_types") == before


def test_register_with_another_meaning_of_a_state_is_refused(jobs: Worker) -> None:
    changed = [{**state, "step": "ship"} if state["state"] == "charging" else state for state in DEFINITION["states"]]
    with refused("MG008", "state charging of workflow type checkout already means something else"):
        jobs.register({**DEFINITION, "states": changed})


def test_register_with_fewer_edges_takes_none_away(jobs: Worker) -> None:
    """Workflows under way may still stand in an old state."""
    before = jobs.rows("SELECT * FROM makegood.workflow_edges ORDER BY from_state, to_state")
    jobs.register({**DEFINITION, "edges": DEFINITION["edges"][:1]})
    assert jobs.rows("SELECT * FROM makegood.workflow_edges ORDER BY from_state, to_state") == before


@pytest.mark.parametrize("name", ["Checkout", "check out", "", None])
def test_register_of_a_type_that_is_not_a_lower_case_word_is_refused(refusing: Worker, name: str | None) -> None:
    with refused("23502" if name is None else "23514"):
        refusing.register({**DEFINITION, "name": name})
