"""An order's money: what was charged, given back and disputed, by our own rows and by the provider's books. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from makegood.story import read_time, write_amount

OURS, PROVIDERS = "our orders", "the provider's books"
# What counts as moved: a refund that is pending is on its way, a dispute that was won is none.
MOVED = {"charge": {"succeeded"}, "refund": {"succeeded", "pending"}, "dispute": {"open", "lost"}}
WORDS = {"charge": "charged", "refund": "refunded", "dispute": "disputed"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One movement, or one that is owed; ``reference`` is the provider's name of it."""

    book: str
    kind: str
    status: str
    amount_minor: int
    currency: str
    at: datetime | None
    reference: str = ""

    @property
    def moved(self) -> bool:
        return self.status in MOVED[self.kind]


def find_trail(story: Mapping[str, Any], books: Iterable[Mapping[str, Any]]) -> list[Entry]:
    """Every movement that is known, ours first; each in the order of time."""
    theirs = [
        Entry(PROVIDERS, row["kind"], row["status"], row["amount_minor"], row["currency"], row["created_at"], row["id"])
        for row in books
    ]
    return [*_charges(story), *_refunds(story), *theirs]


def sum_trail(trail: Sequence[Entry], exponents: Mapping[str, int]) -> dict[str, str]:
    """``charged 19.99 EUR, refunded …, disputed …, net …`` per book and currency; nothing of a book without entries."""
    sums = {}
    for book in (OURS, PROVIDERS):
        own = [entry for entry in trail if entry.book == book]
        currencies = sorted({entry.currency for entry in own})
        if currencies:
            sums[book] = "; ".join(_sum(own, currency, exponents) for currency in currencies)
    return sums


def write_trail(trail: Sequence[Entry], exponents: Mapping[str, int]) -> str:
    """For a ticket; empty where no money moved."""
    lines = [f"by {book}: {text}" for book, text in sum_trail(trail, exponents).items()]
    return "\n".join(["", "Money", *lines]) if lines else ""


def _sum(entries: Sequence[Entry], currency: str, exponents: Mapping[str, int]) -> str:
    moved = {
        kind: sum(e.amount_minor for e in entries if e.kind == kind and e.moved and e.currency == currency)
        for kind in WORDS
    }
    parts = [f"{WORDS[kind]} {write_amount(amount, currency, exponents)}" for kind, amount in moved.items()]
    net = moved["charge"] - moved["refund"] - moved["dispute"]
    return ", ".join([*parts, f"net {'-' if net < 0 else ''}{write_amount(abs(net), currency, exponents)}"])


def _charges(story: Mapping[str, Any]) -> list[Entry]:
    """A step moves the order's money when it is called charge, or when its undo gives money back."""
    row = story["workflow"]
    if row["amount_minor"] is None:
        return []
    paying = {"charge", *(undo["step"] for undo in story["compensations"] if undo["amount_minor"] is not None)}
    done = {
        attempt["step"]: attempt
        for attempt in story["attempts"]
        if attempt["kind"] == "forward" and attempt["outcome"] == "success" and attempt["step"] in paying
    }
    return [
        Entry(
            OURS, "charge", "succeeded", row["amount_minor"], row["currency"], read_time(attempt["finished_at"]),
            _payment(row, step),
        )
        for step, attempt in done.items()
    ]  # fmt: skip


def _payment(row: Mapping[str, Any], step: str) -> str:
    """What the step's answer calls the payment, where it does."""
    answer = row["context"].get(step)
    found = answer.get("payment_intent") if isinstance(answer, dict) else None
    return found if isinstance(found, str) else ""


def _refunds(story: Mapping[str, Any]) -> list[Entry]:
    return [
        Entry(
            OURS, "refund", "succeeded" if undo["state"] == "succeeded" else f"owed, {undo['state']}",
            undo["amount_minor"], undo["currency"], read_time(undo["succeeded_at"]) if undo["succeeded_at"] else None,
        )
        for undo in story["compensations"]
        if undo["amount_minor"] is not None
    ]  # fmt: skip
