"""Live processes, told apart from recycled numbers and from the dead that nobody has collected."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence

import psutil

POLL_SECONDS = 0.02


def is_alive(process: psutil.Process) -> bool:
    """False for a number that another process has now, and for a zombie: a container may never collect it."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def signal_if_there(process: psutil.Process, how: signal.Signals) -> None:
    """Signal this very process; one that ended meanwhile, or whose number was given on, is not signalled."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(how)


def wait_gone(processes: Sequence[psutil.Process], wait_seconds: float) -> list[psutil.Process]:
    """Wait until all are gone or the time is up; returns those still alive."""
    deadline = time.monotonic() + wait_seconds
    while (alive := [process for process in processes if is_alive(process)]) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    for process in set(processes) - set(alive):
        _collect(process.pid)
    return alive


def _collect(pid: int) -> None:
    """Take note of the end of a child of ours, so that it does not stay as a zombie."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return  # started by an earlier command
