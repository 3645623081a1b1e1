"""What the tests of the jobs have in common: a process's surroundings, stuck orders, all tables at a glance."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
from checkouts import NOWHERE, hasten, let_stick, open_checkouts, order, pass_time
from psycopg import sql

from makegood.settings import Settings
from sandbox.client import ShopControl


def surroundings(database: Any, settings: Settings, home: Path) -> dict[str, str]:
    """The variables under which a command or a job meets the test's database and shop."""
    url = str(settings.stripe_api_base)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "COLUMNS": "200",
        "MAKEGOOD_HOME": str(home / "home"),
        "MAKEGOOD_DATABASE_URL": database.jobs,
        "MAKEGOOD_STRIPE_API_BASE": url,
        "MAKEGOOD_INVENTORY_URL": url,
        "MAKEGOOD_SHIPPING_URL": url,
    }


def stick(database: Any, settings: Settings, shop: ShopControl, plan: Mapping[str, str | None]) -> None:
    """Orders stuck past their deadline: each name with the operation that was under way when its worker went, or None.

    The call was reset before it had an effect, so what is found of it is an attempt and a key that was sent.
    """
    rules = [
        {"operation": operation, "fault": "reset_before", "order_id": name, "nth": 1}
        for name, operation in plan.items()
        if operation is not None
    ]
    shop.set_faults({"rules": rules})
    begun = [order(name, **_of(operation)) for name, operation in plan.items() if operation is not None]
    never_begun = [order(name) for name, operation in plan.items() if operation is None]

    # However many: none of them takes the shop for being down.
    patient = settings.model_copy(update={"breaker_failures": 1000})

    async def run() -> None:
        async with open_checkouts(database.jobs, patient, change=hasten) as runner:
            await runner.start(begun, triggered_by="shop")
            await runner.run_once()
            await runner.start(never_begun, triggered_by="shop")

    asyncio.run(run())
    shop.clear_faults()
    let_stick(database)
    pass_time(database)


def _of(operation: str) -> dict[str, Any]:
    return NOWHERE if operation in {"release", "refund"} else {}


def read_tables(database: Any, *but: str) -> dict[str, list[str]]:
    """Every row of every table, as text."""
    with psycopg.connect(database.admin, autocommit=True) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'makegood'").fetchall()
        statement = "SELECT t::text FROM makegood.{} AS t ORDER BY 1"
        return {
            name: [row[0] for row in connection.execute(sql.SQL(statement).format(sql.Identifier(name))).fetchall()]
            for (name,) in names
            if name not in but
        }


def count_states(database: Any) -> dict[str, int]:
    rows = database.rows(
        "SELECT CASE WHEN held_at IS NULL THEN current_state ELSE 'held' END AS state, count(*) AS n"
        " FROM makegood.workflow_executions GROUP BY 1"
    )
    return {row["state"]: row["n"] for row in rows}


def read_decisions(database: Any) -> dict[str, tuple[str, str]]:
    """The decision and its reason per order, where there is exactly one of each."""
    rows = database.rows("SELECT entity_id, decision, reason FROM makegood.job_decisions ORDER BY id")
    decisions = {row["entity_id"]: (row["decision"], row["reason"]) for row in rows}
    assert len(decisions) == len(rows), rows
    return decisions


def read_runs(database: Any) -> list[dict[str, Any]]:
    return list(database.rows("SELECT * FROM makegood.job_runs ORDER BY started_at"))


def kill_in_the_middle(command: Sequence[str], environment: Mapping[str, str], under_way: Callable[[], bool]) -> None:
    """Starts the command of makegood, and SIGKILL when it has begun what ``under_way`` looks for."""
    process = subprocess.Popen(
        [sys.executable, "-m", "makegood.cli", *command],
        env=dict(environment),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while not under_way():
            assert process.poll() is None, "it ended before it was in the middle"
            assert time.monotonic() < deadline, "it did not get there"
            time.sleep(0.02)
    finally:
        process.kill()
        assert process.wait(10) == -signal.SIGKILL
