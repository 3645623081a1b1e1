"""What an incremental run costs does not grow with what is long settled: the tables of a whole history are never read
from end to end. Counted where it runs, inside the functions.
"""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from databases import DatabaseUrls
from planted import Connection, open_books, run_match

from prover.ledgers.loading import load
from prover.ledgers.many import plant_many
from prover.ledgers.rows import Terms, Workflow

ORDERS, CHANGED = 30_000, 300
# What grows with history, and is large enough here for the planner to mind.
WHOLE_READS = """
SELECT coalesce(sum(s.seq_scan), 0) FROM pg_stat_user_tables s
 WHERE s.schemaname = 'makegood' AND s.relname IN ('orders', 'provider_charges', 'workflow_executions')
"""
OTHERS = """
SELECT pid FROM pg_stat_activity
 WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid() LIMIT 1
"""
TOUCH = """
UPDATE makegood.{table} SET changed_xid = pg_current_xact_id()
 WHERE payment_ref IN (
   SELECT payment_ref FROM makegood.orders WHERE payment_ref IS NOT NULL ORDER BY created_at, id LIMIT {many})
"""


@pytest.fixture
def books(database: DatabaseUrls) -> DatabaseUrls:
    """A shop with a history: every order has its workflow, and nearly all of them ended well."""
    with open_books(database) as (connection, watermark):
        plant_many(connection, ORDERS, 1, watermark)
        ended = watermark - timedelta(hours=20)
        ids = connection.execute(
            "SELECT o.id FROM makegood.orders o LEFT JOIN makegood.workflow_executions e ON e.entity_id = o.id"
            " WHERE e.id IS NULL AND o.status IN ('paid', 'fulfilled')"
        )
        load(
            connection,
            [Workflow(order_id, "completed", ended, ended, ended, None) for (order_id,) in ids],
            keep_plain=False,
        )
        connection.execute("VACUUM ANALYZE")
    run_match(database, "full", Terms())
    return database


def count_whole_reads(connection: Connection) -> int:
    """A session's reads are counted by the time it is gone from the list of them, and not always before."""
    deadline = time.monotonic() + 30
    while connection.execute(OTHERS).fetchone() is not None:
        assert time.monotonic() < deadline, "a session of the run has not ended"
        time.sleep(0.02)
    connection.execute("SELECT pg_stat_force_next_flush()")
    connection.execute("SELECT pg_stat_clear_snapshot()")
    row = connection.execute(WHOLE_READS).fetchone()
    assert row is not None
    return int(row[0])


def test_incremental_run_beside_a_long_history_never_reads_it_whole(books: DatabaseUrls) -> None:
    with open_books(books) as (connection, _):
        for table in ("orders", "provider_charges"):
            connection.execute(TOUCH.format(table=table, many=CHANGED).encode())
        before = count_whole_reads(connection)
        matched = run_match(books, "incremental", Terms())
        assert matched.looked_at >= CHANGED
        assert count_whole_reads(connection) == before
        assert run_match(books, "full", Terms()).missed == 0
        assert count_whole_reads(connection) > before, "the count would not notice a whole read"
