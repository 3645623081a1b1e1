"""What recovery looks at, and what it plans to do about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from makegood.engine.definitions import Workflow
from makegood.engine.model import Execution, Outage

OTHER = "other"
"""The lane of everything whose provider has no lane of its own."""
LANES = ("payments", "inventory", "shipping", OTHER)
"""One per provider, so that a service that hangs holds up its own orders only; in Airflow each has its pool."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many workflows of a type stand in a state, past their deadline."""

    workflow_type: str
    state: str
    due: int
    waiting: int
    leased: int
    oldest_seconds: float


@dataclass(frozen=True, slots=True)
class Batch:
    """A share of the work: whoever carries it out claims up to ``limit`` workflows that are as described."""

    workflow_type: str
    states: tuple[str, ...]
    limit: int
    older_than_seconds: float | None = None

    def to_document(self) -> dict[str, Any]:
        return {
            "workflow_type": self.workflow_type,
            "states": list(self.states),
            "limit": self.limit,
            "older_than_seconds": self.older_than_seconds,
        }

    @staticmethod
    def from_document(document: Mapping[str, Any]) -> Batch:
        return Batch(
            str(document["workflow_type"]),
            tuple(document["states"]),
            int(document["limit"]),
            document.get("older_than_seconds"),
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """The batches of one run per lane, and what was found and left alone."""

    batches: Mapping[str, Sequence[Batch]]
    counts: Mapping[str, int]

    @property
    def size(self) -> int:
        return sum(batch.limit for batches in self.batches.values() for batch in batches)


@dataclass(frozen=True, slots=True)
class Stuck:
    """One workflow past its deadline, with all that a decision about it needs."""

    execution: Execution
    workflow: Workflow | None
    outage: Outage | None = None
