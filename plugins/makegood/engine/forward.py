"""The way forward: a step begun, called, and its outcome recorded with the state it leads to.

The end of one step and the beginning of the next are one transaction, so a workflow that meets no trouble
costs one write per step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog

from makegood.engine.backward import Backward
from makegood.engine.decide import decide_after_failure, decide_without_trace
from makegood.engine.definitions import COMPENSATING, COMPLETED, Call, Request, Workflow
from makegood.engine.model import Compensate, Execution
from makegood.engine.outcomes import Failed, Outcome, Success, Unknown, from_response, to_response
from makegood.engine.payload import request_hash
from makegood.engine.plan import forward_call
from makegood.engine.turn import After, Turn

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Prepared:
    """A step's call, worked out but not begun."""

    index: int
    call: Call
    request: Request

    def item(self, workflow: Workflow) -> dict[str, Any]:
        step = workflow.steps[self.index]
        return {
            "step": step.name,
            "key": self.call.key,
            "operation": f"{workflow.name}.{step.name}",
            "request_hash": request_hash(self.request),
        }


@dataclass(frozen=True, slots=True)
class Begun:
    """A step whose transaction one is committed; ``verdict`` says what to do now."""

    x: Execution
    prepared: Prepared
    verdict: str
    attempt: int | None
    response: dict[str, Any] | None


class Forward:
    """Steps of any workflow type."""

    def __init__(self, turn: Turn, backward: Backward) -> None:
        self._turn = turn
        self._backward = backward

    async def run(self, x: Execution, workflow: Workflow, index: int) -> After:
        """Takes the workflow from this step on, as long as each step leads straight to the next."""
        step = workflow.steps[index]
        async with self._turn.admission(step.action, x, step.timeout_seconds) as admitted:
            return await self._go_on(await self._begin(x, workflow, index), workflow) if admitted else x

    async def look_up(self, x: Execution, workflow: Workflow, index: int, why: str) -> After:
        """Replaying is over: asks what became of the step, and goes on from there."""
        step = workflow.steps[index]
        async with self._turn.admission(step.action, x, step.timeout_seconds) as admitted:
            return await self._go_on(await self._look_up(x, workflow, index, why), workflow) if admitted else x

    async def _go_on(self, step: Begun | After, workflow: Workflow) -> After:
        while isinstance(step, Begun):
            step = await self._carry_out(step, workflow)
        return step

    async def _look_up(self, x: Execution, workflow: Workflow, index: int, why: str) -> Begun | After:
        step = workflow.steps[index]
        call = forward_call(x, step)
        outcome = await self._turn.look_up(step.action, call)
        if outcome is not None:
            return await self._record(x, workflow, index, call.key, outcome, None, looked_up=True)
        why = f"{why}, and a look-up found no trace of step {step.name!r}"
        decision = decide_without_trace(workflow, index, why)
        if isinstance(decision, Compensate):
            facts = {"metadata": {"failed_step": step.name, "error_type": "no_trace", "error": why}}
            return await self._backward.enter(x, workflow, decision, facts)
        return await self._turn.park(x, decision.reason, decision.error_type)

    async def _begin(self, x: Execution, workflow: Workflow, index: int) -> Begun | After:
        prepared = _prepare(x, workflow, index)
        doing = workflow.steps[index].doing
        row = await self._turn.store.write("begin", {**_guard(x, doing), **prepared.item(workflow)})
        verdict = row.get("verdict", "lost")
        if verdict in {"lost", "cancel"}:
            return await self._turn.reread(x)
        return Begun(x.begun(doing), prepared, verdict, row["attempt"], row["response"])

    async def _carry_out(self, step: Begun, workflow: Workflow) -> Begun | After:
        x, index, call = step.x, step.prepared.index, step.prepared.call
        match step.verdict:
            case "go":
                outcome = await self._turn.call(workflow.steps[index].action, call, step.prepared.request)
                return await self._record(x, workflow, index, call.key, outcome, step.attempt)
            case "known" if step.response is not None:
                return await self._record(x, workflow, index, call.key, from_response(step.response), step.attempt)
            case "expired":
                return await self._look_up(x, workflow, index, "the provider may have forgotten its key")
        return await self._turn.park(x, f"key {call.key} was already used with other parameters", "key_conflict")

    async def _record(
        self,
        x: Execution,
        workflow: Workflow,
        index: int,
        key: str,
        outcome: Outcome,
        attempt: int | None,
        *,
        looked_up: bool = False,
    ) -> Begun | After:
        step = workflow.steps[index]
        item: dict[str, Any] = {"step": step.name, "attempt": attempt, "key": key}
        if isinstance(outcome, Success):
            return await self._finish(x, workflow, index, outcome, item)
        if isinstance(outcome, Unknown):
            item |= self._turn.pausing(outcome, x.attempts, undo=False, looked_up=looked_up)
            return await self._turn.pause("pause", x, item, "waiting")
        item |= {"outcome": "unknown", "error_type": outcome.error_type, "error": outcome.error}
        if isinstance(outcome, Failed):
            facts = {"failed_step": step.name, "error_type": outcome.error_type, "error": outcome.error[:1000]}
            item |= {"outcome": "failed", "response": to_response(outcome), "metadata": facts}
            return await self._backward.enter(x, workflow, decide_after_failure(x, index), item)
        item["hold_reason"] = f"step {step.name!r} answered with something else than was asked: {outcome.error}"
        return await self._turn.pause("pause", x, item, "held")

    async def _finish(
        self, x: Execution, workflow: Workflow, index: int, outcome: Success, item: dict[str, Any]
    ) -> Begun | After:
        done = workflow.done_state(index)
        patch = {workflow.steps[index].name: dict(outcome.result)} if outcome.result else None
        item |= {**_guard(x, done), "outcome": "success", "response": to_response(outcome), "patch": patch}
        after = x.moved(done, patch)
        following = self._prepare_following(after, workflow, index)
        if following is not None:
            item |= {"via": done, "to_state": workflow.steps[index + 1].doing, "next": following.item(workflow)}
        if done == COMPLETED:
            item["outbox"] = [_message(x, topic) for topic in workflow.topics_on_completed]
        row = await self._turn.store.write("finish", item)
        match row.get("verdict"):
            case "moved" if following is None:
                return after
            case "moved" if following is not None and row["next_verdict"] is not None:
                begun = after.begun(workflow.steps[index + 1].doing)
                return Begun(begun, following, row["next_verdict"], row["attempt"], row["response"])
            case "cancel":
                # Asked to be undone while the last step was under way: it is done, and undone with the rest.
                undo_all = Compensate(COMPENSATING, index + 1)
                kept = {name: item[name] for name in ("patch", "key", "response")}
                return await self._backward.enter(x.with_result(patch), workflow, undo_all, kept)
        return await self._turn.reread(x)  # lost, or stopped at the border by a cancel request

    def _prepare_following(self, x: Execution, workflow: Workflow, index: int) -> Prepared | None:
        """The next step's call; None where it is the next turn's matter: it is the end, its provider is down, or
        it cannot be worked out."""
        if index + 1 == len(workflow.steps):
            return None
        if self._turn.breakers.known_outage(workflow.steps[index + 1].action.provider):
            return None
        try:
            return _prepare(x, workflow, index + 1)
        except Exception:
            log.exception("step.not_prepared", entity_id=x.entity_id, step=workflow.steps[index + 1].name)
            return None


def _prepare(x: Execution, workflow: Workflow, index: int) -> Prepared:
    step = workflow.steps[index]
    call = forward_call(x, step)
    return Prepared(index, call, step.action.request(call))


def _guard(x: Execution, to_state: str) -> dict[str, Any]:
    return {"id": str(x.id), "fence": x.fence, "from_state": x.state, "to_state": to_state}


def _message(x: Execution, topic: str) -> dict[str, Any]:
    payload = {"entity_id": x.entity_id, "amount_minor": x.amount_minor, "currency": x.currency}
    return {"topic": topic, "key": f"{topic}-{x.workflow_type}-{x.entity_id}", "payload": payload}
