"""What is somebody's own is not shown to who has not the right: by the name of its key, and by its looks in any text.

Pure. Within contexts and payloads a key that matches a rule hides all that is under it; everywhere else, e-mail
addresses and card numbers are hidden wherever they stand. Weakness: a name in free text looks like any other word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

HIDDEN = "•••"
# Parts of an order's document that others filled: keys have a meaning there.
PAYLOADS = frozenset({"context", "metadata", "result", "details", "headers", "payload", "request", "response"})
# What identifies an order or a colleague is not a customer's; within a payload the same words are whoever's wrote it.
PLAIN = frozenset({
    "id", "entity_id", "workflow_id", "run_id", "actor", "triggered_by", "cancel_requested_by", "requested_by",
    "approved_by", "lease_owner", "worker", "idempotency_key", "traceparent",
})  # fmt: skip
CARD_DIGITS = range(13, 20)
_EMAIL = re.compile(r"[^\s@<>\"'(),;:\[\]{}]{1,64}@[^\s@<>\"'(),;:\[\]{}]{1,190}\.\w{2,63}")
_NUMBER = re.compile(r"\d+(?:[ -]\d+)*")
_GROUP = re.compile(r"\d+")


def mask_text(text: str) -> str:
    """The same text without e-mail addresses and card numbers; of a card its last four digits stay."""
    if "@" in text:
        text = _EMAIL.sub(HIDDEN, text)
    return _NUMBER.sub(lambda found: _mask_cards(found[0]), text)


def mask_value(value: Any, rules: Sequence[str]) -> Any:
    """A context or payload with whatever a rule names hidden, at any depth."""
    if isinstance(value, Mapping):
        return {
            mask_text(str(key)): _hide(one) if is_personal(str(key), rules) else mask_value(one, rules)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [mask_value(one, rules) for one in value]
    if isinstance(value, str):
        return mask_text(value)
    # A number may be a card's as well as a text.
    return mask_text(str(value)) if _is_card(str(value)) else value


def mask_document(value: Any, rules: Sequence[str]) -> Any:
    """An order's whole story: payloads by their keys, every other text by its looks."""
    if isinstance(value, Mapping):
        return {
            key: one if key in PLAIN else mask_value(one, rules) if key in PAYLOADS else mask_document(one, rules)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [mask_document(one, rules) for one in value]
    return mask_text(value) if isinstance(value, str) else value


def is_personal(key: str, rules: Sequence[str]) -> bool:
    """``customerEmail``, ``customer-email`` and ``CUSTOMER_EMAIL`` are the same key."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key)
    name = re.sub(r"[\W_]+", "_", words).strip("_").lower()
    return any(fnmatchcase(name, rule.lower()) for rule in rules)


def _hide(value: Any) -> Any:
    """That nothing was given is no secret."""
    return value if value is None or value in ("", [], {}) else HIDDEN


def _mask_cards(number: str) -> str:
    """Groups of digits that make a card's number together, such as 4242 4242 4242 4242, become •••• 4242."""
    out, end = [], 0
    for start, stop in _find_cards(number):
        out += [number[end:start], f"{HIDDEN} {number[stop - 4 : stop]}"]
        end = stop
    return "".join([*out, number[end:]])


def _find_cards(number: str) -> Iterator[tuple[int, int]]:
    groups = [found.span() for found in _GROUP.finditer(number)]
    first = 0
    while first < len(groups):
        reach = range(first, min(first + CARD_DIGITS.stop, len(groups)))  # a group has a digit at least
        ends = (last for last in reach if _is_card(number[groups[first][0] : groups[last][1]]))
        last = next(ends, None)
        if last is None:
            first += 1
        else:
            yield groups[first][0], groups[last][1]
            first = last + 1


def _is_card(text: str) -> bool:
    digits = [int(digit) for digit in re.sub(r"[ -]", "", text) if digit.isdecimal()]
    if len(digits) not in CARD_DIGITS or not re.fullmatch(r"[\d -]+", text) or digits[0] not in range(2, 7):
        return False
    doubled = [digit if index % 2 else sum(divmod(2 * digit, 10)) for index, digit in enumerate(reversed(digits), 1)]
    return sum(doubled) % 10 == 0
