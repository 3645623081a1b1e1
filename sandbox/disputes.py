"""Disputes: opened by a test card or the control API, closed won or lost, with their part in the balance."""

from __future__ import annotations

import json

from sandbox.ledger import EffectKind, record_balance, record_effect, record_event
from sandbox.shop import Call, Shop
from sandbox.store import Json
from sandbox.stripe_objects import DISPUTE_FEE, make_dispute

OPEN_STATUSES = ("needs_response", "under_review", "warning_needs_response", "warning_under_review")
CLOSED_STATUSES = ("won", "lost")


def blocks_refund(shop: Shop, charge: Json) -> bool:
    """True while some dispute of the charge has taken, or may keep, its money."""
    if not charge["disputed"]:
        return False
    found = shop.store.rows("SELECT body FROM objects WHERE parent = ? AND kind = 'dispute'", (charge["id"],))
    return any(not json.loads(row["body"])["is_charge_refundable"] for row in found)


def open_dispute(shop: Shop, call: Call, charge: Json, *, amount: int, status: str, reason: str) -> Json:
    """A dispute takes the money at once; an inquiry (``warning_…``) only asks."""
    dispute = make_dispute(charge, amount, status, reason, shop.clock.now_seconds())
    if not dispute["is_charge_refundable"]:
        _move_money(shop, dispute, -amount, DISPUTE_FEE)
        charge["disputed"] = True
        shop.store.save_object(charge)
    order_id = charge["metadata"].get("order_id")
    shop.store.add_object(
        dispute,
        kind="dispute",
        order_id=order_id,
        payment_intent=charge["payment_intent"],
        parent=charge["id"],
    )
    _log(shop, call, "dispute_opened", dispute, order_id)
    record_event(shop, call, "charge.dispute.created", dispute)
    return dispute


def close_dispute(shop: Shop, call: Call, dispute: Json, charge: Json, status: str) -> Json:
    """Won gives the money back and makes the charge refundable again; lost leaves things as they are."""
    dispute["status"] = status
    if status == "won" and not dispute["is_charge_refundable"]:
        _move_money(shop, dispute, dispute["amount"], -DISPUTE_FEE)
        dispute["is_charge_refundable"] = True
    shop.store.save_object(dispute)
    _log(shop, call, "dispute_closed", dispute, charge["metadata"].get("order_id"))
    record_event(shop, call, "charge.dispute.closed", dispute)
    return dispute


def _move_money(shop: Shop, dispute: Json, amount: int, fee: int) -> None:
    transaction = record_balance(shop, "adjustment", dispute, amount, fee)
    dispute["balance_transactions"].append(transaction)


def _log(shop: Shop, call: Call, kind: EffectKind, dispute: Json, order_id: str | None) -> None:
    record_effect(
        shop,
        call,
        kind,
        dispute["id"],
        parent_id=dispute["charge"],
        order_id=order_id,
        amount=dispute["amount"],
        currency=dispute["currency"],
    )
