"""Takes claimed workflows as far as they go: to a terminal state, a wait, or a person.

Per workflow: decide, write (transaction one), call with no transaction open, write (transaction two),
decide again. Dying between any two of these leaves a row that the next claim continues: the step's state
says a call may be under way, the key says whether one was, and the fence refuses whoever comes late.

Known weakness: a worker whose database is away for longer than its lease has its rows taken over; the
answer it then holds is stored with the key where it still can be, and otherwise asked for again.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import structlog

from makegood import backoff
from makegood.engine.calls import look_up, make_call
from makegood.engine.decide import decide, decide_after_failure, decide_without_trace
from makegood.engine.definitions import COMPENSATED, COMPENSATING, COMPLETED, Call, Step, Workflow
from makegood.engine.model import (
    BeginStep,
    BeginUndo,
    Compensate,
    Decision,
    Done,
    Execution,
    FinishUndone,
    Hold,
    LookUpStep,
    LookUpUndo,
    Wait,
)
from makegood.engine.outcomes import Failed, Outcome, Success, Unknown, from_response, to_response
from makegood.engine.payload import request_hash
from makegood.engine.plan import forward_call, plan_compensations, undo_call
from makegood.engine.store import Store
from makegood.errors import TransientError

log = structlog.get_logger()

# Calls prepared beyond the bound, so that a slot that becomes free finds one ready.
PREPARED_SHARE = 0.5
# More rewrites than this of one workflow in one go means that we do not understand what happens to it.
TURNS_MAX = 1000


class Engine:
    """Drives many workflows at once, at most ``calls_at_once`` outside calls under way."""

    def __init__(
        self,
        store: Store,
        workflows: Mapping[str, Workflow],
        *,
        calls_at_once: int = 64,
        lease_seconds: float = 120.0,
        chance: random.Random | None = None,
    ) -> None:
        self._store = store
        self._workflows = workflows
        self._slots = asyncio.Semaphore(calls_at_once)
        self._prepared = asyncio.Semaphore(calls_at_once + max(1, int(calls_at_once * PREPARED_SHARE)))
        self._lease_seconds = lease_seconds
        self._chance = chance or random.Random()  # noqa: S311 - jitter, not a secret

    async def advance(self, executions: Iterable[Execution]) -> Counter[str]:
        """Drives each as far as it goes; returns how many ended how. One bad row never stops the others."""
        active = {execution.id: execution for execution in executions}
        renewing = asyncio.create_task(self._keep_leases(active))
        try:
            return Counter(await asyncio.gather(*(self._drive(x, active) for x in list(active.values()))))
        finally:
            renewing.cancel()

    async def _drive(self, execution: Execution, active: dict[uuid.UUID, Execution]) -> str:
        try:
            return await self._until_end(execution)
        except TransientError as error:
            log.warning("workflow.interrupted", entity_id=execution.entity_id, error=str(error))
            return "interrupted"
        except Exception as error:
            log.exception("workflow.poisoned", entity_id=execution.entity_id)
            return await self._park(execution, f"{type(error).__name__}: {error}")
        finally:
            active.pop(execution.id, None)

    async def _until_end(self, execution: Execution) -> str:
        workflow = self._workflows.get(execution.workflow_type)
        for _ in range(TURNS_MAX):
            decision = await self._decide(execution, workflow)
            after = await self._apply(decision, execution, workflow)
            if isinstance(after, str):
                return after
            execution = after
        return await self._park(execution, f"no end after {TURNS_MAX} turns")

    async def _decide(self, execution: Execution, workflow: Workflow | None) -> Decision:
        owed = await self._store.owed(execution) if execution.state == COMPENSATING else []
        return decide(execution, workflow, owed)

    async def _apply(self, decision: Decision, x: Execution, workflow: Workflow | None) -> Execution | str:
        match decision:
            case Done():
                return x.state
            case Hold(reason):
                return await self._park(x, reason)
            case Wait(seconds):
                return await self._pause("pause", x, {"wait_seconds": seconds}, "waiting")
        assert workflow is not None
        match decision:
            case BeginStep(index):
                return await self._run_step(x, workflow, index)
            case LookUpStep(index):
                return await self._look_up_step(x, workflow, index, "its attempts are spent")
            case Compensate():
                return await self._compensate(x, workflow, decision, {})
            case BeginUndo() | LookUpUndo():
                return await self._run_undo(x, workflow, decision)
            case FinishUndone():
                return await self._finish_undone(x)
        raise AssertionError(decision)

    # Forward

    async def _run_step(self, x: Execution, workflow: Workflow, index: int) -> Execution | str:
        step = workflow.steps[index]
        call = forward_call(x, step)
        request = step.action.request(call)
        item = {
            "id": str(x.id),
            "fence": x.fence,
            "from_state": x.state,
            "to_state": step.doing,
            "step": step.name,
            "key": call.key,
            "operation": f"{workflow.name}.{step.name}",
            "request_hash": request_hash(request),
        }
        async with self._prepared:
            row = await self._store.write("begin", item)
            verdict = row.get("verdict", "lost")
            outcome: Outcome | None = None
            if verdict == "go":
                async with self._slots:
                    outcome = await make_call(step.action, call, request)
        x = x if verdict in {"lost", "cancel"} else x.begun(step.doing)
        match verdict:
            case "go" | "known":
                found = outcome or from_response(row["response"])
                return await self._record_step(x, workflow, index, found, row.get("attempt"))
            case "expired":
                return await self._look_up_step(x, workflow, index, "the provider may have forgotten its key")
            case "conflict":
                return await self._park(x, f"key {call.key} was already used with other parameters")
        return await self._reread(x)

    async def _record_step(
        self, x: Execution, workflow: Workflow, index: int, outcome: Outcome, attempt: int | None
    ) -> Execution | str:
        step = workflow.steps[index]
        item: dict[str, Any] = {"step": step.name, "attempt": attempt, "key": forward_call(x, step).key}
        match outcome:
            case Success():
                return await self._finish_step(x, workflow, index, outcome, item)
            case Failed(error_type, error):
                item |= {
                    "outcome": "failed",
                    "error_type": error_type,
                    "error": error,
                    "response": to_response(outcome),
                }
                item["metadata"] = {"failed_step": step.name, "error_type": error_type, "error": error[:1000]}
                return await self._compensate(x, workflow, decide_after_failure(x, index), item)
            case Unknown(error_type, error, retry_after_seconds):
                wait = max(retry_after_seconds, backoff.FORWARD.wait_seconds(max(x.attempts, 1), self._chance))
                item |= {"outcome": "unknown", "error_type": error_type, "error": error, "wait_seconds": wait}
                return await self._pause("pause", x, item, "waiting")
        reason = f"step {step.name!r} answered with something else than was asked: {outcome.error}"
        item |= {
            "outcome": "unknown",
            "error_type": outcome.error_type,
            "error": outcome.error,
            "hold_reason": reason,
        }
        return await self._pause("pause", x, item, "held")

    async def _finish_step(
        self, x: Execution, workflow: Workflow, index: int, outcome: Success, item: dict[str, Any]
    ) -> Execution | str:
        step = workflow.steps[index]
        to_state = workflow.done_state(index)
        patch = {step.name: dict(outcome.result)} if outcome.result else None
        item |= {
            "id": str(x.id),
            "fence": x.fence,
            "from_state": x.state,
            "to_state": to_state,
            "outcome": "success",
            "response": to_response(outcome),
            "patch": patch,
        }
        if to_state == COMPLETED:
            item["outbox"] = [
                {"topic": topic, "key": f"{topic}-{x.entity_id}", "payload": _message(x)}
                for topic in workflow.topics_on_completed
            ]
        row = await self._store.write("finish", item)
        match row.get("verdict", "lost"):
            case "moved":
                return x.moved(to_state, patch)
            case "cancel":
                # Asked to be undone while the last step was under way: that step is done, and undone with the rest.
                return await self._compensate(
                    x.with_result(patch), workflow, Compensate(COMPENSATING, index + 1), {"patch": patch}
                )
        return await self._reread(x)

    async def _look_up_step(self, x: Execution, workflow: Workflow, index: int, why: str) -> Execution | str:
        step = workflow.steps[index]
        async with self._slots:
            outcome = await look_up(step.action, forward_call(x, step))
        if outcome is None:
            decision = decide_without_trace(workflow, index, why)
            return await self._apply(decision, x, workflow)
        return await self._record_step(x, workflow, index, outcome, None)

    # Backward

    async def _compensate(
        self, x: Execution, workflow: Workflow, decision: Compensate, item: dict[str, Any]
    ) -> Execution | str:
        plan = plan_compensations(x, workflow, decision.done_count) if decision.to_state == COMPENSATING else []
        item = {
            **item,
            "id": str(x.id),
            "fence": x.fence,
            "from_state": x.state,
            "to_state": decision.to_state,
            "plan": plan,
        }
        row = await self._store.write("compensate", item)
        return x.moved(decision.to_state) if row.get("verdict") == "moved" else await self._reread(x)

    async def _run_undo(self, x: Execution, workflow: Workflow, decision: BeginUndo | LookUpUndo) -> Execution | str:
        step = workflow.steps[decision.index]
        assert step.undo is not None
        call = undo_call(x, step)
        if isinstance(decision, LookUpUndo):
            return await self._look_up_undo(x, step, call, decision.compensation.attempts, "its attempts are spent")
        request = step.undo.request(call)
        item = self._undo_item(x, step, call) | {
            "operation": f"{workflow.name}.{step.undo_name}",
            "request_hash": request_hash(request),
        }
        async with self._prepared:
            row = await self._store.write("begin_undo", item)
            verdict = row.get("verdict", "lost")
            outcome: Outcome | None = None
            if verdict == "go":
                async with self._slots:
                    outcome = await make_call(step.undo, call, request)
        attempts = decision.compensation.attempts + 1
        match verdict:
            case "go" | "known":
                found = outcome or from_response(row["response"])
                return await self._record_undo(x, step, call, found, row.get("attempt"), attempts)
            case "expired":
                return await self._look_up_undo(x, step, call, attempts, "the provider may have forgotten its key")
            case "conflict":
                reason = f"key {call.key} was already used with other parameters"
                return await self._hold_undo(x, step, call, Failed("key_conflict", reason), None)
        return await self._reread(x)

    async def _look_up_undo(self, x: Execution, step: Step, call: Call, attempts: int, why: str) -> Execution | str:
        assert step.undo is not None
        async with self._slots:
            outcome = await look_up(step.undo, call)
        if outcome is None:
            reason = f"{why}, and a look-up found no trace of the undo of step {step.name!r}"
            return await self._hold_undo(x, step, call, Unknown("no_trace", reason), None)
        return await self._record_undo(x, step, call, outcome, None, attempts)

    async def _record_undo(
        self, x: Execution, step: Step, call: Call, outcome: Outcome, attempt: int | None, attempts: int
    ) -> Execution | str:
        if isinstance(outcome, Success):
            item = self._undo_item(x, step, call) | {
                "attempt": attempt,
                "outcome": "success",
                "response": to_response(outcome),
            }
            row = await self._store.write("finish_undo", item)
            return x if row.get("verdict") == "moved" else await self._reread(x)
        if isinstance(outcome, Unknown):
            wait = max(outcome.retry_after_seconds, backoff.UNDO.wait_seconds(attempts, self._chance))
            item = self._undo_item(x, step, call) | {
                "attempt": attempt,
                "outcome": "unknown",
                "error_type": outcome.error_type,
                "error": outcome.error,
                "wait_seconds": wait,
            }
            return await self._pause("pause_undo", x, item, "waiting")
        return await self._hold_undo(x, step, call, outcome, attempt)

    async def _hold_undo(
        self, x: Execution, step: Step, call: Call, outcome: Outcome, attempt: int | None
    ) -> Execution | str:
        """A provider that refuses an undo will refuse it again: never dropped, never a false terminal, but held."""
        assert not isinstance(outcome, Success)
        item = self._undo_item(x, step, call) | {
            "attempt": attempt,
            "outcome": "failed" if isinstance(outcome, Failed) else "unknown",
            "error_type": outcome.error_type,
            "error": outcome.error,
            "hold_reason": f"the undo of step {step.name!r} did not succeed: {outcome.error}",
        }
        return await self._pause("pause_undo", x, item, "held")

    async def _finish_undone(self, x: Execution) -> Execution | str:
        item = {"id": str(x.id), "fence": x.fence, "from_state": x.state, "to_state": COMPENSATED}
        row = await self._store.write("move", item)
        return x.moved(COMPENSATED) if row else await self._reread(x)

    # Either way

    async def _pause(self, operation: str, x: Execution, item: Mapping[str, Any], end: str) -> Execution | str:
        row = await self._store.write(operation, {**item, "id": str(x.id), "fence": x.fence})
        return end if row.get("verdict") == "moved" else await self._reread(x)

    async def _park(self, x: Execution, reason: str) -> str:
        text = reason.encode("utf-8", "replace").decode().replace("\0", "�")
        row = await self._store.write("pause", {"id": str(x.id), "fence": x.fence, "hold_reason": text})
        return "held" if row.get("verdict") == "moved" else "lost"

    async def _reread(self, x: Execution) -> Execution | str:
        """Zero rows: somebody else won, or an acknowledgement was lost and it was we. The row tells."""
        fresh = await self._store.reread(x)
        if fresh is None:
            log.info("workflow.lost", entity_id=x.entity_id, state=x.state, fence=x.fence)
        return fresh or "lost"

    async def _keep_leases(self, active: Mapping[uuid.UUID, Execution]) -> None:
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            try:
                await self._store.renew(list(active.values()))
            except TransientError as error:
                log.warning("leases.not_renewed", error=str(error))

    @staticmethod
    def _undo_item(x: Execution, step: Step, call: Call) -> dict[str, Any]:
        return {
            "id": str(x.id),
            "fence": x.fence,
            "from_state": COMPENSATING,
            "to_state": COMPENSATING,
            "compensation_id": str(call.compensation_id),
            "step": step.name,
            "key": call.key,
        }


def _message(x: Execution) -> dict[str, Any]:
    return {"entity_id": x.entity_id, "amount_minor": x.amount_minor, "currency": x.currency}
