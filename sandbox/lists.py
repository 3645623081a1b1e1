"""Lists as Stripe's: newest first, 1 to 100 a page (10 unless told), a cursor that skips and repeats nothing.

Objects are ordered by ``created`` and then by when they were stored: a page may end inside a second.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sandbox.answers import Answer, RefusedError, answer_with, bad_parameter, no_such, stripe_error
from sandbox.expansion import expand
from sandbox.parameters import get_expand, get_integer, get_text, refuse_unknown
from sandbox.shop import Call, Performer, Shop
from sandbox.store import Json
from sandbox.stripe_objects import make_list

LIMIT_DEFAULT = 10
LIMIT_MAX = 100
EVENTS_KEPT_SECONDS = 30 * 24 * 3600  # Stripe shows events for 30 days
COMPARISONS = {"gt": "created > ?", "gte": "created >= ?", "lt": "created < ?", "lte": "created <= ?"}
PAGING = ("created", "ending_before", "expand", "limit", "starting_after")


@dataclass(frozen=True)
class Collection:
    """One kind of object, and which parameters filter it by which condition."""

    kind: str
    url: str
    filters: dict[str, str]
    path_param: str = "id"


BY_CHARGE = {"charge": "parent = ?", "payment_intent": "payment_intent = ?"}
BY_CUSTOMER = {"customer": "json_extract(body, '$.customer') = ?"}
COLLECTIONS = (
    Collection("payment_intent", "/v1/payment_intents", BY_CUSTOMER, "intent"),
    Collection("charge", "/v1/charges", {"payment_intent": "payment_intent = ?", **BY_CUSTOMER}),
    Collection("refund", "/v1/refunds", BY_CHARGE),
    Collection("dispute", "/v1/disputes", BY_CHARGE, "dispute"),
    Collection(
        "balance_transaction",
        "/v1/balance_transactions",
        {
            "source": "parent = ?",
            "type": "tag = ?",
            "currency": "json_extract(body, '$.currency') = ?",
            "payout": "id IN (SELECT object_id FROM payout_items WHERE payout = ?)",
        },
    ),
    Collection("payout", "/v1/payouts", {"status": "json_extract(body, '$.status') = ?"}, "payout"),
    Collection("event", "/v1/events", {"type": "tag = ?", "types": "tag IN (SELECT value FROM json_each(?))"}),
)


def list_of(collection: Collection) -> Performer:
    def perform(shop: Shop, call: Call) -> Answer:
        refuse_unknown(call.params, (*PAGING, *collection.filters))
        page, has_more = _find_page(shop, collection, call.params)
        shown = expand(shop, make_list(collection.url, page, has_more), get_expand(call.params))
        return answer_with(shown)

    return perform


def retrieval_of(collection: Collection) -> Performer:
    def perform(shop: Shop, call: Call) -> Answer:
        refuse_unknown(call.params, ("expand", "client_secret"))
        found = shop.store.find_object(collection.kind, call.object_id or "")
        if found is None:
            raise no_such(collection.kind, call.object_id or "", collection.path_param)
        return answer_with(expand(shop, found, get_expand(call.params)))

    return perform


def _find_page(shop: Shop, collection: Collection, params: Json) -> tuple[list[Json], bool]:
    limit = _read_limit(params)
    conditions, values = _read_filters(shop, collection, params)
    backwards = _add_cursor(shop, collection, params, conditions, values)
    rows = shop.store.rows(_compose(conditions, backwards), (*values, limit + 1))
    page = [json.loads(row["body"]) for row in rows[:limit]]
    return (page[::-1] if backwards else page), len(rows) > limit


def _compose(conditions: list[str], backwards: bool) -> str:
    order = "created ASC, seq ASC" if backwards else "created DESC, seq DESC"
    # Every part is a constant of this module; the caller's values are bound.
    return "SELECT body FROM objects WHERE " + " AND ".join(conditions) + " ORDER BY " + order + " LIMIT ?"  # noqa: S608


def _read_limit(params: Json) -> int:
    limit = get_integer(params, "limit")
    if limit is None:
        return LIMIT_DEFAULT
    if not 1 <= limit <= LIMIT_MAX:
        bound = "less than or equal to 100" if limit > LIMIT_MAX else "greater than or equal to 1"
        raise bad_parameter(f"This value must be {bound}.", "limit", "parameter_invalid_integer")
    return limit


def _read_filters(shop: Shop, collection: Collection, params: Json) -> tuple[list[str], list[Any]]:
    conditions: list[str] = ["kind = ?"]
    values: list[Any] = [collection.kind]
    for name, condition in collection.filters.items():
        if name in params:
            conditions.append(condition)
            values.append(json.dumps(params[name]) if name == "types" else get_text(params, name))
    for condition, value in _read_created(params):
        conditions.append(condition)
        values.append(value)
    if collection.kind == "event":
        conditions.append(COMPARISONS["gt"])
        values.append(shop.clock.now_seconds() - EVENTS_KEPT_SECONDS)
    return conditions, values


def _read_created(params: Json) -> list[tuple[str, int]]:
    created = params.get("created")
    if created is None:
        return []
    if not isinstance(created, dict):
        return [("created = ?", _read_time(created, "created"))]
    refuse_unknown({f"created[{name}]": 0 for name in created}, [f"created[{name}]" for name in COMPARISONS])
    return [(COMPARISONS[name], _read_time(value, f"created[{name}]")) for name, value in created.items()]


def _read_time(value: Any, param: str) -> int:
    seconds = get_integer({param: value}, param)
    return 0 if seconds is None else seconds


def _add_cursor(shop: Shop, collection: Collection, params: Json, conditions: list[str], values: list[Any]) -> bool:
    """Continue after or before an object; True means that the page is read from its far end."""
    after, before = get_text(params, "starting_after"), get_text(params, "ending_before")
    if after is not None and before is not None:
        raise _both_cursors()
    cursor_id = after or before
    if cursor_id is None:
        return False
    name = "starting_after" if after is not None else "ending_before"
    row = shop.store.row("SELECT created, seq FROM objects WHERE id = ? AND kind = ?", (cursor_id, collection.kind))
    if row is None:
        raise no_such(collection.kind, cursor_id, name, status=400)
    conditions.append("(created, seq) < (?, ?)" if after is not None else "(created, seq) > (?, ?)")
    values += [row["created"], row["seq"]]
    return before is not None


def _both_cursors() -> RefusedError:
    message = "You cannot parameterize both starting_after and ending_before."
    return RefusedError(stripe_error(400, "invalid_request_error", message, code="parameters_exclusive"), kept=False)
