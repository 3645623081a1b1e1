"""Up, down and wipe for one home: the server, its migrations and the services, in that order and back."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

import psycopg

from makegood.errors import DatabaseUnavailable, MakegoodError
from makegood.local import airflow, airflow_settings, lock, logfile, where
from makegood.local.postgres import EmbeddedPostgres
from makegood.local.progress import Progress
from makegood.local.reach import connect, describe, reach
from makegood.local.service import Service
from makegood.local.services import KEEPER, find_services
from makegood.local.supervisor import ServiceStatus, State, Supervisor
from makegood.local.surroundings import bytecode_folder
from makegood.settings import Settings

SERVER = "postgres"
FIRST_ORDER_SECONDS = 10.0
# One for each right; the dashboard's demo login offers these very names.
DEMO = {
    "demo-viewer": ["viewer"],
    "demo-engineer": ["viewer", "engineer"],
    "demo-operator": ["viewer", "operator"],
    "demo-approver": ["viewer", "approver"],
}


@dataclass(frozen=True)
class Up:
    """What `up` did and left running."""

    started: list[str]
    applied: list[str]
    order: str | None
    airflow: airflow.Login | None = None


class Environment:
    """Everything that runs for one home; each method ends in the state it names, whatever it found."""

    def __init__(self, settings: Settings, progress: Progress, say: Callable[[str], None]) -> None:
        self.settings = settings
        self.home = where.find_home(settings)
        self.server = EmbeddedPostgres(self.home, say=say)
        self.supervisor = Supervisor(self.home, progress=progress)
        self._progress = progress
        self._say = say

    @property
    def services(self) -> list[Service]:
        """Looked up each time: what they run with depends on where the server is by then."""
        return find_services(self.settings, self.home)

    def up(self, *, without: tuple[str, ...] = ()) -> Up:
        """Server, migrations and services are there; what was there already is left alone."""
        started = [SERVER] if self._stage("PostgreSQL", self._start_server) else []
        applied: list[str] = []
        self._stage("migrations", lambda: self._migrate(applied))
        started += self.supervisor.start(self._find_services(without=(*without, *airflow.NAMES, KEEPER)))
        wait_seconds = FIRST_ORDER_SECONDS if "traffic" in started else 0.0
        order = self._find_order(wait_seconds=wait_seconds)
        login = self._start_airflow(without, started)
        others = tuple(service.name for service in self.services if service.name != KEEPER)
        started += self.supervisor.start(self._find_services(without=(*without, *others)))
        return Up(started, applied, order, login)

    def find_fallen(self, owed: Collection[str] = ()) -> list[str]:
        """What was started, was not stopped, and whose process is gone; with what is owed a start anyway."""
        fallen = [SERVER] if self.settings.embedded and self.server.has_crashed() else []
        names = [service.name for service in self.services if service.name != KEEPER]
        return fallen + [name for name in names if name in owed or self.supervisor.has_fallen(name)]

    def find_unwell(self) -> list[str]:
        """What is there, has had time to start, and gives no good answer. Nothing while the database is away: then
        the answers are about that, and to start anew would help nobody."""
        if not _database_answers():
            return []
        return [service.name for service in self.services if self.supervisor.is_unwell(service)]

    def rotate_logs(self) -> None:
        """No log is larger than its bound, also of what runs for months."""
        with lock.usable(self.home):
            for log in (self.home / "logs").glob("*.log"):
                logfile.rotate(log)

    def drop_old(self) -> None:
        """What Airflow keeps of runs long past, and their logs; nothing where it was never started."""
        if airflow_settings.file_of(self.home).exists():
            airflow.drop_old(self.home, self.supervisor.environment(airflow.cleaner(self.home)))

    def revive(self, name: str) -> None:
        """Starts one of those again; raises ConfigurationError when it does not get well."""
        if name == SERVER:
            self.server.start()
            return
        self.supervisor.start([service for service in self.services if service.name == name])

    def down(self) -> list[str]:
        """No process is left, all data are kept; returns what was running."""
        stopped = self.supervisor.stop()
        return [*stopped, SERVER] if self.server.stop() else stopped

    def wipe(self) -> None:
        """Down, and then this home's data, passwords and logs; never anything on a server of your own."""
        self.down()
        self.server.wipe()
        folders = {service.data for service in self.services if service.data is not None}
        for folder in (*folders, airflow_settings.folder_of(self.home), bytecode_folder(self.home)):
            if folder.exists():
                shutil.rmtree(folder)
        for name in (SERVER, *(service.name for service in self.services), "airflow-*"):
            for log in (self.home / "logs").glob(f"{name}.log*"):
                log.unlink()

    def status(self) -> list[ServiceStatus]:
        """The server first, then the services; reads only."""
        return [self._server_status(), *self.supervisor.status(self.services)]

    def is_busy(self) -> bool:
        """Whether another command is at work on this home right now."""
        return any(lock.is_held(path) for path in (self.home / "run").glob("*.lock"))

    def _find_services(self, *, without: tuple[str, ...]) -> list[Service]:
        return [service for service in self.services if service.name not in without]

    def _start_airflow(self, without: tuple[str, ...], started: list[str]) -> airflow.Login | None:
        """After everything else, which is there whatever becomes of it."""
        others = tuple(service.name for service in self.services if service.name not in airflow.NAMES)
        if not self._find_services(without=(*without, *others)):
            reason = airflow.why_left_out(self.settings)
            if reason and airflow.API_SERVER not in without:
                self._say(f"Airflow is left out: {reason}.")
            return None
        environment = self.supervisor.environment(airflow.migrator(self.home))
        self._stage("Airflow", lambda: airflow.prepare(self.settings, self.server, environment))
        started += self.supervisor.start(self._find_services(without=(*without, *others)))
        return airflow.find_login(self.settings, self.home)

    def _stage(self, what: str, work: Callable[[], str | None]) -> bool:
        """Run one stage with its progress; whether it changed anything."""
        self._progress.begin(what)
        begun = time.monotonic()
        try:
            outcome = work()
        except BaseException:
            self._progress.done(what, "failed", time.monotonic() - begun, well=False)
            raise
        self._progress.done(what, outcome or "running already", time.monotonic() - begun)
        return outcome is not None

    def _start_server(self) -> str | None:
        if not self.settings.embedded:
            return f"yours, version {reach(where.database_url())}, at {describe(where.database_url())}"
        return f"started on port {self.server.port}" if self.server.start() else None

    def _migrate(self, applied: list[str]) -> str:
        from makegood.migrations import migrate  # noqa: PLC0415 - Alembic takes a while to import

        applied += migrate(where.admin_url())
        if self.settings.embedded and self.settings.login == "demo":
            _let_demo_in()
        return f"{len(applied)} applied" if applied else "current"

    def _find_order(self, *, wait_seconds: float) -> str | None:
        """An order to look at; the first one of a new shop takes a moment."""
        deadline = time.monotonic() + wait_seconds
        while (order := _any_order()) is None and time.monotonic() < deadline:
            time.sleep(0.2)
        return order

    def _server_status(self) -> ServiceStatus:
        if not self.settings.embedded:
            return _own_server_status()
        process = self.server.find_process()
        if process is None:
            crashed = self.server.has_crashed()
            return ServiceStatus(SERVER, State.STOPPED, None, None, None, self.server.log, crashed)
        address, uptime = f"127.0.0.1:{self.server.port}", time.time() - process.create_time()
        return ServiceStatus(SERVER, State.RUNNING, process.pid, uptime, address, self.server.log)


def _own_server_status() -> ServiceStatus:
    url = where.database_url()
    try:
        reach(url)
    except DatabaseUnavailable:
        return ServiceStatus(SERVER, State.UNHEALTHY, None, None, describe(url), None)
    return ServiceStatus(SERVER, State.RUNNING, None, None, describe(url), None)


def _database_answers() -> bool:
    try:
        reach(where.database_url())
    except MakegoodError:
        return False
    return True


def _any_order() -> str | None:
    try:
        with connect(where.database_url()) as connection:
            row = connection.execute("SELECT entity_id FROM makegood.workflow_executions LIMIT 1").fetchone()
    except (psycopg.Error, MakegoodError):  # nothing to show is no reason to fail
        return None
    return str(row[0]) if row else None


def _let_demo_in() -> None:
    """The demo's people, each once; whoever was shut out stays out."""
    statement = (
        "SELECT makegood.grant_person(%(login)s, %(roles)s, 'makegood up', 'the demo, on this machine only')"
        " WHERE NOT EXISTS (SELECT FROM makegood.people WHERE login = %(login)s)"
    )
    with connect(where.database_url()) as connection:
        for login, roles in DEMO.items():
            connection.execute(statement, {"login": login, "roles": roles})
