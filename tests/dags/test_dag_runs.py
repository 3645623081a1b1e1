"""Whole DAG runs in a real Airflow, with jobs that do as a scenario says: what runs, what is skipped, what is red."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow_process import AirflowProcess

pytestmark = pytest.mark.slow

BATCH = {"workflow_type": "checkout", "states": ["charging"], "limit": 500}
PROVIDERS = ("payments", "inventory", "shipping", "other")

RECOVERY = {
    "nothing to do": {},
    "form": {"form": {"dry_run": False, "older_than_minutes": 7, "workflow_type": "checkout", "limit": 10}},
    "one batch": {"batches": {"payments": [BATCH]}},
    "idle": {"form": {"dry_run": False}, "totals": {"due": 3, "not_due": 1}},
    "only waits": {"form": {"dry_run": False}, "totals": {"taken": 3, "wait": 3, "waiting": 3}},
    "many batches": {"batches": {name: [BATCH] * 2 for name in PROVIDERS}},
    "a batch fails": {"batches": {"payments": [BATCH] * 3}, "failures": {"payments-1": ["PermanentError"]}},
    "finish fails": {"failures": {"finish_run": ["InvariantError"]}},
}
COMPENSATION = {
    "nothing to do": {},
    "many batches": {"batches": [BATCH] * 3},
    "a batch fails": {"batches": [BATCH] * 2, "failures": {"compensations-0": ["PermanentError"]}},
    "the database is away for a moment": {
        "batches": [BATCH],
        "failures": {"compensations-0": ["DatabaseUnavailable", "DatabaseUnavailable"]},
    },
    "the database stays away": {"batches": [BATCH], "failures": {"compensations-0": ["DatabaseUnavailable"] * 9}},
    "begin fails": {"batches": [BATCH], "failures": {"begin_compensation": ["ConfigurationError"]}},
    "alert fails": {"batches": [BATCH], "failures": {"send_alerts": ["PermanentError"]}},
}


RECONCILIATION = {
    "all is well": {},
    "form": {"form": {"dry_run": False, "kind": "full", "classes": ["D08"], "limit": 5}},
    "the provider is away": {"failures": {"sync_charges": ["PermanentError"]}},
    "remedies fail": {"failures": {"remedy_run": ["InvariantError"]}},
    "begin fails": {"failures": {"begin_reconciliation": ["InputError"]}},
}


@pytest.fixture(scope="session")
def reconciliation(airflow_with_database: AirflowProcess) -> dict[str, Any]:
    runs: dict[str, Any] = airflow_with_database.ask("run", "reconcile_charges", json.dumps(RECONCILIATION))
    return runs


@pytest.fixture(scope="session")
def recovery(airflow_with_database: AirflowProcess) -> dict[str, Any]:
    runs: dict[str, Any] = airflow_with_database.ask("run", "recover_stuck_workflows", json.dumps(RECOVERY))
    return runs


@pytest.fixture(scope="session")
def compensation(airflow_with_database: AirflowProcess) -> dict[str, Any]:
    runs: dict[str, Any] = airflow_with_database.ask("run", "retry_compensations", json.dumps(COMPENSATION))
    return runs


def called(run: dict[str, Any]) -> list[str]:
    return [call[0] for call in run["calls"]]


def test_recovery_with_nothing_to_do_starts_three_tasks_and_is_green(recovery: dict[str, Any]) -> None:
    run = recovery["nothing to do"]

    assert run["state"] == "success"
    assert {name for name, state in run["states"].items() if state == "success"} == {"begin", "alert", "finish"}
    assert set(run["states"].values()) == {"success", "skipped"}


def test_recovery_by_hand_passes_the_form_on(recovery: dict[str, Any]) -> None:
    run = recovery["form"]

    key = f"recover_stuck_workflows/{run['run_id']}"
    assert run["calls"][0] == ["begin_recovery", 420, "checkout", 10, False, key, "airflow:manual:dag_test"]


def test_recovery_by_hand_only_looks_unless_told(recovery: dict[str, Any]) -> None:
    [_, _, _, _, dry_run, _, _] = recovery["one batch"]["calls"][0]

    assert dry_run is True


def test_recovery_of_one_batch_leaves_the_other_providers_alone(recovery: dict[str, Any]) -> None:
    run = recovery["one batch"]

    assert run["state"] == "success"
    assert run["states"]["recover_payments[0]"] == "success"
    assert {run["states"][f"recover_{name}"] for name in PROVIDERS[1:]} == {"skipped"}
    assert ["recover_batch", "run-1", BATCH, "payments-0"] in run["calls"]


def test_recovery_maps_over_every_providers_batches(recovery: dict[str, Any]) -> None:
    run = recovery["many batches"]

    assert run["state"] == "success"
    parts = sorted(call[3] for call in run["calls"] if call[0] == "recover_batch")
    assert parts == sorted(f"{name}-{index}" for name in PROVIDERS for index in (0, 1))
    assert run["names"]["recover_shipping[1]"] == "checkout 1"


def test_failed_batch_turns_the_run_red_and_the_rest_still_happens(recovery: dict[str, Any]) -> None:
    run = recovery["a batch fails"]

    assert run["state"] == "failed"
    assert [run["states"][f"recover_payments[{index}]"] for index in range(3)] == ["success", "failed", "success"]
    assert run["tries"]["recover_payments[1]"] == 1  # it will not work however often it is tried
    assert (run["states"]["alert"], run["states"]["finish"]) == ("success", "success")
    assert called(run)[-2:] == ["send_alerts", "finish_run"]


def test_failed_finish_turns_the_run_red(recovery: dict[str, Any]) -> None:
    run = recovery["finish fails"]

    assert (run["state"], run["states"]["finish"]) == ("failed", "failed")
    assert run["events"] == []


def test_compensation_with_nothing_to_do_is_green(compensation: dict[str, Any]) -> None:
    run = compensation["nothing to do"]

    assert run["state"] == "success"
    assert run["states"]["compensate"] == "skipped"
    assert called(run) == ["begin_compensation", "send_alerts", "finish_run"]


def test_compensation_maps_over_its_batches(compensation: dict[str, Any]) -> None:
    run = compensation["many batches"]

    assert run["state"] == "success"
    parts = sorted(call[3] for call in run["calls"] if call[0] == "compensate_batch")
    assert parts == ["compensations-0", "compensations-1", "compensations-2"]


def test_failed_compensation_turns_the_run_red_after_alert_and_finish(compensation: dict[str, Any]) -> None:
    run = compensation["a batch fails"]

    assert run["state"] == "failed"
    assert called(run)[-2:] == ["send_alerts", "finish_run"]


def test_database_away_for_a_moment_is_waited_for_under_the_same_part(compensation: dict[str, Any]) -> None:
    run = compensation["the database is away for a moment"]

    assert (run["state"], run["tries"]["compensate[0]"]) == ("success", 3)
    assert [call for call in run["calls"] if call[0] == "compensate_batch"] == [
        ["compensate_batch", "run-1", BATCH, "compensations-0"]
    ] * 3


def test_database_that_stays_away_ends_in_red_after_three_retries(compensation: dict[str, Any]) -> None:
    run = compensation["the database stays away"]

    assert (run["state"], run["tries"]["compensate[0]"]) == ("failed", 4)


def test_failed_begin_still_alerts_and_has_no_run_to_finish(compensation: dict[str, Any]) -> None:
    run = compensation["begin fails"]

    assert run["state"] == "failed"
    assert run["states"]["compensate"] == "upstream_failed"
    assert (run["states"]["alert"], run["states"]["finish"]) == ("success", "skipped")
    assert called(run) == ["begin_compensation", "send_alerts"]
    assert run["events"] == []


def test_failed_alert_turns_the_run_red_and_the_run_is_finished(compensation: dict[str, Any]) -> None:
    run = compensation["alert fails"]

    assert (run["state"], run["states"]["finish"]) == ("failed", "success")


def test_every_task_links_to_what_its_run_touched(recovery: dict[str, Any]) -> None:
    run = recovery["a batch fails"]  # the failed batch's link is the one people need

    started = {name for name, tries in run["tries"].items() if tries}
    assert {name for name, links in run["links"].items() if links["What it touched"]} == started
    assert {run["links"][name]["What it touched"] for name in started} == {"http://127.0.0.1:8501/activity?run=run-1"}
    assert "recover_payments[1]" in started


def test_task_has_no_link_when_no_run_began(compensation: dict[str, Any]) -> None:
    assert compensation["begin fails"]["links"]["begin"] == {"What it touched": None}


def test_following_dags_are_told_the_totals_of_runs_that_acted(recovery: dict[str, Any]) -> None:
    told = {"run_id": "run-1", "taken": 1, "dry_run": False}

    assert recovery["form"]["events"] == [["makegood://recovered/", told]]


@pytest.mark.parametrize("name", ["one batch", "idle", "only waits"])
def test_following_dags_are_not_started_by_a_run_that_did_nothing(recovery: dict[str, Any], name: str) -> None:
    """The first of them is a dry run."""
    assert (recovery[name]["state"], recovery[name]["events"]) == ("success", [])


def test_xcom_holds_the_run_batches_counts_and_links_only(recovery: dict[str, Any]) -> None:
    kept = {(task, key) for run in recovery.values() for task, key, _ in run["xcoms"]}

    counts = {(task, "return_value") for task, _ in kept if task.startswith(("recover_", "batches_"))}
    begun = {("begin", "run_id"), ("begin", "counts"), ("begin", "batches")}
    links = {(task, "what_it_touched") for task, _ in kept}
    assert kept == begun | counts | links | {("alert", "return_value"), ("finish", "return_value")}


STAGES = ["begin_reconciliation", "sync_charges", "match_run", "remedy_run", "report_run"]


def test_reconciliation_goes_through_its_stages_in_order(reconciliation: dict[str, Any]) -> None:
    run = reconciliation["all is well"]

    assert run["state"] == "success"
    assert called(run) == [*STAGES, "send_alerts", "finish_run"]
    assert run["events"] == [["makegood://reconciled/", {"run_id": "run-1", "taken": 1, "dry_run": True}]]


def test_reconciliation_by_hand_passes_the_form_on(reconciliation: dict[str, Any]) -> None:
    run = reconciliation["form"]

    key = f"reconcile_charges/{run['run_id']}"
    begun = ["begin_reconciliation", "full", None, None, ["D08"], 5, False, key, "airflow:manual:dag_test"]
    assert run["calls"][0] == begun


def test_provider_that_is_away_is_compared_and_reported_all_the_same_and_the_run_is_red(
    reconciliation: dict[str, Any],
) -> None:
    run = reconciliation["the provider is away"]

    assert (run["state"], run["states"]["sync"], run["states"]["report"]) == ("failed", "failed", "success")
    assert called(run) == [*STAGES, "send_alerts", "finish_run"]


def test_remedies_that_fail_are_reported_and_the_run_is_red(reconciliation: dict[str, Any]) -> None:
    run = reconciliation["remedies fail"]

    assert (run["state"], run["states"]["remedies"]) == ("failed", "failed")
    assert called(run)[-3:] == ["report_run", "send_alerts", "finish_run"]


def test_reconciliation_that_never_began_does_nothing_but_alert(reconciliation: dict[str, Any]) -> None:
    run = reconciliation["begin fails"]

    assert run["state"] == "failed"
    assert called(run) == ["begin_reconciliation", "send_alerts"]


def test_report_is_one_click_from_its_task(reconciliation: dict[str, Any]) -> None:
    links = reconciliation["all is well"]["links"]

    assert links["report"]["Report"] == "http://127.0.0.1:8501/reconciliation?run=run-1"
    assert links["match"] == {"What it touched": "http://127.0.0.1:8501/activity?run=run-1"}


def test_xcom_of_a_reconciliation_holds_counts_and_links_only(reconciliation: dict[str, Any]) -> None:
    sizes = [len(json.dumps(value)) for run in reconciliation.values() for _, _, value in run["xcoms"]]

    assert max(sizes) < 500
