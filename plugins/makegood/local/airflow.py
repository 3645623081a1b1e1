"""Airflow on this machine: an API server with its pages, a scheduler that runs tasks itself, and a DAG processor.

There is no triggerer: nothing of ours defers, and without one Airflow's pages show none and miss none.
Weakness: while the API server is down nobody says how the other two are, and being alive has to do.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from makegood.local import airflow_database, airflow_settings, logfile
from makegood.local.airflow_settings import DAGS, PLUGINS
from makegood.local.lock import exclusive, usable
from makegood.local.passwords import AIRFLOW_ROLE
from makegood.local.postgres import EmbeddedPostgres
from makegood.local.runrecord import SAME_START_SECONDS, read_record
from makegood.local.service import Service, code_stamp, get_answer
from makegood.settings import Settings

API_SERVER = "airflow-api-server"
DAG_PROCESSOR = "airflow-dag-processor"
SCHEDULER = "airflow-scheduler"
NAMES = (API_SERVER, DAG_PROCESSOR, SCHEDULER)
DATABASE = "metadatabase"  # as its health is called; the API server answers for it
HEALTH = "/api/v2/monitor/health"
TASKS_HEALTH = "/execution/health"
ANSWER_SECONDS = 10.0  # one worker answers everything, and takes seconds for some questions
START_SECONDS = 180.0  # a few on a good machine; a small one that compiles everything at first takes its time
DAYS_MAX = 7.0  # records and logs of runs: two runs a minute are a hundred thousand tasks by then
# What Airflow's own libraries say of each other at every start and in every task; nothing a reader could mend.
WARNINGS = "ignore:Using `httpx` with,ignore:GitWildMatchPattern"


@dataclass(frozen=True)
class Login:
    """Where Airflow's pages are, and as whom to open them; the password stays in its file."""

    address: str
    user: str
    password_file: str


def why_left_out(settings: Settings) -> str | None:
    """What is missing for Airflow to run here, and what to do; None when nothing is."""
    if not settings.embedded and settings.airflow_database_url is None:
        return "MAKEGOOD_DATABASE_URL names a server of yours; set MAKEGOOD_AIRFLOW_DATABASE_URL to a database there"
    if not DAGS.is_dir():
        return f"there are no DAGs in {DAGS}; run makegood from a clone"
    return None


def find_airflow_services(settings: Settings, home: Path) -> list[Service]:
    """None when Airflow is left out. The scheduler comes last: its tasks talk to the API server from the start."""
    if why_left_out(settings):
        return []
    return [
        # A browser may keep a request open for ever; a stop waits no longer than this for it.
        _service(API_SERVER, ("api-server", "--worker-timeout", "5"), DATABASE, settings, home),
        _service(DAG_PROCESSOR, ("dag-processor",), "dag_processor", settings, home),
        # The API server reads the logs of tasks from the same disk; nobody has to serve them on a further port.
        _service(SCHEDULER, ("scheduler", "--skip-serve-logs"), "scheduler", settings, home),
    ]


def prepare(settings: Settings, server: EmbeddedPostgres, environment: Mapping[str, str]) -> str:
    """Database, tables, pools and files are as this Airflow wants them; says what had to be done."""
    home = server.home
    with exclusive(home / "run" / "airflow.lock"), usable(home):
        if settings.embedded:
            server.create_database(airflow_settings.DATABASE, AIRFLOW_ROLE)
        airflow_settings.write_files(settings, home)
        logfile.prune(airflow_settings.logs_of(home), days_max=DAYS_MAX)
        address = airflow_settings.find_database(settings, home)
        done = airflow_database.prepare(address, home, environment) if address else []
    return ", ".join(done) or "current"


def drop_old(home: Path, environment: Mapping[str, str]) -> None:
    """Once a day: records and logs of runs older than a week go. A second asker on the same day is told nothing."""
    with exclusive(home / "run" / "airflow.lock"), usable(home):
        logfile.prune(airflow_settings.logs_of(home), days_max=DAYS_MAX)
        airflow_database.drop_old(home, environment, days_max=DAYS_MAX)


def migrator(home: Path) -> Service:
    """No service, but run with a service's environment and tag, so that `make down` finds it."""
    return Service("airflow-migrate", (), env=_environment(home))


def cleaner(home: Path) -> Service:
    """Likewise."""
    return Service("airflow-clean", (), env=_environment(home))


def find_login(settings: Settings, home: Path) -> Login:
    return Login(settings.airflow_url, airflow_settings.USER, str(airflow_settings.login_file(home)))


def is_healthy(answer: bytes | None, part: str, since: float) -> bool:
    """What Airflow says of one of its parts, which must have been heard of after ``since``.

    A killed scheduler counts as healthy for half a minute, and so would one that has only just been started.
    No answer at all speaks against nothing but the API server.
    """
    if answer is None:
        return part != DATABASE
    try:
        found = json.loads(answer)[part]
        heard = datetime.fromisoformat(found[f"latest_{part}_heartbeat"]).timestamp() if part != DATABASE else since
        return bool(found["status"] == "healthy" and heard >= since)
    except (ValueError, KeyError, TypeError):  # not heard of yet, or something else lives there
        return False


def _service(name: str, command: tuple[str, ...], part: str, settings: Settings, home: Path) -> Service:
    pages = name == API_SERVER
    return Service(
        name=name,
        command=(sys.executable, "-m", "airflow", *command),
        health=_ask(name, part, settings.airflow_url, home),
        env=_environment(home),
        needs=(API_SERVER,) if name == SCHEDULER else (),
        address=settings.airflow_url if pages else None,
        data=airflow_settings.folder_of(home),
        port=settings.airflow_port if pages else None,
        port_setting="MAKEGOOD_AIRFLOW_PORT" if pages else None,
        facts=(_digest(airflow_settings.file_of(home)), _plugin_stamp(), code_stamp("makegood")),
        start_seconds=START_SECONDS,
    )


def _ask(name: str, part: str, address: str, home: Path) -> Callable[[], bool]:
    def ask() -> bool:
        if part == "scheduler":  # built at the first question: better now than when its first task asks
            get_answer(address + TASKS_HEALTH, timeout_seconds=ANSWER_SECONDS)
        record = read_record(home / "run", name)
        since = record.create_time - SAME_START_SECONDS if record else 0.0
        return is_healthy(get_answer(address + HEALTH, timeout_seconds=ANSWER_SECONDS), part, since)

    return ask


def _environment(home: Path) -> dict[str, str]:
    return {
        "AIRFLOW_HOME": str(airflow_settings.folder_of(home)),
        "AIRFLOW_CONFIG": str(airflow_settings.file_of(home)),
        # Else the titles that Airflow gives its processes overwrite the tag by which the supervisor knows them.
        "SPT_NOENV": "1",
        "PYTHONWARNINGS": WARNINGS,
    }


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def _plugin_stamp() -> str:
    return " ".join(f"{path.name}:{path.stat().st_mtime_ns}" for path in sorted(PLUGINS.glob("*.py")))
