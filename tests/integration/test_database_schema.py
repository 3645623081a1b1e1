"""The catalogue: everything is explained, belongs to an owner nobody works as, and runs where it was meant to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from database_worker import Worker, open_database

from makegood.local.postgres import EmbeddedPostgres

# What queries, dashboards and services of other people name: a column may be added, none may go.
PUBLISHED = {
    "workflow_executions": (
        "id workflow_type entity_id current_state context created_at updated_at amount_minor currency attempts"
        " next_attempt_at deadline_at fence lease_owner lease_until cancel_requested held_at held_reason finished_at"
        " traceparent"
    ),
    "workflow_transitions": ("id workflow_id entity_id seq from_state to_state triggered_by metadata transitioned_at"),
    "step_attempts": "workflow_id step kind attempt outcome error_type error started_at finished_at worker",
    "idempotency_keys": "key operation request_hash status response first_sent_at created_at expires_at",
    "compensations": (
        "id workflow_id step position state attempts next_attempt_at idempotency_key amount_minor currency last_error"
        " result"
    ),
    "outbox": "id topic key payload headers created_at published_at",
    "dead_letters": (
        "id source broker message_id message_key entity_id payload headers error_type error signature attempts redrives"
        " state first_failed_at last_failed_at note"
    ),
    "job_runs": "id job run_key triggered_by parameters state counts error started_at finished_at",
}

COLUMNS_WITHOUT_COMMENT = """
SELECT c.relname, a.attname
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = 'makegood'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
   AND a.attnum > 0 AND NOT a.attisdropped AND col_description(c.oid, a.attnum) IS NULL
"""
TABLES_WITHOUT_COMMENT = """
SELECT relname FROM pg_class
 WHERE relnamespace = 'makegood'::regnamespace AND relkind IN ('r', 'p', 'v', 'm')
   AND obj_description(oid, 'pg_class') IS NULL
"""
FUNCTIONS_WITHOUT_COMMENT = """
SELECT oid::regprocedure::text FROM pg_proc
 WHERE pronamespace = 'makegood'::regnamespace AND obj_description(oid, 'pg_proc') IS NULL
"""
OWNERS = """
SELECT DISTINCT pg_get_userbyid(relowner) AS name FROM pg_class WHERE relnamespace = 'makegood'::regnamespace
UNION SELECT DISTINCT pg_get_userbyid(proowner) FROM pg_proc WHERE pronamespace = 'makegood'::regnamespace
UNION SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = 'makegood'
"""


@pytest.fixture(scope="module")
def admin(server: EmbeddedPostgres) -> Iterator[Worker]:
    with open_database(server) as name, Worker(server.url("postgres", name)) as worker:
        yield worker


@pytest.mark.parametrize("table", PUBLISHED)
def test_table_once_migrated_has_its_published_columns(admin: Worker, table: str) -> None:
    rows = admin.rows(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'makegood' AND table_name = %s",
        table,
    )
    assert set(PUBLISHED[table].split()) <= {row["column_name"] for row in rows}


@pytest.mark.parametrize("statement", [TABLES_WITHOUT_COMMENT, COLUMNS_WITHOUT_COMMENT, FUNCTIONS_WITHOUT_COMMENT])
def test_schema_once_migrated_explains_itself(admin: Worker, statement: str) -> None:
    assert admin.rows(statement) == []


def test_schema_once_migrated_belongs_to_an_owner_that_cannot_log_in(admin: Worker) -> None:
    assert admin.rows(OWNERS) == [{"name": "makegood_owner"}]
    (owner,) = admin.rows("SELECT * FROM pg_roles WHERE rolname = 'makegood_owner'")
    powers = ("rolcanlogin", "rolsuper", "rolcreaterole", "rolcreatedb", "rolbypassrls", "rolreplication")
    assert not any(owner[power] for power in powers)


def test_schema_once_migrated_has_every_guard_on_for_everybody(admin: Worker) -> None:
    """'A' is ENABLE ALWAYS: session_replication_role does not walk past it."""
    rows = admin.rows(
        "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgenabled <> 'A'"
        " AND tgrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'makegood'::regnamespace)"
    )
    assert rows == []


def test_new_id_many_times_is_version_7_and_in_the_order_of_time(admin: Worker) -> None:
    (row,) = admin.rows("SELECT array_agg(makegood.new_id() ORDER BY n) AS ids FROM generate_series(1, 1000) AS n")
    ids = row["ids"]
    assert {(found.version, found.variant) for found in ids} == {(7, "specified in RFC 4122")}
    milliseconds = [found.int >> 80 for found in ids]
    assert milliseconds == sorted(milliseconds)
    assert len(set(ids)) == len(ids)
    (row,) = admin.rows("SELECT extract(epoch FROM clock_timestamp()) * 1000 AS now")
    assert abs(milliseconds[-1] - row["now"]) < 60_000
