"""What to do with a workflow, decided purely: no clock, no database, no outside."""

from __future__ import annotations

from collections.abc import Sequence

from makegood.engine.definitions import COMPENSATING, FAILED, Workflow
from makegood.engine.model import (
    BeginStep,
    BeginUndo,
    Compensate,
    Compensation,
    Decision,
    Done,
    Execution,
    FinishUndone,
    Hold,
    LookUpStep,
    LookUpUndo,
    Wait,
)


def decide(execution: Execution, workflow: Workflow | None, compensations: Sequence[Compensation] = ()) -> Decision:
    """The next thing to do with a claimed workflow. A state or type we do not know is never guessed at."""
    if workflow is None:
        return Hold(f"workflow type {execution.workflow_type!r} is not known to this worker")
    kind, index = workflow.by_state.get(execution.state, ("unknown", 0))
    match kind:
        case "terminal":
            return Done()
        case "border":
            return Compensate(COMPENSATING, index) if execution.cancel_requested else BeginStep(index)
        case "doing":
            # A call may have been made: its outcome is found out before anything else, also before a cancel.
            spent = execution.attempts >= workflow.steps[index].attempts_max
            return LookUpStep(index) if spent else BeginStep(index)
        case "compensating":
            return decide_undo(workflow, compensations)
    return Hold(f"state {execution.state!r} is not known to this worker (written by a newer one?)")


def decide_undo(workflow: Workflow, compensations: Sequence[Compensation]) -> Decision:
    """The last step that is not undone comes first; the terminal state when none is left."""
    owed = [c for c in compensations if c.state != "succeeded"]
    if not owed:
        return FinishUndone()
    last = max(owed, key=lambda c: c.position)
    index = next((i for i, step in enumerate(workflow.steps) if step.name == last.step and step.undo), None)
    if index is None:
        return Hold(f"no undo is defined for step {last.step!r}")
    if last.state == "held":
        return Hold(f"the undo of step {last.step!r} is held")
    if last.wait_seconds > 0:
        return Wait(last.wait_seconds)
    spent = last.attempts >= workflow.steps[index].undo_attempts_max
    return LookUpUndo(last, index) if spent else BeginUndo(last, index)


def decide_after_failure(execution: Execution, index: int) -> Compensate:
    """A definite failure of step ``index``: undo what came before it, or simply fail when that is nothing.

    A cancelled order ends ``compensated`` even if nothing had to be undone.
    """
    nothing_done = index == 0 and not execution.cancel_requested
    return Compensate(FAILED if nothing_done else COMPENSATING, index)


def decide_without_trace(workflow: Workflow, index: int, why: str) -> Compensate | Hold:
    """The look-up found nothing: undo it all the same where that is harmless, otherwise a person decides."""
    step = workflow.steps[index]
    if step.undo is not None and step.undo_when_unsure:
        return Compensate(COMPENSATING, index + 1)
    return Hold(f"{why}, and a look-up found no trace of step {step.name!r}")
