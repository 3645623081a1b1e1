"""A shop's past: orders that ended over ninety days, with every transition and attempt, and a few that have not.

Written in bulk and without the guards, which would take hours to say yes; then counted by the rollups as a house
that comes from an older version counts its own.
"""

from __future__ import annotations

import json

import psycopg

from bench.checkouts import make_no_op
from bench.scratch import Scratch

UNFINISHED = 1_000  # the same beside few and many: what is under way does not grow with age
DAYS = 90
# Three in four orders are completed in seven transitions, the others are undone in five or fail in three: 6.3 each.
MADE = """
CREATE UNLOGGED TABLE made AS
SELECT n, (lpad(to_hex((extract(epoch FROM began) * 1000)::bigint), 12, '0') || '7' || substr(h, 1, 3) || '8'
           || substr(h, 4, 15))::uuid AS id,
       'order-' || n AS entity_id, end_state, began, began + took AS ended, took
  FROM (SELECT n, md5(n::text) AS h,
               now() - interval '90 days' * (1 - n::float8 / %(orders)s) - interval '10 minutes' AS began,
               exp(0.7 * sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random())) * interval '2 seconds' AS took,
               CASE WHEN n %% (%(orders)s / %(unfinished)s) = 1 THEN 'reserving' WHEN n %% 20 < 15 THEN 'completed'
                    WHEN n %% 20 < 18 THEN 'compensated' ELSE 'failed' END AS end_state
          FROM generate_series(1, %(orders)s) AS n) AS numbers
"""
EXECUTIONS = """
INSERT INTO makegood.workflow_executions (
  id, workflow_type, entity_id, current_state, context, created_at, updated_at, amount_minor, currency,
  next_attempt_at, deadline_at, fence, finished_at, last_seq, start_hash)
SELECT id, 'checkout', entity_id, end_state, '{}', began, ended, 1999, 'EUR', ended, ended, 1,
       CASE WHEN end_state <> 'reserving' THEN ended END,
       CASE end_state WHEN 'completed' THEN 7 WHEN 'compensated' THEN 5 WHEN 'failed' THEN 3 ELSE 4 END, ''
  FROM made ORDER BY n
"""
TRANSITIONS = """
INSERT INTO makegood.workflow_transitions (
  workflow_id, entity_id, seq, from_state, to_state, triggered_by, transitioned_at)
SELECT m.id, m.entity_id, s.seq, s.states[s.seq - 1], s.states[s.seq], 'bench',
       m.began + m.took * ((s.seq - 1)::float8 / greatest(cardinality(s.states) - 1, 1))
  FROM made m
  CROSS JOIN LATERAL (SELECT w.states, seq FROM (SELECT CASE m.end_state
         WHEN 'completed' THEN '{created,charging,charged,reserving,reserved,shipping,completed}'::text[]
         WHEN 'compensated' THEN '{created,charging,charged,compensating,compensated}'
         WHEN 'failed' THEN '{created,charging,failed}' ELSE '{created,charging,charged,reserving}' END) AS w(states),
       generate_series(1, cardinality(w.states)) AS seq) AS s
 ORDER BY m.n, s.seq
"""
ATTEMPTS = """
INSERT INTO makegood.step_attempts (
  workflow_id, step, kind, attempt, outcome, error_type, started_at, finished_at, worker)
SELECT m.id, a.step, a.kind, 1, a.outcome, CASE WHEN a.outcome <> 'success' THEN 'Timeout' END,
       m.began, m.ended, 'bench'
  FROM made m
  CROSS JOIN LATERAL (VALUES
         ('charge', 'forward', CASE WHEN m.end_state = 'failed' THEN 'failed' ELSE 'success' END, true),
         ('reserve', 'forward', CASE WHEN m.n % 50 = 0 THEN 'unknown' ELSE 'success' END, m.end_state = 'completed'),
         ('ship', 'forward', 'success', m.end_state = 'completed'),
         ('charge', 'compensation', 'success', m.end_state = 'compensated')) AS a(step, kind, outcome, made)
 WHERE a.made ORDER BY m.n
"""
GUARDED = ("workflow_executions", "workflow_transitions")


def fill(scratch: Scratch, orders: int) -> dict[str, int]:
    """Writes the past and counts it; how many rows there are of each kind."""
    with psycopg.connect(scratch.admin_url, autocommit=True) as connection:
        definition = json.dumps(make_no_op("checkout").to_document())
        connection.execute("SELECT makegood.register_workflow(%s::jsonb)", (definition,))
        connection.execute("SELECT setseed(0.5)")
        connection.execute(MADE, {"orders": orders, "unfinished": UNFINISHED})
        for table in GUARDED:
            connection.execute(f"ALTER TABLE makegood.{table} DISABLE TRIGGER USER")
        counts = {"workflows": connection.execute(EXECUTIONS).rowcount}
        counts["transitions"] = connection.execute(TRANSITIONS).rowcount
        counts["attempts"] = connection.execute(ATTEMPTS).rowcount
        connection.execute("DROP TABLE made")
        connection.execute("VACUUM ANALYZE")
        while (counted := connection.execute("SELECT makegood.roll_up(50000)").fetchone()) and counted[0]:
            pass
        while (gone := connection.execute("SELECT makegood.tidy_rollups(100000)").fetchone()) and gone[0]:
            pass
        connection.execute("VACUUM ANALYZE")
    return counts
