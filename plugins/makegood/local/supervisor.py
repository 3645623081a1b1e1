"""One small supervisor: starts services in order of need, knows how they are, stops every process of theirs.

It is no daemon: each command looks at what is recorded and what is alive, and puts right what differs.
Whatever a kill, a crash or a reboot left behind, `start` ends with the services healthy, `stop` with none.
Weakness: by itself it restarts nothing that crashes between two commands; that is the keeper's work.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import psutil

from makegood.errors import ConfigurationError
from makegood.local import logfile, ports, runrecord
from makegood.local.launch import launch
from makegood.local.lock import exclusive, usable
from makegood.local.order import in_order_of_need, in_waves_of_need
from makegood.local.processes import is_alive, wait_gone
from makegood.local.progress import Progress, Silent
from makegood.local.running import Running
from makegood.local.service import Service
from makegood.local.surroundings import proxy_variables, python_variables

POLL_SECONDS = 0.1
SECOND_LOOK_SECONDS = 2.0  # a busy machine may miss one question
SETTLE_SECONDS = 1.5  # what only has to be alive must stay alive this long: a broken import ends it sooner
NOT_FOR_SERVICES = (
    "PGPASSWORD",  # it would win over the password file that our URLs name
    "AIRFLOW__",  # settings of another Airflow on this machine would win over ours
    "STREAMLIT_",  # likewise for the dashboard
)
RUNNING_ALREADY = "running already"

T = TypeVar("T")
Wait = Callable[[], str]
"""Waits until a service is well, and says how that came about."""


class State(StrEnum):
    RUNNING = "running"
    UNHEALTHY = "unhealthy"
    STOPPED = "stopped"


@dataclass(frozen=True)
class ServiceStatus:
    name: str
    state: State
    pid: int | None
    uptime_seconds: float | None
    address: str | None
    log: Path | None
    crashed: bool = False
    """It was started, was not stopped, and is gone."""


class Supervisor:
    """The services of one home folder; two commands at once take turns."""

    def __init__(self, home: Path, *, progress: Progress | None = None) -> None:
        self.home = home.absolute()
        self._running = Running(self.home)
        self._run = self._running.folder
        self._progress = progress or Silent()

    def start(self, services: Sequence[Service]) -> list[str]:
        """All are running and healthy; returns the names of those that had to be started.

        Those that do not need each other get well side by side: most of a start is waiting or one busy core.
        """
        started: list[str] = []
        failed: set[str] = set()
        with self._alone():
            replaced = self._stop_outdated(services)
            for wave in in_waves_of_need(services):
                started += self._start_wave(wave, failed, replaced)
        return started

    def stop(self, *names: str, wait_seconds: float = 10.0) -> list[str]:
        """No process of these services (of all, if none is named) is left; returns who was running."""
        with usable(self.home):
            if not self._run.exists():
                return []
        with self._alone():
            return self._running.end_all(names, wait_seconds)

    def status(self, services: Sequence[Service]) -> list[ServiceStatus]:
        """How each is now; reads only."""
        with usable(self.home):
            return [self._status(service) for service in services]

    def has_fallen(self, name: str) -> bool:
        """Whether it was started, was not stopped, and its process is gone, whatever of it is left."""
        recorded = runrecord.read_record(self._run, name) is not None
        return recorded and self._running.find_leader(name) is None

    def is_unwell(self, service: Service) -> bool:
        """Whether it lives, has had the time it needs to start, and says that it is not well, or nothing."""
        leader = self._running.find_leader(service.name)
        if leader is None or service.health is None:
            return False
        try:
            started = time.time() - leader.create_time() > service.start_seconds
        except psutil.Error:  # it ended just now
            return False
        return started and not service.is_healthy()

    def log_of(self, name: str) -> Path:
        return self.home / "logs" / f"{name}.log"

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        with exclusive(self._run / "supervisor.lock"), usable(self.home):
            yield

    def _stop_outdated(self, services: Sequence[Service]) -> set[str]:
        """What runs with another command or setting is gone, whoever needs it first; returns who that was."""
        ordered = [service for service in reversed(in_order_of_need(services)) if self._is_outdated(service)]
        return {service.name for service in ordered if self._running.end([service.name], service.stop_seconds)}

    def _is_outdated(self, service: Service) -> bool:
        record = runrecord.read_record(self._run, service.name)
        return record is not None and record.command_hash != self._fingerprint(service)

    def _start_wave(self, wave: Sequence[Service], failed: set[str], replaced: set[str]) -> list[str]:
        started = []
        for service, wait in [(service, self._begin_or_go_without(service, failed, replaced)) for service in wave]:
            if wait is not None and self._wait_or_go_without(service, wait, failed):
                started.append(service.name)
        return started

    def _begin_or_go_without(self, service: Service, failed: set[str], replaced: set[str]) -> Wait | None:
        if failed.intersection(service.needs):
            failed.add(service.name)
            self._progress.done(service.name, "skipped, what it needs is missing", 0.0, well=False)
            return None
        return self._try(service, failed, lambda: self._begin(service, replaced))

    def _wait_or_go_without(self, service: Service, wait: Wait, failed: set[str]) -> bool:
        self._progress.begin(service.name)
        begun = time.monotonic()
        outcome = self._try(service, failed, wait)
        if outcome is not None:
            self._progress.done(service.name, outcome, time.monotonic() - begun)
        return outcome not in (None, RUNNING_ALREADY)

    def _try(self, service: Service, failed: set[str], work: Callable[[], T]) -> T | None:
        """What the work returns; what goes wrong is said, and of an optional service only noted."""
        begun = time.monotonic()
        try:
            return work()
        except BaseException as error:
            what = str(error).partition("\n")[0] if service.optional else "failed"
            self._progress.done(service.name, what, time.monotonic() - begun, well=False)
            if not (service.optional and isinstance(error, ConfigurationError)):
                raise
            failed.add(service.name)
            return None

    def _begin(self, service: Service, replaced: set[str]) -> Wait:
        """Leave alone what is right; anything else is stopped first, whatever it is, and started anew."""
        if self._is_right(service):
            logfile.rotate(self.log_of(service.name))
            return lambda: RUNNING_ALREADY
        was_running = bool(self._running.end([service.name], service.stop_seconds)) or service.name in replaced
        _check_port(service)
        since = logfile.size_of(self.log_of(service.name))
        process = self._launch(service)
        return lambda: self._see_well(service, process, since, was_running=was_running)

    def _see_well(self, service: Service, process: psutil.Process, since: int, *, was_running: bool) -> str:
        if not _becomes_healthy(service, process):
            raise self._failed(service, process, since)
        return "restarted" if was_running else "started"

    def _is_right(self, service: Service) -> bool:
        if self._running.find_leader(service.name) is None or self._is_outdated(service):
            return False
        return _wait_until(service.is_healthy, SECOND_LOOK_SECONDS)

    def _launch(self, service: Service) -> psutil.Process:
        process = psutil.Process(launch(service.command, self.environment(service), self.log_of(service.name)))
        start = (process.pid, process.create_time(), self._fingerprint(service))
        record = runrecord.RunRecord(service.name, *start, service.address, service.needs)
        runrecord.write_record(self._run, record)
        return process

    def environment(self, service: Service) -> dict[str, str]:
        """What a service runs with: ours and its own over what the caller has, and the tag it is known by."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(NOT_FOR_SERVICES)}
        ours = {
            "MAKEGOOD_HOME": str(self.home),
            "PYTHONUNBUFFERED": "1",
            runrecord.TAG: self._running.tag(service.name),
        }
        return inherited | python_variables(self.home) | proxy_variables() | ours | dict(service.env)

    def _fingerprint(self, service: Service) -> str:
        environment = self.environment(service)
        return service.fingerprint({name: environment[name] for name in environment if name[:9] == "MAKEGOOD_"})

    def _failed(self, service: Service, process: psutil.Process, since: int) -> ConfigurationError:
        ended = not is_alive(process)
        self._running.end([service.name], service.stop_seconds)
        log = self.log_of(service.name)
        lines = "\n".join(logfile.last_lines(log, since=since)) or "(nothing was logged)"
        how = "ended right after its start" if ended else f"is not healthy after {service.start_seconds:.0f} s"
        return ConfigurationError(
            f"{service.name} {how}.\nThe last lines it logged:\n{lines}",
            hint=f"The whole log is {log}; once mended, run `make up` again.",
        )

    def _status(self, service: Service) -> ServiceStatus:
        processes = self._running.find_processes(service.name)
        log = self.log_of(service.name)
        if not processes:
            crashed = runrecord.record_path(self._run, service.name).exists()
            return ServiceStatus(service.name, State.STOPPED, None, None, service.address, log, crashed)
        led = self._running.find_leader(service.name) is not None
        state = State.RUNNING if led and service.is_healthy() else State.UNHEALTHY
        uptime = time.time() - processes[0].create_time()
        return ServiceStatus(service.name, state, processes[0].pid, uptime, service.address, log)


def _check_port(service: Service) -> None:
    if service.port is None or ports.is_free(service.port):
        return
    other = f", or set {service.port_setting} to another port" if service.port_setting else ""
    raise ConfigurationError(
        f"Port {service.port}, which {service.name} needs, is taken by {ports.describe_holder(service.port)}",
        hint=f"Stop that process{other}, and run `make up` again.",
    )


def _becomes_healthy(service: Service, process: psutil.Process) -> bool:
    def over() -> bool:
        return not is_alive(process) or service.is_healthy()

    if service.health is None:
        return bool(wait_gone([process], SETTLE_SECONDS))
    _wait_until(over, service.start_seconds)
    return is_alive(process) and service.is_healthy()


def _wait_until(condition: Callable[[], bool], wait_seconds: float) -> bool:
    deadline = time.monotonic() + wait_seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
