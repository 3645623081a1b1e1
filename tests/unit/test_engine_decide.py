"""What is decided for a workflow, as tables: every kind of state, with and without a cancel, attempts left or spent."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest

from makegood.engine.decide import decide, decide_after_failure, decide_undo, decide_without_trace
from makegood.engine.definitions import Action, Step, Workflow
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

ACTION = Action(send=lambda call, request: None)
# The middle step has no undo; the last may be undone where nothing is known of it.
WORKFLOW = Workflow(
    "trip",
    steps=[
        Step("fly", "flying", "flown", ACTION, undo=ACTION, attempts_max=3, undo_attempts_max=4),
        Step("tell", "telling", "told", ACTION, attempts_max=2),
        Step("sleep", "sleeping", None, ACTION, undo=ACTION, undo_when_unsure=True, attempts_max=3),
    ],
)


def execution(state: str = "created", *, attempts: int = 0, cancel: bool = False, kind: str = "trip") -> Execution:
    created_at = datetime(2026, 1, 2, tzinfo=UTC)
    return Execution(uuid.UUID(int=1), kind, "trip-1", state, {}, None, None, attempts, 1, cancel, created_at)


def undo(step: str, position: int, state: str = "pending", *, attempts: int = 0, wait: float = 0.0) -> Compensation:
    return Compensation(uuid.UUID(int=position), step, position, state, attempts, wait)


@pytest.mark.parametrize(
    ("state", "cancel", "attempts", "decision"),
    [
        ("created", False, 0, BeginStep(0)),  # new: the first step
        ("created", True, 0, Compensate("compensating", 0)),  # cancelled at once: undone, though that is nothing
        ("flying", False, 0, BeginStep(0)),  # its worker died before it counted: again
        ("flying", False, 2, BeginStep(0)),  # one attempt is left
        ("flying", True, 2, BeginStep(0)),  # cancelled in the call: its outcome is found out first
        ("flying", False, 3, LookUpStep(0)),  # spent: replaying is over
        ("flying", False, 7, LookUpStep(0)),  # the last look-up
        ("flying", False, 8, Hold("nobody can tell what became of step 'fly'", "look_ups_spent")),  # all is spent
        ("flying", True, 3, LookUpStep(0)),  # spent and cancelled: still found out first
        ("flown", False, 0, BeginStep(1)),  # a border: on to the next step
        ("flown", True, 0, Compensate("compensating", 1)),  # a border: the cancel is honoured, one step is done
        ("telling", False, 1, BeginStep(1)),  # bounds are per step: two here
        ("telling", True, 1, BeginStep(1)),
        ("telling", False, 2, LookUpStep(1)),
        ("told", False, 0, BeginStep(2)),
        ("told", True, 0, Compensate("compensating", 2)),
        ("sleeping", False, 0, BeginStep(2)),
        ("sleeping", True, 0, BeginStep(2)),  # the last step under way: cancelled when it is known
        ("sleeping", True, 3, LookUpStep(2)),
        ("sleeping", False, 8, Compensate("compensating", 3)),  # nobody can tell, but its undo is harmless
        ("compensating", False, 0, FinishUndone()),  # nothing is owed (any more): terminal, last
        ("compensating", True, 0, FinishUndone()),
        ("completed", False, 0, Done()),
        ("completed", True, 0, Done()),  # asked too late
        ("failed", False, 0, Done()),
        ("failed", True, 9, Done()),
        ("compensated", False, 0, Done()),
        ("compensated", True, 0, Done()),
    ],
)
def test_decide_per_state_cancel_and_attempts(state: str, cancel: bool, attempts: int, decision: Decision) -> None:
    assert decide(execution(state, attempts=attempts, cancel=cancel), WORKFLOW) == decision


def test_decide_table_covers_every_state_of_the_type() -> None:
    marks: Any = test_decide_per_state_cancel_and_attempts.pytestmark  # type: ignore[attr-defined]
    assert {row[0] for row in marks[0].args[1]} == set(WORKFLOW.by_state)


@pytest.mark.parametrize("cancel", [False, True])
def test_decide_unknown_state_is_held_and_named(cancel: bool) -> None:
    held = decide(execution("teleporting", cancel=cancel), WORKFLOW)
    assert held == Hold("state 'teleporting' is not known to this worker (written by a newer one?)", "unknown_state")


def test_decide_unknown_type_is_held_and_named() -> None:
    held = decide(execution("created", kind="cruise", cancel=True), None)
    assert held == Hold("workflow type 'cruise' is not known to this worker", "unknown_type")


SHORT, LONG = Outage("air", 899.9, 7.0), Outage("air", 900.0, -1.0)


@pytest.mark.parametrize(
    ("state", "cancel", "attempts", "outage", "decision"),
    [
        ("created", False, 0, SHORT, Wait(7.0)),  # nobody is called
        ("created", False, 0, LONG, Wait(1.0)),  # nothing was taken from anybody: it waits for as long as it takes
        ("created", True, 0, LONG, Compensate("compensating", 0)),  # a cancel needs no provider
        ("flown", False, 0, SHORT, Wait(7.0)),
        ("flown", False, 0, LONG, Compensate("compensating", 1)),  # paid, and nobody can go on: undone
        ("flying", False, 1, LONG, Wait(1.0)),  # it may have happened, and its undo is not harmless
        ("flying", True, 1, LONG, Wait(1.0)),
        ("flying", False, 3, SHORT, Wait(7.0)),  # nor is it looked up meanwhile
        ("flying", False, 8, LONG, Wait(1.0)),  # nor given to a person: it is not the order's fault
        ("sleeping", False, 1, SHORT, Wait(7.0)),
        ("sleeping", False, 1, LONG, Compensate("compensating", 3)),  # harmless to undo, itself included
        ("sleeping", True, 1, SHORT, Compensate("compensating", 3)),  # a cancel does not wait for patience to end
        ("completed", False, 0, LONG, Done()),
        ("compensating", False, 0, LONG, FinishUndone()),  # nothing is owed: nobody has to be called
    ],
)
def test_decide_while_the_provider_is_down(
    state: str, cancel: bool, attempts: int, outage: Outage, decision: Decision
) -> None:
    assert decide(execution(state, attempts=attempts, cancel=cancel), WORKFLOW, outage=outage) == decision


def test_decide_undo_while_the_provider_is_down_waits_and_spends_nothing() -> None:
    assert decide_undo(WORKFLOW, [undo("fly", 1, attempts=99)], LONG) == Wait(1.0)
    assert decide_undo(WORKFLOW, [undo("fly", 1, wait=9)], SHORT) == Wait(9)


FIRST, LAST = undo("fly", 1), undo("sleep", 3)


@pytest.mark.parametrize(
    ("owed", "decision"),
    [
        ([], FinishUndone()),  # a cancel before anything was done
        ([undo("fly", 1, "succeeded"), undo("sleep", 3, "succeeded")], FinishUndone()),  # all undone
        ([FIRST, LAST], BeginUndo(LAST, 2)),  # the last step first
        ([LAST, FIRST], BeginUndo(LAST, 2)),  # however the rows come
        ([FIRST, undo("sleep", 3, "succeeded")], BeginUndo(FIRST, 0)),  # then the one before it
        ([FIRST, undo("sleep", 3, "running")], BeginUndo(undo("sleep", 3, "running"), 2)),  # its worker died
        ([FIRST, undo("sleep", 3, wait=7.5)], Wait(7.5)),  # an earlier undo never overtakes a waiting one
        ([FIRST, undo("sleep", 3, wait=-1)], BeginUndo(undo("sleep", 3, wait=-1), 2)),  # due
        ([FIRST, undo("sleep", 3, "held")], Hold("the undo of step 'sleep' is held", "undo_held")),  # nor a held one
        ([undo("fly", 1, attempts=3)], BeginUndo(undo("fly", 1, attempts=3), 0)),  # one attempt is left
        ([undo("fly", 1, attempts=4)], LookUpUndo(undo("fly", 1, attempts=4), 0)),  # spent
        ([undo("fly", 1, attempts=8)], LookUpUndo(undo("fly", 1, attempts=8), 0)),  # the last look-up
        (
            [undo("fly", 1, attempts=9)],  # all is spent: held, never dropped
            HoldUndo(undo("fly", 1, attempts=9), 0, "its attempts are spent, and nobody can tell what became of it"),
        ),
        ([undo("fly", 1, attempts=4, wait=2)], Wait(2)),  # spent, and the look-up waits its turn too
        ([undo("tell", 2)], Hold("no undo is defined for step 'tell'", "no_undo")),  # the definition lost its undo
        ([undo("swim", 4), FIRST], Hold("no undo is defined for step 'swim'", "no_undo")),  # or the whole step
        ([undo("tell", 2, "succeeded"), FIRST], BeginUndo(FIRST, 0)),  # what is done needs no definition
    ],
)
def test_decide_undo_goes_in_reverse_and_skips_nothing(owed: list[Compensation], decision: Decision) -> None:
    assert decide_undo(WORKFLOW, owed) == decision
    assert decide(execution("compensating"), WORKFLOW, owed) == decision


@pytest.mark.parametrize(
    ("index", "cancel", "decision"),
    [
        (0, False, Compensate("failed", 0)),  # the first step failed: nothing was done
        (0, True, Compensate("compensating", 0)),  # but a cancelled order ends compensated
        (1, False, Compensate("compensating", 1)),  # undo the one before it
        (1, True, Compensate("compensating", 1)),
        (2, False, Compensate("compensating", 2)),  # the failed step itself is not undone: it did not happen
        (2, True, Compensate("compensating", 2)),
    ],
)
def test_decide_after_failure_undoes_what_came_before(index: int, cancel: bool, decision: Decision) -> None:
    assert decide_after_failure(execution(cancel=cancel), index) == decision


@pytest.mark.parametrize(
    ("index", "decision"),
    [
        # It has an undo, but one that is not harmless where nothing happened (a refund): a person decides.
        (0, Hold("its attempts are spent", "no_trace")),
        # Nothing could be undone.
        (1, Hold("its attempts are spent", "no_trace")),
        # Harmless to undo where nothing happened: undone with the rest, itself included.
        (2, Compensate("compensating", 3)),
    ],
)
def test_decide_without_trace_undoes_only_what_is_harmless(index: int, decision: Decision) -> None:
    assert decide_without_trace(WORKFLOW, index, "its attempts are spent") == decision
