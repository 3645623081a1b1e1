"""Refunds: never more than was captured, never of a charge that the bank has taken back."""

from __future__ import annotations

from sandbox.answers import Answer, answer_with, bad_parameter, cannot, no_such
from sandbox.cards import CARDS
from sandbox.currencies import show
from sandbox.disputes import blocks_refund
from sandbox.expansion import expand
from sandbox.ledger import EffectKind, record_balance, record_effect, record_event
from sandbox.parameters import get_amount, get_choice, get_expand, get_metadata, get_text, refuse_unknown
from sandbox.shop import Call, Shop
from sandbox.store import Json
from sandbox.stripe_objects import make_refund
from sandbox.words import words

KNOWN = words(
    """
    amount charge currency expand instructions_email metadata origin payment_intent reason
    refund_application_fee reverse_transfer
    """
)
REASONS = ("duplicate", "fraudulent", "requested_by_customer")


def create_refund(shop: Shop, call: Call) -> Answer:
    params = call.params
    refuse_unknown(params, KNOWN)
    given: Json = {"reason": get_choice(params, "reason", REASONS, None), "metadata": get_metadata(params)}
    paths = get_expand(params)
    _require_target(params)
    charge = _find_charge(shop, params)
    given |= {"amount": _read_amount(shop, params, charge), "status": _status_for(charge)}
    refund = make_refund(charge, given, shop.clock.now_seconds())
    _record_refund(shop, call, charge, refund)
    return answer_with(expand(shop, refund, paths))


def settle_refund(shop: Shop, call: Call, refund: Json, status: str) -> Json:
    """What the bank says later: a refund that was pending succeeds, or one that seemed done comes back."""
    refund.pop("pending_reason", None)
    refund["status"] = status
    if status == "failed":
        _give_back(shop, call, refund)
    shop.store.save_object(refund)
    record_event(shop, call, "refund.failed" if status == "failed" else "refund.updated", refund)
    return refund


def _require_target(params: Json) -> None:
    if not (get_text(params, "charge") or get_text(params, "payment_intent")):
        message = "One of the following params should be provided for this request: payment_intent or charge."
        raise bad_parameter(message, None, "parameter_missing")


def _find_charge(shop: Shop, params: Json) -> Json:
    charge_id = get_text(params, "charge") or _find_charge_of_intent(shop, params["payment_intent"])
    charge = shop.store.find_object("charge", charge_id)
    if charge is None:
        raise no_such("charge", charge_id, "charge")
    intent_id = get_text(params, "payment_intent")
    if intent_id is not None and charge["payment_intent"] != intent_id:
        raise cannot(f"Charge {charge_id} does not belong to PaymentIntent {intent_id}.", param="payment_intent")
    return charge


def _find_charge_of_intent(shop: Shop, intent_id: str) -> str:
    intent = shop.store.find_object("payment_intent", intent_id)
    if intent is None:
        raise no_such("payment_intent", intent_id, "payment_intent")
    if intent["status"] != "succeeded":
        message = f"This PaymentIntent ({intent_id}) does not have a successful charge to refund."
        raise cannot(message, code="payment_intent_unexpected_state", param="payment_intent")
    charge_id: str = intent["latest_charge"]
    return charge_id


def _read_amount(shop: Shop, params: Json, charge: Json) -> int:
    asked = get_amount(params, "amount", charge["currency"])
    _refuse_unrefundable(shop, charge)
    left = charge["amount_captured"] - charge["amount_refunded"]
    amount = left if asked is None else asked
    if amount > left:
        asked_text, left_text = show(amount, charge["currency"]), show(left, charge["currency"])
        message = f"Refund amount ({asked_text}) is greater than unrefunded amount on charge ({left_text})"
        raise cannot(message, param="amount")
    return amount


def _refuse_unrefundable(shop: Shop, charge: Json) -> None:
    charge_id = charge["id"]
    if charge["status"] != "succeeded" or not charge["captured"]:
        message = f"Charge {charge_id} cannot be refunded because it was not captured."
        raise cannot(message, code="charge_not_refundable", charge=charge_id)
    if blocks_refund(shop, charge):
        message = f"Charge {charge_id} has been charged back; cannot issue a refund."
        raise cannot(message, code="charge_disputed", charge=charge_id)
    if charge["refunded"]:
        message = f"Charge {charge_id} has already been refunded."
        raise cannot(message, code="charge_already_refunded", charge=charge_id)


def _status_for(charge: Json) -> str:
    card = CARDS.get(charge["payment_method"])
    return "succeeded" if card is None else card.refund_status


def _record_refund(shop: Shop, call: Call, charge: Json, refund: Json) -> None:
    order_id = refund["metadata"].get("order_id") or charge["metadata"].get("order_id")
    refund["balance_transaction"] = record_balance(shop, "refund", refund, -refund["amount"])["id"]
    shop.store.add_object(
        refund, kind="refund", order_id=order_id, payment_intent=charge["payment_intent"], parent=charge["id"]
    )
    _move_refunded(shop, charge, refund["amount"])
    _log(shop, call, "refund", refund, order_id)
    record_event(shop, call, "refund.created", refund)
    record_event(shop, call, "charge.refunded", charge)


def _give_back(shop: Shop, call: Call, refund: Json) -> None:
    charge = shop.store.find_object("charge", refund["charge"])
    if charge is None:
        raise LookupError(f"{refund['id']} names a charge that is not stored: {refund['charge']}")
    refund["failure_reason"] = "expired_or_canceled_card"
    refund["failure_balance_transaction"] = record_balance(shop, "refund_failure", refund, refund["amount"])["id"]
    _move_refunded(shop, charge, -refund["amount"])
    _log(shop, call, "refund_failed", refund, shop.store.get_order_of(refund["id"]))


def _move_refunded(shop: Shop, charge: Json, amount: int) -> None:
    charge["amount_refunded"] += amount
    charge["refunded"] = charge["amount_refunded"] == charge["amount_captured"]
    shop.store.save_object(charge)


def _log(shop: Shop, call: Call, kind: EffectKind, refund: Json, order_id: str | None) -> None:
    record_effect(
        shop,
        call,
        kind,
        refund["id"],
        parent_id=refund["charge"],
        order_id=order_id,
        amount=refund["amount"],
        currency=refund["currency"],
    )
