"""What needs a person now, as a list of things to do; each says where. Pure.

Errors are masked for everybody: this is what hangs on a wall. A run's page has its own in full for who may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dashboard.data import JOBS
from dashboard.formats import amounts, plural, seconds, short
from dashboard.masking import mask_text
from makegood.reconciliation.classes import name_of

Rows = Sequence[Mapping[str, Any]]
_ASKED = {
    "settle": ("settlement", "settlements"),
    "release group": ("release of a group", "releases of groups"),
    "refund": ("refund", "refunds"),
}
_DECIDED = {
    "settle": ("Compensations", "compensations"),
    "release group": ("Dead letters", "dead_letters"),
    "refund": ("Reconciliation", "reconciliation"),
}


@dataclass(frozen=True, slots=True)
class Need:
    """``text`` may carry what others wrote; ``page`` and ``where`` lead to its place."""

    kind: str
    word: str
    text: str
    link: str
    page: str
    where: dict[str, str] = field(default_factory=dict)


def find_needs(found: Mapping[str, Rows], exponents: Mapping[str, int]) -> list[Need]:
    """What somebody asked for first, then money: undos that are held, findings, parked orders, providers, and jobs."""
    undos = [row for row in found["held"] if row["undo"]]
    parked = [row for row in found["held"] if not row["undo"]]
    return [
        *_approvals(found.get("approvals", []), exponents),
        *_held(undos, "Held undo", "undo", "compensations", "Compensations", exponents),
        *(_finding(row, exponents) for row in found.get("findings", [])),
        *_held(parked, "Parked", "order", "dead_letters", "Dead letters", exponents),
        *(_breaker(row) for row in found["breakers"]),
        *(need for row in found["jobs"] if (need := _job(row))),
    ]


def _approvals(rows: Rows, exponents: Mapping[str, int]) -> list[Need]:
    """One per kind of request and per what it waits for: a second person, or somebody who carries it out."""
    needs = []
    for action, state in dict.fromkeys((row["action"], row["state"]) for row in rows):
        own = [row for row in rows if (row["action"], row["state"]) == (action, state)]
        count, money = sum(row["requests"] for row in own), amounts(own, exponents)
        waits = "waits" if count == 1 else "wait"
        end = f"{waits} for a second person" if state == "requested" else f"approved, {waits} to be carried out"
        text = f"{plural(count, *_ASKED.get(action, (action, action)))} {end}" + (f", {money}" if money else "")
        text += f", oldest {seconds(max(row['oldest_seconds'] for row in own))}"
        link, page = _DECIDED.get(action, ("Activity", "activity"))
        needs.append(Need("Second person", "held" if state == "requested" else "completed", text, link, page))
    return needs


def _held(rows: Rows, kind: str, noun: str, page: str, link: str, exponents: Mapping[str, int]) -> list[Need]:
    if not rows:
        return []
    count = sum(row["workflows"] for row in rows)
    money, oldest = amounts(rows, exponents), max(row["oldest_seconds"] for row in rows)
    text = f"{plural(count, noun)} held for a person" + (f", {money}" if money else "") + f", oldest {seconds(oldest)}"
    names = [short(name, 20) for row in rows for name in row["orders"]]
    return [Need(kind, "held", f"{text}: {', '.join(names[:3])}{', …' if count > 3 else ''}", link, page)]


def _finding(row: Mapping[str, Any], exponents: Mapping[str, int]) -> Need:
    """``findings_attention.sql`` gives one row per class and currency: class, findings, amount_minor, currency,
    oldest_seconds."""
    money = amounts([row], exponents)
    named = f"{row['class']} {name_of(row['class']).lower()}"
    text = f"{plural(row['findings'], 'finding')} {named}" + (f", {money} at risk" if row["amount_minor"] else "")
    text += f", oldest {seconds(row['oldest_seconds'])}"
    return Need("Finding", "failed", text, "Reconciliation", "reconciliation", {"class": row["class"]})


def _breaker(row: Mapping[str, Any]) -> Need:
    text = f"{short(row['provider'], 60)} is down for {seconds(row['open_seconds'])}: {_told(row['error'])}"
    return Need("Provider down", "failed", text, "Waiting orders", "workflows", {"show": "all"})


def _job(row: Mapping[str, Any]) -> Need | None:
    if row["id"] is None:
        text = f"{row['job']} has never run. Airflow runs it {JOBS[row['job']].every}; makegood up starts Airflow."
        return Need("Job", "waiting", text, "Activity", "activity", {"job": row["job"]})
    where = {"run": str(row["id"])}
    if row["state"] in {"failed", "abandoned"}:
        why = _told(row["error"] or "it never said its end")
        text = f"{row['job']} {row['state']} {seconds(row['ago_seconds'])} ago: {why}"
        return Need("Job", "failed", text, "The run", "activity", where)
    job = JOBS[row["job"]]
    if row["ago_seconds"] > job.late_seconds:
        text = f"{row['job']} has not run for {seconds(row['ago_seconds'])}; it should {job.every}. Is Airflow running?"
        return Need("Job", "stuck", text, "Its last run", "activity", where)
    return None


def _told(error: str | None) -> str:
    """Masked before it is cut, so that no half of an address is left."""
    return short(mask_text(error or ""), 120)
