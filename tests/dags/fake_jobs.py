"""Stands in for `makegood.jobs` and `makegood.reconciling`: does as a scenario says and notes how it was called.

The functions have the signatures of the real ones, which `test_dags` compares.
"""

from __future__ import annotations

from typing import Any

from makegood import errors

PROVIDERS = ("payments", "inventory", "shipping", "other")

calls: list[list[Any]] = []
scenario: dict[str, Any] = {}


def play(new_scenario: dict[str, Any]) -> None:
    """From now on things are as in this scenario, and nothing was called yet."""
    calls.clear()
    scenario.clear()
    scenario.update(new_scenario)


def begin_recovery(
    *,
    older_than_seconds: int | None = None,
    workflow_type: str | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    key: str | None = None,
    triggered_by: str,
) -> dict[str, Any]:
    _note("begin_recovery", older_than_seconds, workflow_type, limit, dry_run, key, triggered_by)
    batches = scenario.get("batches", {})
    return {"run_id": "run-1", "batches": {name: batches.get(name, []) for name in PROVIDERS}, "counts": {"stuck": 3}}


def begin_compensation(
    *,
    older_than_seconds: int | None = None,
    workflow_type: str | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    key: str | None = None,
    triggered_by: str,
) -> dict[str, Any]:
    _note("begin_compensation", older_than_seconds, workflow_type, limit, dry_run, key, triggered_by)
    return {"run_id": "run-1", "batches": scenario.get("batches", []), "counts": {"due": 3}}


def recover_batch(run_id: str, batch: dict[str, Any], part: str) -> dict[str, int]:
    _note("recover_batch", run_id, batch, part)
    return {"recovered": 1}


def compensate_batch(run_id: str, batch: dict[str, Any], part: str) -> dict[str, int]:
    _note("compensate_batch", run_id, batch, part)
    return {"succeeded": 1}


def send_alerts() -> dict[str, int]:
    _note("send_alerts")
    return {"sent": 0}


def finish_run(run_id: str) -> dict[str, int]:
    _note("finish_run", run_id)
    return scenario.get("totals", {"taken": 1})


# What is in `makegood.reconciling`


def begin_reconciliation(
    *,
    kind: str = "auto",
    since: str | None = None,
    until: str | None = None,
    classes: list[str] | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    key: str | None = None,
    triggered_by: str,
) -> dict[str, Any]:
    _note("begin_reconciliation", kind, since, until, classes, limit, dry_run, key, triggered_by)
    return {"run_id": "run-1", "counts": {}, "kind": "incremental", "dry_run": dry_run}


def sync_charges(run_id: str) -> dict[str, int]:
    _note("sync_charges", run_id)
    return {"charges": 3}


def match_run(run_id: str) -> dict[str, int]:
    _note("match_run", run_id)
    return {"looked_at": 3}


def remedy_run(run_id: str) -> dict[str, int]:
    _note("remedy_run", run_id)
    return {"would_refund": 1}


def report_run(run_id: str) -> dict[str, Any]:
    _note("report_run", run_id)
    return {"summary": "The totals add up.", "link": "http://127.0.0.1:8501/reconciliation?run=run-1"}


def _note(function: str, *arguments: Any) -> None:
    """Write down the call; then raise if the scenario names it by function or part, in its next place."""
    calls.append([function, *arguments])
    for name in (function, arguments[-1] if arguments else None):
        failures = scenario.get("failures", {}).get(name)
        if failures:
            raise getattr(errors, failures.pop(0))("as the scenario says", hint="read the scenario")
