"""What the doctor asks the view ``reconcilable_orders``: that a team's own version of it still keeps the contract."""

from __future__ import annotations

import psycopg

from makegood.local.check import Check, fail, ok

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
    "changed_xid": "xid8",
}
COLUMNS = """
SELECT a.attname, format_type(a.atttypid, NULL) FROM pg_attribute a
 WHERE a.attrelid = 'makegood.reconcilable_orders'::regclass AND a.attnum > 0 AND NOT a.attisdropped
"""
SAMPLED = """
SELECT count(*) - count(DISTINCT o.order_id),
       count(*) FILTER (WHERE o.status IS NULL OR o.status NOT IN ('pending', 'paid', 'fulfilled', 'cancelled')),
       count(*) FILTER (WHERE o.changed_xid IS NULL)
  FROM (SELECT order_id, status, changed_xid FROM makegood.reconcilable_orders LIMIT %s) AS o
"""


def check_orders(connection: psycopg.Connection[tuple[object, ...]]) -> Check:
    """Columns and types of all of it; ids, statuses and stamps of a sample."""
    found = {str(name): str(kind) for name, kind in connection.execute(COLUMNS).fetchall()}
    wrong = [
        f"{name} is {found.get(name, 'missing')}, not {kind}"
        for name, kind in CONTRACT.items()
        if found.get(name, "").replace("character varying", "text") != kind
    ]
    if not wrong:
        twice, unknown, unstamped = connection.execute(SAMPLED, (SAMPLE,)).fetchone() or (0, 0, 0)
        facts = (
            (twice, "ids come twice or are null"),
            (unknown, "statuses are not known"),
            (unstamped, "have no changed_xid"),
        )
        wrong = [f"{n} of a sample: {what}" for n, what in facts if n]
    if wrong:
        todo = "Correct your definition of makegood.reconcilable_orders; its comments say what each column is."
        return fail(NAME, "; ".join(wrong), todo, blocks=False)
    return ok(NAME, "keeps the contract of reconciliation")
