"""What really happened, read from what was committed: the log, an order's story, the totals, the calls."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import Any

from sandbox.shop import Shop
from sandbox.store import Json

OBJECT_KINDS = ("charge", "refund", "dispute", "reservation", "shipment")
TAKEN = ("charge", "capture")


def read_log(shop: Shop, after: int, limit: int) -> Json:
    """Effects in the order in which they happened; their sequence numbers have no gaps."""
    found = shop.store.rows("SELECT * FROM effects WHERE seq > ? ORDER BY seq LIMIT ?", (after, limit + 1))
    return {"data": [dict(row) for row in found[:limit]], "has_more": len(found) > limit}


def read_order(shop: Shop, order_id: str) -> Json:
    effects = shop.store.rows("SELECT * FROM effects WHERE order_id = ? ORDER BY seq", (order_id,))
    objects = {kind + "s": shop.store.find_objects_of_order(kind, order_id) for kind in OBJECT_KINDS}
    return {"order_id": order_id, **_sum_up(effects), **objects, "log": [dict(row) for row in effects]}


def read_totals(shop: Shop) -> Json:
    found = shop.store.rows(
        "SELECT kind, currency, count(*) AS count, sum(amount) AS amount FROM effects GROUP BY kind, currency"
    )
    counts: Counter[str] = Counter()
    amounts: dict[str, Counter[str]] = {}
    for row in found:
        counts[row["kind"]] += row["count"]
        if row["currency"] is not None:
            amounts.setdefault(row["kind"], Counter())[row["currency"]] += row["amount"]
    last = shop.store.row("SELECT max(seq) AS seq FROM effects")
    money = {"charged": _add(amounts, *TAKEN), "refunded": _refunded(amounts)}
    return {"counts": counts, "amounts": amounts, **money, "last_seq": (last and last["seq"]) or 0}


def read_call_counts(shop: Shop) -> Json:
    """How often each operation and endpoint was called, with what it answered and which faults it met."""
    shop.store.flush_calls()
    found = shop.store.rows(
        "SELECT endpoint, operation, status, fault, replayed, count(*) AS count FROM calls"
        " GROUP BY endpoint, operation, status, fault, replayed"
    )
    by_operation: dict[str, Json] = {}
    by_endpoint: dict[str, Json] = {}
    for row in found:
        _count_call(by_operation.setdefault(row["operation"], _no_calls()), row)
        _count_call(by_endpoint.setdefault(row["endpoint"], _no_calls()), row)
    total = sum(row["count"] for row in found)
    return {"total": total, "operations": by_operation, "endpoints": by_endpoint}


def read_calls(shop: Shop, after: int, limit: int, order_id: str | None, operation: str | None) -> Json:
    shop.store.flush_calls()
    found = shop.store.rows(
        "SELECT * FROM calls WHERE seq > ? AND (? IS NULL OR order_id = ?) AND (? IS NULL OR operation = ?)"
        " ORDER BY seq LIMIT ?",
        (after, order_id, order_id, operation, operation, limit + 1),
    )
    data = [{**dict(row), "replayed": bool(row["replayed"])} for row in found[:limit]]
    return {"data": data, "has_more": len(found) > limit}


def _sum_up(effects: list[sqlite3.Row]) -> Json:
    counts = Counter(row["kind"] for row in effects)
    amounts: dict[str, Counter[str]] = {}
    for row in effects:
        if row["currency"] is not None:
            amounts.setdefault(row["kind"], Counter())[row["currency"]] += row["amount"]
    charged, refunded = _add(amounts, *TAKEN), _refunded(amounts)
    net = {currency: charged[currency] - refunded[currency] for currency in charged | refunded}
    return {"counts": counts, "charged": charged, "refunded": refunded, "net": net}


def _add(amounts: dict[str, Counter[str]], *kinds: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for kind in kinds:
        total.update(amounts.get(kind, Counter()))
    return total


def _refunded(amounts: dict[str, Counter[str]]) -> Counter[str]:
    """Refunds less those that came back."""
    total = _add(amounts, "refund")
    total.subtract(_add(amounts, "refund_failed"))
    return total


def _no_calls() -> dict[str, Any]:
    return {"count": 0, "replayed": 0, "statuses": Counter(), "faults": Counter()}


def _count_call(counts: Json, row: sqlite3.Row) -> None:
    counts["count"] += row["count"]
    counts["replayed"] += row["count"] if row["replayed"] else 0
    counts["statuses"]["none" if row["status"] is None else str(row["status"])] += row["count"]
    if row["fault"] is not None:
        counts["faults"][row["fault"]] += row["count"]
