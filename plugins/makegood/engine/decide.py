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
    HoldUndo,
    LookUpStep,
    LookUpUndo,
    Outage,
    Wait,
)

# After the attempts are spent so many look-ups are made; a service that cannot even tell leaves it to a person.
LOOK_UPS_MAX = 5
OUTAGE_WAIT_SECONDS_MIN = 1.0  # the probe is another's: its answer is awaited, not polled for


def decide(
    execution: Execution,
    workflow: Workflow | None,
    compensations: Sequence[Compensation] = (),
    outage: Outage | None = None,
) -> Decision:
    """The next thing to do with a claimed workflow. A state or type we do not know is never guessed at.

    ``outage`` is that of the provider whom the next call would go to (``find_provider``).
    """
    if workflow is None:
        return Hold(f"workflow type {execution.workflow_type!r} is not known to this worker", "unknown_type")
    kind, index = workflow.by_state.get(execution.state, ("unknown", 0))
    match kind:
        case "terminal":
            return Done()
        case "border":
            return decide_border(execution, workflow, index, outage)
        case "doing":
            return decide_doing(execution, workflow, index, outage)
        case "compensating":
            return decide_undo(workflow, compensations, outage)
    reason = f"state {execution.state!r} is not known to this worker (written by a newer one?)"
    return Hold(reason, "unknown_state")


def decide_border(execution: Execution, workflow: Workflow, index: int, outage: Outage | None) -> Decision:
    """Between two steps nothing is under way: a cancel is honoured, and the money goes back if nobody can go on."""
    if execution.cancel_requested:
        return Compensate(COMPENSATING, index)
    if outage is None:
        return BeginStep(index)
    # Before the first step nothing was taken from anybody: it can wait for as long as it takes.
    given_up = index > 0 and outage.open_seconds >= workflow.steps[index].patience_seconds
    return Compensate(COMPENSATING, index, _given_up_on(outage)) if given_up else _wait_for(outage)


def decide_doing(execution: Execution, workflow: Workflow, index: int, outage: Outage | None) -> Decision:
    """A call may have been made: its outcome is found out before anything else, also before a cancel."""
    step = workflow.steps[index]
    can_undo_blindly = step.undo is not None and step.undo_when_unsure
    if outage is not None:
        given_up = execution.cancel_requested or outage.open_seconds >= step.patience_seconds
        if given_up and can_undo_blindly:
            return Compensate(COMPENSATING, index + 1, _given_up_on(outage))
        return _wait_for(outage)
    if execution.attempts < step.attempts_max:
        return BeginStep(index)
    if execution.attempts < step.attempts_max + LOOK_UPS_MAX:
        return LookUpStep(index)
    return decide_without_trace(workflow, index, f"nobody can tell what became of step {step.name!r}", "look_ups_spent")


def decide_undo(workflow: Workflow, compensations: Sequence[Compensation], outage: Outage | None = None) -> Decision:
    """The last step that is not undone comes first; the terminal state when none is left."""
    last = find_next_undo(compensations)
    if last is None:
        return FinishUndone()
    index = next((i for i, step in enumerate(workflow.steps) if step.name == last.step and step.undo), None)
    if index is None:
        return Hold(f"no undo is defined for step {last.step!r}", "no_undo")
    if last.state == "held":
        return Hold(f"the undo of step {last.step!r} is held", "undo_held")
    if last.wait_seconds > 0:
        return Wait(last.wait_seconds)
    return _wait_for(outage) if outage else decide_due_undo(workflow, last, index)


def decide_due_undo(workflow: Workflow, last: Compensation, index: int) -> Decision:
    """Tried while attempts are left, then looked up, then held: never dropped."""
    attempts_max = workflow.steps[index].undo_attempts_max
    if last.attempts >= attempts_max + LOOK_UPS_MAX:
        return HoldUndo(last, index, "its attempts are spent, and nobody can tell what became of it")
    return LookUpUndo(last, index) if last.attempts >= attempts_max else BeginUndo(last, index)


def find_next_undo(compensations: Sequence[Compensation]) -> Compensation | None:
    return max((c for c in compensations if c.state != "succeeded"), key=lambda c: c.position, default=None)


def find_provider(
    execution: Execution, workflow: Workflow | None, compensations: Sequence[Compensation] = ()
) -> str | None:
    """Whom the next call would go to; None when there is none, or when it cannot be down."""
    kind, index = workflow.by_state.get(execution.state, ("unknown", 0)) if workflow else ("unknown", 0)
    if workflow is None or kind in {"unknown", "terminal"}:
        return None
    if kind != "compensating":
        return workflow.steps[index].action.provider
    last = find_next_undo(compensations)
    undo = next((step.undo for step in workflow.steps if last and step.name == last.step), None)
    return undo.provider if undo else None


def _given_up_on(outage: Outage) -> str:
    return f"{outage.provider} has been down for {outage.open_seconds:.0f} s"


def _wait_for(outage: Outage) -> Wait:
    return Wait(max(outage.retry_in_seconds, OUTAGE_WAIT_SECONDS_MIN))


def decide_after_failure(execution: Execution, index: int) -> Compensate:
    """A definite failure of step ``index``: undo what came before it, or simply fail when that is nothing.

    A cancelled order ends ``compensated`` even if nothing had to be undone.
    """
    nothing_done = index == 0 and not execution.cancel_requested
    return Compensate(FAILED if nothing_done else COMPENSATING, index)


def decide_without_trace(workflow: Workflow, index: int, why: str, error_type: str = "no_trace") -> Compensate | Hold:
    """Nothing was found out: undo it all the same where that is harmless, otherwise a person decides."""
    step = workflow.steps[index]
    if step.undo is not None and step.undo_when_unsure:
        return Compensate(COMPENSATING, index + 1, why)
    return Hold(why, error_type)
