"""What the server does while people look at the overview: its own sums, and those of the kernel beside them.

``pg_stat_database.active_time`` is wall time: a backend that waits for a processor in the middle of a statement goes on
counting. The kernel's sums tell the two apart, where the server runs on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from bench.figures import median_of
from bench.pages import wait_for_numbers
from bench.scratch import Scratch
from makegood.errors import ConfigurationError

LOOK_SECONDS = 1.0
HANDED_IN_SECONDS = 1.5  # sessions hand in their sums when they fall idle, at most once a second


@dataclass(frozen=True)
class Load:
    """``processor_ms`` and ``waited_ms``, for a processor, are 0 where the server runs elsewhere."""

    active_ms: float
    transactions: int
    processor_ms: float
    waited_ms: float


class Backends:
    """The processor time of one database's backends; one that ends between two looks was idle for a minute before."""

    def __init__(self, connection: psycopg.Connection[Any], database: str) -> None:
        self._connection, self._database = connection, database
        self._first: dict[int, tuple[int, int]] = {}
        self._last: dict[int, tuple[int, int]] = {}
        self.look()
        self._first = dict(self._last)

    def look(self) -> None:
        query = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
        rows = self._connection.execute(query, (self._database,)).fetchall()
        self._last |= {pid: read_schedule(pid) for (pid,) in rows}

    def sums_ms(self) -> tuple[float, float]:
        """Milliseconds on a processor and waiting for one, of all since the first look."""
        pairs = [(last, self._first.get(pid, (0, 0))) for pid, last in self._last.items()]
        ran, waited = (sum(last[side] - first[side] for last, first in pairs) / 1e6 for side in (0, 1))
        return ran, waited


def read_schedule(pid: int) -> tuple[int, int]:
    """Nanoseconds that a process ran and that it waited for a processor; nothing of one that is not here."""
    try:
        ran, waited, _ = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return 0, 0
    return int(ran), int(waited)


def watch_load(browser: Any, address: str, scratch: Scratch, viewers: int, seconds: float) -> Load:
    """What the server did for this database while so many looked at the overview for so long."""
    contexts = [browser.new_context(viewport={"width": 800, "height": 600}) for _ in range(viewers)]
    try:
        pages = [context.new_page() for context in contexts]
        for page in pages:
            page.goto(address, wait_until="commit")
        for page in pages:
            wait_for_numbers(page)
        with psycopg.connect(scratch.admin_url, dbname="postgres", autocommit=True) as connection:
            return _watch(pages[0], connection, scratch.name, seconds)
    finally:
        for context in contexts:
            context.close()


def _watch(page: Any, connection: psycopg.Connection[Any], database: str, seconds: float) -> Load:
    active_ms, transactions = read_sums(connection, database)
    backends = Backends(connection, database)
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        page.wait_for_timeout(min(left, LOOK_SECONDS) * 1000)
        backends.look()
    ran_ms, waited_ms = backends.sums_ms()
    active_after_ms, transactions_after = read_sums(connection, database)
    return Load(active_after_ms - active_ms, transactions_after - transactions, ran_ms, waited_ms)


def read_sums(connection: psycopg.Connection[Any], database: str) -> tuple[float, int]:
    """What the server itself has summed up: milliseconds on statements, and transactions."""
    time.sleep(HANDED_IN_SECONDS)
    query = "SELECT active_time, xact_commit FROM pg_stat_database WHERE datname = %s"
    row = connection.execute(query, (database,)).fetchone()
    if row is None:
        raise ConfigurationError(f"{database} has no statistics")
    return float(row[0]), int(row[1])


def tell_loads(pairs: Sequence[tuple[Load, Load]]) -> dict[str, Any]:
    """The numbers behind the figure: medians of many viewers and of one, and the ratio of each run."""
    facts: dict[str, Any] = {}
    for name in ("active_ms", "transactions", "processor_ms", "waited_ms"):
        sides = [(float(getattr(many, name)), float(getattr(one, name))) for many, one in pairs]
        facts[f"many_viewers_{name}"], facts[f"one_viewer_{name}"] = median_of(sides, 0), median_of(sides, 1)
        if all(one for _, one in sides):
            facts[f"{name}_ratios"] = [round(many / one, 2) for many, one in sides]
    return facts
