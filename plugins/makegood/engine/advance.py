"""Takes claimed workflows as far as they go: to a terminal state, a wait, or a person.

Per workflow: decide, write (transaction one), call with no transaction open, write (transaction two),
decide again. Dying between any two of these leaves a row that the next claim continues: the step's state
says that a call may be under way, the key says whether one was, and the fence refuses whoever comes late.

Known weakness: a worker whose database is away for longer than its lease has its rows taken over; the
answer it then holds is stored with the key where it still can be, and otherwise asked for again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping

import structlog

from makegood.engine.backward import Backward
from makegood.engine.breakers import Breakers
from makegood.engine.decide import decide, find_provider
from makegood.engine.definitions import COMPENSATING, Workflow
from makegood.engine.forward import Forward
from makegood.engine.model import (
    BeginStep,
    BeginUndo,
    Compensate,
    Decision,
    Done,
    Execution,
    FinishUndone,
    Hold,
    HoldUndo,
    LookUpStep,
    LookUpUndo,
    Wait,
)
from makegood.engine.store import Store
from makegood.engine.turn import After, Turn, Waits
from makegood.errors import ConfigurationError, TransientError

log = structlog.get_logger()

# More turns than this of one workflow in one go means that we do not understand what happens to it.
TURNS_MAX = 1000


class Engine:
    """Drives many workflows at once, at most ``calls_at_once`` outside calls under way."""

    def __init__(
        self,
        store: Store,
        breakers: Breakers,
        workflows: Mapping[str, Workflow],
        *,
        calls_at_once: int,
        lease_seconds: float,
        waits: Waits,
        chance: random.Random | None = None,
    ) -> None:
        self._store = store
        self._breakers = breakers
        self._workflows = workflows
        self._lease_seconds = lease_seconds
        chance = chance or random.Random()  # noqa: S311 - jitter, not a secret
        self._turn = Turn(store, breakers, calls_at_once, waits, chance)
        self._backward = Backward(self._turn)
        self._forward = Forward(self._turn, self._backward)

    async def advance(self, executions: Iterable[Execution]) -> Counter[str]:
        """Drives each as far as it goes; returns how many ended how. One bad row never stops the others.

        A ConfigurationError is no row's fault (a database that was not migrated, a missing grant): nothing is
        parked for it, the leases run out, and the caller is told.
        """
        active = {execution.id: execution for execution in executions}
        with contextlib.suppress(TransientError):  # each row finds out for itself
            await self._breakers.look()
        renewing = asyncio.create_task(self._keep_leases(active))
        try:
            drives = (self._drive(x, active) for x in list(active.values()))
            ends = await asyncio.gather(*drives, return_exceptions=True)
        finally:
            renewing.cancel()
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        return Counter(str(end) for end in ends)

    async def park(self, x: Execution, reason: str, error_type: str) -> str:
        """Holds a workflow under our lease for a person, with its dead letter; ``lost`` when it is no longer ours."""
        try:
            return await self._turn.park(x, reason, error_type)
        except TransientError:
            return "interrupted"

    async def _drive(self, x: Execution, active: dict[uuid.UUID, Execution]) -> str:
        try:
            return await self._until_end(x)
        except TransientError as error:
            log.warning("workflow.interrupted", entity_id=x.entity_id, error=str(error))
            return "interrupted"
        except ConfigurationError:
            raise
        except Exception as error:
            log.exception("workflow.poisoned", entity_id=x.entity_id)
            return await self.park(x, f"{type(error).__name__}: {error}", "poisoned")
        finally:
            active.pop(x.id, None)

    async def _until_end(self, x: Execution) -> str:
        workflow = self._workflows.get(x.workflow_type)
        for _ in range(TURNS_MAX):
            owed = await self._store.owed(x) if x.state == COMPENSATING else []
            outage = await self._breakers.ask(find_provider(x, workflow, owed))
            after = await self._apply(decide(x, workflow, owed, outage), x, workflow)
            if isinstance(after, str):
                return after
            x = after
        return await self.park(x, f"no end after {TURNS_MAX} turns", "no_end")

    async def _apply(self, decision: Decision, x: Execution, workflow: Workflow | None) -> After:
        match decision:
            case Done():
                return x.state
            case Hold(reason, error_type):
                return await self._turn.park(x, reason, error_type)
            case Wait(seconds):
                return await self._turn.pause("pause", x, {"wait_seconds": seconds}, "waiting")
            case FinishUndone():
                return await self._backward.finish(x)
        assert workflow is not None  # decide() holds a workflow of unknown type
        return await self._move(decision, x, workflow)

    async def _move(self, decision: Decision, x: Execution, workflow: Workflow) -> After:
        match decision:
            case BeginStep(index):
                return await self._forward.run(x, workflow, index)
            case LookUpStep(index):
                return await self._forward.look_up(x, workflow, index, "its attempts are spent")
            case Compensate(why=why):
                return await self._backward.enter(x, workflow, decision, {"metadata": {"reason": why}} if why else {})
            case BeginUndo():
                return await self._backward.run(x, workflow, decision)
            case LookUpUndo():
                return await self._backward.look_up(x, workflow, decision)
            case HoldUndo():
                return await self._backward.hold(x, workflow, decision)
        raise AssertionError(decision)

    async def _keep_leases(self, active: Mapping[uuid.UUID, Execution]) -> None:
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            try:
                await self._store.renew(list(active.values()))
            except TransientError as error:
                log.warning("leases.not_renewed", error=str(error))
