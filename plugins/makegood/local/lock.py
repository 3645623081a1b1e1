"""One process at a time per lock file; the kernel lets go when the holder dies, so no lock is ever stale."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from makegood.errors import ConfigurationError

POLL_SECONDS = 0.05


@contextlib.contextmanager
def exclusive(path: Path, *, wait_seconds: float = 150.0) -> Iterator[None]:
    """Hold the lock for the block; raises ConfigurationError when another process keeps it past the bound."""
    with usable(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _wait_for(handle, path, wait_seconds)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)


def is_held(path: Path) -> bool:
    """Whether some process holds the lock at this moment."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


@contextlib.contextmanager
def usable(folder: Path) -> Iterator[None]:
    """A full, read-only or closed folder becomes one error that names it and says what to do."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(
            f"{error.filename or folder} cannot be used: {error.strerror or error}",
            hint="Make it writable, free some space, or set MAKEGOOD_HOME to another folder.",
        ) from error


def _wait_for(handle: int, path: Path, wait_seconds: float) -> None:
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise _held_too_long(path, wait_seconds) from None
            time.sleep(POLL_SECONDS)
        else:
            return


def _held_too_long(path: Path, wait_seconds: float) -> ConfigurationError:
    holder = path.read_text(errors="replace").strip() or "unknown"
    return ConfigurationError(
        f"Another makegood (process {holder}) has held {path} for more than {wait_seconds:.0f} seconds",
        hint="Wait for it to end, or stop that process, and run the command again.",
    )
