"""Airflow loads one plugin and nothing of the library; the plugin shows the dashboard inside Airflow's pages."""

from __future__ import annotations

import shutil
from pathlib import Path

from airflow_process import ROOT, AirflowProcess


def test_airflow_loads_one_plugin_and_no_library_module_by_a_bare_name(airflow: AirflowProcess) -> None:
    loaded = airflow.ask("plugins")

    assert (loaded["plugins"], loaded["errors"]) == (["makegood"], {})
    assert loaded["modules"] == ["makegood_plugin"]


def test_without_the_ignore_rule_airflow_runs_the_library_file_by_file(airflow: AirflowProcess, tmp_path: Path) -> None:
    library = tmp_path / "makegood"
    library.mkdir()
    shutil.copy(ROOT / "plugins" / "makegood" / "errors.py", library)

    assert airflow.ask("plugins", AIRFLOW__CORE__PLUGINS_FOLDER=str(tmp_path))["modules"] == ["errors"]


def test_the_ignore_rule_holds_in_airflows_other_syntax_too(airflow: AirflowProcess) -> None:
    assert airflow.ask("plugins", AIRFLOW__CORE__DAG_IGNORE_FILE_SYNTAX="regexp")["modules"] == ["makegood_plugin"]


def test_dashboard_opens_inside_airflow_at_its_usual_address(airflow: AirflowProcess) -> None:
    [view] = airflow.ask("plugins")["views"]

    assert view["href"] == "http://127.0.0.1:8501"
    assert (view["destination"], view["url_route"]) == ("nav", "makegood")  # a route of its own: in the page


def test_dashboard_address_is_a_setting(airflow: AirflowProcess) -> None:
    [view] = airflow.ask("plugins", MAKEGOOD_DASHBOARD_URL="https://ops.example/dashboard/")["views"]

    assert view["href"] == "https://ops.example/dashboard"
