"""Starts a process that outlives us: a session of its own, no input, its output appended to a log."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from makegood.errors import ConfigurationError
from makegood.local import logfile


def launch(command: Sequence[str], environment: Mapping[str, str], log: Path) -> int:
    """The pid of the new process, which leads a session and group of its own."""
    program = shutil.which(command[0], path=environment.get("PATH"))
    if program is None:
        raise ConfigurationError(f"The program {command[0]} was not found", hint="Run `make up` to install it.")
    with logfile.appending(log) as output:
        return os.posix_spawn(
            program,
            list(command),
            dict(environment),
            file_actions=_only_the_log(output),
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGPIPE, signal.SIGINT, signal.SIGTERM],
        )


def _only_the_log(output: int) -> list[tuple[Any, ...]]:
    """A descriptor inherited from our caller would keep the caller's pipe open while the service runs."""
    inherited = [int(name) for name in os.listdir("/dev/fd") if int(name) > 2 and _is_inheritable(int(name))]
    return [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_DUP2, output, 2),
        *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in inherited),
    ]


def _is_inheritable(descriptor: int) -> bool:
    try:
        return os.get_inheritable(descriptor)
    except OSError:  # the listing's own, closed by now
        return False
