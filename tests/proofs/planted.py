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
from makegood.reconciliation.terms import Terms
from prover.ledgers import rows
from prover.ledgers.loading import set_watermark

Connection = psycopg.Connection[Any]


def terms_of(planted: rows.Terms) -> Terms:
    return Terms(
        livemode=planted.livemode,
        tolerance_minor=planted.tolerance_minor,
        charge_grace_seconds=planted.charge_grace.total_seconds(),
        refund_grace_seconds=planted.refund_grace.total_seconds(),
        payout_grace_seconds=planted.payout_grace.total_seconds(),
        stale_after_seconds=7 * 86_400,
        lapse_warning_seconds=planted.lapse_soon.total_seconds(),
        fee_parts_min=planted.fee_parts_min,
        fee_parts_max=planted.fee_parts_max,
        fee_fixed_minor=planted.fee_fixed_minor,
    )


def run_match(database: DatabaseUrls, kind: Kind, terms: rows.Terms) -> Matched:
    async def go() -> Matched:
        async with Database(database.jobs) as connection:
            run = await begin(connection, uuid.uuid4(), kind, terms_of(terms))
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
