"""The published queries, pasted as they are by somebody who only reads, are right and do not grow with age."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from databases import DatabaseUrls

from makegood.engine.runner import Start, open_runner
from makegood.migrations import sql_folder
from makegood.settings import Settings
from makegood.workflows import open_workflows

GOOD = {"payment_method": "pm_card_visa", "sku": "lamp", "quantity": 1, "address": {"country": "SE"}}
QUERIES = sorted(path.name for path in (sql_folder() / "queries").glob("*.sql"))


def run_query(database: DatabaseUrls, name: str) -> list[dict[str, Any]]:
    """No schema in the names: the role's own search_path finds them."""
    return database.rows((sql_folder() / "queries" / name).read_text(), role="read")


@pytest.fixture
def orders(database: DatabaseUrls, shop: object, settings: Settings) -> DatabaseUrls:
    """One completed, one declined, one undone, and one that nobody took up for an hour."""

    async def drive() -> None:
        contexts = {
            "order-123": GOOD,
            "order-declined": {**GOOD, "payment_method": "pm_card_chargeDeclined"},
            "order-undone": {**GOOD, "address": {"country": "XX"}},
        }
        starts = [Start("checkout", name, context, 1999, "EUR") for name, context in contexts.items()]
        async with open_workflows(settings) as workflows, open_runner(database.jobs, workflows, settings) as runner:
            await runner.engine.advance(await runner.start(starts, triggered_by="test", worker="w"))
            await runner.start([Start("checkout", "order-stuck", GOOD, 500, "EUR")], triggered_by="test")

    asyncio.run(drive())
    database.rows(
        "UPDATE makegood.workflow_executions SET updated_at = clock_timestamp(),"
        " deadline_at = clock_timestamp() WHERE entity_id = 'order-stuck'"
    )
    with psycopg.connect(database.admin, autocommit=True) as connection:
        connection.execute("ALTER TABLE makegood.workflow_executions DISABLE TRIGGER executions_keep_identity")
        connection.execute(
            "UPDATE makegood.workflow_executions SET created_at = created_at - interval '1 hour',"
            " updated_at = updated_at - interval '1 hour' WHERE entity_id = 'order-stuck'"
        )
        connection.execute("ALTER TABLE makegood.workflow_executions ENABLE ALWAYS TRIGGER executions_keep_identity")
    return database


def test_every_query_says_first_what_it_is_for() -> None:
    assert len(QUERIES) == 6
    for name in QUERIES:
        assert (sql_folder() / "queries" / name).read_text().startswith("-- ")


@pytest.mark.parametrize("name", QUERIES)
def test_query_on_an_empty_database_has_no_rows(database: DatabaseUrls, name: str) -> None:
    assert run_query(database, name) == []


def test_stuck_query_finds_exactly_what_is_stuck(orders: DatabaseUrls) -> None:
    assert [row["entity_id"] for row in run_query(orders, "stuck_workflows.sql")] == ["order-stuck"]


def test_timeline_query_tells_the_whole_way(orders: DatabaseUrls) -> None:
    states = [row["to_state"] for row in run_query(orders, "order_timeline.sql")]
    assert states == ["created", "charging", "charged", "reserving", "reserved", "shipping", "completed"]


def test_metrics_add_up(orders: DatabaseUrls) -> None:
    durations = {row["current_state"]: row["workflows"] for row in run_query(orders, "duration.sql")}
    assert durations == {"completed": 1, "failed": 1, "compensated": 1}
    rates = {(row["step"], row["kind"]): row for row in run_query(orders, "step_failure_rate.sql")}
    assert (rates["charge", "forward"]["attempts"], rates["charge", "forward"]["failed"]) == (3, 1)
    assert float(rates["ship", "forward"]["failure_rate"]) == 0.5
    (stuck,) = run_query(orders, "stuck_count.sql")
    assert (stuck["stuck"], stuck["amount_minor"], stuck["held"]) == (1, 500, 0)
    (compensated,) = run_query(orders, "compensation_rate.sql")
    assert (compensated["ended"], compensated["compensated"]) == (3, 1)
    assert float(compensated["compensation_rate"]) == 0.3333


@pytest.fixture
def aged(database: DatabaseUrls) -> DatabaseUrls:
    """20,000 finished rows and 50 that are not. Without the guards, which ask for every row's history."""
    with psycopg.connect(database.admin, autocommit=True) as connection:
        connection.execute("ALTER TABLE makegood.workflow_executions DISABLE TRIGGER USER")
        connection.execute(
            """
            INSERT INTO makegood.workflow_executions (
              id, workflow_type, entity_id, current_state, created_at, updated_at, next_attempt_at, deadline_at,
              finished_at, last_seq, start_hash)
            SELECT gen_random_uuid(), 'checkout', 'order-' || n, CASE WHEN live THEN 'charging' ELSE 'completed' END,
                   t, t, t, t, CASE WHEN NOT live THEN t END, 2, ''
              FROM (SELECT n, n % 400 = 0 AS live, clock_timestamp() - interval '1 day' AS t
                      FROM generate_series(1, 20050) AS n) AS rows
            """
        )
        connection.execute("VACUUM ANALYZE makegood.workflow_executions")
    return database


def plan_of(database: DatabaseUrls, statement: str) -> str:
    (row,) = database.rows("EXPLAIN (FORMAT JSON) " + statement)
    return json.dumps(row["QUERY PLAN"])


def test_stuck_query_beside_many_finished_goes_through_its_index(aged: DatabaseUrls) -> None:
    text = Path(sql_folder() / "queries" / "stuck_workflows.sql").read_text()
    plan = plan_of(
        aged, text.replace("FROM workflow_executions", "FROM makegood.workflow_executions").split("\n", 1)[1]
    )
    assert "workflow_executions_unfinished" in plan
    assert "Seq Scan" not in plan


def test_claim_beside_many_finished_goes_through_its_index(aged: DatabaseUrls) -> None:
    """The inner select of claim_workflows, taken from its text."""
    text = (sql_folder() / "functions" / "claim.sql").read_text()
    select = text[text.index("SELECT e.id FROM") : text.index("FOR UPDATE SKIP LOCKED")]
    for name, value in {
        "p_stuck_only": "true",
        "p_types": "NULL::text[]",
        "p_states": "NULL::text[]",
        "p_older_than_seconds": "NULL::double precision",
        "p_take_over_after_seconds": "0",
        "p_ids": "NULL::uuid[]",
        "p_batch": "500",
        "<= t": "<= now()",
    }.items():
        select = select.replace(name, value)
    plan = plan_of(aged, select)
    assert "workflow_executions_due" in plan
    assert "Seq Scan" not in plan
