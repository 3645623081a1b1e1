"""Payment intents: created, confirmed, captured and cancelled as Stripe does, each with its charge."""

from __future__ import annotations

from sandbox.answers import Answer, RefusedError, answer_with, cannot, no_such, stripe_error
from sandbox.cards import CARDS, Card
from sandbox.disputes import open_dispute
from sandbox.expansion import expand
from sandbox.ledger import EffectKind, record_balance, record_effect, record_event
from sandbox.parameters import (
    get_amount,
    get_choice,
    get_expand,
    get_flag,
    get_metadata,
    get_text,
    refuse_unknown,
    require_amount,
    require_currency,
)
from sandbox.shop import Call, Shop
from sandbox.store import Json
from sandbox.stripe_objects import get_charge_fee, make_charge, make_payment_intent
from sandbox.words import words

CREATE_KNOWN = words(
    """
    amount amount_details allowed_payment_method_types application_fee_amount automatic_payment_methods
    capture_method confirm confirmation_method currency customer description error_on_requires_action
    excluded_payment_method_types expand metadata off_session payment_method payment_method_options
    payment_method_types receipt_email return_url setup_future_usage shipping statement_descriptor
    statement_descriptor_suffix transfer_group use_stripe_sdk
    """
)
CONFIRM_KNOWN = words(
    """
    capture_method error_on_requires_action expand off_session payment_method payment_method_options
    receipt_email return_url setup_future_usage shipping use_stripe_sdk
    """
)
CAPTURE_METHODS = ("automatic", "automatic_async", "manual")
CONFIRMABLE = ("requires_payment_method", "requires_confirmation")
CANCELLABLE = (
    "requires_payment_method",
    "requires_capture",
    "requires_confirmation",
    "requires_action",
    "processing",
)
CANCELLATION_REASONS = ("duplicate", "fraudulent", "requested_by_customer", "abandoned")
KEPT_AS_GIVEN = words(
    """
    customer description receipt_email shipping setup_future_usage statement_descriptor
    statement_descriptor_suffix transfer_group
    """
)


def create_payment_intent(shop: Shop, call: Call) -> Answer:
    params = call.params
    refuse_unknown(params, CREATE_KNOWN)
    confirm, paths = get_flag(params, "confirm"), get_expand(params)
    intent = make_payment_intent(_read_intent(params), shop.clock.now_seconds())
    card = _find_card(intent["payment_method"]) if confirm else None
    shop.store.add_object(intent, kind="payment_intent", order_id=_order_of(intent))
    record_event(shop, call, "payment_intent.created", intent)
    if card is not None:
        return _charge(shop, call, intent, card, paths)
    return answer_with(expand(shop, intent, paths))


def confirm_payment_intent(shop: Shop, call: Call) -> Answer:
    refuse_unknown(call.params, CONFIRM_KNOWN)
    method, paths = get_text(call.params, "payment_method"), get_expand(call.params)
    capture = get_choice(call.params, "capture_method", CAPTURE_METHODS, None)
    intent = get_intent(shop, call)
    if intent["status"] not in CONFIRMABLE:
        raise _wrong_state(intent, "confirm", CONFIRMABLE)
    intent["payment_method"] = method or intent["payment_method"]
    intent["capture_method"] = capture or intent["capture_method"]
    return _charge(shop, call, intent, _find_card(intent["payment_method"]), paths)


def capture_payment_intent(shop: Shop, call: Call) -> Answer:
    """Take what was authorised, or part of it; the rest is let go, without a refund."""
    refuse_unknown(call.params, ("amount_to_capture", "expand", "metadata", "statement_descriptor"))
    paths, metadata = get_expand(call.params), get_metadata(call.params)
    intent = get_intent(shop, call)
    amount = get_amount(call.params, "amount_to_capture", intent["currency"])
    if intent["status"] != "requires_capture":
        raise _wrong_state(intent, "capture", ("requires_capture",))
    if amount is not None and amount > intent["amount_capturable"]:
        message = "The requested capture amount is greater than the amount you can capture for this charge."
        raise cannot(message, code="amount_too_large", param="amount_to_capture")
    intent["metadata"].update(metadata)
    _capture(shop, call, intent, amount or intent["amount_capturable"])
    return answer_with(expand(shop, intent, paths))


def cancel_payment_intent(shop: Shop, call: Call) -> Answer:
    refuse_unknown(call.params, ("cancellation_reason", "expand"))
    reason = get_choice(call.params, "cancellation_reason", CANCELLATION_REASONS, None)
    paths = get_expand(call.params)
    intent = get_intent(shop, call)
    if intent["status"] not in CANCELLABLE:
        raise _wrong_state(intent, "cancel", CANCELLABLE)
    cancel_intent(shop, call, intent, reason)
    return answer_with(expand(shop, intent, paths))


def cancel_intent(shop: Shop, call: Call, intent: Json, reason: str | None) -> None:
    if intent["status"] == "requires_capture":
        _void(shop, call, intent)
    intent.update(
        status="canceled",
        amount_capturable=0,
        canceled_at=shop.clock.now_seconds(),
        cancellation_reason=reason,
    )
    shop.store.save_object(intent)
    record_event(shop, call, "payment_intent.canceled", intent)


def get_intent(shop: Shop, call: Call) -> Json:
    intent_id = call.object_id or ""
    intent = shop.store.find_object("payment_intent", intent_id)
    if intent is None:
        raise no_such("payment_intent", intent_id, "intent")
    return intent


def _read_intent(params: Json) -> Json:
    currency = require_currency(params)
    kept = {name: params.get(name) for name in KEPT_AS_GIVEN}
    return {
        **kept,
        "amount": require_amount(params, "amount", currency),
        "currency": currency,
        "capture_method": get_choice(params, "capture_method", CAPTURE_METHODS, "automatic_async"),
        "payment_method": get_text(params, "payment_method"),
        "metadata": get_metadata(params),
    }


def _find_card(method: str | None) -> Card:
    if method is None:
        message = (
            "You cannot confirm this PaymentIntent because it's missing a payment method. You can either update "
            "the PaymentIntent with a payment method and then confirm it again, or confirm it again directly "
            "with a payment method."
        )
        raise cannot(message, code="payment_intent_unexpected_state")
    if method not in CARDS:
        raise no_such("PaymentMethod", method, "payment_method", status=400)
    return CARDS[method]


def _charge(shop: Shop, call: Call, intent: Json, card: Card, paths: list[str]) -> Answer:
    charge = make_charge(intent, card, shop.clock.now_seconds())
    intent["latest_charge"] = charge["id"]
    order_id = _order_of(intent)
    shop.store.add_object(charge, kind="charge", order_id=order_id, payment_intent=intent["id"])
    if card.decline is not None:
        return _record_decline(shop, call, intent, charge, card)
    if charge["captured"]:
        _record_taken(shop, call, intent, charge, "charge")
    else:
        _record_held(shop, call, intent, charge)
    if card.dispute_status is not None:
        amount, status = charge["amount"], card.dispute_status
        open_dispute(shop, call, charge, amount=amount, status=status, reason=card.dispute_reason)
    return answer_with(expand(shop, intent, paths))


def _record_taken(shop: Shop, call: Call, intent: Json, charge: Json, kind: EffectKind) -> None:
    amount = charge["amount_captured"]
    transaction = record_balance(shop, "charge", charge, amount, get_charge_fee(amount))
    charge["balance_transaction"] = transaction["id"]
    intent.update(status="succeeded", amount_received=amount, amount_capturable=0, last_payment_error=None)
    _save(shop, intent, charge)
    _log(shop, call, kind, charge, amount)
    record_event(shop, call, "charge.captured" if kind == "capture" else "charge.succeeded", charge)
    record_event(shop, call, "payment_intent.succeeded", intent)


def _record_held(shop: Shop, call: Call, intent: Json, charge: Json) -> None:
    intent.update(status="requires_capture", amount_capturable=charge["amount"], last_payment_error=None)
    _save(shop, intent, charge)
    _log(shop, call, "authorization", charge, charge["amount"])
    record_event(shop, call, "charge.succeeded", charge)
    record_event(shop, call, "payment_intent.amount_capturable_updated", intent)


def _record_decline(shop: Shop, call: Call, intent: Json, charge: Json, card: Card) -> Answer:
    """The card said no: the intent waits for another payment method, the failed charge stays on record."""
    decline = card.decline
    assert decline is not None
    error = {"code": decline.code, "charge": charge["id"]}
    if decline.decline_code is not None:
        error["decline_code"] = decline.decline_code
    last = {**error, "message": decline.message, "type": "card_error"}
    intent.update(status="requires_payment_method", last_payment_error=last, payment_method=None)
    _save(shop, intent, charge)
    _log(shop, call, "decline", charge, charge["amount"])
    record_event(shop, call, "charge.failed", charge)
    record_event(shop, call, "payment_intent.payment_failed", intent)
    return stripe_error(402, "card_error", decline.message, payment_intent=intent, **error)


def _capture(shop: Shop, call: Call, intent: Json, amount: int) -> None:
    charge = _get_latest_charge(shop, intent)
    charge.update(captured=True, amount_captured=amount)
    _record_taken(shop, call, intent, charge, "capture")


def _void(shop: Shop, call: Call, intent: Json) -> None:
    charge = _get_latest_charge(shop, intent)
    _log(shop, call, "void", charge, charge["amount"])
    record_event(shop, call, "charge.expired", charge)


def _get_latest_charge(shop: Shop, intent: Json) -> Json:
    charge = shop.store.find_object("charge", intent["latest_charge"])
    if charge is None:
        raise LookupError(f"{intent['id']} names a charge that is not stored: {intent['latest_charge']}")
    return charge


def _save(shop: Shop, intent: Json, charge: Json) -> None:
    shop.store.save_object(charge)
    shop.store.save_object(intent)


def _log(shop: Shop, call: Call, kind: EffectKind, charge: Json, amount: int) -> None:
    record_effect(
        shop,
        call,
        kind,
        charge["id"],
        parent_id=charge["payment_intent"],
        order_id=_order_of(charge),
        amount=amount,
        currency=charge["currency"],
    )


def _order_of(holder: Json) -> str | None:
    order_id: str | None = holder["metadata"].get("order_id")
    return order_id


def _wrong_state(intent: Json, verb: str, allowed: tuple[str, ...]) -> RefusedError:
    message = (
        f"You cannot {verb} this PaymentIntent because it has a status of {intent['status']}. "
        f"Only a PaymentIntent with one of the following statuses may be used: {', '.join(allowed)}."
    )
    return cannot(message, code="payment_intent_unexpected_state", payment_intent=intent)
