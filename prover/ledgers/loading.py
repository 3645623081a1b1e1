"""Puts a ledger's rows into the tables, as they are, without any of the program's own code.

Orders and workflows are written as an administrator writes them; the provider's rows as often as they come, the last
one winning, and ``plain`` kept as its comment in the schema says.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, fields
from datetime import datetime
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from prover.ledgers.rows import (
    PROVIDER,
    BalanceTransaction,
    Charge,
    Dispute,
    Ledger,
    Order,
    Payout,
    Refund,
    Row,
    Workflow,
)

Connection = psycopg.Connection[Any]
TABLES: dict[type, LiteralString] = {
    Order: "orders",
    Charge: "provider_charges",
    Refund: "provider_refunds",
    Dispute: "provider_disputes",
    BalanceTransaction: "provider_balance_transactions",
    Payout: "provider_payouts",
}
COLLECTIONS = ("charges", "refunds", "disputes", "balance_transactions", "payouts")


def all_rows(ledger: Ledger) -> list[Row]:
    return [
        *ledger.orders,
        *ledger.workflows,
        *ledger.charges,
        *ledger.refunds,
        *ledger.disputes,
        *ledger.balance_transactions,
        *ledger.payouts,
    ]


def load(connection: Connection, rows: Iterable[Row], *, keep_plain: bool = True) -> None:
    """One instalment, in one transaction. Rows that are there already are replaced."""
    by_type: dict[type, list[Row]] = {}
    for row in rows:
        by_type.setdefault(type(row), []).append(row)
    with connection.transaction():
        _load_workflows(connection, by_type.pop(Workflow, []))
        for kind, group in by_type.items():
            _copy(connection, kind, group)
        if keep_plain:
            _keep_plain(connection)


def set_watermark(connection: Connection, watermark: datetime) -> None:
    """As if everything from before it had been fetched."""
    connection.cursor().executemany(
        "INSERT INTO makegood.provider_sync (provider, collection, watermark) VALUES (%s, %s, %s)"
        " ON CONFLICT (provider, collection) DO UPDATE SET watermark = excluded.watermark",
        [(PROVIDER, collection, watermark) for collection in COLLECTIONS],
    )


def _copy(connection: Connection, kind: type, rows: Sequence[Row]) -> None:
    """Through a table of its own, because COPY cannot say what to do with a row that is there already."""
    names = [field.name for field in fields(kind)]
    columns = sql.SQL(", ").join(map(sql.Identifier, names))
    table = sql.Identifier("makegood", TABLES[kind])
    connection.execute(
        sql.SQL("CREATE TEMPORARY TABLE arriving ON COMMIT DROP AS SELECT {} FROM {} LIMIT 0").format(columns, table)
    )
    with connection.cursor().copy(sql.SQL("COPY arriving ({}) FROM STDIN").format(columns)) as copy:
        for row in rows:
            copy.write_row(astuple(row))
    fixed = {Order: {}, Charge: {"provider": PROVIDER, "plain": False}}.get(kind, {"provider": PROVIDER})
    connection.execute(
        sql.SQL(
            "INSERT INTO {table} ({columns}{more}) SELECT DISTINCT ON (id) {columns}{values} FROM arriving"
            " ON CONFLICT (id) DO UPDATE SET ({columns}, changed_xid) = ({news}, pg_current_xact_id())"
        ).format(
            table=table,
            columns=columns,
            more=sql.SQL("").join(sql.SQL(", {}").format(sql.Identifier(name)) for name in fixed),
            values=sql.SQL("").join(sql.SQL(", {}").format(sql.Literal(value)) for value in fixed.values()),
            news=sql.SQL(", ").join(sql.SQL("excluded.{}").format(sql.Identifier(name)) for name in names),
        )
    )
    connection.execute("DROP TABLE arriving")


def mark_given_back(connection: Connection) -> None:
    """As the comment of the column says: all of it refunded, nothing failed, nothing disputed, no other charge."""
    connection.execute(
        """
        WITH facts AS (
          SELECT c.id, c.status = 'succeeded' AND NOT c.captures_open AND r.fine AND r.amount_minor = c.captured_minor
                 AND NOT EXISTS (SELECT FROM makegood.provider_disputes d WHERE d.charge_id = c.id)
                 AND NOT EXISTS (SELECT FROM makegood.provider_charges o
                                  WHERE o.payment_ref = c.payment_ref AND o.id <> c.id) AS given_back
            FROM (SELECT q.charge_id, sum(q.amount_minor) AS amount_minor,
                         bool_and(q.status IN ('succeeded', 'pending')) AS fine
                    FROM makegood.provider_refunds q GROUP BY 1) AS r
            JOIN makegood.provider_charges c ON c.id = r.charge_id)
        UPDATE makegood.provider_charges c SET given_back = f.given_back, changed_xid = pg_current_xact_id()
          FROM facts f WHERE f.id = c.id AND c.given_back <> f.given_back AND NOT c.plain
        """
    )


def _keep_plain(connection: Connection) -> None:
    """First what is plain no more, then what has become so: one payment has at most one at any time."""
    connection.execute("UPDATE makegood.provider_charges SET given_back = false WHERE given_back")
    for plain in (False, True):
        connection.execute(
            """
            WITH facts AS (
              SELECT c.id, c.status = 'succeeded' AND NOT c.captures_open
                     AND count(*) OVER (PARTITION BY c.payment_ref) = 1
                     AND NOT EXISTS (SELECT FROM makegood.provider_refunds r WHERE r.charge_id = c.id)
                     AND NOT EXISTS (SELECT FROM makegood.provider_disputes d WHERE d.charge_id = c.id) AS plain
                FROM makegood.provider_charges c)
            UPDATE makegood.provider_charges c SET plain = f.plain, changed_xid = pg_current_xact_id()
              FROM facts f WHERE f.id = c.id AND f.plain = %s AND c.plain <> f.plain
            """,
            (plain,),
        )
    mark_given_back(connection)
    # A refund or a dispute is a change of its charge.
    connection.execute(
        """
        UPDATE makegood.provider_charges c SET changed_xid = pg_current_xact_id()
         WHERE c.id IN (SELECT r.charge_id FROM makegood.provider_refunds r WHERE r.changed_xid = pg_current_xact_id()
                        UNION ALL
                        SELECT d.charge_id FROM makegood.provider_disputes d WHERE d.changed_xid = pg_current_xact_id())
        """
    )


def _load_workflows(connection: Connection, rows: Sequence[Row]) -> None:
    """Only where each of them stands. The guards would ask how it came there; they are as before afterwards."""
    if not rows:
        return
    connection.execute("ALTER TABLE makegood.workflow_executions DISABLE TRIGGER USER")
    connection.cursor().executemany(
        """
        INSERT INTO makegood.workflow_executions (
          id, workflow_type, entity_id, current_state, created_at, updated_at, next_attempt_at, deadline_at,
          finished_at, held_at, held_reason, last_seq, start_hash)
        SELECT gen_random_uuid(), 'checkout', w.entity_id, w.state, w.at, w.at, w.deadline, w.deadline,
               w.finished, w.held, CASE WHEN w.held IS NOT NULL THEN 'planted' END, 1, ''
          FROM (SELECT %s AS entity_id, %s AS state, %s AS at, %s::timestamptz AS deadline,
                       %s::timestamptz AS finished, %s::timestamptz AS held) AS w
        ON CONFLICT (entity_id, workflow_type) DO NOTHING
        """,
        [astuple(row) for row in rows],
    )
    restore_guards(connection)


def restore_guards(connection: Connection) -> None:
    """Every trigger of workflow_executions fires again, for everybody."""
    connection.execute("ALTER TABLE makegood.workflow_executions ENABLE TRIGGER USER")
    triggers = connection.execute(
        "SELECT tgname FROM pg_trigger WHERE tgrelid = 'makegood.workflow_executions'::regclass AND NOT tgisinternal"
    ).fetchall()
    for (name,) in triggers:
        connection.execute(
            sql.SQL("ALTER TABLE makegood.workflow_executions ENABLE ALWAYS TRIGGER {}").format(sql.Identifier(name))
        )
