"""DAG files are quick to read, import nothing of the library, and carry every setting that keeps a run safe."""

from __future__ import annotations

import importlib
import inspect
import json
from functools import cache
from typing import Any

import fake_jobs
import pytest
from airflow_process import AirflowProcess

from makegood import reconciling
from makegood.local.airflow_database import POOLS
from makegood.settings import Settings

MINUTELY = ["recover_stuck_workflows", "retry_compensations"]
HOURLY = ["reconcile_charges"]
DAG_IDS = [*HOURLY, *MINUTELY]
STAGES = ["match", "remedies", "report", "sync"]
WORKING = {"match", "remedies", "sync"}  # in the pool of the reconciliation
HOUSEKEEPING = "makegood_housekeeping"
# Of one file in a fresh process that has imported Airflow, as the DAG processor has before it forks.
PARSE_SECONDS_MAX = 2


@pytest.fixture(scope="session")
def describe(airflow: AirflowProcess) -> Any:
    return cache(lambda dag_id: airflow.ask("describe", dag_id))


@pytest.fixture(params=DAG_IDS, scope="session")
def dag(request: pytest.FixtureRequest, describe: Any) -> dict[str, Any]:
    facts: dict[str, Any] = describe(request.param)
    return facts


@pytest.fixture(params=MINUTELY, scope="session")
def minutely(request: pytest.FixtureRequest, describe: Any) -> dict[str, Any]:
    facts: dict[str, Any] = describe(request.param)
    return facts


def test_folder_holds_exactly_the_jobs_and_no_broken_file(airflow: AirflowProcess) -> None:
    found = airflow.ask("discover")

    assert found == {"dags": DAG_IDS, "files": [f"{dag_id}.py" for dag_id in DAG_IDS], "errors": {}}


def test_file_is_read_quickly_and_without_a_warning(dag: dict[str, Any]) -> None:
    assert (dag["errors"], dag["warnings"]) == ({}, [])
    assert dag["seconds"] < PARSE_SECONDS_MAX


def test_reading_a_file_imports_nothing_of_the_library(dag: dict[str, Any]) -> None:
    assert dag["library"] == []


def test_dag_never_overlaps_itself_never_catches_up_and_always_ends(dag: dict[str, Any]) -> None:
    assert dag["max_active_runs"] == 1
    assert dag["catchup"] is False
    assert 0 < dag["dagrun_timeout"] <= 6 * 3600


def test_jobs_of_the_minute_run_each_minute_and_end_within_the_hour(minutely: dict[str, Any]) -> None:
    assert minutely["schedule"] == "* * * * *"
    assert minutely["dagrun_timeout"] <= 3600


def test_reconciliation_runs_each_hour_and_at_once_where_it_is_new(describe: Any) -> None:
    facts = describe("reconcile_charges")

    assert facts["schedule"] == "0 * * * *"
    assert facts["start_date"] is None  # with one, Airflow would wait for the next full hour
    assert facts["dagrun_timeout"] == reconciling.SECONDS_MAX  # from then on the library calls it abandoned


def test_batch_ends_by_itself_before_airflow_stops_it(minutely: dict[str, Any]) -> None:
    takes_nothing_new_after = Settings.model_fields["job_seconds_max"].default

    mapped = {task["timeout"] for task in minutely["tasks"].values() if task["mapped"]}
    assert mapped == {takes_nothing_new_after + 120}
    assert minutely["dagrun_timeout"] == 2 * takes_nothing_new_after  # from then on the library calls it abandoned


def test_dag_tells_an_operator_what_it_does(dag: dict[str, Any]) -> None:
    assert "makegood" in dag["tags"]
    for word in ("By hand", "Dry run", "Safe to repeat", "Red?", "runbook", *dag["tasks"]):
        named = word.rpartition("_")[0] + "_…" if word.startswith(("recover_", "batches_")) else word
        assert named in dag["doc"]


def test_every_task_has_an_owner_a_pool_of_ours_a_timeout_and_the_link(dag: dict[str, Any]) -> None:
    for name, task in dag["tasks"].items():
        assert task["owner"] == "makegood"
        assert task["pool"] in POOLS
        works = task["mapped"] or name in WORKING
        assert (task["pool"] == HOUSEKEEPING) is not works  # no batch keeps a job from beginning or ending
        assert 0 < task["timeout"] <= dag["dagrun_timeout"]
        assert "What it touched" in task["links"]


def test_every_task_is_retried_by_the_kind_of_its_error(dag: dict[str, Any]) -> None:
    retries = {name: (task["policy"], task["retries"]) for name, task in dag["tasks"].items()}

    assert retries.pop("fail_the_run") == ("RetryWhatMayPass", 0)  # it fails on purpose
    assert set(retries.values()) == {("RetryWhatMayPass", 3)}


@pytest.mark.parametrize("provider", ["payments", "inventory", "shipping", "other"])
def test_recovery_has_a_mapped_task_per_provider_in_its_pool(describe: Any, provider: str) -> None:
    tasks = describe("recover_stuck_workflows")["tasks"]

    assert tasks[f"recover_{provider}"]["mapped"]
    assert tasks[f"recover_{provider}"]["pool"] == f"makegood_{provider}"
    assert tasks[f"batches_{provider}"]["upstream"] == ["begin"]


def test_compensations_are_mapped_in_a_pool_of_their_own(describe: Any) -> None:
    task = describe("retry_compensations")["tasks"]["compensate"]

    assert (task["mapped"], task["pool"], task["upstream"]) == (True, "makegood_compensations", ["begin"])


def test_stages_of_a_reconciliation_follow_each_other(describe: Any) -> None:
    tasks = describe("reconcile_charges")["tasks"]

    upstream = {name: (tasks[name]["upstream"], tasks[name]["trigger_rule"]) for name in STAGES}
    assert upstream == {
        "sync": (["begin"], "all_success"),
        "match": (["sync"], "all_done"),  # that nothing could be fetched is a finding, too
        "remedies": (["match"], "all_success"),
        "report": (["remedies"], "all_done"),
    }
    assert {tasks[name]["pool"] for name in ("sync", "match", "remedies")} == {"makegood_reconciliation"}
    assert tasks["report"]["links"] == ["What it touched", "Report"]


def test_alert_and_finish_run_whatever_happened_before(dag: dict[str, Any]) -> None:
    tasks = dag["tasks"]
    batches = sorted(name for name, task in tasks.items() if task["mapped"] or name in STAGES)

    assert (tasks["alert"]["upstream"], tasks["alert"]["trigger_rule"]) == (batches, "all_done")
    assert (tasks["finish"]["upstream"], tasks["finish"]["trigger_rule"]) == (["alert"], "all_done")
    assert tasks["fail_the_run"]["upstream"] == sorted([*batches, "alert", "finish"])
    assert tasks["fail_the_run"]["trigger_rule"] == "one_failed"


@pytest.mark.parametrize(
    ("dag_id", "uri"),
    [
        ("recover_stuck_workflows", "makegood://recovered/"),
        ("retry_compensations", "makegood://compensated/"),
        ("reconcile_charges", "makegood://reconciled/"),
    ],
)
def test_finish_updates_the_asset_that_the_doc_names(describe: Any, dag_id: str, uri: str) -> None:
    facts = describe(dag_id)

    alias = f"{uri.replace('://', '_').rstrip('/')}_updates"
    assert {name: task["outlets"] for name, task in facts["tasks"].items() if task["outlets"]} == {"finish": [alias]}
    assert uri in facts["doc"]


def test_errors_are_retried_by_their_kind(airflow: AirflowProcess) -> None:
    decisions = airflow.ask("decide")

    retried = {name for name, (action, _, _) in decisions.items() if action == "retry"}
    assert retried == {"TransientError", "DatabaseUnavailable"}
    assert {decisions[name][1] for name in retried} == {10}  # seconds
    assert decisions.pop("ValueError")[0] == "default"  # nobody foresaw it: Airflow's own retries
    failed = set(decisions) - retried
    assert {decisions[name][0] for name in failed} == {"fail"}
    assert failed >= {"ConfigurationError", "InputError", "PermanentError", "InvariantError", "UnknownWorkflowType"}
    assert all(reason == f"{name}: do so" for name, (_, _, reason) in decisions.items())  # the hint reaches the log


def test_only_a_scheduled_run_acts_unasked(airflow: AirflowProcess) -> None:
    asked = airflow.ask("ask")

    assert {run_type for run_type, job in asked.items() if not job["dry_run"]} == {"scheduled"}
    assert asked["scheduled"] == {
        "older_than_seconds": None,
        "workflow_type": None,
        "limit": None,  # as the settings say
        "dry_run": False,
        "key": "a_dag/a_run",
        "triggered_by": "airflow:scheduled",
    }
    assert asked["manual"]["triggered_by"] == "airflow:manual:alice"


FORMS: list[tuple[dict[str, Any], bool]] = [
    ({}, True),  # as the form comes
    ({"dry_run": False, "older_than_minutes": 5, "workflow_type": "checkout", "limit": 1}, True),
    ({"older_than_minutes": None, "workflow_type": None}, True),  # left empty
    ({"workflow_type": ""}, True),  # emptied by hand
    ({"limit": 100_000}, True),
    ({"limit": 100_001}, False),
    ({"limit": 0}, False),
    ({"limit": None}, True),  # left empty: the settings have a bound
    ({"limit": "many"}, False),
    ({"older_than_minutes": 0}, False),  # that would be every order that is under way
    ({"older_than_minutes": -5}, False),
    ({"older_than_minutes": 2.5}, False),
    ({"older_than_minutes": 525_601}, False),  # more than a year is a mistyped number
    ({"workflow_type": "x" * 101}, False),
    ({"workflow_type": 7}, False),
    ({"dry_run": None}, False),  # neither yes nor no
    ({"dry_run": "false"}, False),
]


@pytest.mark.parametrize("dag_id", MINUTELY)
def test_form_refuses_what_makes_no_sense(airflow: AirflowProcess, dag_id: str) -> None:
    verdicts = airflow.ask("judge", dag_id, json.dumps([form for form, _ in FORMS]))

    assert [(form, verdict is None) for (form, _), verdict in zip(FORMS, verdicts, strict=True)] == FORMS


RECONCILIATION_FORMS: list[tuple[dict[str, Any], bool]] = [
    ({}, True),  # as the form comes
    ({"kind": "full", "dry_run": False, "classes": ["D08", "D03"], "limit": 10}, True),
    ({"since": "2026-11-01T00:00:00+00:00", "until": "2026-11-02T00:00:00+00:00"}, True),
    ({"since": None, "until": None, "classes": [], "limit": None}, True),  # left empty
    ({"kind": "everything"}, False),
    ({"kind": None}, False),
    ({"since": "yesterday"}, False),
    ({"classes": ["D33"]}, False),
    ({"classes": "D08"}, False),
    ({"limit": 0}, False),
    ({"limit": 10_001}, False),
    ({"dry_run": None}, False),
]


def test_form_of_the_reconciliation_refuses_what_makes_no_sense(airflow: AirflowProcess) -> None:
    forms = [form for form, _ in RECONCILIATION_FORMS]
    verdicts = airflow.ask("judge", "reconcile_charges", json.dumps(forms))

    judged = [(form, verdict is None) for form, verdict in zip(forms, verdicts, strict=True)]
    assert judged == RECONCILIATION_FORMS


RECONCILING = ["begin_reconciliation", "sync_charges", "match_run", "remedy_run", "report_run"]
JOBS = ["begin_recovery", "begin_compensation", "recover_batch", "compensate_batch", "send_alerts", "finish_run"]


@pytest.mark.parametrize(
    ("module", "function"), [*(("jobs", name) for name in JOBS), *(("reconciling", name) for name in RECONCILING)]
)
def test_jobs_take_what_the_dags_give(module: str, function: str) -> None:
    real = inspect.signature(getattr(importlib.import_module(f"makegood.{module}"), function))
    fake = inspect.signature(getattr(fake_jobs, function))

    assert {name: p.kind for name, p in real.parameters.items()} == {
        name: p.kind for name, p in fake.parameters.items()
    }
