"""What was started, on disk: enough to find the process again and never to mistake another for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from makegood.local.processes import is_alive

TAG = "MAKEGOOD_SERVICE"
# The system derives a process's start from its boot time, which a clock correction moves a little.
SAME_START_SECONDS = 2.0


@dataclass(frozen=True)
class RunRecord:
    """One started process; a number alone is never believed, its start time and its tag must fit."""

    name: str
    pid: int
    create_time: float
    command_hash: str
    address: str | None
    needs: tuple[str, ...] = ()
    """What was there when it was started, and outlives it when all are stopped."""

    def find_process(self, tag: str) -> psutil.Process | None:
        try:
            process = psutil.Process(self.pid)
            same_start = abs(process.create_time() - self.create_time) < SAME_START_SECONDS
        except psutil.NoSuchProcess:
            return None
        ours = same_start and is_alive(process) and _tag_of(process) in (tag, None)
        return process if ours else None


def record_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"


def read_record(folder: Path, name: str) -> RunRecord | None:
    """None when nothing was started or what is on disk makes no sense: then there is nothing to believe."""
    try:
        found = json.loads(record_path(folder, name).read_text())
        return RunRecord(
            name,
            int(found["pid"]),
            float(found["create_time"]),
            str(found["command_hash"]),
            found["address"],
            tuple(found.get("needs", ())),
        )
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None


def write_record(folder: Path, record: RunRecord) -> None:
    """Replace the file in one step."""
    staged = folder / f"{record.name}.json.new"
    staged.write_text(json.dumps(asdict(record)) + "\n")
    staged.replace(record_path(folder, record.name))


def find_names(folder: Path) -> set[str]:
    return {path.stem for path in folder.glob("*.json")}


def find_tagged(tag: str) -> Iterator[psutil.Process]:
    """Every live process started for this service, recorded or not: a kill may come before the record."""
    for process in psutil.process_iter():
        if _tag_of(process) == tag and is_alive(process):
            yield process


def find_tagged_names(prefix: str) -> set[str]:
    """The services of a home of which some process is alive."""
    tags = (_tag_of(process) or "" for process in psutil.process_iter())
    return {tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix)}


def is_tagged_otherwise(process: psutil.Process, tag: str) -> bool:
    """Whether it says of itself that it is another service's."""
    return _tag_of(process) not in (tag, "", None)


def _tag_of(process: psutil.Process) -> str | None:
    """None when the system does not say, which is so for another account's processes."""
    try:
        return str(process.environ().get(TAG, ""))
    except (psutil.Error, OSError):
        return None
