"""The ground a proof stands on: a database of its own, migrated, and a shop of its own."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from makegood import migrations
from makegood.settings import Settings
from prover.scenarios import SOLD_OUT
from sandbox.client import ShopControl, ShopProcess

Row = dict[str, Any]
SETTLING_SECONDS_MAX = 60.0
STILL_AT_WORK: LiteralString = """
SELECT pid FROM pg_stat_activity
 WHERE datname = current_database() AND backend_type = 'client backend' AND state <> 'idle' AND pid <> pg_backend_pid()
"""


@dataclass
class Ground:
    """``jobs_url`` is what workers get; the admin connection plays time and looks, never the worker's part."""

    admin_url: str
    jobs_url: str
    shop_url: str
    control: ShopControl

    def settings(self, **changes: Any) -> Settings:
        url = self.shop_url
        return Settings(stripe_api_base=url, inventory_url=url, shipping_url=url, calls_at_once=8, **changes)

    def rows(self, statement: LiteralString, parameters: Sequence[Any] = ()) -> list[Row]:
        # A connection per question: a forked worker must find nothing of ours to share.
        with psycopg.connect(self.admin_url, autocommit=True, row_factory=dict_row) as connection:
            cursor = connection.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else []

    def settle(self) -> None:
        """What a worker that died had sent is carried out by the server all the same; only then is it over."""
        deadline = time.monotonic() + SETTLING_SECONDS_MAX
        while self.rows(STILL_AT_WORK):
            if time.monotonic() > deadline:
                raise AssertionError(f"what a dead worker had sent is still under way after {SETTLING_SECONDS_MAX} s")
            time.sleep(0.005)

    def pass_time(self, entity_id: str) -> None:
        """As if every lease had run out, every wait were over and every deadline passed, of an order and its remedy."""
        self.rows(
            "UPDATE makegood.workflow_executions SET next_attempt_at = clock_timestamp() - interval '1 second',"
            " deadline_at = clock_timestamp() - interval '1 second',"
            " lease_until = CASE WHEN lease_until IS NOT NULL THEN clock_timestamp() - interval '1 second' END"
            " WHERE (entity_id = %s OR context->>'order_id' = %s) AND finished_at IS NULL",
            (entity_id, entity_id),
        )
        self.rows(
            "UPDATE makegood.compensations c SET next_attempt_at = clock_timestamp() - interval '1 second'"
            " FROM makegood.workflow_executions e WHERE e.id = c.workflow_id AND e.entity_id = %s"
            " AND c.state <> 'succeeded'",
            (entity_id,),
        )
        self.rows(
            "UPDATE makegood.breakers SET"
            " retry_at = CASE WHEN retry_at IS NOT NULL THEN clock_timestamp() - interval '1 second' END,"
            " probe_until = CASE WHEN probe_until IS NOT NULL THEN clock_timestamp() - interval '1 second' END"
        )
        self.rows("UPDATE makegood.outbox SET taken_until = NULL WHERE published_at IS NULL")

    def run_sql(self, script: str) -> None:
        """For mutants: takes a guard out of this database."""
        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            connection.execute(script.encode())


@contextlib.contextmanager
def open_ground(admin_url: str, jobs_url: str) -> Iterator[Ground]:
    """A scratch database on that server and a fresh shop; both are gone afterwards."""
    name = f"makegood_proof_{secrets.token_hex(4)}"
    _run(admin_url, sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        scratch = make_conninfo(admin_url, dbname=name)
        migrations.migrate(scratch)
        with ShopProcess() as shop, ShopControl(shop.url) as control:
            control.set_stock(SOLD_OUT, 0)
            yield Ground(scratch, make_conninfo(jobs_url, dbname=name), shop.url, control)
    finally:
        _run(admin_url, sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def _run(url: str, statement: sql.Composed) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)
