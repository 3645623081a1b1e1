"""One small supervisor: starts services in order of need, knows how they are, stops every process of theirs.

It is no daemon: each command looks at what is recorded and what is alive, and puts right what differs.
Whatever a kill, a crash or a reboot left behind, `start` ends with the services healthy, `stop` with none.
Weakness: between two commands nobody restarts what crashes; `status` shows it and the next `start` mends it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from graphlib import TopologicalSorter
from pathlib import Path

import psutil

from makegood.errors import ConfigurationError
from makegood.local import logfile, ports, runrecord
from makegood.local.launch import launch
from makegood.local.lock import exclusive, usable
from makegood.local.processes import is_alive, signal_if_there, wait_gone
from makegood.local.progress import Progress, Silent
from makegood.local.service import Service

POLL_SECONDS = 0.1
SECOND_LOOK_SECONDS = 2.0  # a busy machine may miss one question
SETTLE_SECONDS = 1.5  # what only has to be alive must stay alive this long: a broken import ends it sooner
NOT_FOR_SERVICES = ("PGPASSWORD",)  # it would win over the password file that our URLs name


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
        self._run = self.home / "run"
        self._progress = progress or Silent()

    def start(self, services: Sequence[Service]) -> list[str]:
        """All are running and healthy; returns the names of those that had to be started."""
        started: list[str] = []
        failed: set[str] = set()
        with self._alone():
            for service in in_order_of_need(services):
                if failed.intersection(service.needs):
                    failed.add(service.name)
                    self._progress.done(service.name, "skipped, what it needs is missing", 0.0, well=False)
                elif self._start_or_go_without(service, failed):
                    started.append(service.name)
        return started

    def stop(self, *names: str, wait_seconds: float = 10.0) -> list[str]:
        """No process of these services (of all, if none is named) is left; returns who was running."""
        with usable(self.home):
            if not self._run.exists():
                return []
        with self._alone():
            return [name for name in self._latest_first(names) if self._stop(name, wait_seconds)]

    def status(self, services: Sequence[Service]) -> list[ServiceStatus]:
        """How each is now; reads only."""
        with usable(self.home):
            return [self._status(service) for service in in_order_of_need(services)]

    def log_of(self, name: str) -> Path:
        return self.home / "logs" / f"{name}.log"

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        with exclusive(self._run / "supervisor.lock"), usable(self.home):
            yield

    def _start_or_go_without(self, service: Service, failed: set[str]) -> bool:
        self._progress.begin(service.name)
        begun = time.monotonic()
        try:
            outcome = self._ensure(service)
        except BaseException as error:
            what = str(error).partition("\n")[0] if service.optional else "failed"
            self._progress.done(service.name, what, time.monotonic() - begun, well=False)
            if not (service.optional and isinstance(error, ConfigurationError)):
                raise
            failed.add(service.name)
            return False
        self._progress.done(service.name, outcome, time.monotonic() - begun)
        return outcome != "running already"

    def _ensure(self, service: Service) -> str:
        """Leave alone what is right; anything else is stopped first, whatever it is, and started anew."""
        if self._is_right(service):
            logfile.rotate(self.log_of(service.name))
            return "running already"
        was_running = self._stop(service.name, service.stop_seconds)
        _check_port(service)
        since = logfile.size_of(self.log_of(service.name))
        process = self._launch(service)
        if not _becomes_healthy(service, process):
            raise self._failed(service, process, since)
        return "restarted" if was_running else "started"

    def _is_right(self, service: Service) -> bool:
        record = runrecord.read_record(self._run, service.name)
        process = record.find_process(self._tag(service.name)) if record else None
        if record is None or process is None or record.command_hash != self._fingerprint(service):
            return False
        return _wait_until(service.is_healthy, SECOND_LOOK_SECONDS)

    def _launch(self, service: Service) -> psutil.Process:
        environment = self._environment(service) | {runrecord.TAG: self._tag(service.name)}
        process = psutil.Process(launch(service.command, environment, self.log_of(service.name)))
        record = runrecord.RunRecord(
            service.name, process.pid, process.create_time(), self._fingerprint(service), service.address
        )
        runrecord.write_record(self._run, record)
        return process

    def _environment(self, service: Service) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if name not in NOT_FOR_SERVICES}
        ours = {"MAKEGOOD_HOME": str(self.home), "PYTHONUNBUFFERED": "1"}
        return {**inherited, **ours, **service.env}

    def _fingerprint(self, service: Service) -> str:
        environment = self._environment(service)
        return service.fingerprint({name: environment[name] for name in environment if name[:9] == "MAKEGOOD_"})

    def _failed(self, service: Service, process: psutil.Process, since: int) -> ConfigurationError:
        ended = not is_alive(process)
        self._stop(service.name, service.stop_seconds)
        log = self.log_of(service.name)
        lines = "\n".join(logfile.last_lines(log, since=since)) or "(nothing was logged)"
        how = "ended right after its start" if ended else f"is not healthy after {service.start_seconds:.0f} s"
        return ConfigurationError(
            f"{service.name} {how}.\nThe last lines it logged:\n{lines}",
            hint=f"The whole log is {log}; once mended, run `make up` again.",
        )

    def _stop(self, name: str, wait_seconds: float) -> bool:
        """Ask, wait, then end by force; only processes that are proved to be this service's are signalled."""
        found = processes = self._find_processes(name)
        for how in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):  # twice: one may fork as it is told to end
            for process in processes:
                signal_if_there(process, how)
            wait_gone(processes, wait_seconds)
            if not (processes := self._find_processes(name)):
                break
        runrecord.record_path(self._run, name).unlink(missing_ok=True)
        return bool(found)

    def _find_processes(self, name: str) -> list[psutil.Process]:
        """The recorded one with all it started, and strays that were started and never recorded."""
        record = runrecord.read_record(self._run, name)
        leader = record.find_process(self._tag(name)) if record else None
        found = set(runrecord.find_tagged(self._tag(name)))
        if leader is not None:
            found |= {leader, *leader.children(recursive=True)}
        return sorted(found, key=lambda process: process.pid)

    def _latest_first(self, names: Sequence[str]) -> list[str]:
        recorded = {name: runrecord.read_record(self._run, name) for name in runrecord.find_names(self._run)}
        strays = runrecord.find_tagged_names(self._tag(""))
        wanted = set(names) or recorded.keys() | strays
        started = {name: record.create_time for name, record in recorded.items() if record}
        return sorted(wanted, key=lambda name: started.get(name, 0.0), reverse=True)

    def _status(self, service: Service) -> ServiceStatus:
        processes = self._find_processes(service.name)
        log = self.log_of(service.name)
        if not processes:
            crashed = runrecord.record_path(self._run, service.name).exists()
            return ServiceStatus(service.name, State.STOPPED, None, None, service.address, log, crashed)
        state = State.RUNNING if service.is_healthy() else State.UNHEALTHY
        uptime = time.time() - processes[0].create_time()
        return ServiceStatus(service.name, state, processes[0].pid, uptime, service.address, log)

    def _tag(self, name: str) -> str:
        return f"{self.home}:{name}"


def in_order_of_need(services: Sequence[Service]) -> list[Service]:
    """Each after all it needs; a need that is not among them is somebody else's matter."""
    by_name = {service.name: service for service in services}
    needs = {service.name: [need for need in service.needs if need in by_name] for service in services}
    return [by_name[name] for name in TopologicalSorter(needs).static_order()]


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
