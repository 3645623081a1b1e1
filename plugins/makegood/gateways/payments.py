"""Payments through the real ``stripe`` client. Always our own key: the client invents a random one otherwise.

Unknown stays unknown (timeouts, resets, 429, 5xx, unreadable bodies); only what Stripe definitely refused
is a failure; an answer with another amount or currency than asked for is suspect.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, cast

import httpx
import stripe

from makegood.engine.definitions import Action, Call, Request
from makegood.engine.outcomes import Failed, Outcome, Success, Suspect, Unknown
from makegood.errors import PermanentError
from makegood.gateways.connections import open_client
from makegood.gateways.http_steps import retry_after_seconds, trouble_of, trouble_with

# Stripe counts these in hundredths although their ISO minor unit has no decimals.
TWO_DECIMALS_AT_STRIPE = frozenset({"ISK", "UGX"})
# Stripe counts these whole although their ISO minor unit has two decimals.
NO_DECIMALS_AT_STRIPE = frozenset({"MGA"})
# Stripe wants the last of their three decimals to be zero.
THREE_DECIMALS = frozenset({"BHD", "JOD", "KWD", "OMR", "TND"})
PROVIDER = "payments"
REFUNDED_STATUSES = frozenset({"succeeded", "pending"})
LOOK_UP_MARGIN = timedelta(minutes=10)  # clocks differ
LOOK_UP_SPAN = timedelta(hours=24)  # looked through first; what came later, only where nothing was found
LOOK_UP_PAGES_MAX = 50
PAGE = 100
# For questions that a person asks, which have no deadline of their own; a step's comes sooner.
TIMEOUT = httpx.Timeout(80.0)
# A read may be repeated within the call; a write never is, that is the engine's business.
READING: stripe.RequestOptions = {"max_network_retries": 3}

_no_connection: Callable[..., stripe.APIConnectionError] = stripe.APIConnectionError  # it has no types of its own

# At INFO the client logs what Stripe says of a request, with the customer's payment method in it.
logging.getLogger("stripe").setLevel(logging.WARNING)


class StripeConnections(stripe.HTTPClient):
    """The stripe client's way to the wire, with connections that are found at once (see `connections`).

    Its own has room for a hundred and keeps twenty, and each further call would open one anew.
    """

    name = "httpx"

    def __init__(self) -> None:
        super().__init__()
        certificates = ssl.create_default_context(cafile=stripe.ca_bundle_path)
        self._client = open_client(TIMEOUT, certificates=certificates)

    async def request_async(
        self, method: str, url: str, headers: Mapping[str, str], post_data: str | bytes | None = None
    ) -> tuple[bytes, int, Mapping[str, str]]:
        try:
            response = await self._client.request(method, url, headers=headers, content=post_data or None)
        except Exception as error:  # whatever it is, the request may have arrived; the cause tells more
            raise _no_connection(f"{type(error).__name__}: {error}", should_retry=True) from error
        return response.content, response.status_code, response.headers

    async def sleep_async(self, secs: float) -> None:
        await asyncio.sleep(secs)

    async def close_async(self) -> None:
        await self._client.aclose()


class Payments:
    """Charges and refunds of one Stripe account."""

    def __init__(self, api_key: str, api_base: str | None = None) -> None:
        self._http = StripeConnections()
        options: dict[str, Any] = {"base_addresses": {"api": api_base}} if api_base else {}
        self.client = stripe.StripeClient(api_key, http_client=self._http, max_network_retries=0, **options)

    async def close(self) -> None:
        await self._http.close_async()

    def charge(self) -> Action:
        return Action(self._send_charge, charge_request, self._look_up_charge, PROVIDER)

    def refund(self) -> Action:
        return Action(self._send_refund, refund_request, self._look_up_refund, PROVIDER)

    async def money_of(self, payment_intent: str) -> dict[str, Any]:
        """What the provider has for one payment, in our minor units; ``error`` when it cannot be told now."""
        try:
            intent = (await self.client.v1.payment_intents.retrieve_async(payment_intent, None, READING)).to_dict()
            refunds = await self.client.v1.refunds.list_async(
                {"payment_intent": payment_intent, "limit": PAGE}, READING
            )
            disputes = await self.client.v1.disputes.list_async(
                {"payment_intent": payment_intent, "limit": PAGE}, READING
            )
        except stripe.StripeError as error:
            return {"payment_intent": payment_intent, "error": error.user_message or str(error)}
        currency = str(intent["currency"]).upper()
        charged = from_stripe_amount(int(intent.get("amount_received") or 0), currency)
        refunded = sum(from_stripe_amount(r.amount, currency) for r in refunds.data if r.status in REFUNDED_STATUSES)
        disputed = sum(from_stripe_amount(d.amount, currency) for d in disputes.data if d.status != "won")
        return {
            "payment_intent": payment_intent,
            "currency": currency,
            "charged": charged,
            "refunded": refunded,
            "disputed": disputed,
            "net": charged - refunded - disputed,
        }

    async def _send_charge(self, call: Call, request: Request) -> Outcome:
        try:
            parameters = cast(Any, dict(request))
            intent = await self.client.v1.payment_intents.create_async(parameters, {"idempotency_key": call.key})
        except stripe.StripeError as error:
            return classify(error)
        return check_charge(intent.to_dict(), request)

    async def _send_refund(self, call: Call, request: Request) -> Outcome:
        try:
            refund = await self.client.v1.refunds.create_async(cast(Any, dict(request)), {"idempotency_key": call.key})
        except stripe.StripeError as error:
            outcome = classify(error)
            # Refunded already: by us, with the answer lost, or by somebody else. Only the former is success.
            if isinstance(outcome, Failed) and outcome.error_type == "charge_already_refunded":
                return await self._look_up_refund(call) or outcome
            return outcome
        return check_refund(refund.to_dict(), request, call.currency)

    async def find_intent(self, order_id: str, started_at: datetime) -> dict[str, Any] | None:
        """The order's payment among those made since it started; None when there is none.

        Raises PermanentError when there are too many to look through.
        """
        start = int((started_at - LOOK_UP_MARGIN).timestamp())
        end = int((started_at + LOOK_UP_SPAN).timestamp())
        # Soon after the start, as a rule; but an order may have waited longer than that for a worker.
        for created in ({"gte": start, "lte": end}, {"gt": end}):
            intent = await self._find_intent_in(created, order_id)
            if intent is not None:
                return intent
        return None

    async def _find_intent_in(self, created: dict[str, int], order_id: str) -> dict[str, Any] | None:
        parameters: dict[str, Any] = {"limit": PAGE, "created": created}
        for _ in range(LOOK_UP_PAGES_MAX):
            page = await self.client.v1.payment_intents.list_async(cast(Any, parameters), READING)
            for intent in (item.to_dict() for item in page.data):
                if (intent.get("metadata") or {}).get("order_id") == order_id:
                    return intent
            if not page.has_more:
                return None
            parameters["starting_after"] = page.data[-1].id
        raise PermanentError(f"more than {LOOK_UP_PAGES_MAX * PAGE:,} payments since {order_id} started")

    async def _look_up_charge(self, call: Call) -> Outcome | None:
        try:
            intent = await self.find_intent(call.entity_id, call.started_at)
        except PermanentError as error:
            return Suspect("look_up_too_long", str(error))
        except stripe.StripeError as error:
            return cannot_tell(error)
        return None if intent is None else check_charge(intent, charge_request(call))

    async def _look_up_refund(self, call: Call) -> Outcome | None:
        """Our refund among those of the payment; None when there is none."""
        request = refund_request(call)
        try:
            refund = await self._find_refund(request["payment_intent"], str(call.compensation_id))
        except PermanentError as error:
            return Suspect("look_up_too_long", str(error))
        except stripe.StripeError as error:
            return cannot_tell(error)
        return None if refund is None else check_refund(refund, request, call.currency)

    async def _find_refund(self, payment_intent: str, compensation_id: str) -> dict[str, Any] | None:
        parameters: dict[str, Any] = {"payment_intent": payment_intent, "limit": PAGE}
        for _ in range(LOOK_UP_PAGES_MAX):
            page = await self.client.v1.refunds.list_async(cast(Any, parameters), READING)
            for refund in (item.to_dict() for item in page.data):
                if (refund.get("metadata") or {}).get("compensation_id") == compensation_id:
                    return refund
            if not page.has_more:
                return None
            parameters["starting_after"] = page.data[-1].id
        raise PermanentError(f"more than {LOOK_UP_PAGES_MAX * PAGE:,} refunds of {payment_intent}")


def charge_request(call: Call) -> Request:
    if call.amount_minor is None or call.currency is None:
        raise PermanentError(f"{call.entity_id} has no amount to charge")
    method = call.context.get("payment_method")
    if not isinstance(method, str):
        raise PermanentError(f"the context of {call.entity_id} has no payment_method")
    return {
        "amount": to_stripe_amount(call.amount_minor, call.currency),
        "currency": call.currency.lower(),
        "payment_method": method,
        "payment_method_types": ["card"],
        "confirm": True,
        "metadata": {"order_id": call.entity_id, "workflow_id": str(call.workflow_id)},
    }


def refund_request(call: Call) -> Request:
    payment_intent = call.result_of("charge").get("payment_intent")
    if not payment_intent:
        raise PermanentError(f"the context of {call.entity_id} has no charge.payment_intent to refund")
    assert call.amount_minor is not None and call.currency is not None  # noqa: PT018 - it was charged
    return {
        "payment_intent": payment_intent,
        "amount": to_stripe_amount(call.amount_minor, call.currency),
        "metadata": {
            "order_id": call.entity_id,
            "workflow_id": str(call.workflow_id),
            "compensation_id": str(call.compensation_id),
        },
    }


def to_stripe_amount(amount_minor: int, currency: str) -> int:
    """Our minor units in Stripe's; refuses what Stripe cannot take."""
    if currency in TWO_DECIMALS_AT_STRIPE:
        return amount_minor * 100
    if currency in THREE_DECIMALS and amount_minor % 10:
        raise PermanentError(f"{amount_minor} {currency}: Stripe takes no third decimal other than 0")
    if currency in NO_DECIMALS_AT_STRIPE:
        whole, rest = divmod(amount_minor, 100)
        if rest:
            raise PermanentError(f"{amount_minor} {currency}: Stripe takes no decimals other than 0")
        return whole
    return amount_minor


def from_stripe_amount(amount: int, currency: str) -> int:
    if currency in NO_DECIMALS_AT_STRIPE:
        return amount * 100
    return amount // 100 if currency in TWO_DECIMALS_AT_STRIPE else amount


def check_charge(intent: Mapping[str, Any], request: Request) -> Outcome:
    asked = (request["amount"], request["currency"])
    answered = (intent.get("amount"), intent.get("currency"))
    if asked != answered:
        return Suspect("wrong_amount", f"asked for {asked[0]} {asked[1]}, the answer says {answered[0]} {answered[1]}")
    match intent.get("status"):
        case "succeeded":
            return Success({"payment_intent": intent["id"], "charge": intent.get("latest_charge")})
        case "processing":
            return Unknown("processing", "the payment is still being processed")
        case status:
            return Failed(str(status), f"the payment is {status}")


def check_refund(refund: Mapping[str, Any], request: Request, currency: str | None) -> Outcome:
    asked = (request["amount"], (currency or "").lower())
    answered = (refund.get("amount"), refund.get("currency"))
    if asked != answered:
        said = f"asked to refund {asked[0]} {asked[1]}, the answer says {answered[0]} {answered[1]}"
        return Suspect("wrong_amount", said)
    match refund.get("status"):
        case status if status in REFUNDED_STATUSES:
            return Success({"refund": refund["id"], "status": refund["status"]})
        case status:
            return Failed(str(status), f"the refund is {status}")


def cannot_tell(error: stripe.StripeError) -> Unknown:
    """A look-up that failed says nothing of what it looked for, however definite its own refusal is."""
    outcome = classify(error)
    return outcome if isinstance(outcome, Unknown) else Unknown(str(error.code or type(error).__name__), str(error))


def classify(error: stripe.StripeError) -> Outcome:
    """Only a refusal of this very request is definite; that another request is at work under the key is not."""
    code = str(error.code or type(error).__name__)
    message = error.user_message or str(error)
    if isinstance(error, stripe.CardError):
        return Failed(code, message)
    if isinstance(error, stripe.IdempotencyError) and error.http_status == 400:
        return Suspect("key_conflict", message)
    if isinstance(error, stripe.InvalidRequestError) and error.http_status in {400, 404}:
        return Failed(code, message)
    status = error.http_status
    trouble = trouble_of(error.__cause__) if status is None else trouble_with(status)
    return Unknown(code, message, retry_after_seconds(error.headers or {}), trouble)
