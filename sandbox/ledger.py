"""What an effect leaves behind: its line in the append-only log, its event, its movement of the balance.

All of it is written in the caller's transaction, together with the object and the idempotency answer.
"""

from __future__ import annotations

from typing import Literal

from sandbox.shop import Call, Shop
from sandbox.store import Json
from sandbox.stripe_objects import make_balance_transaction, make_event

EffectKind = Literal[
    "charge",  # money taken from the card
    "authorization",  # money held on the card; a `capture` takes it, a `void` lets it go
    "capture",
    "void",
    "decline",  # the card said no: an object exists, no money moved
    "refund",
    "refund_failed",  # a refund that was pending or succeeded came back
    "dispute_opened",
    "dispute_closed",
    "payout",  # the balance sent to the bank
    "payout_failed",  # and back
    "reservation",
    "release",
    "shipment",
    "shipment_cancelled",
]


def record_effect(
    shop: Shop,
    call: Call,
    kind: EffectKind,
    object_id: str,
    *,
    parent_id: str | None = None,
    order_id: str | None = None,
    amount: int | None = None,
    currency: str | None = None,
    quantity: int | None = None,
) -> None:
    values = (
        kind,
        object_id,
        parent_id,
        order_id or call.order_id,
        call.get_compensation_id(),
        amount,
        currency,
        quantity,
        call.key,
        call.request_id,
        shop.clock.now(),
    )
    shop.store.execute(
        "INSERT INTO effects (kind, object_id, parent_id, order_id, compensation_id, amount, currency,"
        " quantity, idempotency_key, request_id, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        values,
    )


def record_event(shop: Shop, call: Call, event_type: str, snapshot: Json) -> None:
    """The object as it is at this moment, kept for as long as the shop keeps anything."""
    event = make_event(event_type, snapshot, call.request_id, call.key, shop.clock.now_seconds())
    shop.store.add_object(event, kind="event", tag=event_type)


def record_balance(shop: Shop, kind: str, source: Json, amount: int, fee: int = 0) -> Json:
    transaction = make_balance_transaction(kind, source, amount, fee, shop.clock.now_seconds())
    shop.store.add_object(transaction, kind="balance_transaction", parent=source["id"], tag=kind)
    return transaction
