"""The way back: what is owed is written down first, then undone in reverse; the terminal state comes last.

An undo is never dropped and never a false success: it succeeds, waits for its next attempt, or is held
with its workflow, which stays ``compensating``.
"""

from __future__ import annotations

from typing import Any

from makegood.engine.definitions import COMPENSATED, COMPENSATING, Action, Call, Step, Workflow
from makegood.engine.model import BeginUndo, Compensate, Execution, HoldUndo, LookUpUndo
from makegood.engine.outcomes import Failed, Outcome, Success, Suspect, Unknown, from_response, to_response
from makegood.engine.payload import request_hash
from makegood.engine.plan import plan_compensations, undo_call
from makegood.engine.turn import After, Turn


class Backward:
    """Compensations of any workflow type."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    async def enter(self, x: Execution, workflow: Workflow, decision: Compensate, item: dict[str, Any]) -> After:
        """Ends the way forward, with every undo that is owed, in one transaction."""
        undone = decision.to_state == COMPENSATING
        item = {
            **item,
            "id": str(x.id),
            "fence": x.fence,
            "from_state": x.state,
            "to_state": decision.to_state,
            "plan": plan_compensations(x, workflow, decision.done_count) if undone else [],
        }
        row = await self._turn.store.write("compensate", item)
        return x.moved(decision.to_state) if row.get("verdict") == "moved" else await self._turn.reread(x)

    async def run(self, x: Execution, workflow: Workflow, decision: BeginUndo) -> After:
        """Begins one undo, for the first time or again under its key, and records what came of it."""
        step, undo = _undo(workflow, decision.index)
        call = undo_call(x, step)
        request = undo.request(call)
        item = _item(x, step, call) | {
            "operation": f"{workflow.name}.{step.undo_name}",
            "request_hash": request_hash(request),
        }
        attempts = decision.compensation.attempts + 1
        async with self._turn.admission(undo, x, step.timeout_seconds) as admitted:
            if not admitted:
                return x
            row = await self._turn.store.write("begin_undo", item)
            if row.get("verdict") == "go":
                outcome = await self._turn.call(undo, call, request)
                return await self._record(x, step, call, outcome, row["attempt"], attempts)
        match row.get("verdict"):
            case "known":
                return await self._record(x, step, call, from_response(row["response"]), None, attempts)
            case "expired":
                why = "the provider may have forgotten its key"
                return await self._look_up(x, step, call, attempts, why)
            case "conflict":
                used = Failed("key_conflict", f"key {call.key} was already used with other parameters")
                return await self._record(x, step, call, used, None, attempts)
        return await self._turn.reread(x)

    async def look_up(self, x: Execution, workflow: Workflow, decision: LookUpUndo) -> After:
        """Replaying is over: asks what became of the undo."""
        step, undo = _undo(workflow, decision.index)
        attempts = decision.compensation.attempts
        async with self._turn.admission(undo, x, step.timeout_seconds) as admitted:
            if not admitted:
                return x
            return await self._look_up(x, step, undo_call(x, step), attempts, "its attempts are spent")

    async def hold(self, x: Execution, workflow: Workflow, decision: HoldUndo) -> After:
        """Everything was tried: a person must look."""
        step, _ = _undo(workflow, decision.index)
        spent = Suspect("look_ups_spent", decision.reason)
        return await self._record(x, step, undo_call(x, step), spent, None, decision.compensation.attempts)

    async def finish(self, x: Execution) -> After:
        """Every undo is done: the terminal state, dead last. A guard in the database refuses it earlier."""
        item = {"id": str(x.id), "fence": x.fence, "from_state": x.state, "to_state": COMPENSATED}
        row = await self._turn.store.write("move", item)
        return x.moved(COMPENSATED) if row else await self._turn.reread(x)

    async def _look_up(self, x: Execution, step: Step, call: Call, attempts: int, why: str) -> After:
        assert step.undo is not None  # only steps with an undo are owed one
        outcome = await self._turn.look_up(step.undo, call)
        if outcome is None:
            outcome = Suspect("no_trace", f"{why}, and a look-up found no trace of it")
        return await self._record(x, step, call, outcome, None, attempts, looked_up=True)

    async def _record(
        self,
        x: Execution,
        step: Step,
        call: Call,
        outcome: Outcome,
        attempt: int | None,
        attempts: int,
        *,
        looked_up: bool = False,
    ) -> After:
        item = _item(x, step, call) | {"attempt": attempt}
        if isinstance(outcome, Success):
            item |= {"outcome": "success", "response": to_response(outcome)}
            row = await self._turn.store.write("finish_undo", item)
            return x if row.get("verdict") == "moved" else await self._turn.reread(x)
        if isinstance(outcome, Unknown):
            item |= self._turn.pausing(outcome, attempts, undo=True, looked_up=looked_up)
            return await self._turn.pause("pause_undo", x, item, "waiting")
        # A provider that refuses an undo will refuse it again; a person must look.
        item |= {"error_type": outcome.error_type, "error": outcome.error}
        item["outcome"] = "failed" if isinstance(outcome, Failed) else "unknown"
        item["hold_reason"] = f"the undo of step {step.name!r} did not succeed: {outcome.error}"
        return await self._turn.pause("pause_undo", x, item, "held")


def _undo(workflow: Workflow, index: int) -> tuple[Step, Action]:
    step = workflow.steps[index]
    assert step.undo is not None  # decide_undo() holds a step without an undo
    return step, step.undo


def _item(x: Execution, step: Step, call: Call) -> dict[str, Any]:
    return {
        "id": str(x.id),
        "fence": x.fence,
        "from_state": COMPENSATING,
        "to_state": COMPENSATING,
        "compensation_id": str(call.compensation_id),
        "step": step.name,
        "key": call.key,
    }
