"""Payouts: the bank is sent what the balance holds; which movements it is made of can be asked for afterwards."""

from __future__ import annotations

import json

from sandbox.answers import bad_request
from sandbox.ledger import EffectKind, record_balance, record_effect, record_event
from sandbox.shop import Call, Shop
from sandbox.store import Json
from sandbox.stripe_objects import make_payout

OPEN_STATUSES = ("pending", "in_transit", "paid")
SETTLED_STATUSES = ("paid", "failed")


def pay_out(shop: Shop, call: Call, currency: str, status: str) -> Json:
    """Everything in that currency that was never paid out, as one payout; below zero the bank is debited."""
    movements = _find_unpaid(shop, currency)
    if not movements:
        raise bad_request(f"the balance has nothing in {currency} that was not paid out")
    amount = sum(movement["net"] for movement in movements)
    payout = make_payout(currency, amount, status, shop.clock.now_seconds())
    own = record_balance(shop, "payout", payout, -amount)
    payout["balance_transaction"] = own["id"]
    shop.store.add_object(payout, kind="payout", tag=status)
    for movement in (*movements, own):
        shop.store.execute("INSERT INTO payout_items (payout, object_id) VALUES (?, ?)", (payout["id"], movement["id"]))
    _log(shop, call, "payout", payout)
    record_event(shop, call, "payout.created", payout)
    return payout


def settle_payout(shop: Shop, call: Call, payout: Json, status: str) -> Json:
    """What the bank says later; a payout that failed gives its money back to the balance."""
    payout["status"] = status
    if status == "failed":
        payout["failure_code"] = "account_closed"
        payout["failure_balance_transaction"] = record_balance(shop, "payout_failure", payout, payout["amount"])["id"]
        _log(shop, call, "payout_failed", payout)
    shop.store.save_object(payout)
    record_event(shop, call, "payout." + status, payout)
    return payout


def _find_unpaid(shop: Shop, currency: str) -> list[Json]:
    found = shop.store.rows(
        "SELECT body FROM objects WHERE kind = 'balance_transaction' AND json_extract(body, '$.currency') = ?"
        " AND id NOT IN (SELECT object_id FROM payout_items) ORDER BY seq",
        (currency,),
    )
    return [json.loads(row["body"]) for row in found]


def _log(shop: Shop, call: Call, kind: EffectKind, payout: Json) -> None:
    record_effect(shop, call, kind, payout["id"], amount=payout["amount"], currency=payout["currency"])
