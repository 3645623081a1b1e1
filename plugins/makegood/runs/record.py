"""One row per run of a scheduled job, with its counts: however often its begin, a part or its end is repeated.

A run that dies without a word is called abandoned by the next one that begins.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from makegood.database import Database
from makegood.errors import MakegoodError
from makegood.runs.model import Decided

ROLL_BATCH = 10_000  # ends counted in one transaction: about a second's work
ROLL_BATCHES_MAX = 20  # of one run; a house that comes from an older version catches up in a few


async def begin_run(
    database: Database, job: str, key: str, triggered_by: str, parameters: Mapping[str, Any], seconds_max: float
) -> uuid.UUID:
    """The run under this key, opened if it is new."""
    rows = await database.call(
        "SELECT makegood.begin_run(%s, %s, %s, %s::jsonb, %s) AS id",
        (job, key[:300], triggered_by[:200], json.dumps(dict(parameters)), seconds_max),
    )
    return uuid.UUID(str(rows[0]["id"]))


async def count_part(database: Database, run_id: uuid.UUID, part: str, counts: Mapping[str, int]) -> None:
    """What one part of the run has done so far; the same part again replaces what it said before."""
    await database.call("SELECT makegood.count_part(%s, %s, %s::jsonb)", (run_id, part, json.dumps(dict(counts))))


async def expect_batches(database: Database, run_id: uuid.UUID, names: Sequence[str]) -> None:
    """The batches the run is to come to: one that is never heard of has not ended well."""
    await database.call("SELECT makegood.expect_batches(%s, %s)", (run_id, list(names)))


@contextlib.asynccontextmanager
async def batch(database: Database, run_id: uuid.UUID, name: str) -> AsyncIterator[None]:
    """While the block lasts the batch is running; then it is done, or failed. What the last try says counts, and one
    that is killed says nothing more: it did not come to its end."""
    await _mark_batch(database, run_id, name, "running")
    try:
        yield
    except Exception:
        with contextlib.suppress(MakegoodError):
            await _mark_batch(database, run_id, name, "failed")
        raise
    await _mark_batch(database, run_id, name, "done")


async def _mark_batch(database: Database, run_id: uuid.UUID, name: str, state: str) -> None:
    await database.call("SELECT makegood.mark_batch(%s, %s, %s)", (run_id, name, state))


async def record_decisions(database: Database, run_id: uuid.UUID, decided: Sequence[Decided]) -> None:
    items = [_item(one) for one in decided]
    if items:
        await database.call("SELECT makegood.record_decisions(%s, %s::jsonb)", (run_id, json.dumps(items)))


def _item(one: Decided) -> dict[str, str]:
    """By hand: asdict() copies deeply, and there is one per workflow."""
    return {
        "id": str(one.id),
        "entity_id": one.entity_id,
        "state": one.state,
        "decision": one.decision,
        "reason": one.reason,
    }


async def finish_run(database: Database, run_id: uuid.UUID, error: str | None = None) -> dict[str, int]:
    """The end of the run; returns its counts, the sum of its parts."""
    rows = await database.call("SELECT makegood.finish_run(%s, %s) AS counts", (run_id, error))
    return dict(rows[0]["counts"] or {})


async def tidy(database: Database, keep_days: int) -> None:
    """Bounded housekeeping: ended dead letters are resolved, what is old goes, what ended is counted."""
    await database.call("SELECT * FROM makegood.tidy(%s)", (keep_days,))
    await roll_up(database)
    await database.call("SELECT makegood.tidy_rollups()")


async def roll_up(database: Database, batches_max: int = ROLL_BATCHES_MAX) -> int:
    """Counts what has ended for the overview, a transaction per batch; how many. What is left is counted next time."""
    counted = 0
    for _ in range(batches_max):
        rows = await database.call("SELECT makegood.roll_up(%s) AS counted", (ROLL_BATCH,))
        counted += rows[0]["counted"] or 0
        if (rows[0]["counted"] or 0) < ROLL_BATCH:  # that is all, or somebody else is at it
            break
    return counted
