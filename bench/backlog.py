"""A few stuck rows among millions that are finished: what finding and taking them costs."""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import psycopg

from bench.scratch import Scratch
from makegood.errors import ConfigurationError

FEW, MANY, STUCK = 100_000, 5_000_000, 500
ROUNDS = 15  # of one run; each takes milliseconds, so that few of them show what else the machine was doing


def fill(scratch: Scratch, finished: int, stuck: int = STUCK) -> None:
    """Finished rows, and the stuck ones among them. Without the guards, which would take hours to say yes."""
    with psycopg.connect(scratch.admin_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE makegood.workflow_executions DISABLE TRIGGER USER")
        connection.execute(
            """
            INSERT INTO makegood.workflow_executions (
              id, workflow_type, entity_id, current_state, context, created_at, updated_at, amount_minor, currency,
              next_attempt_at, deadline_at, fence, finished_at, last_seq, start_hash)
            SELECT gen_random_uuid(), 'checkout', 'order-' || n, CASE WHEN stuck THEN 'charging' ELSE 'completed' END,
                   '{}', t, t, 1999, 'EUR', t, t, 1, CASE WHEN NOT stuck THEN t END, 7, ''
              FROM (SELECT n, n %% %s = 0 AS stuck, clock_timestamp() - interval '1 day' AS t
                      FROM generate_series(1, %s) AS n) AS rows
            """,
            (finished // stuck, finished),
        )
        connection.execute("ALTER TABLE makegood.workflow_executions ENABLE TRIGGER USER")
        connection.execute(
            "ALTER TABLE makegood.workflow_executions ENABLE ALWAYS TRIGGER execution_follows_chain_when_new"
        )
        connection.execute("VACUUM ANALYZE makegood.workflow_executions")


def take_milliseconds(scratch: Scratch, *, find: bool, stuck: int = STUCK) -> float:
    """The median of a few claims of all the stuck rows, counted first if asked to; given back before the next."""
    times = []
    with psycopg.connect(scratch.admin_url, autocommit=True) as connection:
        # Autovacuum comes for the small table and not for the large one: the rounds before must not count for one only.
        connection.execute("VACUUM makegood.workflow_executions")
        for _ in range(ROUNDS + 1):
            begin = time.perf_counter()
            found = _find(connection) if find else stuck
            claimed = _claim(connection, stuck)
            times.append((time.perf_counter() - begin) * 1000)
            if (found, len(claimed)) != (stuck, stuck):
                raise ConfigurationError(f"{found} found, {len(claimed)} claimed, not {stuck}; the run is void")
            items = json.dumps([{"id": str(identity), "fence": fence} for identity, fence in claimed])
            connection.execute("SELECT count(*) FROM makegood.pause_workflows(%s::jsonb)", (items,))
    return statistics.median(times[1:])  # the first one warms the cache


def _find(connection: psycopg.Connection[Any]) -> int:
    rows = connection.execute("SELECT due FROM makegood.count_stuck()").fetchall()
    return sum(due for (due,) in rows)


def _claim(connection: psycopg.Connection[Any], count: int) -> list[Any]:
    return connection.execute(
        "SELECT id, fence FROM makegood.claim_workflows('bench', 60, %s, NULL, true)", (count,)
    ).fetchall()
