"""What is done about a finding, as a table; each row with what it is about."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from makegood.engine.model import Outage
from makegood.reconciliation.remedies import Candidate, decide

FOUND = Candidate(uuid.uuid4(), "D08", "order:1", "1", "ch_1", "refund", 1999, "EUR", dry_run=False)
DOWN = Outage("payments", 60.0, 30.0)


@pytest.mark.parametrize(
    ("found", "outage", "act", "words"),
    [
        # Nothing in the way.
        (FOUND, None, "refund", "within the caps"),
        (replace(FOUND, remedy="retry_refund", class_="D19"), None, "retry_refund", "refunded again (1999 EUR)"),
        (replace(FOUND, remedy="resume"), None, "resume", "taken on"),
        (replace(FOUND, remedy="correct"), None, "correct", "corrected"),
        (replace(FOUND, remedy="record"), None, "record", "recorded"),
        (replace(FOUND, remedy="stop"), None, "stop", "stopped"),
        # Never a job's.
        (replace(FOUND, remedy="human"), None, "leave", "for a person"),
        (replace(FOUND, remedy="wait"), None, "wait", "under way"),
        # What is in the way comes before everything, the policy too.
        (replace(FOUND, obstacle="stale", reason="too old", dry_run=True), None, "leave", "too old"),
        (replace(FOUND, dry_run=True), None, "tell", "only told about"),
        # A provider that is down: money waits, our own books do not.
        (FOUND, DOWN, "wait", "payments is down"),
        (replace(FOUND, remedy="record"), DOWN, "record", "recorded"),
        # Caps: above the item's a second person, at the others' tomorrow.
        (replace(FOUND, cap="above_item", cap_reason="too much"), None, "ask", "second person: too much"),
        (
            replace(FOUND, cap="above_item", cap_reason="too much", approval="awaiting_approval"),
            None,
            "ask",
            "waits for one",
        ),
        (replace(FOUND, cap="day_cap", cap_reason="enough"), None, "wait", "enough"),
        # Approved goes past the caps, not past a provider that is down.
        (replace(FOUND, cap="above_item", approval="approved"), None, "refund", "approved"),
        (replace(FOUND, cap="day_cap", approval="approved"), None, "refund", "approved"),
        (replace(FOUND, approval="approved"), DOWN, "wait", "payments is down"),
    ],
)
def test_decide_for_each_situation_says_what_and_why(
    found: Candidate, outage: Outage | None, act: str, words: str
) -> None:
    decision = decide(found, outage=outage)
    assert decision.act == act
    assert words in decision.reason
