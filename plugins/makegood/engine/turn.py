"""What one turn of a workflow is made of, forward or back: begin, call, and the ways to stop."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import structlog

from makegood.backoff import Backoff
from makegood.engine import calls
from makegood.engine.breakers import Breakers
from makegood.engine.definitions import Action, Call, Request
from makegood.engine.model import Execution
from makegood.engine.outcomes import Outcome, Unknown
from makegood.engine.payload import clean
from makegood.engine.store import Store
from makegood.errors import MakegoodError

log = structlog.get_logger()

# Workflows on their way beyond the bound on calls, so that a slot that becomes free finds one ready.
PREPARED_SHARE = 0.5
REASON_LENGTH_MAX = 2000

After = Execution | str
"""What a turn leaves: the workflow to go on with, or the word for how it ended for now."""

Met = TypeVar("Met", Outcome, Outcome | None)


@dataclass(frozen=True, slots=True)
class Waits:
    """How long to wait before the next attempt, on either way."""

    forward: Backoff
    undo: Backoff


class Turn:
    """The store, the breakers, the bound on calls, and chance, shared by all workflows of one engine."""

    def __init__(
        self, store: Store, breakers: Breakers, calls_at_once: int, waits: Waits, chance: random.Random
    ) -> None:
        self.store = store
        self.breakers = breakers
        self._waits = waits
        self._chance = chance
        self._slots = asyncio.Semaphore(calls_at_once)
        # For steps that are plain functions. The event loop's own threads are few, and a step that waited for
        # one would use up its deadline before it began.
        self._threads = ThreadPoolExecutor(calls_at_once, thread_name_prefix="makegood-step")
        self._prepared = asyncio.Semaphore(calls_at_once + max(1, int(calls_at_once * PREPARED_SHARE)))

    @contextlib.asynccontextmanager
    async def admission(self, action: Action, x: Execution, call_seconds_max: float) -> AsyncIterator[bool]:
        """Held by a workflow while it makes calls, one after the other. False: whom it waited to call is down
        by now, so it is to be decided about again."""
        breaker = self.breakers.admission(action.provider, x.id, call_seconds_max)
        async with self._prepared, breaker as admitted:
            yield admitted

    async def call(self, action: Action, call: Call, request: Request) -> Outcome:
        async with self._slots:
            outcome = await calls.make_call(action, call, request, self._threads)
        return await self._note(action, call, outcome)

    async def look_up(self, action: Action, call: Call) -> Outcome | None:
        if action.look_up is None:
            return None
        async with self._slots:
            outcome = await calls.look_up(action, call)
        return await self._note(action, call, outcome)

    async def _note(self, action: Action, call: Call, outcome: Met) -> Met | Unknown:
        """For the breaker; a probe that met nobody is marked as one. That it cannot be noted now must not cost the
        answer, which is still to be written."""
        probed = self.breakers.is_probe(action.provider, call.workflow_id)
        try:
            await self.breakers.record(action.provider, call.workflow_id, outcome)
        except MakegoodError as error:
            log.warning("breaker.not_noted", provider=action.provider, error=str(error))
        if probed and isinstance(outcome, Unknown) and outcome.trouble != "request":
            return replace(outcome, probed=True)
        return outcome

    def pausing(self, outcome: Unknown, attempts: int, *, undo: bool, looked_up: bool) -> dict[str, Any]:
        """How long to wait after an outcome that is not known, and what it costs of the attempts."""
        waits = self._waits.undo if undo else self._waits.forward
        wait_seconds = waits.wait_seconds(max(attempts, 1), self._chance)
        spent = outcome.spent
        return {
            "outcome": "unknown",
            "error_type": outcome.error_type,
            "error": outcome.error,
            "wait_seconds": max(outcome.retry_after_seconds, wait_seconds),
            # A call was counted when it began; a look-up is counted now. What nobody served costs neither.
            "attempts_change": int(spent) if looked_up else int(spent) - 1,
        }

    async def pause(self, operation: str, x: Execution, item: Mapping[str, Any], end: str) -> After:
        """Gives the workflow back, to wait or to be held as the item says."""
        row = await self.store.write(operation, {**item, "id": str(x.id), "fence": x.fence})
        return end if row.get("verdict") == "moved" else await self.reread(x)

    async def park(self, x: Execution, reason: str, error_type: str) -> str:
        """Holds the workflow for a person, whatever bytes the reason has."""
        item = {
            "id": str(x.id),
            "fence": x.fence,
            "hold_reason": clean(reason, REASON_LENGTH_MAX),
            "error_type": error_type,
        }
        row = await self.store.write("pause", item)
        return "held" if row.get("verdict") == "moved" else "lost"

    async def reread(self, x: Execution) -> After:
        """Zero rows: somebody else won, or an acknowledgement was lost and it was we. The row tells."""
        fresh = await self.store.reread(x)
        if fresh is None:
            log.info("workflow.lost", entity_id=x.entity_id, state=x.state, fence=x.fence)
        return fresh or "lost"
