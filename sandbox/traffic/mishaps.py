"""What goes wrong outside of any workflow, so that only the provider's books tell: for the reconciliation to find.

A customer is charged a second time by a program without keys, somebody refunds by hand at the provider, a charge is
made for an order that nobody placed. Rare, and soon after the first orders, so that a first report has something true
to say.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import httpx

EVERY = 5000  # orders: some forty a day of each at the demo's two per second
KINDS = {20: "second_charge", 40: "refund_by_hand", 60: "charge_of_nobody"}  # the n-th order of so many
AFTER_SECONDS = 15.0  # by then most orders are completed
TIMEOUT_SECONDS = 3.0


def kind_of(number: int) -> str | None:
    return KINDS.get(number % EVERY)


def happen(kind: str, order: Mapping[str, Any], shop_url: str, api_key: str) -> bool:
    """Best effort: in bad weather it may not happen, and nobody is the wiser. True when the provider took it."""
    if kind == "refund_by_hand":
        path, form = "refunds", {"payment_intent": order["payment_ref"], "metadata[note]": "by hand"}
    else:
        named = order["id"] if kind == "second_charge" else f"{order['id']}-by-phone"
        path, form = "payment_intents", _charge(order, named)
    headers = {"Authorization": f"Bearer {api_key}", "Idempotency-Key": secrets.token_hex(16)}
    try:
        answer = httpx.post(
            f"{shop_url}/v1/{path}", data=form, headers=headers, timeout=TIMEOUT_SECONDS, trust_env=False
        )
    except httpx.HTTPError:
        return False
    return answer.is_success


def _charge(order: Mapping[str, Any], named: str) -> dict[str, str]:
    return {
        "amount": str(order["amount_minor"]),
        "currency": str(order["currency"]).lower(),
        "payment_method": "pm_card_visa",
        "payment_method_types[]": "card",
        "confirm": "true",
        "metadata[order_id]": named,
    }
