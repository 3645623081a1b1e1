"""What the doctor asks the view ``reconcilable_orders``: that a team's own version of it still keeps the contract."""

from __future__ import annotations

import psycopg
from psycopg import sql

from makegood.local.check import Check, fail, ok, warn

NAME = "orders view"
SAMPLE = 10_000
CONTRACT = {
    "order_id": "text",
    "workflow_type": "text",
    "status": "text",
    "amount_minor": "bigint",
    "currency": "text",
    "payment_ref": "text",
    "customer_ref": "text",
    "refunded_minor": "bigint",
    "dispute_known": "boolean",
    "written_off_minor": "bigint",
    "partial_shipment": "boolean",
    "created_at": "timestamp with time zone",
    "changed_at": "timestamp with time zone",
    "changed_xid": "xid8",
}
# How runs look for orders. Without an index each of these reads all of them, every hour.
LOOKED_UP_BY = {"order_id": "= 'x'", "payment_ref": "= 'x'", "changed_xid": ">= '1'"}
COLUMNS = """
SELECT a.attname, format_type(a.atttypid, NULL) FROM pg_attribute a
 WHERE a.attrelid = 'makegood.reconcilable_orders'::regclass AND a.attnum > 0 AND NOT a.attisdropped
"""
SAMPLED = """
SELECT count(*) - count(DISTINCT o.order_id),
       count(*) FILTER (WHERE o.status IS NULL OR o.status NOT IN ('pending', 'paid', 'fulfilled', 'cancelled')),
       count(*) FILTER (WHERE o.changed_xid IS NULL),
       count(*) FILTER (WHERE o.amount_minor IS NULL OR o.amount_minor NOT BETWEEN 0 AND 999999999999999),
       count(*) FILTER (WHERE o.currency IS NULL OR NOT EXISTS (
         SELECT FROM makegood.currencies c WHERE c.code = o.currency)),
       count(*) FILTER (WHERE o.refunded_minor IS NULL OR o.written_off_minor IS NULL OR o.dispute_known IS NULL
                           OR o.partial_shipment IS NULL),
       count(*) FILTER (WHERE o.created_at IS NULL)
  FROM (SELECT * FROM makegood.reconcilable_orders LIMIT %s) AS o
"""

# What each count of SAMPLED is of.
IN_A_SAMPLE = (
    "ids come twice or are null",
    "statuses are not known",
    "have no changed_xid",
    "have no amount_minor, or one below zero or of more than 15 digits",
    "currencies are not known: three capitals, for example EUR",
    "refunded_minor, written_off_minor, dispute_known or partial_shipment is null: 0 or false is meant",
    "have no created_at",
)


def check_orders(connection: psycopg.Connection[tuple[object, ...]]) -> Check:
    """Columns and types of all of it; what is in them of a sample: a null there would read as if nothing were wrong."""
    found = {str(name): str(kind) for name, kind in connection.execute(COLUMNS).fetchall()}
    wrong = [
        f"{name} is {found.get(name, 'missing')}, not {kind}"
        for name, kind in CONTRACT.items()
        if found.get(name, "").replace("character varying", "text") != kind
    ]
    if not wrong:
        counts = connection.execute(SAMPLED, (SAMPLE,)).fetchone() or ()
        wrong = [f"{n} of a sample: {what}" for n, what in zip(counts, IN_A_SAMPLE, strict=True) if n]
    if wrong:
        todo = "Correct your definition of makegood.reconcilable_orders; its comments say what each column is."
        return fail(NAME, "; ".join(wrong), todo, blocks=False)
    if slow := [name for name, how in LOOKED_UP_BY.items() if not has_index(connection, name, how)]:
        detail = f"keeps the contract, but no index serves {', '.join(slow)}"
        return warn(NAME, detail, "Create one on the column of your table: every run reads all orders without it.")
    return ok(NAME, "keeps the contract of reconciliation")


def has_index(connection: psycopg.Connection[tuple[object, ...]], column: str, how: str) -> bool:
    """Asked of the planner: it takes any way rather than read the whole table."""
    with connection.transaction(force_rollback=True):
        connection.execute("SET LOCAL enable_seqscan = off")
        question = sql.SQL("EXPLAIN SELECT 1 FROM makegood.reconcilable_orders WHERE {} {}").format(
            sql.Identifier(column),
            sql.SQL(how),
        )
        return not any("Seq Scan" in str(line) for (line,) in connection.execute(question))
