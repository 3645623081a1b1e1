"""A report for programs: amounts in minor units beside their currency, and as people write them."""

from __future__ import annotations

from typing import Any

from makegood.reconciliation.classes import name_of
from makegood.reconciliation.report import (
    BAND_NAMES,
    Finding,
    Line,
    Report,
    Run,
    Standing,
    Totals,
    describe_check,
    find_problems,
    summarise,
)


def to_document(report: Report) -> dict[str, Any]:
    """The report for programs: amounts in minor units beside their currency, and in words."""
    return {
        "run": _run_document(report.run),
        "written_at": report.written_at,
        "summary": summarise(report),
        "adds_up": report.adds_up,
        "problems": find_problems(report),
        "check": describe_check(report.run),
        "open": report.open_findings,
        "need_somebody": report.need_somebody,
        "at_risk_minor": report.at_risk(),
        "totals": [_totals_document(totals) for totals in report.totals],
        "classes": [_standing_document(report, one) for one in report.standings],
        "ages": dict(zip(BAND_NAMES, report.ages, strict=True)),
        "changes": dict(report.changes),
        "findings": [finding_document(report, one) for one in report.findings],
        "findings_left_out": report.left_out,
    }


def finding_document(report: Report, one: Finding) -> dict[str, Any]:
    return {
        "id": one.id,
        "class": one.class_,
        "name": name_of(one.class_),
        "state": one.state,
        "order": one.order_id,
        "charge": one.charge_id,
        "unit": one.unit,
        "at_risk_minor": one.at_risk_minor,
        "currency": one.currency,
        "at_risk": report.money(one.at_risk_minor, one.currency),
        "remedy": one.remedy,
        "first_seen_at": one.first_seen_at,
        "last_seen_at": one.last_seen_at,
        "runs_seen": one.runs_seen,
        "reopened": one.reopened,
        "new": one.new,
        "also": list(one.also),
    }


def _run_document(run: Run) -> dict[str, Any]:
    return {name: getattr(run, name) for name in Run.__slots__ if name != "parts"} | {
        "parts": {name: dict(counts) for name, counts in run.parts.items()}
    }


def _totals_document(totals: Totals) -> dict[str, Any]:
    lines = {"provider": totals.provider, "matched": totals.matched, "pending": totals.pending}
    return {
        "currency": totals.currency,
        "adds_up": totals.adds_up,
        **{name: _line_document(totals, line) for name, line in lines.items()},
        "findings": _line_document(totals, totals.findings),
        "unexplained": _line_document(totals, totals.unexplained),
        "classes": {class_: _line_document(totals, line) for class_, line in totals.classes.items()},
    }


def _line_document(totals: Totals, line: Line) -> dict[str, Any]:
    return {"charges": line.charges, "amount_minor": line.amount_minor, "amount": totals.money(line)}


def _standing_document(report: Report, one: Standing) -> dict[str, Any]:
    return {
        "class": one.class_,
        "name": name_of(one.class_),
        "currency": one.currency,
        "state": one.state,
        "remedy": one.remedy,
        "findings": one.findings,
        "new": one.new,
        "at_risk_minor": one.at_risk_minor,
        "at_risk": report.money(one.at_risk_minor, one.currency),
        "oldest": one.oldest,
        "needs_somebody": one.needs_somebody,
    }
