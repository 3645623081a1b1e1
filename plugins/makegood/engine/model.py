"""Rows as the engine sees them, and what it can decide to do with one."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Execution:
    """A workflow under our lease, as last read or written."""

    id: uuid.UUID
    workflow_type: str
    entity_id: str
    state: str
    context: Mapping[str, Any]
    amount_minor: int | None
    currency: str | None
    attempts: int
    fence: int
    cancel_requested: bool
    created_at: datetime

    def begun(self, state: str) -> Execution:
        return self._with(state, self.context, self.attempts + 1 if state == self.state else 1)

    def moved(self, state: str, result: Mapping[str, Any] | None = None) -> Execution:
        context = {**self.context, **result} if result else self.context
        return self._with(state, context, 0)

    def with_result(self, result: Mapping[str, Any] | None) -> Execution:
        return self._with(self.state, {**self.context, **(result or {})}, self.attempts)

    def _with(self, state: str, context: Mapping[str, Any], attempts: int) -> Execution:
        """By hand: dataclasses.replace() looks at every field by its name, and this happens several times per step."""
        return Execution(
            self.id,
            self.workflow_type,
            self.entity_id,
            state,
            context,
            self.amount_minor,
            self.currency,
            attempts,
            self.fence,
            self.cancel_requested,
            self.created_at,
        )


@dataclass(frozen=True, slots=True)
class Compensation:
    """One undo that is owed."""

    id: uuid.UUID
    step: str
    position: int
    state: str
    attempts: int
    wait_seconds: float
    """Until it is due; zero or less means now."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A provider that is down: since how long, and in how many seconds somebody may try it."""

    provider: str
    open_seconds: float
    retry_in_seconds: float


@dataclass(frozen=True, slots=True)
class BeginStep:
    """Call the step, for the first time or again under the same key."""

    index: int


@dataclass(frozen=True, slots=True)
class LookUpStep:
    """Replaying is spent: ask what became of the step."""

    index: int


@dataclass(frozen=True, slots=True)
class Compensate:
    """Undo the first ``done_count`` steps; with none done and no cancel request the workflow just failed."""

    to_state: str
    done_count: int
    why: str = field(default="", compare=False)
    """For people; a cancel request and a failed call say themselves why."""


@dataclass(frozen=True, slots=True)
class BeginUndo:
    """Call the undo of one step."""

    compensation: Compensation
    index: int


@dataclass(frozen=True, slots=True)
class LookUpUndo:
    """Replaying the undo is spent: ask what became of it."""

    compensation: Compensation
    index: int


@dataclass(frozen=True, slots=True)
class HoldUndo:
    """Everything was tried with this undo: it is held with its workflow."""

    compensation: Compensation
    index: int
    reason: str


@dataclass(frozen=True, slots=True)
class FinishUndone:
    """Every undo is done: the terminal state, dead last."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is due yet."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """A person must look; ``error_type`` is one word for why."""

    reason: str
    error_type: str = "held"


@dataclass(frozen=True, slots=True)
class Done:
    """It is terminal."""


Decision = BeginStep | LookUpStep | Compensate | BeginUndo | LookUpUndo | HoldUndo | FinishUndone | Wait | Hold | Done
