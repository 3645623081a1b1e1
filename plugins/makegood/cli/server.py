"""A database server for a command that brings its own data: the configured one, or the embedded one while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from makegood.cli import output
from makegood.local import where
from makegood.local.postgres import EmbeddedPostgres
from makegood.settings import get_settings


@dataclass(frozen=True)
class Server:
    admin_url: str
    jobs_url: str


@contextlib.contextmanager
def running_server() -> Iterator[Server]:
    """Started for the command if need be, and then stopped again."""
    started = False
    server = EmbeddedPostgres(where.find_home())
    if get_settings().embedded and not server.is_running():
        output.say("Starting the embedded PostgreSQL …")
        started = server.start()
    try:
        yield Server(where.admin_url(), where.database_url("jobs"))
    finally:
        if started:
            server.stop()
