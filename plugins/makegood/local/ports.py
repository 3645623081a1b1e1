"""Loopback ports: which are free, and who holds one that is not."""

from __future__ import annotations

import random
import socket

import psutil

from makegood.errors import ConfigurationError

LOOPBACK = "127.0.0.1"
# Below the range from which Linux (32768) and macOS (49152) take ports for outgoing connections,
# so that a port that is kept for later is not lost to a passing client.
CHOICE = range(20_000, 32_000)
TRIES = 200


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def choose_port() -> int:
    """A loopback port that is free now."""
    for port in random.SystemRandom().sample(CHOICE, TRIES):
        if is_free(port):
            return port
    raise ConfigurationError(f"No free port on {LOOPBACK} between {CHOICE.start} and {CHOICE.stop - 1}")


def find_holder(port: int) -> psutil.Process | None:
    """The process listening on this port, when the system lets us know."""
    try:
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,)
            if listens and connection.pid is not None:
                return psutil.Process(connection.pid)
    except psutil.Error:
        return None
    return None


def describe_holder(port: int) -> str:
    """The holder in words: its pid and command, or that it cannot be known."""
    process = find_holder(port)
    if process is None:
        return "a process that cannot be seen from this account"
    try:
        return f"process {process.pid} ({' '.join(process.cmdline())[:120] or process.name()})"
    except psutil.Error:
        return f"process {process.pid}"
