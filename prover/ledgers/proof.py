"""The proof by the million: plants, runs the matcher once over everything, and compares with the answers."""

from __future__ import annotations

import asyncio
import secrets
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from makegood import migrations
from makegood.database import Database
from makegood.reconciliation import match, terms
from prover.ledgers.comparing import count_differences_in_many, find_differences_in_totals, planted_totals
from prover.ledgers.loading import set_watermark
from prover.ledgers.many import plant_many
from prover.ledgers.rows import Terms


@dataclass(frozen=True)
class Proof:
    """``precision``: of what was found, how much is so; ``recall``: of what is so, how much was found."""

    orders: int
    charges: int
    planted: int
    right: int
    wrong: int
    absent: int
    totals_that_differ: int
    planting_seconds: float
    matching_seconds: float

    @property
    def precision(self) -> float:
        return self.right / max(self.right + self.wrong, 1)

    @property
    def recall(self) -> float:
        return self.right / max(self.right + self.absent, 1)

    @property
    def holds(self) -> bool:
        return not (self.wrong or self.absent or self.totals_that_differ) and self.right == self.planted

    def to_document(self) -> dict[str, Any]:
        return {**asdict(self), "precision": self.precision, "recall": self.recall, "holds": self.holds}


def prove_reconciliation(admin_url: str, jobs_url: str, orders: int, seed: int, say: Callable[[str], None]) -> Proof:
    """On a scratch database of that server, gone afterwards."""
    name = f"makegood_proof_{secrets.token_hex(4)}"
    identifier = sql.Identifier(name)
    with psycopg.connect(admin_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(identifier))
    try:
        admin, jobs = (make_conninfo(url, dbname=name) for url in (admin_url, jobs_url))
        migrations.migrate(admin)
        return _prove(admin, jobs, orders, seed, say)
    finally:
        with psycopg.connect(admin_url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(identifier))


def _prove(admin: str, jobs: str, orders: int, seed: int, say: Callable[[str], None]) -> Proof:
    with psycopg.connect(admin, autocommit=True) as connection:
        row = connection.execute("SELECT clock_timestamp()").fetchone()
        assert row is not None
        set_watermark(connection, row[0])
        say(f"planting {orders:,} orders …")
        begun = time.perf_counter()
        planted = plant_many(connection, orders, seed, row[0])
        planting = time.perf_counter() - begun
        say("matching …")
        begun = time.perf_counter()
        run_id = asyncio.run(_match(jobs))
        matching = time.perf_counter() - begun
        counts = count_differences_in_many(connection)
        totals = find_differences_in_totals(connection, run_id, planted_totals(connection))
    return Proof(
        planted.orders,
        planted.charges,
        planted.broken,
        **counts,
        totals_that_differ=len(totals),
        planting_seconds=round(planting, 1),
        matching_seconds=round(matching, 1),
    )


async def _match(jobs: str) -> uuid.UUID:
    async with Database(jobs) as database:
        run = await match.begin(database, uuid.uuid4(), "full", to_terms(Terms()))
        return (await match.match(database, run["id"])).run_id


def to_terms(planted: Terms) -> terms.Terms:
    """The planter's terms as the matcher takes them."""
    return terms.Terms(
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
