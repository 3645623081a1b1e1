"""What runs for one home: found by what was recorded and by the tag in its environment, and ended for good.

Only processes that are proved to be a service's are ever signalled.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import psutil

from makegood.local import runrecord
from makegood.local.order import in_waves_of_need
from makegood.local.processes import is_alive, signal_if_there, wait_gone
from makegood.local.runrecord import RunRecord

LAST_WORDS_SECONDS = 3.0  # for processes whose leader was asked to end them and did not
# The kill twice: a process may fork as it is told to end.
HARDER = (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL)


class Running:
    """The live processes of one home's services, by the names of the services."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.folder = home / "run"

    def tag(self, name: str) -> str:
        """What a process of this service has in its environment, and no other."""
        return f"{self._home}:{name}"

    def find_leader(self, name: str) -> psutil.Process | None:
        """The process that was started and recorded, if it lives."""
        record = runrecord.read_record(self.folder, name)
        return record.find_process(self.tag(name)) if record else None

    def find_processes(self, name: str) -> list[psutil.Process]:
        """The leader with all it started, and strays that were started and never recorded."""
        found = set(runrecord.find_tagged(self.tag(name)))
        if (leader := self.find_leader(name)) is not None:
            # Not what another service's tag says is its own: the keeper is the parent of what it started again.
            children = leader.children(recursive=True)
            found |= {
                leader,
                *(child for child in children if not runrecord.is_tagged_otherwise(child, self.tag(name))),
            }
        return sorted(found, key=lambda process: process.pid)

    def end_all(self, names: Sequence[str], wait_seconds: float) -> list[str]:
        """End these, or all if none is named; whoever needs others goes before them. Returns who was running."""
        recorded = {name: runrecord.read_record(self.folder, name) for name in runrecord.find_names(self.folder)}
        known = recorded.keys() | runrecord.find_tagged_names(self.tag(""))
        wanted = [recorded.get(name) or _unrecorded(name) for name in sorted(set(names) or known)]
        waves = reversed(list(in_waves_of_need(wanted)))
        return [name for wave in waves for name in self.end([record.name for record in wave], wait_seconds)]

    def end(self, names: Sequence[str], wait_seconds: float) -> list[str]:
        """No process of these services is left, nor a record; they end side by side. Returns who was running."""
        found = {name: self.find_processes(name) for name in names}
        leaders = [leader for name in names if (leader := self.find_leader(name))]
        _signal(leaders, signal.SIGTERM, wait_seconds)  # a leader sees its own processes out, and their work
        self._end_rest(found, min(wait_seconds, LAST_WORDS_SECONDS) if leaders else wait_seconds)
        for name in names:
            runrecord.record_path(self.folder, name).unlink(missing_ok=True)
        return [name for name in names if found[name]]

    def _end_rest(self, found: dict[str, list[psutil.Process]], wait_seconds: float) -> None:
        left = {process for processes in found.values() for process in processes}
        for how in HARDER:
            left = {*filter(is_alive, left), *(process for name in found for process in self.find_processes(name))}
            if not left:
                return
            _signal(sorted(left, key=lambda process: process.pid), how, wait_seconds)


def _unrecorded(name: str) -> RunRecord:
    return RunRecord(name, pid=0, create_time=0.0, command_hash="", address=None)


def _signal(processes: Sequence[psutil.Process], how: signal.Signals, wait_seconds: float) -> None:
    for process in processes:
        signal_if_there(process, how)
    wait_gone(processes, wait_seconds)
