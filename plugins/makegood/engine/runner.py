"""The engine put together for one process: database, store, workflow types; start, run once, cancel."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import structlog

from makegood.backoff import Backoff
from makegood.database import Database
from makegood.engine.advance import Engine
from makegood.engine.breakers import Breakers, Limits
from makegood.engine.definitions import ENTITY_ID_LENGTH_MAX, Workflow
from makegood.engine.model import Execution
from makegood.engine.payload import check_payload
from makegood.engine.store import Store, Terms, Wanted
from makegood.engine.turn import Waits
from makegood.errors import AlreadyStarted, InputError, TransientError, UnknownWorkflowType
from makegood.money import check_money
from makegood.settings import Settings

log = structlog.get_logger()

POLL_SECONDS = 0.2  # how long a new order may wait for an idle worker


@dataclass(frozen=True)
class Start:
    """One workflow to be started; the same again is the same workflow."""

    workflow_type: str
    entity_id: str
    context: Mapping[str, Any]
    amount_minor: int | None = None
    currency: str | None = None
    traceparent: str | None = None


class Runner:
    """What a worker, a command or a scheduled job holds while it works."""

    def __init__(
        self,
        database: Database,
        store: Store,
        breakers: Breakers,
        engine: Engine,
        workflows: Mapping[str, Workflow],
        settings: Settings,
    ) -> None:
        self.database = database
        self.store = store
        self.breakers = breakers
        self.engine = engine
        self.workflows = workflows
        self.settings = settings

    async def register(self) -> None:
        """Makes every known type known to the database too."""
        for workflow in self.workflows.values():
            await self.database.call(
                "SELECT makegood.register_workflow(%s::jsonb)", (json.dumps(workflow.to_document()),)
            )

    async def start(self, starts: Sequence[Start], *, triggered_by: str, worker: str | None = None) -> list[Execution]:
        """Starts those that are new, leased to ``worker`` if given, and returns the new ones.

        Bad input is refused before anything is written. Other parameters for an entity that was started before
        raise AlreadyStarted; what was new beside it is started all the same, and due for any worker.
        """
        for start in starts:
            self._check(start)
        by_entity = _once_each(starts)
        items = json.dumps([_item(start) for start in by_entity.values()], allow_nan=False)
        rows = await self.database.call(
            "SELECT * FROM makegood.start_workflows(%s, %s, %s, %s::jsonb)",
            (triggered_by, worker, self.settings.lease_seconds, items),
        )
        await self._refuse(rows)
        # Never re-read here: by now another worker may hold it, and its fence must not become ours.
        return [
            _started(row, by_entity[row["workflow_type"], row["entity_id"]])
            for row in rows
            if row["verdict"] == "started"
        ]

    async def _refuse(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Raises for a row that was not to be started; what was, is given back first, due for any worker."""
        for row in rows:
            if (error := _find_refusal(row)) is not None:
                new = [{"id": str(r["id"]), "fence": r["fence"]} for r in rows if r["verdict"] == "started"]
                await self.database.call("SELECT makegood.pause_workflows(%s::jsonb)", (json.dumps(new),))
                raise error

    async def run_once(self, wanted: Wanted | None = None, *, batch: int | None = None) -> Counter[str]:
        """Claims one batch of due workflows and drives them; an empty counter means that nothing was due.

        Types that are not known here are left to whoever knows them.
        """
        claimed = await self.store.claim(batch or self.settings.claim_batch, wanted or self.known())
        return await self.engine.advance(claimed) if claimed else Counter()

    def known(self, *, take_over_after_seconds: float = 0.0) -> Wanted:
        """Whatever is due of the types that this worker knows."""
        return Wanted(types=sorted(self.workflows), take_over_after_seconds=take_over_after_seconds)

    async def work(
        self,
        stop: asyncio.Event,
        tell: Callable[[Counter[str]], None] = lambda _: None,
        *,
        take_over_after_seconds: float = 0.0,
    ) -> None:
        """Takes what is due as it comes due, until told to stop; then ends what it has begun.

        One call that hangs holds up its own order only: the next claim does not wait for it. What a
        dead worker left is taken so long after its lease ran out: where recovery runs, it comes first.
        """
        active: dict[asyncio.Task[Counter[str]], int] = {}
        while not stop.is_set():
            room = self.settings.claim_batch - sum(active.values())
            claimed = await self._claim_if_room(room, self.known(take_over_after_seconds=take_over_after_seconds))
            if claimed:
                active[asyncio.create_task(self.engine.advance(claimed))] = len(claimed)
            done, _ = await asyncio.wait(active, timeout=0) if active else (set(), set())
            for task in done:
                del active[task]
                tell(task.result())
            if not claimed:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), POLL_SECONDS)
        for counts in await asyncio.gather(*active):
            tell(counts)

    async def _claim_if_room(self, room: int, wanted: Wanted) -> list[Execution]:
        if room <= 0:
            return []
        try:
            return await self.store.claim(room, wanted)
        except TransientError as error:
            log.warning("claim.failed", error=str(error))
            return []

    def _check(self, start: Start) -> None:
        if start.workflow_type not in self.workflows:
            known = ", ".join(sorted(self.workflows))
            raise UnknownWorkflowType(
                f"unknown workflow type {start.workflow_type!r}; known are: {known}",
                hint="Name the module that defines it in MAKEGOOD_WORKFLOWS.",
            )
        if not isinstance(start.entity_id, str):
            raise InputError(f"entity_id is a {type(start.entity_id).__name__}; it must be text")
        if not 1 <= len(start.entity_id) <= ENTITY_ID_LENGTH_MAX:
            raise InputError(
                f"entity_id has {len(start.entity_id)} characters; 1 to {ENTITY_ID_LENGTH_MAX} are allowed"
            )
        check_payload(start.entity_id, name="entity_id", bytes_max=4 * ENTITY_ID_LENGTH_MAX)
        check_money(start.amount_minor, start.currency)
        if not isinstance(start.context, Mapping):
            raise InputError(f"context is a {type(start.context).__name__}; it must be a mapping")
        check_payload(dict(start.context), name="context", bytes_max=self.settings.context_bytes_max)


@contextlib.asynccontextmanager
async def open_runner(
    url: str,
    workflows: Mapping[str, Workflow],
    settings: Settings,
    *,
    worker: str | None = None,
    chance: random.Random | None = None,
    connection_class: Any = psycopg.AsyncConnection,
    register: bool = True,
) -> AsyncIterator[Runner]:
    """A runner over ``url`` until the end of the block, its types registered."""
    terms = Terms(worker or name_worker(), settings.lease_seconds, settings.key_window_hours * 3600)
    async with (
        Database(url, connection_class=connection_class) as database,
        Store(database, terms) as store,
    ):
        breakers = Breakers(database, terms.worker, limits_of(settings))
        engine = Engine(
            store,
            breakers,
            workflows,
            calls_at_once=settings.calls_at_once,
            lease_seconds=settings.lease_seconds,
            waits=waits_of(settings),
            chance=chance,
        )
        runner = Runner(database, store, breakers, engine, workflows, settings)
        if register:
            await runner.register()
        yield runner


def waits_of(settings: Settings) -> Waits:
    return Waits(
        forward=Backoff(settings.forward_wait_seconds, settings.forward_wait_seconds_max),
        undo=Backoff(settings.undo_wait_seconds, settings.undo_wait_seconds_max),
    )


def limits_of(settings: Settings) -> Limits:
    return Limits(settings.breaker_failures, settings.breaker_wait_seconds, settings.breaker_wait_seconds_max)


def name_worker() -> str:
    """Who holds a lease, for people: host and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _once_each(starts: Sequence[Start]) -> dict[tuple[str, str], Start]:
    """Refuses one entity twice with other parameters: the row would have the ones, the worker act on the others."""
    by_entity: dict[tuple[str, str], Start] = {}
    for start in starts:
        first = by_entity.setdefault((start.workflow_type, start.entity_id), start)
        if (first.context, first.amount_minor, first.currency) != (start.context, start.amount_minor, start.currency):
            raise AlreadyStarted(
                f"{start.entity_id} is in one batch twice as {start.workflow_type}, with other parameters"
            )
    return by_entity


def _item(start: Start) -> dict[str, Any]:
    return {
        "workflow_type": start.workflow_type,
        "entity_id": start.entity_id,
        "context": dict(start.context),
        "amount_minor": start.amount_minor,
        "currency": start.currency,
        "traceparent": start.traceparent,
    }


def _started(row: Mapping[str, Any], start: Start) -> Execution:
    return Execution(
        id=row["id"],
        workflow_type=start.workflow_type,
        entity_id=start.entity_id,
        state=row["current_state"],
        context=start.context,
        amount_minor=start.amount_minor,
        currency=start.currency,
        attempts=0,
        fence=row["fence"],
        cancel_requested=False,
        created_at=row["created_at"],
    )


def _find_refusal(row: Mapping[str, Any]) -> InputError | None:
    if row["verdict"] == "unknown_type":
        return UnknownWorkflowType(f"unknown workflow type {row['workflow_type']!r}", hint="Register it first.")
    if row["verdict"] == "conflict":
        return AlreadyStarted(f"{row['entity_id']} was already started as {row['workflow_type']} with other parameters")
    return None
