"""What a remedy asks of the provider: whether the charge is still as the verdict has it; then its refund, once.

Reads decide nothing by themselves: what cannot be read now is unknown, and only what was read and does not fit is a
definite no.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from itertools import chain
from typing import Any, cast

import stripe

from makegood.engine.definitions import Action, Call, Request
from makegood.engine.outcomes import Failed, Outcome, Success, Unknown
from makegood.errors import PermanentError, TransientError
from makegood.gateways.payments import (
    PAGE,
    PROVIDER,
    READING,
    Payments,
    cannot_tell,
    check_refund,
    classify,
    from_stripe_amount,
    to_stripe_amount,
)

Ask = Callable[[str], Awaitable[Mapping[str, Any]]]
"""Whether our own side still wants the remedy of this name: ``verdict`` go or what is in the way, and ``reason``."""
# A dispute that ended in our favour, or was only a question that is answered.
DISPUTES_OVER = frozenset({"won", "warning_closed"})
DEAD_REFUNDS = frozenset({"failed", "canceled"})


class Remedies:
    """The steps of a remedy over one Stripe account and our own side."""

    def __init__(self, payments: Payments, ask: Ask) -> None:
        self._client = payments.client
        self._ask = ask

    def check(self) -> Action:
        # Reading again is how a check is looked up.
        return Action(self._check, check_request, lambda call: self._check(call, check_request(call)), PROVIDER)

    def refund(self) -> Action:
        return Action(self._refund, remedy_request, self._look_up, PROVIDER)

    async def _check(self, call: Call, request: Request) -> Outcome:
        """Their side first and ours last, so that a switch thrown meanwhile is seen."""
        try:
            charge = (await self._client.v1.charges.retrieve_async(request["charge"], None, READING)).to_dict()
            about = cast(Any, {"charge": request["charge"], "limit": PAGE})
            refunds = await self._client.v1.refunds.list_async(about, READING)
            disputes = [await self._disputes_of(name) for name in (request["charge"], *other_charges(call))]
        except stripe.StripeError as error:
            return classify(error)
        refusal = find_refusal(call, charge, list(chain(*disputes)), [item.to_dict() for item in refunds.data])
        return refusal or await self._check_ours(call)

    async def _disputes_of(self, charge: str) -> list[dict[str, Any]]:
        page = await self._client.v1.disputes.list_async(cast(Any, {"charge": charge, "limit": PAGE}), READING)
        return [item.to_dict() for item in page.data]

    async def _check_ours(self, call: Call) -> Outcome:
        try:
            ours = await self._ask(call.entity_id)
        except TransientError as error:  # our own trouble, not the provider's
            return Unknown(type(error).__name__, str(error))
        return Success({"checked": True}) if ours["verdict"] == "go" else Failed(ours["verdict"], ours["reason"])

    async def _refund(self, call: Call, request: Request) -> Outcome:
        try:
            refund = await self._client.v1.refunds.create_async(cast(Any, dict(request)), {"idempotency_key": call.key})
        except stripe.StripeError as error:
            outcome = classify(error)
            # Refunded already: by us, with the answer lost, or by somebody else. Only the former is success.
            if isinstance(outcome, Failed) and outcome.error_type == "charge_already_refunded":
                return await self._look_up(call) or outcome
            return outcome
        return check_refund(refund.to_dict(), request, call.currency)

    async def _look_up(self, call: Call) -> Outcome | None:
        """The remedy's own refund among those of the charge; None when there is none."""
        request = remedy_request(call)
        try:
            page = await self._client.v1.refunds.list_async(
                cast(Any, {"charge": request["charge"], "limit": PAGE}), READING
            )
        except stripe.StripeError as error:
            return cannot_tell(error)
        for refund in (item.to_dict() for item in page.data):
            if (refund.get("metadata") or {}).get("compensation_id") == call.context.get("remedy_id"):
                return check_refund(refund, request, call.currency)
        return None


def check_request(call: Call) -> Request:
    return {"charge": _charge_of(call), "amount_minor": call.amount_minor, "currency": call.currency}


def remedy_request(call: Call) -> Request:
    if call.amount_minor is None or call.currency is None:
        raise PermanentError(f"{call.entity_id} has no amount to refund")
    names = {
        "order_id": call.context.get("order_id"),
        "finding_id": call.context.get("finding_id"),
        "compensation_id": call.context.get("remedy_id"),
        "workflow_id": str(call.workflow_id),
        "remedy": call.entity_id,
    }
    return {
        "charge": _charge_of(call),
        "amount": to_stripe_amount(call.amount_minor, call.currency),
        "metadata": {name: value for name, value in names.items() if value},
    }


def find_refusal(
    call: Call,
    charge: Mapping[str, Any],
    disputes: list[dict[str, Any]],
    refunds: list[dict[str, Any]],
) -> Failed | None:
    """Why the charge, as it is now, is not to be refunded; pure. The disputes are of all charges of the order."""
    assert call.amount_minor is not None  # a remedy without money is no workflow
    currency = str(charge.get("currency")).upper()
    captured, refunded = int(charge.get("amount_captured") or 0), int(charge.get("amount_refunded") or 0)
    left = from_stripe_amount(captured - refunded, currency)
    again = call.context.get("compensation_id")
    if bool(charge.get("livemode")) != bool(call.context.get("livemode")):
        return Failed("livemode", "the charge is of the other mode, live or test")
    if currency != call.currency:
        return Failed("currency", f"the charge is in {currency}, not in {call.currency}")
    if any(dispute.get("status") not in DISPUTES_OVER for dispute in disputes):
        return Failed("disputed", "a charge of the order is disputed: a refund would give the money twice")
    if again and any(_is_of(refund, again) and refund.get("status") not in DEAD_REFUNDS for refund in refunds):
        return Failed("refund_found", f"the refund of compensation {again} is there after all")
    if left < call.amount_minor:
        return Failed("nothing_left", f"{left} of the charge is left, {call.amount_minor} was to go back")
    return find_other_refund(call, from_stripe_amount(refunded, currency))


def find_other_refund(call: Call, refunded_minor: int) -> Failed | None:
    """Whether another amount was refunded than the verdict knows of; what it knew was not always kept."""
    seen = call.context.get("refunded_minor")
    if seen is None or refunded_minor == seen:
        return None
    return Failed("refunded_elsewhere", f"{refunded_minor} of the charge was refunded, the verdict knows of {seen}")


def other_charges(call: Call) -> list[str]:
    """What else was taken for the same order; a remedy that began before these were kept has none."""
    return [str(name) for name in call.context.get("other_charges") or []]


def _is_of(refund: Mapping[str, Any], compensation_id: str) -> bool:
    return bool((refund.get("metadata") or {}).get("compensation_id") == compensation_id)


def _charge_of(call: Call) -> str:
    charge = call.context.get("charge_id")
    if not isinstance(charge, str):
        raise PermanentError(f"the context of {call.entity_id} has no charge_id")
    return charge
