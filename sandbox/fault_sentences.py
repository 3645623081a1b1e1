"""Faults in words: ``the 3rd refund succeeds and then hangs``. A sentence is WHICH, WHAT, perhaps WHOSE.

WHICH: the 3rd refund | the first refund | the next 5 refunds | refunds 10 to 50 | every refund |
       5% of refunds (counted from when it is said; a call is any request: ``5% of calls are rate limited``)
WHAT:  see WHATS below, or the fault by its name: ``the 3rd refund timeout_after``
WHOSE: for order-7

The nouns are charge, capture, charge cancellation, refund, reservation, release, shipment, shipment
cancellation, list, lookup, call; one or many makes no difference.
"""

from __future__ import annotations

import re
from typing import Any

from sandbox.fault_plans import PlanError, parse_rule
from sandbox.faults import ANY, FAULTS, Rule
from sandbox.words import words

NOUNS = {
    "charge cancellation": "cancel_charge",
    "charge": "charge",
    "capture": "capture",
    "refund": "refund",
    "reservation": "reserve",
    "release": "release",
    "shipment cancellation": "cancel_shipment",
    "shipment": "ship",
    "list": "list",
    "lookup": "retrieve",
    "call": ANY,
}
WHATS = {
    "hangs": "timeout_before",
    "hangs before anything happens": "timeout_before",
    "succeeds and then hangs": "timeout_after",
    "is cut off": "reset_before",
    "is cut off before anything happens": "reset_before",
    "succeeds and then is cut off": "reset_after",
    "is rate limited": "rate_limited",
    "fails for ever": "error_500_stored",
    "succeeds but answers 500": "error_500_after",
    "is unavailable": "error_503",
    "succeeds but answers garbage": "malformed",
    "succeeds but answers by half": "truncated",
    "succeeds but drips its answer": "slow_drip",
    "succeeds but says the wrong amount": "wrong_amount",
    "succeeds but says the wrong currency": "wrong_currency",
    "is refused": "refused",
    "is unauthorized": "unauthorized",
    "skips a page": "skipped_page",
    "leaves out a row": "dropped_row",
    "repeats a row": "repeated_row",
    "denies that there is more": "more_denied",
    "claims that there is more": "more_claimed",
}
PLURALS = {
    "is": "are",
    "its": "their",
    "answers": "answer",
    "drips": "drip",
    "fails": "fail",
    "hangs": "hang",
    "happens": "happen",
    "says": "say",
    "skips": "skip",
    "leaves": "leave",
    "repeats": "repeat",
    "denies": "deny",
    "claims": "claim",
    "succeeds": "succeed",
}
ORDINALS = {word: nth for nth, word in enumerate(words("first second third fourth fifth sixth seventh"), 1)}
NOUN = "(?P<noun>" + "|".join(NOUNS) + ")s?"
WHICHES = (
    re.compile(r"the (?P<nth>[0-9]+)(?:st|nd|rd|th) " + NOUN + r"\b"),
    re.compile(r"the (?:next|first) (?P<to>[0-9]+) " + NOUN + r"\b"),
    re.compile(r"the (?P<word>next|" + "|".join(ORDINALS) + ") " + NOUN + r"\b"),
    re.compile(NOUN + r" (?P<from_nth>[0-9]+) to (?P<to_nth>[0-9]+)\b"),
    re.compile(r"every " + NOUN + r"\b"),
    re.compile(r"(?P<percent>[0-9]+(?:\.[0-9]+)?) ?% of (?:all )?" + NOUN + r"\b"),
)
WHOSE = re.compile(r" for (?:order )?(?!ever$)(?P<order_id>\S+)$")  # "fails for ever" names no order


def parse_sentence(text: str) -> Rule:
    """The rule that the sentence says, or a PlanError that lists the forms that are understood."""
    sentence = " ".join(text.split()).rstrip(".")
    whose = WHOSE.search(sentence)
    if whose is not None:
        sentence = sentence[: whose.start()]
    which = next((found for form in WHICHES if (found := form.match(sentence.lower()))), None)
    if which is None:
        raise PlanError(f"not understood: {text!r}. {_forms()}")
    fault = _read_what(sentence[which.end() :].strip().lower())
    if fault is None:
        raise PlanError(f"not understood after {which[0]!r}: {sentence[which.end() :].strip()!r}. {_forms()}")
    rule: dict[str, Any] = {"operation": NOUNS[which["noun"]], "fault": fault, **_read_which(which)}
    if whose is not None:
        rule["order_id"] = whose["order_id"]
    return parse_rule(rule, "the sentence")


def _read_which(which: re.Match[str]) -> dict[str, Any]:
    found = {name: value for name, value in which.groupdict().items() if value is not None and name != "noun"}
    if "word" in found:
        return {"nth": ORDINALS.get(found["word"], 1)}
    if "to" in found:
        return {"to_nth": int(found["to"])}
    if "percent" in found:
        return {"probability": float(found["percent"]) / 100}
    return {name: int(value) for name, value in found.items()}


def _read_what(said: str) -> str | None:
    """One or many: ``refunds 1 to 3 are refused`` reads as ``is refused``."""
    return said if said in FAULTS else _PLURAL_WHATS.get(_make_plural(said))


def _make_plural(said: str) -> str:
    return " ".join(PLURALS.get(word, word) for word in said.split())


_PLURAL_WHATS = {_make_plural(said): fault for said, fault in WHATS.items()}


def _forms() -> str:
    return (
        "Say which, what and perhaps whose. Which: the 3rd refund | the first refund | the next 5 refunds | "
        f"refunds 10 to 50 | every refund | 5% of refunds (nouns: {', '.join(NOUNS)}). "
        f"What: {' | '.join(WHATS)}. Whose: for order-7."
    )
