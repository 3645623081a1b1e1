"""The way forward: a step begun, called, and its outcome recorded with the state it leads to."""

from __future__ import annotations

from typing import Any

from makegood import backoff
from makegood.engine.backward import Backward
from makegood.engine.decide import decide_after_failure, decide_without_trace
from makegood.engine.definitions import COMPENSATING, COMPLETED, Workflow
from makegood.engine.model import Compensate, Execution
from makegood.engine.outcomes import Failed, Outcome, Success, Unknown, to_response
from makegood.engine.payload import request_hash
from makegood.engine.plan import forward_call
from makegood.engine.turn import After, Turn


class Forward:
    """Steps of any workflow type."""

    def __init__(self, turn: Turn, backward: Backward) -> None:
        self._turn = turn
        self._backward = backward

    async def run(self, x: Execution, workflow: Workflow, index: int) -> After:
        """Begins the step, for the first time or again under its key, and records what came of it."""
        step = workflow.steps[index]
        call = forward_call(x, step)
        request = step.action.request(call)
        item = {
            **_guard(x, step.doing),
            "step": step.name,
            "key": call.key,
            "operation": f"{workflow.name}.{step.name}",
            "request_hash": request_hash(request),
        }
        verdict, attempt, outcome = await self._turn.begin("begin", item, step.action, call, request)
        match verdict:
            case "answered" if outcome is not None:
                return await self._record(x.begun(step.doing), workflow, index, outcome, attempt)
            case "expired":
                return await self.look_up(
                    x.begun(step.doing), workflow, index, "the provider may have forgotten its key"
                )
            case "conflict":
                return await self._turn.park(x, f"key {call.key} was already used with other parameters")
        return await self._turn.reread(x)  # lost, or asked to be cancelled

    async def look_up(self, x: Execution, workflow: Workflow, index: int, why: str) -> After:
        """Replaying is over: asks what became of the step."""
        step = workflow.steps[index]
        outcome = await self._turn.look_up(step.action, forward_call(x, step))
        if outcome is not None:
            return await self._record(x, workflow, index, outcome, None)
        decision = decide_without_trace(workflow, index, why)
        if isinstance(decision, Compensate):
            facts = {"metadata": {"failed_step": step.name, "error_type": "no_trace", "error": why}}
            return await self._backward.enter(x, workflow, decision, facts)
        return await self._turn.park(x, decision.reason)

    async def _record(
        self, x: Execution, workflow: Workflow, index: int, outcome: Outcome, attempt: int | None
    ) -> After:
        step = workflow.steps[index]
        item: dict[str, Any] = {"step": step.name, "attempt": attempt, "key": forward_call(x, step).key}
        if isinstance(outcome, Success):
            return await self._finish(x, workflow, index, outcome, item)
        item |= {"outcome": "unknown", "error_type": outcome.error_type, "error": outcome.error}
        if isinstance(outcome, Failed):
            facts = {"failed_step": step.name, "error_type": outcome.error_type, "error": outcome.error[:1000]}
            item |= {"outcome": "failed", "response": to_response(outcome), "metadata": facts}
            return await self._backward.enter(x, workflow, decide_after_failure(x, index), item)
        if isinstance(outcome, Unknown):
            wait_seconds = backoff.FORWARD.wait_seconds(max(x.attempts, 1), self._turn.chance)
            item["wait_seconds"] = max(outcome.retry_after_seconds, wait_seconds)
            return await self._turn.pause("pause", x, item, "waiting")
        item["hold_reason"] = f"step {step.name!r} answered with something else than was asked: {outcome.error}"
        return await self._turn.pause("pause", x, item, "held")

    async def _finish(
        self, x: Execution, workflow: Workflow, index: int, outcome: Success, item: dict[str, Any]
    ) -> After:
        to_state = workflow.done_state(index)
        patch = {workflow.steps[index].name: dict(outcome.result)} if outcome.result else None
        item |= {**_guard(x, to_state), "outcome": "success", "response": to_response(outcome), "patch": patch}
        if to_state == COMPLETED:
            item["outbox"] = [_message(x, topic) for topic in workflow.topics_on_completed]
        row = await self._turn.store.write("finish", item)
        match row.get("verdict"):
            case "moved":
                return x.moved(to_state, patch)
            case "cancel":
                # Asked to be undone while the last step was under way: it is done, and undone with the rest.
                undo_all = Compensate(COMPENSATING, index + 1)
                return await self._backward.enter(x.with_result(patch), workflow, undo_all, {"patch": patch})
        return await self._turn.reread(x)


def _guard(x: Execution, to_state: str) -> dict[str, Any]:
    return {"id": str(x.id), "fence": x.fence, "from_state": x.state, "to_state": to_state}


def _message(x: Execution, topic: str) -> dict[str, Any]:
    payload = {"entity_id": x.entity_id, "amount_minor": x.amount_minor, "currency": x.currency}
    return {"topic": topic, "key": f"{topic}-{x.workflow_type}-{x.entity_id}", "payload": payload}
