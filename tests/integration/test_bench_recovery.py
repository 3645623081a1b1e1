"""The moving parts of ``makegood bench recovery``, at a size that takes seconds: a benchmark must not rot unseen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from databases import DatabaseUrls
from psycopg.conninfo import conninfo_to_dict

from bench import backlog, recovery, shop_calls
from bench.checkouts import NAME, leave_stuck
from bench.figures import Figure
from bench.pgbench import prepare_pgbench, run_pgbench
from bench.recovering import recover_in_process
from bench.scratch import Scratch
from makegood.errors import ConfigurationError
from makegood.local.postgres import EmbeddedPostgres

COUNT = 50


@pytest.fixture
def scratch(database: DatabaseUrls) -> Scratch:
    return Scratch(str(conninfo_to_dict(database.admin)["dbname"]), database.admin, database.jobs)


def test_stuck_checkouts_are_what_a_killed_worker_leaves(scratch: Scratch, database: DatabaseUrls) -> None:
    leave_stuck(scratch, COUNT)
    rows = database.rows(
        "SELECT e.current_state, e.last_seq, k.status, a.attempt, a.outcome,"
        " e.lease_until < clock_timestamp() AND e.deadline_at < clock_timestamp() AS stuck, count(*) AS n"
        " FROM makegood.workflow_executions e"
        " JOIN makegood.idempotency_keys k ON k.key = 'reserve-' || e.entity_id"
        " JOIN makegood.step_attempts a ON a.workflow_id = e.id AND a.step = 'reserve'"
        " WHERE e.workflow_type = %s GROUP BY 1, 2, 3, 4, 5, 6",
        (NAME,),
    )
    stuck = {"current_state": "reserving", "last_seq": 4, "status": "sent", "attempt": 1, "outcome": None}
    assert rows == [{**stuck, "stuck": True, "n": COUNT}]


def test_recovery_in_a_process_completes_them_all_and_knows_its_peak(scratch: Scratch, database: DatabaseUrls) -> None:
    leave_stuck(scratch, COUNT)
    recovered = recover_in_process(scratch, COUNT, calls_at_once=8)
    assert recovered.counts["completed"] == COUNT
    assert recovered.seconds > 0
    assert 20 < recovered.peak_mb < 300
    transitions = database.rows("SELECT count(*) AS n FROM makegood.workflow_transitions WHERE triggered_by <> 'bench'")
    before = 3  # charging, charged, reserving, by the worker that was killed
    assert transitions[0]["n"] == COUNT * (before + recovery.TRANSITIONS_PER_CHECKOUT)
    assert database.rows("SELECT count(*) AS n FROM makegood.job_decisions")[0]["n"] == COUNT


def test_recovery_that_leaves_one_behind_is_void(scratch: Scratch) -> None:
    leave_stuck(scratch, COUNT)
    with pytest.raises(ConfigurationError, match="void"):
        recover_in_process(scratch, COUNT + 1, calls_at_once=8)


def test_pgbench_moves_rows_of_the_same_tables(scratch: Scratch, database: DatabaseUrls) -> None:
    prepare_pgbench(scratch, rows=COUNT)
    assert run_pgbench(scratch, 2, rows=COUNT, seconds=1) > 0
    moved = database.rows("SELECT count(*) AS n FROM makegood.workflow_transitions WHERE triggered_by = 'pgbench'")
    assert moved[0]["n"] > 0


def test_finding_and_claiming_gives_back_what_it_took(scratch: Scratch) -> None:
    backlog.fill(scratch, 10 * COUNT, stuck=COUNT)
    assert backlog.take_milliseconds(scratch, find=True, stuck=COUNT) > 0
    assert backlog.take_milliseconds(scratch, find=False, stuck=COUNT) > 0


def test_calls_through_the_shop_are_counted_in_its_books(scratch: Scratch) -> None:
    ((made, allowed),) = shop_calls.measure_calls(scratch, 1, lambda _: None, orders=COUNT, calls_at_once=4)
    assert made > 0
    assert allowed <= 4 / (shop_calls.LATENCY_MS / 1000)  # no call is quicker than the shop


def test_figures_with_small_numbers_have_their_names_and_limits(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "CHECKOUTS", COUNT)
    monkeypatch.setattr(recovery, "CHECKOUTS_MANY", 2 * COUNT)
    urls = (server.url("postgres"), server.url("makegood_jobs"))
    figures = recovery.measure_peak(*urls, 1, lambda _: None)
    assert [(figure.name, figure.kind, figure.limit) for figure in figures] == [
        ("peak_mb", "at most", 300),
        ("peak_growth", "at most", 1.15),
    ]
    assert all(isinstance(figure, Figure) and figure.kept for figure in figures)


def test_command_with_an_unknown_figure_names_the_known_ones(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "makegood.cli", "bench", "recovery", "--only", "speed"],
        env={**os.environ, "MAKEGOOD_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert all(name in result.stderr for name in recovery.FIGURES)
