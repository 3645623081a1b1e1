"""A figure: a ratio from alternating runs, with its spread, its limit and whether it is kept.

One or the other is an amount (its name ends in the unit); everything else is the same for it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Say = Callable[[str], None]


@dataclass(frozen=True)
class Figure:
    """The figure is the median of ``runs``. ``facts`` are the numbers behind it."""

    name: str
    says: str
    runs: Sequence[float]
    kind: Literal["at least", "at most"]
    limit: float
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def value(self) -> float:
        return statistics.median(self.runs)

    @property
    def kept(self) -> bool:
        return self.value >= self.limit if self.kind == "at least" else self.value <= self.limit

    def to_document(self) -> dict[str, Any]:
        return {
            "value": round(self.value, 3),
            "lowest": round(min(self.runs), 3),
            "highest": round(max(self.runs), 3),
            "runs": [round(run, 3) for run in self.runs],
            "limit": f"{self.kind} {self.limit:g}",
            "kept": self.kept,
            "says": self.says,
            **self.facts,
        }


def alternate(
    count: int, ours: Callable[[], float], theirs: Callable[[], float], say: Say
) -> list[tuple[float, float]]:
    """Ours, theirs, ours, theirs …: what the machine does meanwhile falls on both."""
    pairs = []
    for number in range(1, count + 1):
        pair = (ours(), theirs())
        say(f"  run {number} of {count}: {pair[0]:,.1f} and {pair[1]:,.1f}")
        pairs.append(pair)
    return pairs


def median_of(pairs: Sequence[tuple[float, float]], side: int) -> float:
    return round(statistics.median(pair[side] for pair in pairs), 1)
