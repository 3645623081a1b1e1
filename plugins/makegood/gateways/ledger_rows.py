"""The provider's objects as rows of our books: our minor units, our words, what was not said left out. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from makegood.errors import PermanentError
from makegood.gateways.payments import TWO_DECIMALS_AT_STRIPE, from_stripe_amount

Row = dict[str, Any]
Stripe = Mapping[str, Any]

# Closed is won: an inquiry that was closed, and a dispute that was prevented, took nothing.
DISPUTES = {"won": "won", "lost": "lost", "warning_closed": "won", "prevented": "won"}
REFUND_STATUSES = frozenset(("pending", "succeeded", "failed", "canceled", "requires_action"))
TEXT_MAX = 255


def charge_row(charge: Stripe, now: int) -> Row:
    """``payment_intent`` may be expanded: it alone knows of a cancellation, and of captures that are still open."""
    currency = read_currency(charge)
    intent = charge.get("payment_intent")
    captured = read_amount(charge, "amount_captured", currency)
    card = _card(charge)
    status = _charge_status(charge, captured, intent, card.get("capture_before"), now)
    return {
        "id": charge["id"],
        "payment_ref": _id_of(intent) or charge["id"],
        "order_ref": read_text((charge.get("metadata") or {}).get("order_id")),
        "customer_ref": _id_of(charge.get("customer")),
        "status": status,
        "amount_minor": read_amount(charge, "amount", currency),
        "captured_minor": captured if status == "succeeded" else 0,
        "currency": currency,
        "livemode": bool(charge.get("livemode")),
        "capture_before": card.get("capture_before"),
        "captures_open": status == "succeeded" and _captures_open(charge, intent, captured),
        "created_at": charge["created"],
    }


def refund_row(refund: Stripe, now: int) -> Row:
    currency = read_currency(refund)
    metadata = refund.get("metadata") or {}
    if refund.get("status") not in REFUND_STATUSES:
        raise PermanentError(f"its status is {refund.get('status')!r}, which is not known here")
    return {
        "id": refund["id"],
        "charge_id": _id_of(refund.get("charge")),
        "compensation_ref": read_text(metadata.get("compensation_id") or metadata.get("remedy_id")),
        "status": refund["status"],
        "amount_minor": read_amount(refund, "amount", currency),
        "currency": currency,
        "created_at": refund["created"],
    }


def dispute_row(dispute: Stripe, now: int) -> Row:
    currency = read_currency(dispute)
    return {
        "id": dispute["id"],
        "charge_id": _id_of(dispute.get("charge")),
        "status": DISPUTES.get(str(dispute.get("status")), "open"),
        "amount_minor": read_amount(dispute, "amount", currency),
        "currency": currency,
        "created_at": dispute["created"],
    }


def balance_row(movement: Stripe, now: int) -> Row:
    """Without ``payout_ref``: a list does not say it, and what is known of it stays."""
    currency = read_currency(movement)
    return {
        "id": movement["id"],
        "kind": movement["type"],
        "source_ref": _id_of(movement.get("source")),
        "amount_minor": read_amount(movement, "amount", currency),
        "fee_minor": read_amount(movement, "fee", currency),
        "net_minor": read_amount(movement, "net", currency),
        "currency": currency,
        "created_at": movement["created"],
    }


def payout_row(payout: Stripe, now: int) -> Row:
    currency = read_currency(payout)
    return {
        "id": payout["id"],
        "status": payout["status"],
        "amount_minor": read_amount(payout, "amount", currency),
        "currency": currency,
        "created_at": payout["created"],
    }


ROWS: Mapping[str, Callable[[Stripe, int], Row]] = {
    "charges": charge_row,
    "refunds": refund_row,
    "disputes": dispute_row,
    "balance_transactions": balance_row,
    "payouts": payout_row,
}


def read_row(collection: str, item: Stripe, now: int) -> Row:
    """The row, or a PermanentError that says what is wrong with the object."""
    try:
        return ROWS[collection](item, now)
    except (KeyError, TypeError, AttributeError) as error:
        raise PermanentError(f"it is not as Stripe describes it: {type(error).__name__} {error}") from error


def read_currency(item: Stripe) -> str:
    currency = item.get("currency")
    if not isinstance(currency, str):
        raise PermanentError(f"its currency is {currency!r}")
    return currency.upper()


def read_amount(item: Stripe, name: str, currency: str) -> int:
    """Stripe's amount in our minor units; what does not fit them is refused, never rounded."""
    amount = item.get(name)
    if isinstance(amount, bool) or not isinstance(amount, int):
        raise PermanentError(f"{name} is {amount!r}; it must be a whole number")
    if currency in TWO_DECIMALS_AT_STRIPE and amount % 100:
        raise PermanentError(f"{name} is {amount} in {currency}, which has no decimals")
    return from_stripe_amount(amount, currency)


def read_text(value: Any) -> str | None:
    """A name from metadata, if our books can hold it; somebody else's text under the same key is no order of ours."""
    if not isinstance(value, str) or not 0 < len(value) <= TEXT_MAX:
        return None
    return value if value.isprintable() else None


def _id_of(value: Any) -> str | None:
    """An id, or that of the object it was expanded to."""
    found = value.get("id") if isinstance(value, Mapping) else value
    return found if isinstance(found, str) and found else None


def _card(charge: Stripe) -> Mapping[str, Any]:
    details = charge.get("payment_method_details") or {}
    found = details.get("card") or details.get("card_present") or {}
    return found if isinstance(found, Mapping) else {}


def _charge_status(charge: Stripe, captured: int, intent: Any, capture_before: Any, now: int) -> str:
    """Stripe's ``succeeded`` only says that the bank agreed; what was taken is said by ``captured``."""
    if charge["status"] in {"pending", "failed"}:
        return str(charge["status"])
    if charge["status"] != "succeeded":
        raise PermanentError(f"its status is {charge['status']!r}, which is not known here")
    if charge.get("captured") or captured:
        return "succeeded"
    cancelled = isinstance(intent, Mapping) and intent.get("status") == "canceled"
    # In older versions of the interface letting an authorisation go shows as a refund of all of it.
    released = bool(charge.get("refunded"))
    lapsed = isinstance(capture_before, int) and capture_before <= now
    return "lapsed" if cancelled or released or lapsed else "authorized"


def _captures_open(charge: Stripe, intent: Any, captured: int) -> bool:
    """Something was captured and more may be."""
    if isinstance(intent, Mapping):
        return intent.get("status") == "requires_capture"
    return captured > 0 and not charge.get("captured")
