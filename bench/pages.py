"""The dashboard's pages as somebody looks at them: their reads through its own reader, and in a real browser."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg

from bench.scratch import Scratch, to_url
from dashboard import rollups
from dashboard.database import Reader
from dashboard.periods import PERIODS
from makegood import jobs
from makegood.errors import ConfigurationError
from makegood.local import ports
from makegood.local.service import get_answer
from makegood.migrations import sql_folder

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    # A screen on a wall is in nobody's background.
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    "--disable-backgrounding-occluded-windows",
]
PLAIN = ("duration", "step_failure_rate", "stuck_count", "compensation_rate")
NUMBERS = "[data-testid=stMetricValue]"
START_SECONDS = 60.0
PAINT_MILLISECONDS = 300_000  # twenty pages at once on a busy machine take their time
ROUNDS = 15  # of one run


@contextlib.contextmanager
def open_reader(scratch: Scratch) -> Iterator[Reader]:
    reader = Reader(lambda: to_url(scratch.jobs_url))
    try:
        yield reader
    finally:
        reader.close()


def read_overview(reader: Reader, period_key: str) -> int:
    """All that the overview reads and works out at one refresh, of nothing that was read before; how many rows."""
    period = PERIODS[period_key]
    about = {"period_seconds": period.seconds, "slice_seconds": period.slice_seconds, "workflow_type": None}
    ends, attempts = reader.rows("ends", about), reader.rows("attempts", about)
    for work_out in (rollups.sum_ends, rollups.slice_ends):
        work_out(ends)
    for work_out in (rollups.sum_attempts, rollups.slice_attempts):
        work_out(attempts)
    rest = [reader.rows(name, about) for name in ("stuck_trend", "stuck", "owed", "held")]
    rest += [reader.rows(name) for name in ("server", "rollups_late", "breakers")]
    rest.append(reader.rows("job_health", {"jobs": [jobs.RECOVERY, jobs.COMPENSATION]}))
    return sum(len(rows) for rows in (ends, attempts, *rest))


def read_order(reader: Reader, order: str) -> int:
    """All that an order's page reads; how many rows."""
    story = reader.rows("story", {"order": order})
    if not story:
        raise ConfigurationError(f"{order} is not there; the run is void")
    return len(story) + len(reader.rows("money", {"order": order})) + len(reader.rows("server"))


def take_least(*sides: Callable[[], Any], rounds: int = ROUNDS) -> list[float]:
    """The least milliseconds of each side, taken in turns: what else the machine does only ever adds to them.

    The first round warms the cache and does not count.
    """
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(rounds + 1):
        for taken, do in zip(times, sides, strict=True):
            begin = time.perf_counter()
            do()
            taken.append((time.perf_counter() - begin) * 1000)
    return [min(taken[1:]) for taken in times]


def run_published(scratch: Scratch, name: str, *, indexed: bool = True) -> int:
    """A published query as somebody pastes it; without our indexes if asked to; how many rows."""
    with psycopg.connect(scratch.admin_url, autocommit=True) as connection:
        connection.execute("SET search_path = makegood, public")
        if not indexed:
            connection.execute("SET enable_indexscan = off")
            connection.execute("SET enable_bitmapscan = off")
            connection.execute("SET enable_indexonlyscan = off")
        query = (sql_folder() / "queries" / f"{name}.sql").read_text(encoding="utf-8")
        return len(connection.execute(query.encode()).fetchall())


@contextlib.contextmanager
def serve(scratch: Scratch) -> Iterator[str]:
    """The dashboard as `make up` runs it, over one scratch database; its address."""
    port = ports.choose_port()
    with tempfile.TemporaryDirectory() as home:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MAKEGOOD_")}
        env = {**kept, "MAKEGOOD_HOME": home, "MAKEGOOD_DATABASE_URL": to_url(scratch.jobs_url)}
        command = [sys.executable, "-m", "dashboard", "--port", str(port)]
        process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait_for(port, process)
            yield f"http://127.0.0.1:{port}/"
        finally:
            process.terminate()
            process.wait(20)


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while get_answer(f"http://127.0.0.1:{port}/_stcore/health") is None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise ConfigurationError("the dashboard did not start", hint="Try: python -m dashboard")
        time.sleep(0.1)


@contextlib.contextmanager
def open_browser(*, modest: bool = False) -> Iterator[Any]:
    """A browser; a modest one takes only processor time that nobody else wants."""
    try:
        from playwright.sync_api import sync_playwright  # noqa: PLC0415  only this figure needs it
    except ImportError:
        raise ConfigurationError(
            "playwright is not installed", hint="It is in the development lock: make .venv/.installed-dev"
        ) from None
    if not CHROMIUM.exists():
        raise ConfigurationError(f"there is no {CHROMIUM}", hint="On Debian: apt install chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        program = _make_modest(Path(folder)) if modest else CHROMIUM
        browser = playwright.chromium.launch(executable_path=str(program), args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


def _make_modest(folder: Path) -> Path:
    """Viewers have machines of their own: twenty that paint here must not take the server's processor from it.

    A policy and no niceness: chromium sets its threads' niceness itself, to -8 for those that paint where it may.
    """
    program = folder / "browser"
    program.write_text(f'#!/bin/sh\nexec chrt --idle 0 {CHROMIUM} "$@"\n')
    program.chmod(0o700)
    return program


def wait_for_numbers(page: Any) -> None:
    page.wait_for_function(f"document.querySelectorAll('{NUMBERS}').length === 4", timeout=PAINT_MILLISECONDS)


def paint_milliseconds(browser: Any, address: str) -> float:
    """From opening the address, as somebody new, to four numbers on the screen."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000})
    try:
        page = context.new_page()
        begin = time.perf_counter()
        page.goto(address, wait_until="commit")
        wait_for_numbers(page)
        return (time.perf_counter() - begin) * 1000
    finally:
        context.close()
