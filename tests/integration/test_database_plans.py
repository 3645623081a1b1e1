"""What the engine asks all day does not get slower with finished work: counted where it runs, inside the functions.

A plan may change once a session has asked often enough, so every call is made more often than that.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from database_worker import DEFINITION, Worker, open_database

from makegood.local.postgres import EmbeddedPostgres

FINISHED, UNFINISHED = 20_000, 50
CALLS = 8  # PostgreSQL considers a plan for every parameter from the sixth time on
# One hop from start to end, so that so many whole chains are quickly written.
INSTANT = {
    "name": "instant",
    "states": [state for state in DEFINITION["states"] if state["kind"] in {"initial", "terminal"}],
    "edges": [["created", "completed"]],
}
FILL = """
WITH made AS (
  INSERT INTO makegood.workflow_executions (id, workflow_type, entity_id, current_state, created_at, updated_at,
    next_attempt_at, deadline_at, finished_at, last_seq, start_hash)
  SELECT makegood.new_id(), 'instant', 'old-' || n, 'completed', now(), now(), now(), now(), now(), 2, ''
    FROM generate_series(1, %s) AS n
  RETURNING id, entity_id
)
INSERT INTO makegood.workflow_transitions (workflow_id, entity_id, seq, from_state, to_state, triggered_by)
SELECT m.id, m.entity_id, h.seq, h.from_state, h.to_state, 'test'
  FROM made m, (VALUES (1, NULL, 'created'), (2, 'created', 'completed')) AS h (seq, from_state, to_state)
"""
SCANS = """
SELECT (SELECT sum(seq_scan) FROM pg_stat_user_tables
         WHERE schemaname = 'makegood' AND relname IN ('workflow_executions', 'workflow_transitions')) AS whole,
       (SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'workflow_executions_due') AS due
"""


@pytest.fixture(scope="module")
def name(server: EmbeddedPostgres) -> Iterator[str]:
    """An old shop: many orders are finished, a few are not."""
    with open_database(server) as name, Worker(server.url("postgres", name)) as admin:
        admin.register()
        admin.register(INSTANT)
        admin.rows(FILL, FINISHED)
        admin.rows("VACUUM ANALYZE")
        for number in range(UNFINISHED):
            admin.start(f"order-{number}")
        count_scans(admin)  # so that nothing of this is counted later
        yield name


@pytest.fixture
def jobs(server: EmbeddedPostgres, name: str) -> Iterator[Worker]:
    with Worker(server.url("makegood_jobs", name)) as worker:
        yield worker


def count_scans(worker: Worker) -> tuple[int, int]:
    """How often a whole table was read and how often the index of what is due, up to now."""
    worker.rows("SELECT pg_stat_force_next_flush()")
    worker.rows("SELECT pg_stat_clear_snapshot()")
    row = worker.row(SCANS)
    return row["whole"], row["due"]


def test_count_of_whole_reads_notices_one(jobs: Worker) -> None:
    """Otherwise the others would claim nothing."""
    whole, _ = count_scans(jobs)
    jobs.rows("SELECT count(*) FROM workflow_executions WHERE context <> '{}'")
    assert count_scans(jobs)[0] > whole


@pytest.mark.parametrize("options", [{}, {"stuck_only": True}, {"types": ["checkout"]}])
def test_claim_beside_much_finished_work_never_reads_it(jobs: Worker, options: dict[str, object]) -> None:
    whole, due = count_scans(jobs)
    for _ in range(CALLS):
        jobs.claim(2, lease_seconds=0, **options)
    after = count_scans(jobs)
    assert after[0] == whole
    assert after[1] >= due + CALLS


def test_steps_beside_much_finished_work_never_read_it(jobs: Worker) -> None:
    orders = [jobs.started(f"walk-{number}") for number in range(CALLS)]
    whole, _ = count_scans(jobs)
    for order in orders:
        jobs.do(order, "charge", "reserve", "ship")
    assert count_scans(jobs)[0] == whole


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM workflow_transitions WHERE entity_id = 'old-123'",
        "SELECT * FROM workflow_executions WHERE entity_id = 'old-123'",
        "SELECT timeline('old-123')",
        "SELECT * FROM workflow_executions WHERE current_state NOT IN ('completed', 'failed', 'compensated')"
        " AND updated_at < NOW() - INTERVAL '5 minutes' ORDER BY updated_at",
    ],
)
def test_question_beside_much_finished_work_never_reads_all_of_it(
    server: EmbeddedPostgres, name: str, statement: str
) -> None:
    with Worker(server.url("makegood_read", name)) as reader:
        whole, _ = count_scans(reader)
        for _ in range(CALLS):
            reader.rows(statement)
        assert count_scans(reader)[0] == whole
