"""The dashboard inside Airflow's pages, and a link from each task to what it touched.

Loading this file imports nothing of the library: Airflow loads it in every process, also where makegood has no
database. The address of the dashboard is ``MAKEGOOD_DASHBOARD_URL``; the API server and the workers both read it,
so set it for both.

Weakness: a link is stored when its task ends. A task that was killed has none, and a changed address changes only
the links of later runs.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from airflow.plugins_manager import AirflowPlugin
from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

DASHBOARD_PORT_DEFAULT = "8501"


def dashboard_url() -> str:
    """Where the dashboard is, without a slash at the end; unset, where `make up` runs it."""
    here = f"http://127.0.0.1:{os.environ.get('MAKEGOOD_DASHBOARD_PORT') or DASHBOARD_PORT_DEFAULT}"
    return (os.environ.get("MAKEGOOD_DASHBOARD_URL") or here).rstrip("/")


class WhatItTouched(BaseOperatorLink):
    """Leads from a task to the orders its run touched; empty when the run never began.

    Airflow asks for the link in the worker when the task has ended, well or badly, and keeps the answer in XCom; its
    pages read it from there and never run this code.
    """

    name = "What it touched"
    xcom_key = "what_it_touched"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return _link("activity", ti_key)


class ReportOfTheRun(BaseOperatorLink):
    """Leads from the task that reported to the report; likewise kept in XCom, and empty when no run began."""

    name = "Report"
    xcom_key = "report_of_the_run"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return _link("reconciliation", ti_key)


def _link(page: str, ti_key: TaskInstanceKey) -> str:
    from airflow.sdk.execution_time.xcom import XCom  # noqa: PLC0415  # speaks to the task's supervisor: workers only

    run_id = XCom.get_one(key="run_id", dag_id=ti_key.dag_id, task_id="begin", run_id=ti_key.run_id)
    return f"{dashboard_url()}/{page}?{urlencode({'run': run_id})}" if run_id else ""


class MakegoodPlugin(AirflowPlugin):
    """What Airflow shows of makegood beside the DAGs."""

    name = "makegood"
    external_views: list[Any] = [  # noqa: RUF012  # Airflow's own declaration
        {
            "name": "makegood",
            "href": dashboard_url(),
            "destination": "nav",
            "url_route": "makegood",  # with a route of its own the view opens inside Airflow's page
        }
    ]
    operator_extra_links: list[Any] = [WhatItTouched(), ReportOfTheRun()]  # noqa: RUF012
