"""Two Airflows: one to read files with, one that can run DAGs."""

from __future__ import annotations

import pytest
from airflow_process import AirflowProcess


@pytest.fixture(scope="session")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> AirflowProcess:
    return AirflowProcess(tmp_path_factory.mktemp("airflow"))


@pytest.fixture(scope="session")
def airflow_with_database(tmp_path_factory: pytest.TempPathFactory) -> AirflowProcess:
    process = AirflowProcess(tmp_path_factory.mktemp("airflow_with_database"))
    process.run("-m", "airflow", "db", "migrate")
    return process
