"""What a run was asked to do, and what it decided about a workflow."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Literal

What = Literal["resume", "wait", "compensate", "park"]


@dataclass(frozen=True, slots=True)
class Options:
    """What an operator may choose; the defaults are what the schedule runs with."""

    limit: int
    older_than_seconds: float | None = None
    """Without progress for at least this long; None is each step's own deadline."""
    workflow_type: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a job decided about one workflow, and why, for a person."""

    decision: What
    reason: str


@dataclass(frozen=True, slots=True)
class Decided:
    """A verdict about the workflow it is about, as it is written down."""

    id: uuid.UUID
    entity_id: str
    state: str
    decision: What
    reason: str
