"""Stripe's objects as JSON, complete enough that its client reads every field it names; pure, no storage.

Fields that the shop has no use for are there with the value Stripe gives when they are unused.
"""

from __future__ import annotations

from sandbox.cards import Card
from sandbox.ids import new_id
from sandbox.store import Json
from sandbox.words import words

API_VERSION = "2026-10-28.endive"
AUTHORIZATION_SECONDS = 7 * 24 * 3600
SETTLES_AFTER_SECONDS = 2 * 24 * 3600
ARRIVES_AFTER_SECONDS = 24 * 3600
EVIDENCE_SECONDS = 7 * 24 * 3600
DISPUTE_FEE = 1500
BLANK_IN_INTENT = words(
    """
    amount_details application application_fee_amount automatic_payment_methods canceled_at cancellation_reason
    last_payment_error latest_charge next_action on_behalf_of payment_method_configuration_details processing
    review source transfer_data
    """
)
BLANK_IN_CHARGE = words(
    """
    application application_fee application_fee_amount balance_transaction failure_balance_transaction
    on_behalf_of receipt_number review source source_transfer transfer_data transfer_group
    """
)
BLANK_IN_PAYOUT = words(
    """
    application_fee application_fee_amount balance_transaction description destination failure_balance_transaction
    failure_code failure_message original_payout payout_method reversed_by statement_descriptor trace_id
    """
)
COPIED_TO_CHARGE = words(
    """
    amount currency customer description payment_method receipt_email shipping statement_descriptor
    statement_descriptor_suffix
    """
)


def make_payment_intent(given: Json, created: int) -> Json:
    """An intent that has not been confirmed; ``given`` holds the caller's own fields, already checked."""
    intent_id = new_id("pi")
    blank = dict.fromkeys(BLANK_IN_INTENT)
    return {
        "id": intent_id,
        "object": "payment_intent",
        **blank,
        "amount_capturable": 0,
        "amount_received": 0,
        "client_secret": intent_id + "_secret_" + new_id("")[1:],
        "confirmation_method": "automatic",
        "created": created,
        "livemode": False,
        "payment_method_options": {"card": {"request_three_d_secure": "automatic"}},
        "payment_method_types": ["card"],
        "status": "requires_payment_method" if given["payment_method"] is None else "requires_confirmation",
        **given,
    }


def make_charge(intent: Json, card: Card, created: int) -> Json:
    """A charge of the intent's amount: succeeded, unless the card declines; captured, unless capture is manual."""
    captured = card.decline is None and intent["capture_method"] != "manual"
    blank = dict.fromkeys(BLANK_IN_CHARGE)
    copied = {name: intent[name] for name in COPIED_TO_CHARGE}
    charge_id = new_id("ch")
    return {
        "id": charge_id,
        "object": "charge",
        **blank,
        **copied,
        "amount_captured": intent["amount"] if captured else 0,
        "amount_refunded": 0,
        "billing_details": {
            "address": _blank_address(),
            "email": None,
            "name": None,
            "phone": None,
            "tax_id": None,
        },
        "calculated_statement_descriptor": "MAKEGOOD SHOP",
        "captured": captured,
        "created": created,
        "disputed": False,
        "failure_code": card.decline.code if card.decline else None,
        "failure_message": card.decline.message if card.decline else None,
        "fraud_details": {},
        "livemode": False,
        "metadata": dict(intent["metadata"]),
        "outcome": _outcome(card),
        "paid": card.decline is None,
        "payment_intent": intent["id"],
        "payment_method_details": {"card": _card_details(intent, card, created), "type": "card"},
        "radar_options": {},
        "receipt_url": None if card.decline else "https://pay.stripe.com/receipts/" + charge_id,
        "refunded": False,
        "status": "failed" if card.decline else "succeeded",
    }


def make_refund(charge: Json, given: Json, created: int) -> Json:
    """``given`` holds amount, status, reason and metadata, already checked."""
    return {
        "id": new_id("re"),
        "object": "refund",
        "balance_transaction": None,
        "charge": charge["id"],
        "created": created,
        "currency": charge["currency"],
        "destination_details": {"card": {"reference_status": "pending", "type": "refund"}, "type": "card"},
        "payment_intent": charge["payment_intent"],
        "receipt_number": None,
        "source_transfer_reversal": None,
        "transfer_reversal": None,
        **({"pending_reason": "processing"} if given["status"] == "pending" else {}),
        **given,
    }


def make_dispute(charge: Json, amount: int, status: str, reason: str, created: int) -> Json:
    return {
        "id": new_id("du"),
        "object": "dispute",
        "amount": amount,
        "balance_transactions": [],
        "charge": charge["id"],
        "created": created,
        "currency": charge["currency"],
        "enhanced_eligibility_types": [],
        "evidence": {},
        "evidence_details": {
            "due_by": created + EVIDENCE_SECONDS,
            "has_evidence": False,
            "past_due": False,
            "submission_count": 0,
        },
        "is_charge_refundable": status.startswith("warning_"),
        "livemode": False,
        "metadata": {},
        "payment_intent": charge["payment_intent"],
        "reason": reason,
        "status": status,
    }


def make_balance_transaction(kind: str, source: Json, amount: int, fee: int, created: int) -> Json:
    """One movement of the balance; ``net`` is what it changed by, and may be below zero."""
    fees = [{"amount": fee, "application": None, "currency": source["currency"], "type": "stripe_fee"}]
    return {
        "id": new_id("txn"),
        "object": "balance_transaction",
        "amount": amount,
        "available_on": created + SETTLES_AFTER_SECONDS,
        "balance_type": "payments",
        "created": created,
        "currency": source["currency"],
        "description": None,
        "exchange_rate": None,
        "fee": fee,
        "fee_details": fees if fee else [],
        "net": amount - fee,
        "reporting_category": "dispute" if kind == "adjustment" else kind,
        "source": source["id"],
        "status": "available",
        "type": kind,
    }


def make_payout(currency: str, amount: int, status: str, created: int) -> Json:
    return {
        "id": new_id("po"),
        "object": "payout",
        **dict.fromkeys(BLANK_IN_PAYOUT),
        "amount": amount,
        "arrival_date": created + ARRIVES_AFTER_SECONDS,
        "automatic": True,
        "created": created,
        "currency": currency,
        "livemode": False,
        "metadata": {},
        "method": "standard",
        "reconciliation_status": "completed",
        "source_type": "card",
        "status": status,
        "type": "bank_account",
    }


def make_event(event_type: str, snapshot: Json, request_id: str | None, key: str | None, created: int) -> Json:
    return {
        "id": new_id("evt"),
        "object": "event",
        "api_version": API_VERSION,
        "created": created,
        "data": {"object": snapshot},
        "livemode": False,
        "pending_webhooks": 0,
        "request": {"id": request_id, "idempotency_key": key},
        "type": event_type,
    }


def make_list(url: str, data: list[Json], has_more: bool) -> Json:
    return {"object": "list", "data": data, "has_more": has_more, "url": url}


def get_charge_fee(amount: int) -> int:
    """2.9 % rounded half up, plus 30 minor units: integers all the way."""
    return (amount * 29 + 500) // 1000 + 30


def _outcome(card: Card) -> Json:
    declined = card.decline is not None
    return {
        "advice_code": None,
        "network_status": "declined_by_network" if declined else "approved_by_network",
        "reason": card.decline.decline_code if card.decline else None,
        "risk_level": "normal",
        "seller_message": "The bank declined the payment." if declined else "Payment complete.",
        "type": "issuer_declined" if declined else "authorized",
    }


def _card_details(intent: Json, card: Card, created: int) -> Json:
    details: Json = {
        "amount_authorized": intent["amount"],
        "brand": card.brand,
        "country": "US",
        "exp_month": 12,
        "exp_year": 2034,
        "funding": "credit",
        "last4": card.last4,
        "network": card.brand,
        "three_d_secure": None,
        "wallet": None,
    }
    if intent["capture_method"] == "manual" and card.decline is None:
        details["capture_before"] = created + AUTHORIZATION_SECONDS
    return details


def _blank_address() -> Json:
    return dict.fromkeys(("city", "country", "line1", "line2", "postal_code", "state"))
