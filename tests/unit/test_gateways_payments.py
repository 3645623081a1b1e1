"""What Stripe's answers mean, and amounts as Stripe counts them."""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import stripe

from makegood.engine.definitions import Call
from makegood.engine.outcomes import Failed, Outcome, Success, Suspect, Unknown
from makegood.errors import PermanentError
from makegood.gateways.payments import (
    Payments,
    cannot_tell,
    charge_request,
    check_charge,
    check_refund,
    classify,
    from_stripe_amount,
    refund_request,
    to_stripe_amount,
)

CALL = Call(
    workflow_id=uuid.UUID(int=1),
    workflow_type="checkout",
    entity_id="order-1",
    step="charge",
    key="charge-order-1",
    amount_minor=1999,
    currency="EUR",
    context={"payment_method": "pm_card_visa", "charge": {"payment_intent": "pi_1"}},
    timeout_seconds=30,
    started_at=datetime(2026, 1, 2, tzinfo=UTC),
    compensation_id=uuid.UUID(int=2),
)
CHARGE = {"amount": 1999, "currency": "eur"}
REFUND = {"amount": 1999, "payment_intent": "pi_1"}


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        # The card was refused: definite.
        (
            stripe.CardError("Your card was declined.", None, "card_declined", http_status=402),
            Failed("card_declined", "Your card was declined."),
        ),
        # The request was refused: it will be refused again.
        (
            stripe.InvalidRequestError("No such payment_intent", "payment_intent", "resource_missing", http_status=404),
            Failed("resource_missing", "No such payment_intent"),
        ),
        (
            stripe.InvalidRequestError("Amount too small", "amount", http_status=400),
            Failed("InvalidRequestError", "Amount too small"),
        ),
        # The same key with other parameters: something is badly wrong, a person must look.
        (stripe.IdempotencyError("Keys for…", http_status=400), Suspect("key_conflict", "Keys for…")),
        # Another request is at work under the key: not a refusal.
        (stripe.IdempotencyError("in use", http_status=409), Unknown("IdempotencyError", "in use")),
        (
            stripe.APIError("in use", http_status=409, code="idempotency_key_in_use"),
            Unknown("idempotency_key_in_use", "in use"),
        ),
        (stripe.InvalidRequestError("odd", None, http_status=409), Unknown("InvalidRequestError", "odd")),
        # Later.
        (
            stripe.RateLimitError("Too many", http_status=429, headers={"retry-after": "7"}),
            Unknown("RateLimitError", "Too many", 7.0, "unserved"),
        ),
        # Our key is wrong, not the order: tried again, then a person.
        (
            stripe.AuthenticationError("Invalid API Key", http_status=401),
            Unknown("AuthenticationError", "Invalid API Key", trouble="locked_out"),
        ),
        (
            stripe.PermissionError("No access", http_status=403),
            Unknown("PermissionError", "No access", trouble="locked_out"),
        ),
        # It may have worked.
        (stripe.APIConnectionError("reset"), Unknown("APIConnectionError", "reset", trouble="service")),
        (stripe.APIError("oops", http_status=500), Unknown("APIError", "oops", trouble="service")),
        (stripe.APIError("Invalid response body", http_status=200), Unknown("APIError", "Invalid response body")),
        (
            stripe.APIError("down", http_status=503, headers={"retry-after": "soon"}),
            Unknown("APIError", "down", 0.0, "service"),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_error_of_the_client_is_definite_only_where_stripe_refused(error: stripe.StripeError, outcome: Outcome) -> None:
    assert classify(error) == outcome


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (
            {"id": "pi_1", "status": "succeeded", "amount": 1999, "currency": "eur", "latest_charge": "ch_1"},
            Success({"payment_intent": "pi_1", "charge": "ch_1"}),
        ),
        ({"status": "processing", "amount": 1999, "currency": "eur"}, "processing"),  # unknown, to be asked again
        (
            {"status": "requires_action", "amount": 1999, "currency": "eur"},
            Failed("requires_action", "the payment is requires_action"),
        ),
        ({"status": "canceled", "amount": 1999, "currency": "eur"}, Failed("canceled", "the payment is canceled")),
        (
            {"status": "succeeded", "amount": 2000, "currency": "eur"},
            Suspect("wrong_amount", "asked for 1999 eur, the answer says 2000 eur"),
        ),
        (
            {"status": "succeeded", "amount": 1999, "currency": "usd"},
            Suspect("wrong_amount", "asked for 1999 eur, the answer says 1999 usd"),
        ),
        ({"status": "succeeded"}, Suspect("wrong_amount", "asked for 1999 eur, the answer says None None")),
        ({"status": "canceled", "amount": 1, "currency": "eur"}, "suspect"),  # before its status is believed
    ],
)
def test_charge_answer_is_believed_only_when_it_is_what_was_asked(answer: Any, outcome: Any) -> None:
    checked = check_charge(answer, CHARGE)
    if outcome == "processing":
        assert isinstance(checked, Unknown)
    elif outcome == "suspect":
        assert isinstance(checked, Suspect)
    else:
        assert checked == outcome


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (
            {"id": "re_1", "status": "succeeded", "amount": 1999, "currency": "eur"},
            Success({"refund": "re_1", "status": "succeeded"}),
        ),
        # On its way; that it may fail later is the reconciliation's matter.
        (
            {"id": "re_1", "status": "pending", "amount": 1999, "currency": "eur"},
            Success({"refund": "re_1", "status": "pending"}),
        ),
        ({"status": "failed", "amount": 1999, "currency": "eur"}, Failed("failed", "the refund is failed")),
        ({"status": "canceled", "amount": 1999, "currency": "eur"}, Failed("canceled", "the refund is canceled")),
        (
            {"id": "re_1", "status": "succeeded", "amount": 999, "currency": "eur"},
            Suspect("wrong_amount", "asked to refund 1999 eur, the answer says 999 eur"),
        ),
        (
            {"id": "re_1", "status": "succeeded", "amount": 1999, "currency": "usd"},
            Suspect("wrong_amount", "asked to refund 1999 eur, the answer says 1999 usd"),
        ),
    ],
)
def test_refund_answer_is_believed_only_when_it_is_what_was_asked(answer: Any, outcome: Outcome) -> None:
    assert check_refund(answer, REFUND, "EUR") == outcome


@pytest.mark.parametrize(
    ("amount_minor", "currency", "at_stripe"),
    [
        (1999, "EUR", 1999),
        (1999, "JPY", 1999),  # no decimals, none added
        (5, "ISK", 500),  # no decimals, but Stripe counts hundredths
        (5000, "UGX", 500_000),
        (1990, "KWD", 1990),  # three decimals, the last of them 0
        (0, "KWD", 0),
        (199_900, "MGA", 1999),  # two decimals in ISO 4217, none at Stripe
    ],
)
def test_amount_is_counted_as_stripe_counts_it_and_back(amount_minor: int, currency: str, at_stripe: int) -> None:
    assert to_stripe_amount(amount_minor, currency) == at_stripe
    assert from_stripe_amount(at_stripe, currency) == amount_minor


@pytest.mark.parametrize(
    ("amount_minor", "currency"),
    [(1999, "KWD"), (1, "BHD"), (5, "JOD"), (12_345, "OMR"), (7, "TND"), (1999, "MGA")],
)
def test_amount_that_stripe_cannot_take_is_refused_before_the_wire(amount_minor: int, currency: str) -> None:
    with pytest.raises(PermanentError, match=f"{amount_minor} {currency}: Stripe takes no"):
        to_stripe_amount(amount_minor, currency)


def test_charge_asks_for_the_amount_and_names_the_order() -> None:
    assert charge_request(CALL) == {
        "amount": 1999,
        "currency": "eur",
        "payment_method": "pm_card_visa",
        "payment_method_types": ["card"],
        "confirm": True,
        "metadata": {"order_id": "order-1", "workflow_id": str(uuid.UUID(int=1))},
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"amount_minor": None, "currency": None}, "order-1 has no amount to charge"),
        ({"context": {}}, "the context of order-1 has no payment_method"),
        ({"context": {"payment_method": 7}}, "the context of order-1 has no payment_method"),
    ],
)
def test_charge_that_cannot_be_asked_for_says_what_is_missing(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(PermanentError, match=message):
        charge_request(replace(CALL, **changes))


def test_refund_names_its_payment_and_its_compensation() -> None:
    assert refund_request(CALL) == {
        "payment_intent": "pi_1",
        "amount": 1999,
        "metadata": {
            "order_id": "order-1",
            "workflow_id": str(uuid.UUID(int=1)),
            "compensation_id": str(uuid.UUID(int=2)),
        },
    }


@pytest.mark.parametrize("context", [{}, {"charge": None}, {"charge": {}}, {"charge": "yes"}])
def test_refund_of_no_payment_says_so(context: dict[str, Any]) -> None:
    with pytest.raises(PermanentError, match=r"the context of order-1 has no charge\.payment_intent"):
        refund_request(replace(CALL, context=context))


@pytest.mark.parametrize(
    ("cause", "trouble"),
    [
        (httpx.ConnectError("refused"), "unserved"),  # no connection: it surely did not happen
        (httpx.ConnectTimeout(""), "unserved"),
        (httpx.ReadTimeout(""), "service"),  # it may have
        (httpx.ReadError("reset"), "service"),
        (None, "service"),  # the client does not say why
    ],
)
def test_connection_error_of_the_client_is_told_by_its_cause(cause: Exception | None, trouble: str) -> None:
    error = stripe.APIConnectionError("Network error")
    error.__cause__ = cause
    outcome = classify(error)
    assert isinstance(outcome, Unknown)
    assert (outcome.trouble, outcome.spent) == (trouble, trouble == "service")


def test_provider_that_is_not_there_spends_no_attempt() -> None:
    """The real client against a port where nobody listens: what it raises still names its cause."""

    async def run() -> Outcome:
        payments = Payments("sk_test_x", "http://127.0.0.1:1")
        try:
            charge = payments.charge()
            return await charge.send(CALL, charge.request(CALL))
        finally:
            await payments.close()

    outcome = asyncio.run(run())
    assert isinstance(outcome, Unknown)
    assert (outcome.error_type, outcome.trouble, outcome.spent) == ("APIConnectionError", "unserved", False)


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (stripe.APIError("oops", http_status=503), "service"),
        (stripe.AuthenticationError("who are you", http_status=401), "locked_out"),
        (stripe.RateLimitError("slow down", http_status=429), "unserved"),
        # A definite refusal of the look-up itself says nothing of what it looked for, nor of the service.
        (stripe.InvalidRequestError("bad filter", "created", http_status=400), "request"),
    ],
)
def test_look_up_that_fails_cannot_tell_and_says_whose_trouble_it_is(error: stripe.StripeError, trouble: str) -> None:
    assert cannot_tell(error).trouble == trouble


class Pages(httpx.AsyncBaseTransport):
    """Refunds of one payment, a hundred to a page; the first answer of all is an error."""

    def __init__(self, count: int, ours: int | None) -> None:
        self.refunds = [
            {"id": f"re_{n}", "object": "refund", "status": "succeeded", **CHARGE, "metadata": {}} for n in range(count)
        ]
        if ours is not None:
            self.refunds[ours]["metadata"] = {"compensation_id": str(CALL.compensation_id)}
        self.asked = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        if self.asked == 1:
            return httpx.Response(503)
        after = request.url.params.get("starting_after")
        first = 1 + int(after.removeprefix("re_")) if after else 0
        page = self.refunds[first : first + 100]
        found = {"object": "list", "url": "/v1/refunds", "data": page, "has_more": first + 100 < len(self.refunds)}
        return httpx.Response(200, json=found)


@pytest.mark.parametrize(
    ("count", "ours", "found", "asked"),
    [(0, None, None, 2), (100, 99, "re_99", 2), (150, 149, "re_149", 3), (201, None, None, 4)],
)
def test_look_up_of_a_refund_reads_every_page_and_tries_a_page_again(
    count: int, ours: int | None, found: str | None, asked: int
) -> None:
    pages = Pages(count, ours)

    async def run() -> Outcome | None:
        payments = Payments("sk_test_x", "http://shop.test")
        await payments._http._client.aclose()
        payments._http._client = httpx.AsyncClient(transport=pages)
        look_up = payments.refund().look_up
        try:
            return await look_up(replace(CALL, step="charge")) if look_up else None
        finally:
            await payments.close()

    outcome = asyncio.run(run())
    assert outcome == (Success({"refund": found, "status": "succeeded"}) if found else None)
    assert pages.asked == asked
