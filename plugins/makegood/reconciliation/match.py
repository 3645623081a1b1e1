"""A run of the matcher: opened, carried out inside the database, and read back.

The work is two SQL functions. ``match`` is one transaction: a run that dies has changed nothing, and one that is asked
for twice is the same run.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from psycopg.types.json import Jsonb
from psycopg.types.range import TimestamptzRange

from makegood.database import Database, Row
from makegood.errors import InputError
from makegood.reconciliation.terms import Terms

Kind = Literal["incremental", "full", "window"]


@dataclass(frozen=True)
class Window:
    """A span of time, half open; both ends know their zone."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start.tzinfo is None or self.end.tzinfo is None:
            raise InputError("a window's ends must say their time zone", hint="For example 2026-11-01T00:00+01:00.")
        if self.start >= self.end:
            raise InputError(f"the window ends ({self.end}) before it begins ({self.start})")


@dataclass(frozen=True)
class Matched:
    """What a run came to. ``stale`` says why no remedy may follow; ``missed`` is known for full runs only."""

    run_id: uuid.UUID
    kind: str
    watermark: datetime | None
    stale: str | None
    looked_at: int
    opened: int
    closed: int
    missed: int | None

    @property
    def counts(self) -> dict[str, int]:
        counts = {"looked_at": self.looked_at, "opened": self.opened, "closed": self.closed}
        return counts if self.missed is None else {**counts, "missed": self.missed}


async def begin(database: Database, run_id: uuid.UUID, kind: Kind, terms: Terms, window: Window | None = None) -> Row:
    """Opens the run, or finds it open."""
    if (kind == "window") != (window is not None):
        raise InputError(f"a {kind} run {'needs' if kind == 'window' else 'takes no'} window")
    span = None if window is None else TimestamptzRange(window.start, window.end, "[)")
    parameters: list[Any] = [run_id, kind, Jsonb(terms.to_document()), span]
    rows = await database.call("SELECT * FROM makegood.begin_reconciliation(%s, %s, %s, %s)", parameters)
    return rows[0]


async def match(database: Database, run_id: uuid.UUID) -> Matched:
    """Carries the run out. Exact also while others write: everything is seen as of one moment."""
    rows = await database.call_at_one_moment("SELECT * FROM makegood.match_charges(%s)", [run_id])
    return to_matched(rows[0])


def to_matched(row: Row) -> Matched:
    names = ("kind", "watermark", "stale", "looked_at", "opened", "closed", "missed")
    return Matched(run_id=row["id"], **{name: row[name] for name in names})
