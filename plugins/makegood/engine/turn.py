"""What one turn of a workflow is made of, forward or back: begin, call, and the ways to stop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog

from makegood.engine import calls
from makegood.engine.definitions import Action, Call, Request
from makegood.engine.model import Execution
from makegood.engine.outcomes import Outcome
from makegood.engine.payload import clean
from makegood.engine.store import Store

log = structlog.get_logger()

# Workflows on their way beyond the bound on calls, so that a slot that becomes free finds one ready.
PREPARED_SHARE = 0.5
REASON_LENGTH_MAX = 2000

After = Execution | str
"""What a turn leaves: the workflow to go on with, or the word for how it ended for now."""


class Turn:
    """The store, the bound on calls, and chance, shared by all workflows of one engine."""

    def __init__(self, store: Store, calls_at_once: int, chance: random.Random) -> None:
        self.store = store
        self.chance = chance
        self._slots = asyncio.Semaphore(calls_at_once)
        # For steps that are plain functions. The event loop's own threads are few, and a step that waited for
        # one would use up its deadline before it began.
        self._threads = ThreadPoolExecutor(calls_at_once, thread_name_prefix="makegood-step")
        self.prepared = asyncio.Semaphore(calls_at_once + max(1, int(calls_at_once * PREPARED_SHARE)))
        """Held by a workflow while it makes calls, one after the other."""

    async def call(self, action: Action, call: Call, request: Request) -> Outcome:
        async with self._slots:
            return await calls.make_call(action, call, request, self._threads)

    async def look_up(self, action: Action, call: Call) -> Outcome | None:
        async with self._slots:
            return await calls.look_up(action, call)

    async def pause(self, operation: str, x: Execution, item: Mapping[str, Any], end: str) -> After:
        """Gives the workflow back, to wait or to be held as the item says."""
        row = await self.store.write(operation, {**item, "id": str(x.id), "fence": x.fence})
        return end if row.get("verdict") == "moved" else await self.reread(x)

    async def park(self, x: Execution, reason: str) -> str:
        """Holds the workflow for a person, whatever bytes the reason has."""
        item = {"id": str(x.id), "fence": x.fence, "hold_reason": clean(reason, REASON_LENGTH_MAX)}
        row = await self.store.write("pause", item)
        return "held" if row.get("verdict") == "moved" else "lost"

    async def reread(self, x: Execution) -> After:
        """Zero rows: somebody else won, or an acknowledgement was lost and it was we. The row tells."""
        fresh = await self.store.reread(x)
        if fresh is None:
            log.info("workflow.lost", entity_id=x.entity_id, state=x.state, fence=x.fence)
        return fresh or "lost"
