"""The matcher's side of a proof over planted ledgers: runs it as the jobs do."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import psycopg
from databases import DatabaseUrls

from makegood.database import Database
from makegood.reconciliation.match import Kind, Matched, begin, match
from prover.ledgers import rows
from prover.ledgers.loading import set_watermark
from prover.ledgers.proof import to_terms

Connection = psycopg.Connection[Any]


def run_match(database: DatabaseUrls, kind: Kind, terms: rows.Terms) -> Matched:
    async def go() -> Matched:
        async with Database(database.jobs) as connection:
            run = await begin(connection, uuid.uuid4(), kind, to_terms(terms))
            return await match(connection, run["id"])

    return asyncio.run(go())


@contextmanager
def open_books(database: DatabaseUrls) -> Iterator[tuple[Connection, datetime]]:
    """A connection for the planter, and the watermark: now, by the server's clock, as if all had just been fetched."""
    with psycopg.connect(database.admin, autocommit=True) as connection:
        row = connection.execute("SELECT clock_timestamp()").fetchone()
        assert row is not None
        set_watermark(connection, row[0])
        yield connection, row[0]
