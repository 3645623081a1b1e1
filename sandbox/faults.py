"""Faults by plan: given the seed and the order of requests, the same requests meet the same faults.

A plan is a list of rules; the first that fires decides. A rule counts the requests that match its operation
and order, so ``nth`` 3 means the third of those since the plan was set.

    {"seed": 1, "hang_seconds": 3600, "drip_seconds": 60, "retry_after_seconds": 1, "rules": [
        {"operation": "refund", "fault": "timeout_after", "nth": 3},
        {"operation": "ship", "fault": "error_503", "from_nth": 10, "to_nth": 50},
        {"operation": "charge", "fault": "rate_limited", "order_id": "order-7", "times": 2},
        {"operation": "*", "fault": "reset_before", "probability": 0.01}]}

Weakness: requests that arrive at once have no order of their own, so under concurrency which of them is the
third is up to the network. Plans and counters live in memory: a restarted shop has the plan it was started with.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field

WRITES = ("charge", "capture", "cancel_charge", "refund", "reserve", "release", "ship", "cancel_shipment")
READS = ("list", "retrieve")
OPERATIONS = (*WRITES, *READS)
ANY = "*"
HANG_SECONDS_MAX = 3600.0

FAULTS = {
    "timeout_before": "nothing happens, and no answer comes",
    "timeout_after": "it happens, and no answer comes",
    "reset_before": "nothing happens, and the connection is reset",
    "reset_after": "it happens, and the connection is reset",
    "rate_limited": "429 with Retry-After; nothing happens, nothing is stored",
    "error_500_stored": "500 without the effect, stored under the key and replayed for ever",
    "error_500_after": "it happens, and 500 is stored under the key and answered",
    "error_503": "503; nothing happens, nothing is stored",
    "malformed": "it happens, and the body is not JSON",
    "truncated": "it happens, and the body ends before its Content-Length",
    "slow_drip": "it happens, and the body comes a byte at a time",
    "wrong_amount": "it happens, and the body says another amount",
    "wrong_currency": "it happens, and the body says another currency",
    "unauthorized": "401; nothing happens, nothing is stored",
    "skipped_page": "a list answers with the page after the one that was asked for",
    "dropped_row": "a list leaves out a row in the middle of its page",
    "repeated_row": "a list shows the first row of its page twice",
    "more_denied": "a list says that there is no more",
    "more_claimed": "a list says that there is more",
    "refused": "a definite no: card_declined, out_of_stock, undeliverable, …",
}
BEFORE = frozenset(("timeout_before", "reset_before", "rate_limited", "error_503", "unauthorized"))
IN_LISTS = frozenset(("skipped_page", "dropped_row", "repeated_row", "more_denied", "more_claimed"))
# Where a fault would say nothing: a release has no amount, and a read cannot be refused.
_WITH_MONEY = frozenset(("charge", "capture", "cancel_charge", "refund", *READS))
APPLIES_TO = {
    "wrong_amount": _WITH_MONEY,
    "wrong_currency": _WITH_MONEY,
    "refused": frozenset(WRITES),
    **dict.fromkeys(IN_LISTS, frozenset(("list",))),
}


@dataclass(frozen=True)
class Rule:
    operation: str
    fault: str
    probability: float = 1.0
    nth: int | None = None
    from_nth: int | None = None
    to_nth: int | None = None
    times: int | None = None
    order_id: str | None = None

    def matches(self, operation: str, order_id: str | None) -> bool:
        if self.operation not in (ANY, operation):
            return False
        if self.order_id is not None and self.order_id != order_id:
            return False
        return operation in APPLIES_TO.get(self.fault, OPERATIONS)

    def covers(self, count: int) -> bool:
        """Whether the count-th matching request is among those this rule is for."""
        if self.nth is not None and count != self.nth:
            return False
        return (self.from_nth or 1) <= count and (self.to_nth is None or count <= self.to_nth)


@dataclass
class FaultPlan:
    """The rules and how often each was met; ``draw`` is the only thing that counts."""

    rules: list[Rule] = field(default_factory=list)
    seed: int = 0
    hang_seconds: float = HANG_SECONDS_MAX
    drip_seconds: float = 60.0
    retry_after_seconds: int = 1
    _operations: Counter[str] = field(default_factory=Counter)
    _seen: Counter[int] = field(default_factory=Counter)
    _fired: Counter[int] = field(default_factory=Counter)

    def draw(self, operation: str, order_id: str | None) -> str | None:
        """The fault that this request meets, if any. Every rule sees every request, whichever rule fires."""
        self._operations[operation] += 1
        count = self._operations[operation]
        fault = None
        for index, rule in enumerate(self.rules):
            if rule.matches(operation, order_id):
                self._seen[index] += 1
                if fault is None and self._fires(index, rule, operation, count):
                    self._fired[index] += 1
                    fault = rule.fault
        return fault

    def _fires(self, index: int, rule: Rule, operation: str, count: int) -> bool:
        if not rule.covers(self._seen[index]):
            return False
        if rule.times is not None and self._fired[index] >= rule.times:
            return False
        return rule.probability >= 1 or _chance(self.seed, index, operation, count) < rule.probability

    def add(self, rule: Rule) -> None:
        """One more rule, which counts from now."""
        self.rules.append(rule)

    def count(self, index: int) -> tuple[int, int]:
        """How many requests the rule was for, and how many it struck."""
        return self._seen[index], self._fired[index]


def _chance(seed: int, index: int, operation: str, count: int) -> float:
    """A number in [0, 1) that depends on nothing but these four."""
    digest = hashlib.blake2b(f"{seed}:{index}:{operation}:{count}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64
