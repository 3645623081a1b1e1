"""What becomes of a workflow that is being undone: decided purely, with the reason in words.

The rules are the engine's own (the last step first, tried, then looked up, then held); here they get their
name among resume, wait and park.
"""

from __future__ import annotations

from collections.abc import Sequence

from makegood.engine.decide import decide_undo
from makegood.engine.definitions import Workflow
from makegood.engine.model import BeginUndo, Compensation, FinishUndone, Hold, HoldUndo, LookUpUndo, Outage, Wait
from makegood.runs.model import Verdict


def decide(workflow: Workflow | None, owed: Sequence[Compensation], outage: Outage | None = None) -> Verdict:
    """What to do next about what a workflow owes, and why."""
    if workflow is None:
        return Verdict("park", "its type is not known to this worker")
    match decide_undo(workflow, owed, outage):
        case Wait(seconds):
            down = f"{outage.provider} is down" if outage else "its next attempt is not due"
            return Verdict("wait", f"{down}; tried again in {seconds:.0f} s")
        case BeginUndo(undo, index):
            attempts_max = workflow.steps[index].undo_attempts_max
            return Verdict("resume", f"undo of step {undo.step!r}: attempt {undo.attempts + 1} of {attempts_max}")
        case LookUpUndo(undo, _):
            return Verdict("resume", f"the attempts to undo step {undo.step!r} are spent: it is looked up")
        case FinishUndone():
            return Verdict("resume", "everything is undone: only its end is missing")
        case Hold(reason, _) | HoldUndo(_, _, reason):
            return Verdict("park", reason)
    raise AssertionError("decide_undo returns nothing else")
