"""What a reconciliation wrote down, read back: a run's report, findings, one of them with both sides."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from makegood.database import Database
from makegood.migrations import sql_folder
from makegood.reconciliation.classes import ONLY_RECORDED
from makegood.reconciliation.report import BAND_SECONDS, Report
from makegood.reconciliation.report_rows import make_report

FINDINGS_MAX = 100_000  # in one report: a spreadsheet's worth
TREND_RUNS = 48  # two days of hourly runs
HISTORY_ROWS = 50_000  # changes looked through for those of one run
SHOWN_MAX = 20  # findings of one order


async def read_report(database: Database, run_id: str | None = None, *, findings: int = 1000) -> Report | None:
    """The report of a run, or of the newest; None when there is no such run."""
    rows = await database.call(read_query("report"), report_parameters(run_id, findings))
    return make_report(rows[0]["document"]) if rows else None


def report_parameters(run_id: str | None, findings: int = 1000) -> dict[str, Any]:
    """What ``report.sql`` asks for."""
    return {
        "run_id": run_id,
        "band_seconds": BAND_SECONDS,
        "history": HISTORY_ROWS,
        "trend": TREND_RUNS,
        "recorded": sorted(ONLY_RECORDED),
        "limit": min(findings, FINDINGS_MAX),
    }


async def find_findings(
    database: Database, *, class_: str | None, state: str | None, order: str | None, limit: int
) -> list[dict[str, Any]]:
    return await database.call(
        read_query("findings"), {"class": class_, "state": state, "order": order, "limit": limit}
    )


async def find_documents(database: Database, name: str) -> list[dict[str, Any]]:
    """Both sides of a finding by its id, or of every finding of an order or a charge; the open ones first."""
    about: Mapping[str, Any] = {"id": as_uuid(name), "name": name, "limit": SHOWN_MAX}
    return [row["document"] for row in await database.call(read_query("finding"), about)]


async def find_last_full(database: Database) -> tuple[datetime, datetime | None]:
    """The database's time, and when the last full run that came to its end was started."""
    rows = await database.call(
        "SELECT clock_timestamp() AS now, (SELECT max(r.started_at) FROM makegood.reconciliation_runs r"
        " WHERE r.kind = 'full' AND r.state = 'matched') AS last_full"
    )
    return rows[0]["now"], rows[0]["last_full"]


def as_uuid(text: str) -> str | None:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return None


@functools.cache
def read_query(name: str) -> str:
    return (sql_folder() / "queries" / "reconciliation" / f"{name}.sql").read_text(encoding="utf-8")
