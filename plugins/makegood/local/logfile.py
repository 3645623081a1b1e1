"""Log files that services append to: bounded in size, and read from the end when something failed."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BYTES_MAX = 10 * 1024 * 1024  # two of these per service at most: a day of chatter, nothing for a disk
TAIL_BYTES = 64 * 1024


@contextmanager
def appending(path: Path) -> Iterator[int]:
    """A descriptor a child process can take as its output; the file is rotated first when it is large."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rotate(path)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
    try:
        yield handle
    finally:
        os.close(handle)


def rotate(path: Path, *, bytes_max: int = BYTES_MAX) -> bool:
    """Move a large log to `.1`, in place: a process that has it open goes on writing to the same file.

    Lines written between the copy and the cut are lost: a few, each time it has grown so large.
    """
    if not path.exists() or path.stat().st_size <= bytes_max:
        return False
    shutil.copyfile(path, path.with_name(path.name + ".1"))
    os.truncate(path, 0)
    return True


def prune(folder: Path, *, days_max: float) -> int:
    """Nothing below the folder is older than this; returns how many files went. Folders stay: they cost nothing."""
    oldest = time.time() - days_max * 86400
    old = [path for path in folder.rglob("*") if path.is_file() and path.lstat().st_mtime < oldest]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def last_lines(path: Path, *, count: int = 15, since: int = 0) -> list[str]:
    """The last lines written after byte `since`; empty when there is no log."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        start = max(min(since, size_of(path)), size_of(path) - TAIL_BYTES, 0)
        file.seek(start)
        return file.read().decode(errors="replace").splitlines()[-count:]
