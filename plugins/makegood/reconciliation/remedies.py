"""What is done about a finding, decided purely, with the reason in words.

The limits themselves are in SQL (``sql/functions/remedy_limits.sql``) and asked again, under locks, when something is
done; here their answers become a decision. A decision to act can therefore still come to nothing, never the other way
round.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from makegood.engine.model import Outage

MOVES_MONEY = frozenset({"refund", "retry_refund"})
Act = Literal["refund", "retry_refund", "resume", "correct", "record", "stop", "ask", "tell", "wait", "leave"]
DONE = frozenset({"refund", "retry_refund", "resume", "correct", "record", "stop", "ask"})
"""The decisions after which something is done; the others leave the finding as it is."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A finding and everything that bears on its remedy, as the database tells it."""

    finding_id: uuid.UUID
    class_: str
    unit: str
    order_id: str | None
    charge_id: str | None
    remedy: str
    amount_minor: int
    currency: str | None
    dry_run: bool = True
    """The policy: this class is only told about."""
    approval: str | None = None
    """Where a proposal of it stands: awaiting_approval or approved."""
    obstacle: str | None = None
    reason: str | None = None
    cap: str | None = None
    cap_reason: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do about one finding, and why, for a person."""

    act: Act
    reason: str


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision about the finding it is about."""

    candidate: Candidate
    decision: Decision

    def to_document(self) -> dict[str, Any]:
        found = self.candidate
        return {
            "finding_id": str(found.finding_id),
            "class": found.class_,
            "unit": found.unit,
            "charge_id": found.charge_id,
            "amount_minor": found.amount_minor,
            "currency": found.currency,
            "decision": self.decision.act,
            "reason": self.decision.reason,
        }


def decide(found: Candidate, *, outage: Outage | None = None) -> Decision:
    """What to do now; the first that holds."""
    if found.remedy == "wait":
        return Decision("wait", "its workflow is under way")
    if found.remedy == "human":
        return Decision("leave", f"{found.class_} is for a person")
    if found.obstacle is not None:
        return Decision("leave", found.reason or found.obstacle)
    if found.dry_run:
        return Decision("tell", f"{found.class_} is only told about: it would be {_done(found)}")
    if found.remedy in MOVES_MONEY:
        return decide_refund(found, outage)
    return Decision(_act(found.remedy), f"{found.class_}: it is {_done(found)}")


def decide_refund(found: Candidate, outage: Outage | None) -> Decision:
    """Money goes back within the caps, or when a second person has allowed it; nobody calls a provider that is down."""
    if outage is not None:
        return Decision("wait", f"{outage.provider} is down; tried again by a later run")
    if found.approval == "approved":
        return Decision(_act(found.remedy), "a second person has approved it")
    if found.cap == "above_item":
        waits = " and waits for one" if found.approval == "awaiting_approval" else ""
        return Decision("ask", f"it needs a second person{waits}: {found.cap_reason}")
    if found.cap is not None:
        return Decision("wait", found.cap_reason or found.cap)
    return Decision(_act(found.remedy), f"{found.class_}: {_done(found)} within the caps")


def to_candidate(row: Mapping[str, Any]) -> Candidate:
    names = ("finding_id", "unit", "order_id", "charge_id", "remedy", "amount_minor", "currency", "dry_run")
    more = ("approval", "obstacle", "reason", "cap", "cap_reason")
    return Candidate(class_=row["class"], **{name: row[name] for name in (*names, *more)})


def _act(remedy: str) -> Act:
    acts: dict[str, Act] = {
        "refund": "refund",
        "retry_refund": "retry_refund",
        "resume": "resume",
        "correct": "correct",
        "record": "record",
        "stop": "stop",
    }
    return acts[remedy]


def _done(found: Candidate) -> str:
    done = {
        "refund": "refunded",
        "retry_refund": "refunded again",
        "resume": "taken on",
        "correct": "corrected in our books",
        "record": "recorded in our books",
        "stop": "stopped",
    }[found.remedy]
    return f"{done} ({found.amount_minor} {found.currency})" if found.remedy in MOVES_MONEY else done
