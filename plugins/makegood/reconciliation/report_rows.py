"""A report's values from the one document that the database answers with. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from makegood.reconciliation.report import BAND_NAMES, Beat, Finding, Line, Report, Run, Standing, Totals


def make_report(document: Mapping[str, Any]) -> Report:
    """The values of one document of ``report.sql``."""
    exponents = document["exponents"] or {}
    ages = {int(row["band"]): int(row["findings"]) for row in document["ages"]}
    changes: dict[str, int] = {}
    for row in document["changes"]:
        changes[row["to_state"]] = changes.get(row["to_state"], 0) + int(row["findings"])
    return Report(
        run=_make_run(document["run"], document["job"] or {}),
        written_at=_time(document["written_at"]),
        totals=make_totals(document["totals"], exponents),
        standings=tuple(_make_standing(row) for row in document["standings"]),
        findings=tuple(_make_finding(row) for row in document["findings"]),
        ages=tuple(ages.get(band, 0) for band in range(len(BAND_NAMES))),
        changes=changes,
        trend=tuple(_make_beat(row) for row in document["trend"]),
        exponents=exponents,
    )


def make_totals(rows: Sequence[Mapping[str, Any]], exponents: Mapping[str, int]) -> tuple[Totals, ...]:
    """Per currency; a bucket that is not there is nothing."""
    found: dict[str, dict[str, Line]] = {}
    for row in rows:
        found.setdefault(row["currency"], {})[row["bucket"]] = Line(int(row["charges"]), int(row["amount_minor"]))
    return tuple(
        Totals(
            currency,
            exponents.get(currency, 2),
            provider=buckets.pop("provider", Line()),
            matched=buckets.pop("matched", Line()),
            pending=buckets.pop("pending", Line()),
            classes=dict(sorted(buckets.items())),
        )
        for currency, buckets in sorted(found.items())
    )


def _make_run(row: Mapping[str, Any], job: Mapping[str, Any]) -> Run:
    return Run(
        id=str(row["id"]),
        kind=row["kind"],
        state=row["state"],
        started_at=_time(row["started_at"]),
        finished_at=_time(row["finished_at"]) if row["finished_at"] else None,
        watermark=_time(row["watermark"]) if row["watermark"] else None,
        stale=row["stale"],
        looked_at=row["looked_at"],
        opened=row["opened"],
        closed=row["closed"],
        missed=row["missed"],
        error=row["error"],
        triggered_by=job.get("triggered_by"),
        dry_run=bool((job.get("parameters") or {}).get("dry_run")),
        parts=job.get("parts") or {},
    )


def _make_standing(row: Mapping[str, Any]) -> Standing:
    return Standing(
        row["class"],
        row["currency"],
        row["state"],
        row["remedy"],
        int(row["findings"]),
        int(row["new"]),
        int(row["at_risk_minor"]),
        _time(row["oldest"]),
    )


def _make_finding(row: Mapping[str, Any]) -> Finding:
    return Finding(
        id=str(row["id"]),
        class_=row["class"],
        state=row["state"],
        order_id=row["order_id"],
        charge_id=row["charge_id"],
        unit=row["unit"],
        at_risk_minor=int(row["amount_at_risk_minor"]),
        currency=row["currency"],
        remedy=row["remedy"],
        first_seen_at=_time(row["first_seen_at"]),
        last_seen_at=_time(row["last_seen_at"]),
        runs_seen=row["runs_seen"],
        reopened=row["reopened"],
        new=bool(row["is_new"]),
        also=tuple(str(row["also"] or "").split()),
    )


def _make_beat(row: Mapping[str, Any]) -> Beat:
    trusted = not row["stale"] and row["state"] == "matched"
    return Beat(_time(row["started_at"]), row["kind"], row["looked_at"], row["opened"], row["closed"], trusted)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
