"""Airflow under `make up`, for real: healthy, open to its user, quiet, and gone after `make down`."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import psycopg
import pytest

from makegood.errors import ConfigurationError, DatabaseUnavailable
from makegood.local import airflow, airflow_database, airflow_settings, ports
from makegood.local.airflow_database import POOL_SLOTS, POOLS, slots_of
from makegood.local.lifecycle import SERVER, Environment
from makegood.local.postgres import EmbeddedPostgres
from makegood.local.progress import Silent
from makegood.local.runrecord import TAG
from makegood.settings import Settings, get_settings

DAG = """
    from datetime import datetime
    from airflow.sdk import dag, task

    @dag(schedule="@once", start_date=datetime(2026, 1, 1))
    def looks_around():
        @task(pool="makegood_payments")
        def look() -> str:
            import os
            from makegood.local import where
            return os.environ["MAKEGOOD_HOME"] + " " + where.database_url()
        look()

    looks_around()
"""
# Errors of any kind, and what libraries warn of at every start; a slow machine has other warnings of its own.
TROUBLE = re.compile(r"\[(error|critical) *\]|\[py\.warnings\]|\b(ERROR|CRITICAL|FATAL|PANIC|Traceback)\b")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="makegood airflow "))
    folder.chmod(0o755)
    (folder / "dags").mkdir()
    (folder / "dags" / "looks_around.py").write_text(textwrap.dedent(DAG))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def environment(folder: Path) -> Iterator[Environment]:
    """One for the module: it takes as long to start as everything else together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAKEGOOD_HOME", str(folder / "home"))
        patch.setenv("MAKEGOOD_SHOP_PORT", str(ports.choose_port()))
        patch.setenv("MAKEGOOD_AIRFLOW_PORT", str(ports.choose_port()))
        for module in (airflow, airflow_settings):
            patch.setattr(module, "DAGS", folder / "dags")
        get_settings.cache_clear()
        environment = Environment(get_settings(), Silent(), lambda _: None)
        yield environment
        environment.wipe()
        get_settings.cache_clear()


@contextlib.contextmanager
def open_api(environment: Environment) -> Iterator[httpx.Client]:
    """As the person who reads what `make up` says."""
    with httpx.Client(base_url=environment.settings.airflow_url, timeout=30, trust_env=False) as client:
        login = {"username": "admin", "password": airflow_settings.read_password(environment.home)}
        token = client.post("/auth/token", json=login).raise_for_status().json()["access_token"]
        client.headers["Authorization"] = f"Bearer {token}"
        yield client


def wait_for_run(client: httpx.Client, dag_id: str, wait_seconds: float = 60.0) -> str:
    deadline = time.monotonic() + wait_seconds
    while time.monotonic() < deadline:
        answer = client.get(f"/api/v2/dags/{dag_id}/dagRuns")
        runs: list[dict[str, Any]] = answer.json().get("dag_runs", [])
        if runs and runs[0]["state"] in ("success", "failed"):
            return str(runs[0]["state"])
        time.sleep(0.5)
    return "never ended"


def processes_of(home: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        tag = (process.info["environ"] or {}).get(TAG, "")
        if tag.startswith(f"{home}:") or any(str(home) in part for part in process.info["cmdline"] or []):
            found.append(process)
    return found


@pytest.mark.slow
@pytest.mark.timeout(420)
def test_airflow_comes_up_with_everything_and_goes_with_it(environment: Environment) -> None:
    done = environment.up(without=("traffic", "dashboard"))
    assert done.started == [SERVER, "shop", *airflow.NAMES, "keeper"]
    assert done.airflow == airflow.find_login(environment.settings, environment.home)
    again = environment.up(without=("traffic", "dashboard"))
    assert again.started == []
    states = {status.name: str(status.state) for status in environment.status()}
    assert states == {
        SERVER: "running",
        "shop": "running",
        "traffic": "stopped",
        "dashboard": "stopped",
        **dict.fromkeys((*airflow.NAMES, "keeper"), "running"),
    }

    with open_api(environment) as client:
        health = client.get("/api/v2/monitor/health").json()
        assert {health[part]["status"] for part in ("metadatabase", "scheduler", "dag_processor")} == {"healthy"}
        pools = {pool["name"]: pool["slots"] for pool in client.get("/api/v2/pools").json()["pools"]}
        assert {name: slots_of(name) for name in POOLS}.items() <= pools.items()
        assert client.get("/api/v2/importErrors").json()["total_entries"] == 0
        assert wait_for_run(client, "looks_around") == "success"

    found = {process.pid for process in processes_of(environment.home)}
    assert len(found) >= 9  # PostgreSQL, the shop, three components, four that run tasks
    listening = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN and c.pid in found]
    assert {connection.laddr.ip for connection in listening} == {"127.0.0.1"}

    assert set(environment.down()) == {SERVER, "shop", *airflow.NAMES, "keeper"}
    assert processes_of(environment.home) == []
    assert find_trouble(environment.home) == []
    hidden = airflow_settings.read_password(environment.home)
    assert not [log for log in (environment.home / "logs").iterdir() if hidden in log.read_text()]


def find_trouble(home: Path) -> list[str]:
    """Lines of any log, the tasks' own included, that a reader would stop at."""
    logs = [*(home / "logs").iterdir(), *(path for path in airflow_settings.logs_of(home).rglob("*") if path.is_file())]
    assert len(logs) > 6
    return [line for log in logs for line in log.read_text().splitlines() if TROUBLE.search(line)]


@pytest.fixture
def prepared(environment: Environment) -> Iterator[str]:
    """The database of Airflow, migrated, while nothing else runs; yields its address."""
    environment.server.start()
    variables = environment.supervisor.environment(airflow.migrator(environment.home))
    airflow.prepare(environment.settings, environment.server, variables)
    yield environment.server.url("makegood_airflow", "airflow")
    environment.down()


@pytest.mark.slow
def test_migration_is_skipped_only_while_database_and_stamp_agree(
    environment: Environment, prepared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrated: list[Path] = []
    monkeypatch.setattr(airflow_database, "_migrate", lambda home, _: migrated.append(home))
    stamp = airflow_settings.folder_of(environment.home) / "migrated"

    def prepare() -> list[str]:
        return airflow_database.prepare(prepared, environment.home, {})

    assert (prepare(), migrated) == ([], [])
    stamp.write_text("3.0.0\n")  # what an older Airflow left
    assert len(prepare()) == len(migrated) == 1
    with psycopg.connect(prepared, autocommit=True) as connection:
        (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone() or ("",)
        connection.execute("UPDATE alembic_version SET version_num = 'older'")
        assert len(prepare()) == 1
        connection.execute("UPDATE alembic_version SET version_num = %s", [revision])
    assert (prepare(), len(migrated)) == ([], 2)


@pytest.mark.slow
def test_pool_that_a_person_changed_stays_and_one_they_deleted_comes_back(prepared: str) -> None:
    with psycopg.connect(prepared, autocommit=True) as connection:
        connection.execute("UPDATE slot_pool SET slots = 9 WHERE pool = 'makegood_payments'")
        connection.execute("DELETE FROM slot_pool WHERE pool = 'makegood_other'")
        assert airflow_database.add_pools(connection) == 1
        slots = dict(connection.execute("SELECT pool, slots FROM slot_pool").fetchall())
    assert (slots["makegood_payments"], slots["makegood_other"]) == (9, POOL_SLOTS)


@pytest.mark.slow
def test_records_and_logs_of_runs_long_past_go_once_a_day(environment: Environment, prepared: str) -> None:
    old = airflow_settings.logs_of(environment.home) / "dag_id=x" / "attempt=1.log"
    old.parent.mkdir(parents=True, exist_ok=True)
    old.touch()
    os.utime(old, (0, 0))
    with psycopg.connect(prepared, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO log (dttm, event) SELECT now() - n * interval '2 days', 'x' FROM generate_series(1, 9) n"
        )
        environment.drop_old()
        count = "SELECT count(*) FROM log WHERE event = 'x'"
        assert connection.execute(count).fetchone() == (3,)  # 2, 4 and 6 days old
        assert not old.exists()
        left = connection.execute(
            "SELECT count(*) FROM pg_tables WHERE tablename LIKE '\\_airflow\\_deleted%'"
        ).fetchone()
        assert left == (0,)
        connection.execute("UPDATE log SET dttm = dttm - interval '30 days' WHERE event = 'x'")
        environment.drop_old()
        assert connection.execute(count).fetchone() == (3,)  # not twice on one day


@pytest.mark.slow
def test_airflows_role_owns_its_database_and_nothing_of_ours(environment: Environment, prepared: str) -> None:
    with psycopg.connect(environment.server.url("makegood_airflow")) as connection:
        rights = connection.execute(
            "SELECT has_schema_privilege('makegood', 'USAGE'), rolsuper, rolcreatedb, rolcreaterole"
            "  FROM pg_roles WHERE rolname = current_user"
        ).fetchone()
    assert rights == (False, False, False, False)


@pytest.mark.slow
def test_migration_that_fails_shows_its_last_words(environment: Environment, prepared: str) -> None:
    nowhere = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"postgresql+psycopg://127.0.0.1:{ports.choose_port()}/nowhere"}
    broken = environment.supervisor.environment(airflow.migrator(environment.home)) | nowhere
    (airflow_settings.folder_of(environment.home) / "migrated").unlink()
    with pytest.raises(ConfigurationError, match="The migration of Airflow's database ended with 1") as caught:
        airflow_database.prepare(prepared, environment.home, broken)
    assert "OperationalError" in str(caught.value)
    assert "--no-airflow" in str(caught.value.hint)


def test_database_that_is_not_there_is_named_without_its_password(tmp_path: Path) -> None:
    port = ports.choose_port()
    with pytest.raises(DatabaseUnavailable, match=f"127.0.0.1:{port}") as caught:
        airflow_database.prepare(f"postgresql://me:hunter2@127.0.0.1:{port}/flow", tmp_path, {})
    assert "hunter2" not in str(caught.value)


def test_own_server_without_a_database_for_airflow_says_what_to_set(
    server: EmbeddedPostgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    environment = Environment(Settings(home=tmp_path, database_url=server.url("postgres")), Silent(), said.append)
    assert environment._start_airflow((), []) is None
    assert "MAKEGOOD_AIRFLOW_DATABASE_URL" in said[0]
    assert environment._start_airflow(airflow.NAMES, []) is None
    assert len(said) == 1
