"""What becomes of a workflow that is being undone, in words: the last step first, tried, looked up, held."""

from __future__ import annotations

import uuid

import pytest

from makegood.compensation.decide import decide
from makegood.engine.decide import LOOK_UPS_MAX
from makegood.engine.definitions import Action, Step, Workflow
from makegood.engine.model import Compensation, Outage
from makegood.runs.model import Verdict

ACTION = Action(send=lambda call, request: None)
WORKFLOW = Workflow(
    "trip",
    steps=[
        Step("fly", "flying", "flown", ACTION, undo=ACTION, undo_attempts_max=4),
        Step("tell", "telling", "told", ACTION),
        Step("sleep", "sleeping", None, ACTION, undo=ACTION, undo_attempts_max=4),
    ],
)
DOWN = Outage("hotels", 30.0, 12.0)


def undo(step: str, position: int, state: str = "pending", *, attempts: int = 0, wait: float = 0.0) -> Compensation:
    return Compensation(uuid.UUID(int=position), step, position, state, attempts, wait)


FIRST = undo("fly", 1)


@pytest.mark.parametrize(
    ("owed", "outage", "verdict"),
    [
        # The last step first, whatever the order of the rows.
        ([FIRST, undo("sleep", 3)], None, Verdict("resume", "undo of step 'sleep': attempt 1 of 4")),
        (
            [undo("sleep", 3, attempts=2), FIRST],
            None,
            Verdict("resume", "undo of step 'sleep': attempt 3 of 4"),
        ),
        # Its worker died in the middle of it.
        ([undo("fly", 1, "running", attempts=1)], None, Verdict("resume", "undo of step 'fly': attempt 2 of 4")),
        # Then the one before it.
        ([FIRST, undo("sleep", 3, "succeeded")], None, Verdict("resume", "undo of step 'fly': attempt 1 of 4")),
        # All is undone, and its worker died before it said so.
        (
            [undo("fly", 1, "succeeded"), undo("sleep", 3, "succeeded")],
            None,
            Verdict("resume", "everything is undone: only its end is missing"),
        ),
        ([], None, Verdict("resume", "everything is undone: only its end is missing")),
        # Spent: looked up, and held when nobody can tell.
        (
            [undo("fly", 1, attempts=4)],
            None,
            Verdict("resume", "the attempts to undo step 'fly' are spent: it is looked up"),
        ),
        (
            [undo("fly", 1, attempts=4 + LOOK_UPS_MAX)],
            None,
            Verdict("park", "its attempts are spent, and nobody can tell what became of it"),
        ),
        # Not due yet; a lower one does not overtake it.
        ([FIRST, undo("sleep", 3, wait=7.4)], None, Verdict("wait", "its next attempt is not due; tried again in 7 s")),
        # Nobody is there to undo it: no attempt is spent on that.
        ([undo("fly", 1, attempts=99)], DOWN, Verdict("wait", "hotels is down; tried again in 12 s")),
        # A person has it, or must.
        ([undo("fly", 1, "held")], None, Verdict("park", "the undo of step 'fly' is held")),
        ([undo("tell", 2)], None, Verdict("park", "no undo is defined for step 'tell'")),
        ([undo("swim", 4)], DOWN, Verdict("park", "no undo is defined for step 'swim'")),
    ],
)
def test_decide_names_what_the_engine_will_do_and_why(
    owed: list[Compensation], outage: Outage | None, verdict: Verdict
) -> None:
    assert decide(WORKFLOW, owed, outage) == verdict


def test_decide_of_a_type_that_is_not_known_parks_it() -> None:
    assert decide(None, [FIRST]) == Verdict("park", "its type is not known to this worker")
