"""The engine's writes, many workflows to a statement.

Each coroutine asks for its own write and waits; whatever has gathered while the last statement was under
way leaves as the next one. So a single order is written at once, and ten thousand cost few commits.
One refused item does not take the others down: the statement is repeated one by one.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from makegood.database import Database, Row
from makegood.engine.model import Compensation, Execution
from makegood.errors import DatabaseUnavailable

Item = Mapping[str, Any]
# Only what an Execution has: the other columns would be sent and read for nothing.
CLAIM = (
    "SELECT id, workflow_type, entity_id, current_state, context, amount_minor, currency, attempts, fence,"
    " cancel_requested, created_at FROM makegood.claim_workflows(%s, %s, %s, %s, %s, %s, %s, %s, %s)"
)
# The two that every step needs: the id as text, as it was sent, spares a UUID per row.
BEGIN = "SELECT id::text, verdict, attempt, response FROM makegood.begin_steps(%s, %s, %s, %s::jsonb)"
FINISH = "SELECT id::text, verdict, next_verdict, attempt, response FROM makegood.finish_steps(%s, %s, %s, %s::jsonb)"
ITEMS_MAX = 500  # per statement: past this a larger one is no faster and holds its locks longer
# Made once, and without looking for circles: what comes from outside was checked for its depth.
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


@dataclass(frozen=True, slots=True)
class Terms:
    """What every write of one worker has in common."""

    worker: str
    lease_seconds: float
    key_window_seconds: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which due workflows a worker asks for; None is any."""

    types: Sequence[str] | None = None
    states: Sequence[str] | None = None
    ids: Sequence[uuid.UUID] | None = None
    stuck_only: bool = False
    """Only those past their step's deadline."""
    older_than_seconds: float | None = None
    """Only those without progress for at least so long."""
    take_over_after_seconds: float = 0.0
    """What a dead worker left is taken so long after its lease ran out."""


ANY_DUE = Wanted()


class Store:
    """Group commit over ``writers`` connections: one works in the server while the next is prepared."""

    def __init__(self, database: Database, terms: Terms, *, writers: int = 2) -> None:
        self._database = database
        self._terms = terms
        self._waiting: dict[str, list[tuple[Item, asyncio.Future[Row]]]] = defaultdict(list)
        self._wake = asyncio.Event()
        self._writers = writers
        self._tasks: list[asyncio.Task[None]] = []
        worker, lease, window = terms.worker, terms.lease_seconds, terms.key_window_seconds
        self._statements: dict[str, tuple[str, tuple[Any, ...]]] = {
            "begin": (BEGIN, (worker, lease, window)),
            "finish": (FINISH, (worker, lease, window)),
            "pause": ("SELECT * FROM makegood.pause_steps(%s::jsonb)", ()),
            "compensate": ("SELECT * FROM makegood.compensate_workflows(%s, %s::jsonb)", (worker,)),
            "begin_undo": (
                "SELECT * FROM makegood.begin_compensations(%s, %s, %s, %s::jsonb)",
                (worker, lease, window),
            ),
            "finish_undo": ("SELECT * FROM makegood.finish_compensations(%s, %s::jsonb)", (worker,)),
            "pause_undo": ("SELECT * FROM makegood.pause_compensations(%s::jsonb)", ()),
            "move": ("SELECT id FROM makegood.move_workflows(%s, false, 0, %s::jsonb)", (worker,)),
            "reread": ("SELECT * FROM makegood.reread_workflows(%s::jsonb)", ()),
            "owed": ("SELECT * FROM makegood.owed_compensations(%s::jsonb)", ()),
        }

    async def __aenter__(self) -> Store:
        self._tasks = [asyncio.create_task(self._write_forever()) for _ in range(self._writers)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def claim(self, batch: int, wanted: Wanted = ANY_DUE, *, dry_run: bool = False) -> list[Execution]:
        """Leases up to ``batch`` due workflows to this worker, oldest first; a dry run only sees which."""
        parameters = (
            self._terms.worker,
            self._terms.lease_seconds,
            batch,
            _list(wanted.types),
            wanted.stuck_only,
            _list(wanted.ids),
            _list(wanted.states),
            wanted.older_than_seconds,
            wanted.take_over_after_seconds,
        )
        rows = await (self._database.preview if dry_run else self._database.call)(CLAIM, parameters)
        return [to_execution(row) for row in rows]

    async def renew(self, executions: Sequence[Execution]) -> None:
        items = json.dumps([{"id": str(e.id), "fence": e.fence} for e in executions])
        await self._database.call(
            "SELECT count(*) FROM makegood.renew_leases(%s, %s::jsonb)", (self._terms.lease_seconds, items)
        )

    async def reread(self, execution: Execution) -> Execution | None:
        """The row as it is now, or None when it is no longer ours."""
        row = await self.write("reread", {"id": str(execution.id), "fence": execution.fence})
        return to_execution(row) if "entity_id" in row else None

    async def owed(self, execution: Execution) -> list[Compensation]:
        row = await self.write("owed", {"id": str(execution.id)})
        return [
            Compensation(uuid.UUID(c["id"]), c["step"], c["position"], c["state"], c["attempts"], c["wait_seconds"])
            for c in row.get("compensations") or []
        ]

    async def write(self, operation: str, item: Item) -> Row:
        """Its row of the answer; an empty one where the statement did not return it (somebody else won)."""
        future: asyncio.Future[Row] = asyncio.get_running_loop().create_future()
        self._waiting[operation].append((item, future))
        self._wake.set()
        return await future

    async def _write_forever(self) -> None:
        while True:
            await self._wake.wait()
            operation = max(self._waiting, key=lambda name: len(self._waiting[name]), default=None)
            if operation is None or not self._waiting[operation]:
                self._wake.clear()
                continue
            entries, self._waiting[operation] = (
                self._waiting[operation][:ITEMS_MAX],
                self._waiting[operation][ITEMS_MAX:],
            )
            await self._write(operation, entries)

    async def _write(self, operation: str, entries: list[tuple[Item, asyncio.Future[Row]]]) -> None:
        statement, common = self._statements[operation]
        try:
            items = _encode([item for item, _ in entries])
            rows = await self._database.call(statement, (*common, items))
        except Exception as error:  # whoever asked is told; the writer itself goes on
            await self._apart(operation, entries, error)
            return
        answers = {str(row["id"]): row for row in rows}
        for item, future in entries:
            if not future.done():
                future.set_result(answers.get(item["id"], {}))

    async def _apart(self, operation: str, entries: list[tuple[Item, asyncio.Future[Row]]], error: Exception) -> None:
        if len(entries) == 1 or isinstance(error, DatabaseUnavailable):
            for _, future in entries:
                if not future.done():
                    future.set_exception(error)
            return
        for entry in entries:
            await self._write(operation, [entry])


def to_execution(row: Row) -> Execution:
    return Execution(
        id=row["id"],
        workflow_type=row["workflow_type"],
        entity_id=row["entity_id"],
        state=row["current_state"],
        context=row["context"],
        amount_minor=row["amount_minor"],
        currency=row["currency"],
        attempts=row["attempts"],
        fence=row["fence"],
        cancel_requested=row["cancel_requested"],
        created_at=row["created_at"],
    )


def _list(values: Sequence[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)
