"""``expand[]=latest_charge.balance_transaction`` replaces an id by its object, as deep as Stripe allows."""

from __future__ import annotations

import json
from typing import Any

from sandbox.answers import bad_parameter
from sandbox.shop import Shop
from sandbox.store import Json
from sandbox.stripe_objects import make_list

DEPTH_MAX = 4
EXPANDABLE = {
    "latest_charge": "charge",
    "charge": "charge",
    "payment_intent": "payment_intent",
    "balance_transaction": "balance_transaction",
    "failure_balance_transaction": "balance_transaction",
    "source": None,  # a balance transaction's source may be of any kind
}


def expand(shop: Shop, document: Json, paths: list[str]) -> Json:
    """A copy with each path expanded; what is stored stays as it is."""
    shown = dict(document)
    for path in paths:
        parts = path.split(".")
        if len(parts) > DEPTH_MAX:
            raise bad_parameter(f"You cannot expand more than {DEPTH_MAX} levels of a property ({path})", "expand")
        _expand_at(shop, shown, parts, path)
    return shown


def _expand_at(shop: Shop, holder: Json, parts: list[str], path: str) -> None:
    name, rest = parts[0], parts[1:]
    if name == "data" and isinstance(holder.get("data"), list):
        holder["data"] = [_copied(shop, item, rest, path) for item in holder["data"]]
        return
    holder[name] = _look_up(shop, holder, name, path)
    if rest and isinstance(holder[name], dict):
        _expand_at(shop, holder[name], rest, path)


def _copied(shop: Shop, item: Json, rest: list[str], path: str) -> Json:
    shown = dict(item)
    if rest:
        _expand_at(shop, shown, rest, path)
    return shown


def _look_up(shop: Shop, holder: Json, name: str, path: str) -> Any:
    if name == "refunds" and holder.get("object") == "charge":
        return _list_refunds(shop, holder["id"])
    if name not in EXPANDABLE or name not in holder:
        raise bad_parameter(f"This property cannot be expanded ({path}).", "expand")
    value = holder[name]
    if not isinstance(value, str):
        return value  # nothing there, or expanded by an earlier path
    row = shop.store.row("SELECT body FROM objects WHERE id = ?", (value,))
    return value if row is None else json.loads(row["body"])


def _list_refunds(shop: Shop, charge_id: str) -> Json:
    found = shop.store.rows(
        "SELECT body FROM objects WHERE parent = ? AND kind = 'refund' ORDER BY seq DESC LIMIT 11",
        (charge_id,),
    )
    refunds = [json.loads(row["body"]) for row in found]
    return make_list(f"/v1/charges/{charge_id}/refunds", refunds[:10], len(refunds) > 10)
