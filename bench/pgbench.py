"""pgbench's side of a figure: a guarded update, its transition and a commit, on makegood's own tables."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile

import psycopg

from bench.scratch import Scratch
from makegood.errors import ConfigurationError
from makegood.local.binaries import find_binaries

ROWS, SECONDS = 20_000, 8

PING_PONG = {
    "name": "pgbench",
    "states": [
        {"state": "created", "kind": "initial", "step": None, "stuck_after_seconds": 300},
        {"state": "ping", "kind": "doing", "step": "play", "stuck_after_seconds": 300},
        {"state": "pong", "kind": "done", "step": "play", "stuck_after_seconds": 300},
    ],
    "edges": [["created", "ping"], ["ping", "pong"], ["pong", "ping"]],
}
# What a careful user writes by hand: the guard in the UPDATE's own WHERE, the transition with it.
SCRIPT = r"""
\set n random(1, :rows)
BEGIN;
WITH moved AS (
  UPDATE makegood.workflow_executions e
     SET current_state = CASE e.current_state WHEN 'ping' THEN 'pong' ELSE 'ping' END,
         last_seq = e.last_seq + 1, updated_at = clock_timestamp(),
         deadline_at = clock_timestamp() + interval '5 minutes'
   WHERE e.id = (SELECT id FROM public.pgbench_ids WHERE n = :n) AND e.current_state <> 'created' AND e.fence = 0
  RETURNING e.id, e.entity_id, e.last_seq, e.current_state)
INSERT INTO makegood.workflow_transitions (workflow_id, entity_id, seq, from_state, to_state, triggered_by)
SELECT id, entity_id, last_seq, CASE current_state WHEN 'ping' THEN 'pong' ELSE 'ping' END, current_state, 'pgbench'
  FROM moved;
COMMIT;
"""


def prepare_pgbench(scratch: Scratch, rows: int = ROWS) -> None:
    """Rows of a type that nobody recovers, in the tables that everything else is in."""
    with psycopg.connect(scratch.admin_url, autocommit=True) as connection:
        connection.execute("SELECT makegood.register_workflow(%s::jsonb)", (json.dumps(PING_PONG),))
        connection.execute("CREATE TABLE public.pgbench_ids (n integer PRIMARY KEY, id uuid NOT NULL)")
        connection.execute(
            "INSERT INTO public.pgbench_ids SELECT n, makegood.start_workflow('pgbench', 'row-' || n)"
            " FROM generate_series(1, %s) AS n",
            (rows,),
        )
        connection.execute(
            "SELECT count(makegood.transition_workflow(id, 'created', 'ping', 0)) FROM public.pgbench_ids"
        )
        connection.execute("VACUUM ANALYZE")


def run_pgbench(scratch: Scratch, connections: int, *, rows: int = ROWS, seconds: int = SECONDS) -> float:
    """Committed transitions per second."""
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(SCRIPT)
        script.flush()
        options = ["-n", "-c", str(connections), "-j", str(connections), "-T", str(seconds), "-M", "prepared"]
        command = [str(find_binaries().program("pgbench")), *options, "-D", f"rows={rows}", "-f", script.name]
        done = subprocess.run([*command, scratch.admin_url], capture_output=True, text=True, check=False)
    found = re.search(r"tps = ([0-9.]+)", done.stdout)
    if done.returncode or not found:
        raise ConfigurationError(f"pgbench did not run: {done.stderr.strip()[-500:]}")
    return float(found[1])
