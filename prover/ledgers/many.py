"""Millions of orders with their charges, made inside PostgreSQL, and a few in a hundred that are not plain among them.

Plain pairs are rows of a ``generate_series``; the rest are the very cases of ``planting``, copied in and spread over
the tables as if they had come in between. The answers are the tables of the schema ``planted``. The same seed and
watermark give the same rows.

Weakness: plain orders have no workflow; those of the cases do.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import datetime
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from prover.ledgers.loading import TABLES, load, mark_given_back
from prover.ledgers.planting import BROKEN, SOUND, plant
from prover.ledgers.rows import Charge, Ledger, Order, Row, Terms

Connection = psycopg.Connection[Any]
BROKEN_SHARE, SOUND_SHARE = 0.01, 0.02
BREAKS = tuple(name for name in BROKEN if name.startswith("d"))
# Refunded, cancelled, declined, waited for …
NOT_PLAIN = tuple(name for name in (*SOUND, *BROKEN) if not name.startswith("d"))

_PLAIN_FACTS: LiteralString = """
  SELECT n, %(tag)s || 'order-' || lpad(n::text, 9, '0') AS order_id,
         'pi_3' || left(md5(%(seed)s || 'pi' || n), 23) AS payment_ref, 'cus_' || n %% 100003 AS customer_ref,
         1000 + (n * 7919 %% 500009) AS amount_minor,
         (ARRAY['EUR', 'EUR', 'USD', 'USD', 'EUR', 'GBP', 'JPY', 'EUR', 'KWD', 'USD'])[(n %% 10)::int + 1] AS currency,
         %(watermark)s::timestamptz - interval '26 hours' - make_interval(secs => n * 31 %% 86400) AS created_at
    FROM generate_series(1::bigint, %(count)s) AS n
"""


@dataclass(frozen=True)
class Planted:
    """How much was planted; ``broken`` is the number of findings to expect."""

    orders: int
    charges: int
    broken: int


def plant_many(
    connection: Connection,
    orders: int,
    seed: int,
    watermark: datetime,
    terms: Terms | None = None,
    *,
    tag: str = "",
    fresh: bool = True,
) -> Planted:
    """About ``orders`` orders and as many charges. ``fresh``: the tables are empty, so indexes are built at the end."""
    ledger = plant(_choose_cases(orders, seed), seed, watermark, terms, tag)
    plain = orders - len(ledger.orders)
    facts = {"count": plain, "seed": str(seed), "watermark": watermark, "tag": tag}
    with connection.transaction():
        for kind, group in ((Order, ledger.orders), (Charge, ledger.charges)):
            _stage(connection, kind, group, seed, orders)
        _mark_plain(connection, ledger)
        with _without_indexes(connection) if fresh else contextlib.nullcontext():
            _spread(connection, facts)
        load_rest(connection, ledger)
        mark_given_back(connection)
        _keep_answers(connection, ledger, facts)
    connection.execute("VACUUM ANALYZE makegood.orders, makegood.provider_charges, makegood.workflow_executions")
    connection.execute("VACUUM ANALYZE makegood.provider_refunds, makegood.provider_disputes")
    return Planted(orders, plain + len(ledger.charges), len(ledger.breaks))


def load_rest(connection: Connection, ledger: Ledger) -> None:
    """What is neither an order nor a charge is as little as in a small ledger."""
    rows: Sequence[Row] = [
        *ledger.workflows,
        *ledger.refunds,
        *ledger.disputes,
        *ledger.balance_transactions,
        *ledger.payouts,
    ]
    load(connection, rows, keep_plain=False)


def _choose_cases(orders: int, seed: int) -> list[str]:
    """Every kind as often as every other, in an order of their own."""
    names = [BREAKS[number % len(BREAKS)] for number in range(int(orders * BROKEN_SHARE))]
    names += [NOT_PLAIN[number % len(NOT_PLAIN)] for number in range(int(orders * SOUND_SHARE))]
    return random.Random(f"{seed}/cases").sample(names, len(names))


def _stage(connection: Connection, kind: type, rows: Sequence[Row], seed: int, places: int) -> None:
    """Each with the place among all the others that it shall have."""
    place = random.Random(f"{seed}/places/{kind.__name__}")
    columns = sql.SQL(", ").join(sql.Identifier(field.name) for field in fields(kind))
    staged = sql.Identifier("staged_" + TABLES[kind])
    connection.execute(
        sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {}, 0::bigint AS n FROM {} LIMIT 0").format(
            staged, columns, sql.Identifier("makegood", TABLES[kind])
        )
    )
    with connection.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(staged)) as copy:
        for row in rows:
            copy.write_row((*astuple(row), place.randrange(places)))


def _mark_plain(connection: Connection, ledger: Ledger) -> None:
    """As the comment of the column says, among the cases; no other charge has anything to do with them."""
    touched = [row.charge_id for row in ledger.refunds] + [row.charge_id for row in ledger.disputes]
    connection.execute("ALTER TABLE staged_provider_charges ADD COLUMN plain boolean")
    connection.execute("CREATE INDEX ON staged_provider_charges (payment_ref)")
    connection.execute("CREATE TEMPORARY TABLE touched (id text PRIMARY KEY) ON COMMIT DROP")
    connection.execute("INSERT INTO touched SELECT DISTINCT unnest(%s::text[])", (touched,))
    connection.execute("ANALYZE staged_provider_charges, touched")
    connection.execute(
        """
        UPDATE staged_provider_charges c
           SET plain = c.status = 'succeeded' AND NOT c.captures_open
               AND NOT EXISTS (SELECT FROM touched t WHERE t.id = c.id)
               AND NOT EXISTS (SELECT FROM staged_provider_charges o
                                WHERE o.payment_ref = c.payment_ref AND o.id <> c.id)
        """
    )


def _spread(connection: Connection, facts: dict[str, Any]) -> None:
    connection.execute("SET LOCAL work_mem = '512MB'")
    connection.execute(
        """
        INSERT INTO makegood.orders (
          id, workflow_type, status, amount_minor, currency, payment_ref, customer_ref, refunded_minor, dispute_known,
          written_off_minor, partial_shipment, created_at)
        SELECT id, workflow_type, status, amount_minor, currency, payment_ref, customer_ref, refunded_minor,
               dispute_known, written_off_minor, partial_shipment, created_at
          FROM (SELECT * FROM staged_orders
                UNION ALL
                SELECT p.order_id, 'checkout', CASE WHEN p.n %% 3 = 0 THEN 'fulfilled' ELSE 'paid' END, p.amount_minor,
                       p.currency, p.payment_ref, p.customer_ref, 0, false, 0, false, p.created_at, p.n
                  FROM ("""
        + _PLAIN_FACTS
        + ") AS p) AS rows ORDER BY n",
        facts,
    )
    connection.execute(
        """
        INSERT INTO makegood.provider_charges (
          provider, id, payment_ref, order_ref, customer_ref, status, amount_minor, captured_minor, currency, livemode,
          capture_before, captures_open, created_at, plain)
        SELECT 'stripe', id, payment_ref, order_ref, customer_ref, status, amount_minor, captured_minor, currency,
               livemode, capture_before, captures_open, created_at, plain
          FROM (SELECT * FROM staged_provider_charges
                UNION ALL
                SELECT 'ch_3' || left(md5(%(seed)s || 'ch' || p.n), 23), p.payment_ref, p.order_id, p.customer_ref,
                       'succeeded', p.amount_minor, p.amount_minor, p.currency, true, NULL::timestamptz, false,
                       p.created_at + interval '20 seconds', p.n, true
                  FROM ("""
        + _PLAIN_FACTS
        + ") AS p) AS rows ORDER BY n",
        facts,
    )


@contextlib.contextmanager
def _without_indexes(connection: Connection) -> Iterator[None]:
    """Built once at the end instead of row by row; and without asking of each row whether its currency exists."""
    tables: tuple[LiteralString, ...] = ("makegood.orders", "makegood.provider_charges")
    indexes = connection.execute(
        """
        SELECT i.indexrelid::regclass::text, i.indrelid::regclass::text, pg_get_indexdef(i.indexrelid), c.conname,
               pg_get_constraintdef(c.oid)
          FROM pg_index i LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.conrelid = i.indrelid
         WHERE i.indrelid = ANY (%s::regclass[])
        """,
        (list(tables),),
    ).fetchall()
    for index, table, _, constraint, _ in indexes:
        drop = f"ALTER TABLE {table} DROP CONSTRAINT {constraint}" if constraint else f"DROP INDEX {index}"
        connection.execute(drop.encode())
    connection.execute("ALTER TABLE makegood.orders DISABLE TRIGGER orders_currency_exists")
    yield
    connection.execute("ALTER TABLE makegood.orders ENABLE ALWAYS TRIGGER orders_currency_exists")
    connection.execute("SET LOCAL maintenance_work_mem = '1GB'")
    for _, table, definition, constraint, rule in indexes:
        make = f"ALTER TABLE {table} ADD CONSTRAINT {constraint} {rule}" if constraint else definition
        connection.execute(make.encode())


def _keep_answers(connection: Connection, ledger: Ledger, facts: dict[str, Any]) -> None:
    connection.execute("CREATE SCHEMA IF NOT EXISTS planted")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS planted.verdicts ("
        "unit text PRIMARY KEY, class text NOT NULL, amount_at_risk_minor bigint, currency text)"
    )
    connection.execute(
        "CREATE TABLE IF NOT EXISTS planted.totals ("
        "currency text, bucket text, charges bigint NOT NULL, amount_minor numeric NOT NULL)"
    )
    with connection.cursor().copy("COPY planted.verdicts FROM STDIN") as copy:
        for verdict in ledger.verdicts.values():
            copy.write_row((verdict.unit, verdict.class_, verdict.amount_at_risk_minor, verdict.currency))
    with connection.cursor().copy("COPY planted.totals FROM STDIN") as copy:
        for (currency, bucket), (charges, amount) in ledger.totals().items():
            copy.write_row((currency, bucket, charges, amount))
    connection.execute(
        "INSERT INTO planted.totals SELECT p.currency, b.bucket, count(*), sum(p.amount_minor) FROM ("
        + _PLAIN_FACTS
        + ") AS p, unnest(ARRAY['provider', 'matched']) AS b (bucket) GROUP BY 1, 2",
        facts,
    )
    connection.execute("ANALYZE planted.verdicts")
