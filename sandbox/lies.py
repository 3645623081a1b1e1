"""What faults answer in place of the truth; what is stored under the key stays true, unless they say so."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from sandbox.answers import Answer, cannot, error_for, service_error
from sandbox.cards import REFUSING_CARD
from sandbox.shop import Call, Performer, Shop
from sandbox.store import to_json

GARBAGE = "<html><body>upstream connect error or disconnect/reset before headers</body></html>"
AMOUNTS = frozenset(("amount", "amount_captured", "amount_received", "amount_capturable", "amount_refunded", "net"))
REFUSALS = {
    "capture": "charge_expired_for_capture",
    "cancel_charge": "payment_intent_unexpected_state",
    "refund": "charge_not_refundable",
}
SERVICE_REFUSALS = {
    "reserve": (409, "out_of_stock", "none available"),
    "release": (409, "already_picked", "the goods have left the shelf"),
    "ship": (422, "undeliverable", "nothing can be delivered to this address"),
    "cancel_shipment": (409, "already_dispatched", "the parcel has left the house"),
}


def answer_before(shop: Shop, call: Call, fault: str | None) -> Answer | None:
    """The answer of a fault that comes before the work; None where no answer comes at all."""
    if fault == "rate_limited":
        answer = error_for(call.service, 429, "rate_limit", "Too many requests.", error_type="invalid_request_error")
        return replace(answer, headers={"Retry-After": str(shop.faults.retry_after_seconds)})
    if fault == "unauthorized":
        return error_for(call.service, 401, None, "Invalid API Key provided.", error_type="invalid_request_error")
    if fault == "error_503":
        return error_for(call.service, 503, None, "The service is not available at the moment.")
    return None


def failure(call: Call) -> Answer:
    return error_for(call.service, 500, None, "An unknown error occurred.")


def refuse(shop: Shop, call: Call, perform: Performer) -> Answer:
    """A definite no. A charge is refused by its card, so that the intent and the failed charge exist."""
    if call.operation == "charge":
        return perform(shop, replace(call, params={**call.params, "payment_method": REFUSING_CARD}))
    if call.operation in REFUSALS:
        raise cannot("The request was refused.", code=REFUSALS[call.operation])
    return service_error(*SERVICE_REFUSALS[call.operation])


def list_wrongly(shop: Shop, call: Call, perform: Performer, fault: str) -> Answer:
    """A list as a provider shows it on a bad day: by one page or row too few or too many, or wrong about its end."""
    answer = perform(shop, call)
    page = json.loads(answer.body)
    rows = page.get("data") or []
    if fault == "skipped_page" and rows and page.get("has_more"):
        params = {name: value for name, value in call.params.items() if name != "ending_before"}
        return perform(shop, replace(call, params={**params, "starting_after": rows[-1]["id"]}))
    if fault == "dropped_row" and rows:
        rows.pop(len(rows) // 2)
    elif fault == "repeated_row" and rows:
        rows.insert(0, rows[0])
    elif fault in ("more_denied", "more_claimed"):
        page["has_more"] = fault == "more_claimed"
    return replace(answer, body=to_json(page))


def tell_wrongly(fault: str | None, answer: Answer) -> Answer:
    if fault == "malformed":
        return replace(answer, body=GARBAGE)
    if fault in ("wrong_amount", "wrong_currency") and answer.status < 400:
        return replace(answer, body=json.dumps(_falsify(json.loads(answer.body), fault)))
    return answer


def _falsify(value: Any, fault: str) -> Any:
    if isinstance(value, list):
        return [_falsify(item, fault) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: _falsify_field(name, item, fault) for name, item in value.items()}


def _falsify_field(name: str, value: Any, fault: str) -> Any:
    if fault == "wrong_amount" and name in AMOUNTS and isinstance(value, int) and value:
        return value + 100
    if fault == "wrong_currency" and name == "currency":
        return "eur" if value != "eur" else "usd"
    return _falsify(value, fault)
