"""The real stripe client, sync and async, against the shop in its own process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import stripe

from sandbox.client import ShopControl, ShopError, ShopProcess

# The client hands httpx a string where httpx would rather have bytes; that is theirs to settle.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

VISA = {"payment_method": "pm_card_visa", "confirm": True}


@pytest.fixture(scope="module")
def process() -> Iterator[ShopProcess]:
    with ShopProcess() as process:
        yield process
    assert process.errors == ""


@pytest.fixture
def control(process: ShopProcess) -> Iterator[ShopControl]:
    with ShopControl(process.url) as control:
        control.reset()
        yield control


@pytest.fixture
def client(process: ShopProcess, control: ShopControl) -> Iterator[stripe.StripeClient]:
    http = stripe.HTTPXClient(timeout=5, allow_sync_methods=True)
    yield stripe.StripeClient("sk_test_shop", base_addresses={"api": process.url}, http_client=http)
    http.close()
    asyncio.run(http.close_async())


def charge(client: stripe.StripeClient, amount: int = 1999, currency: str = "usd", **more: Any) -> stripe.PaymentIntent:
    given = {**VISA, "amount": amount, "currency": currency, "metadata": {"order_id": "order-7"}, **more}
    return client.v1.payment_intents.create(given)  # type: ignore[arg-type]


def test_payment_intent_confirmed_succeeds_with_its_charge(client: stripe.StripeClient) -> None:
    intent = charge(client, expand=["latest_charge.balance_transaction"])
    found = intent.latest_charge
    assert isinstance(found, stripe.Charge)
    assert (intent.status, intent.amount_received, intent.livemode) == ("succeeded", 1999, False)
    assert (found.amount_captured, found.captured, found.paid, found.status) == (1999, True, True, "succeeded")
    assert found.metadata.to_dict() == {"order_id": "order-7"}
    assert found.balance_transaction is not None
    assert not isinstance(found.balance_transaction, str)
    assert (found.balance_transaction.fee, found.balance_transaction.net) == (88, 1911)  # 2.9 % of 1999 and 30


def test_every_object_retrieved_by_id_is_as_it_was_created(client: stripe.StripeClient, control: ShopControl) -> None:
    intent = charge(client)
    refund = client.v1.refunds.create({"payment_intent": intent.id, "amount": 500, "reason": "duplicate"})
    dispute = control.open_dispute(str(intent.latest_charge))
    event = client.v1.events.list({"type": "refund.created"}).data[0]
    assert client.v1.payment_intents.retrieve(intent.id).to_dict() == intent.to_dict()
    assert client.v1.charges.retrieve(str(intent.latest_charge)).amount_refunded == 500
    assert client.v1.refunds.retrieve(refund.id).to_dict() == refund.to_dict()
    assert client.v1.disputes.retrieve(dispute["id"]).status == "needs_response"
    assert client.v1.balance_transactions.retrieve(str(refund.balance_transaction)).amount == -500
    assert client.v1.events.retrieve(event.id).data.object["id"] == refund.id


def test_async_client_charges_refunds_and_lists(process: ShopProcess, control: ShopControl) -> None:
    async def go() -> tuple[str | None, bool]:
        http = stripe.HTTPXClient(timeout=5)
        client = stripe.StripeClient("sk_test_shop", base_addresses={"api": process.url}, http_client=http)
        intent = await client.v1.payment_intents.create_async({**VISA, "amount": 100, "currency": "usd"})
        refund = await client.v1.refunds.create_async({"payment_intent": intent.id})
        page = await client.v1.refunds.list_async({"payment_intent": intent.id, "limit": 1})
        found = [item.id async for item in page.auto_paging_iter()]
        await http.close_async()
        return refund.status, found == [refund.id]

    assert asyncio.run(go()) == ("succeeded", True)


def test_manual_capture_in_part_leaves_one_balance_transaction_and_no_refund(client: stripe.StripeClient) -> None:
    held = charge(client, 1000, capture_method="manual")
    assert (held.status, held.amount_capturable, held.amount_received) == ("requires_capture", 1000, 0)
    taken = client.v1.payment_intents.capture(held.id, {"amount_to_capture": 700})
    found = client.v1.charges.retrieve(str(taken.latest_charge))
    assert (taken.status, taken.amount_received, taken.amount_capturable) == ("succeeded", 700, 0)
    assert (found.amount, found.amount_captured, found.amount_refunded) == (1000, 700, 0)
    movements = client.v1.balance_transactions.list({"source": found.id}).data
    assert [movement.amount for movement in movements] == [700]
    with pytest.raises(stripe.InvalidRequestError) as refused:
        client.v1.payment_intents.capture(held.id)
    assert refused.value.code == "payment_intent_unexpected_state"


def test_capture_above_what_was_authorised_is_refused(client: stripe.StripeClient) -> None:
    held = charge(client, 1000, capture_method="manual")
    with pytest.raises(stripe.InvalidRequestError, match="greater than the amount you can capture"):
        client.v1.payment_intents.capture(held.id, {"amount_to_capture": 1001})


def test_authorisation_cancelled_is_let_go_without_a_refund(client: stripe.StripeClient, control: ShopControl) -> None:
    held = charge(client, 1000, capture_method="manual")
    cancelled = client.v1.payment_intents.cancel(held.id, {"cancellation_reason": "abandoned"})
    assert (cancelled.status, cancelled.cancellation_reason) == ("canceled", "abandoned")
    assert control.order("order-7")["counts"] == {"authorization": 1, "void": 1}
    assert client.v1.refunds.list({"payment_intent": held.id}).data == []


def test_authorisation_not_captured_in_seven_days_expires(client: stripe.StripeClient, control: ShopControl) -> None:
    held = charge(client, 1000, capture_method="manual")
    assert control.advance_clock(6 * 86_400)["authorizations_expired"] == 0
    assert control.advance_clock(86_400 + 1)["authorizations_expired"] == 1
    assert client.v1.payment_intents.retrieve(held.id).cancellation_reason == "expired"


def test_intent_confirmed_later_is_charged_then(client: stripe.StripeClient, control: ShopControl) -> None:
    intent = client.v1.payment_intents.create({"amount": 100, "currency": "usd", "metadata": {"order_id": "order-7"}})
    assert (intent.status, control.log()) == ("requires_payment_method", [])
    confirmed = client.v1.payment_intents.confirm(intent.id, {"payment_method": "pm_card_visa"})
    assert (confirmed.status, control.order("order-7")["counts"]) == ("succeeded", {"charge": 1})


@pytest.mark.parametrize(
    ("method", "code", "decline_code"),
    [
        ("pm_card_chargeDeclined", "card_declined", "generic_decline"),
        ("pm_card_chargeDeclinedInsufficientFunds", "card_declined", "insufficient_funds"),
        ("pm_card_chargeDeclinedExpiredCard", "expired_card", None),
    ],
)
def test_card_declined_moves_no_money_and_keeps_the_failed_charge(
    client: stripe.StripeClient, control: ShopControl, method: str, code: str, decline_code: str | None
) -> None:
    with pytest.raises(stripe.CardError) as declined:
        charge(client, payment_method=method)
    error = declined.value.error
    assert (declined.value.http_status, declined.value.code, error.decline_code) == (402, code, decline_code)
    assert error.payment_intent.status == "requires_payment_method"
    order = control.order("order-7")
    assert (order["counts"], order["charged"], order["net"]) == ({"decline": 1}, {}, {})
    assert client.v1.charges.retrieve(str(error.charge)).status == "failed"


def test_refunds_up_to_the_charge_are_given_and_not_a_cent_more(
    client: stripe.StripeClient, control: ShopControl
) -> None:
    intent = charge(client, 1000)
    client.v1.refunds.create({"payment_intent": intent.id, "amount": 400})
    with pytest.raises(stripe.InvalidRequestError) as too_much:
        client.v1.refunds.create({"payment_intent": intent.id, "amount": 601})
    rest = client.v1.refunds.create({"charge": str(intent.latest_charge)})
    with pytest.raises(stripe.InvalidRequestError) as again:
        client.v1.refunds.create({"charge": str(intent.latest_charge)})
    text = "Refund amount ($6.01) is greater than unrefunded amount on charge ($6.00)"
    assert (too_much.value.user_message, too_much.value.param) == (text, "amount")
    assert (rest.amount, again.value.code, again.value.http_status) == (600, "charge_already_refunded", 400)
    found = client.v1.charges.retrieve(str(intent.latest_charge))
    assert (found.amount_refunded, found.refunded) == (1000, True)
    assert control.order("order-7")["net"] == {"usd": 0}


def test_refund_of_nothing_taken_is_refused(client: stripe.StripeClient) -> None:
    held = charge(client, 1000, capture_method="manual")
    for given in ({"payment_intent": held.id}, {"charge": str(held.latest_charge)}, {"charge": "ch_none"}, {}):
        with pytest.raises(stripe.InvalidRequestError):
            client.v1.refunds.create(given)  # type: ignore[arg-type]


def test_refund_pending_then_failed_gives_the_amount_back(client: stripe.StripeClient, control: ShopControl) -> None:
    intent = charge(client, 1000, payment_method="pm_card_pendingRefund")
    refund = client.v1.refunds.create({"payment_intent": intent.id})
    assert refund.status == "pending"
    control.settle_refund(refund.id, "failed")
    assert client.v1.refunds.retrieve(refund.id).status == "failed"
    assert client.v1.charges.retrieve(str(intent.latest_charge)).amount_refunded == 0
    order = control.order("order-7")
    assert (order["counts"]["refund_failed"], order["net"]) == (1, {"usd": 1000})


def test_dispute_blocks_refunds_until_it_is_won(client: stripe.StripeClient, control: ShopControl) -> None:
    intent = charge(client, 1000, payment_method="pm_card_createDispute")
    dispute = client.v1.disputes.list({"payment_intent": intent.id}).data[0]
    with pytest.raises(stripe.InvalidRequestError) as blocked:
        client.v1.refunds.create({"payment_intent": intent.id})
    control.close_dispute(dispute.id, "won")
    client.v1.refunds.create({"payment_intent": intent.id})
    nets = [item.net for item in client.v1.balance_transactions.list({"type": "adjustment"}).data]
    assert (blocked.value.code, client.v1.disputes.retrieve(dispute.id).status) == ("charge_disputed", "won")
    assert nets == [2500, -2500]
    assert control.order("order-7")["counts"] == {"charge": 1, "dispute_opened": 1, "dispute_closed": 1, "refund": 1}


def test_inquiry_takes_no_money_and_leaves_the_charge_refundable(client: stripe.StripeClient) -> None:
    intent = charge(client, 1000, payment_method="pm_card_createDisputeInquiry")
    assert client.v1.disputes.list().data[0].status == "warning_needs_response"
    assert client.v1.balance_transactions.list({"type": "adjustment"}).data == []
    assert client.v1.refunds.create({"payment_intent": intent.id}).status == "succeeded"


def test_events_keep_the_object_as_it_was_then(client: stripe.StripeClient, control: ShopControl) -> None:
    intent = charge(client, 1000)
    client.v1.refunds.create({"payment_intent": intent.id})
    events = client.v1.events.list({"limit": 100}).data
    assert [event.type for event in reversed(events)] == [
        "payment_intent.created",
        "charge.succeeded",
        "payment_intent.succeeded",
        "refund.created",
        "charge.refunded",
    ]
    then = {event.type: event.data.object for event in events}
    assert (then["charge.succeeded"]["amount_refunded"], then["charge.refunded"]["amount_refunded"]) == (0, 1000)
    assert client.v1.events.list({"types": ["refund.created", "charge.refunded"]}).data == events[:2]
    control.advance_clock(31 * 86_400)
    assert client.v1.events.list().data == []  # thirty days, as Stripe keeps them


@pytest.mark.parametrize(
    ("amount", "currency", "code"),
    [
        ("10.5", "usd", "parameter_invalid_integer"),
        ("1e3", "usd", "parameter_invalid_integer"),
        ("NaN", "usd", "parameter_invalid_integer"),
        ("Infinity", "usd", "parameter_invalid_integer"),
        ("+5", "usd", "parameter_invalid_integer"),
        (" 5", "usd", "parameter_invalid_integer"),
        ("٥", "usd", "parameter_invalid_integer"),  # a digit, but not one of ours
        ("-1", "usd", "parameter_invalid_integer"),
        ("0", "usd", "parameter_invalid_integer"),
        ("100000000", "usd", "amount_too_large"),
        ("1001", "kwd", "parameter_invalid_integer"),  # three decimals, the last must be 0
        ("150", "isk", "parameter_invalid_integer"),  # no decimals, passed as if there were two
        ("100", "xyz", None),
    ],
)
def test_amount_that_stripe_refuses_is_refused(
    client: stripe.StripeClient, control: ShopControl, amount: Any, currency: str, code: str | None
) -> None:
    with pytest.raises(stripe.InvalidRequestError) as refused:
        charge(client, amount, currency)
    assert (refused.value.http_status, refused.value.code) == (400, code)
    assert control.log() == []


@pytest.mark.parametrize(("amount", "currency"), [(1, "usd"), (99_999_999, "USD"), (7, "jpy"), (1010, "kwd")])
def test_amount_that_stripe_takes_is_taken(client: stripe.StripeClient, amount: int, currency: str) -> None:
    assert charge(client, amount, currency).amount_received == amount


def test_missing_and_unknown_parameters_are_named(client: stripe.StripeClient) -> None:
    with pytest.raises(stripe.InvalidRequestError) as unknown:
        charge(client, amuont=5)
    with pytest.raises(stripe.InvalidRequestError) as missing:
        client.v1.payment_intents.create({"currency": "usd"})  # type: ignore[arg-type]
    with pytest.raises(stripe.InvalidRequestError) as nowhere:
        client.v1.payment_intents.retrieve("pi_none")
    assert (unknown.value.code, unknown.value.param) == ("parameter_unknown", "amuont")
    assert (missing.value.code, missing.value.param) == ("parameter_missing", "amount")
    assert (nowhere.value.code, nowhere.value.http_status) == ("resource_missing", 404)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer sk_live_really"}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": "Basic !!!"}, 401),
        ({"Authorization": "Bearer sk_test_any"}, 200),
        ({"Authorization": "Basic c2tfdGVzdF9hbnk6"}, 200),  # sk_test_any:
    ],
)
def test_api_key_that_is_not_a_test_key_is_turned_away(
    process: ShopProcess, headers: dict[str, str], status: int
) -> None:
    answer = httpx.get(process.url + "/v1/charges", headers=headers)
    assert answer.status_code == status
    assert ("error" in answer.json()) == (status == 401)
    assert answer.headers["Request-Id"].startswith("req_")


def test_wrong_key_reaches_the_client_as_authentication_error(
    process: ShopProcess, client: stripe.StripeClient
) -> None:
    with pytest.raises(stripe.AuthenticationError):
        client.v1.charges.list(options={"api_key": "sk_live_really"})


def test_unknown_address_is_refused_in_stripes_shape(process: ShopProcess) -> None:
    answer = httpx.post(process.url + "/v1/customers", headers={"Authorization": "Bearer sk_test_any"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "invalid_request_error")


def test_payout_holds_everything_that_was_not_paid_out_and_says_what_it_is_made_of(
    client: stripe.StripeClient, control: ShopControl
) -> None:
    paid = [charge(client) for _ in range(3)]
    payout = control.pay_out("usd", status="in_transit")
    parts = client.v1.balance_transactions.list({"payout": payout["id"], "limit": 100}).data
    own = [part for part in parts if part.type == "payout"]
    assert {part.source for part in parts} == {*(intent.latest_charge for intent in paid), payout["id"]}
    assert sum(part.net for part in parts if part.type != "payout") == payout["amount"] == -own[0].net
    assert client.v1.payouts.retrieve(payout["id"]).status == "in_transit"
    assert control.settle_payout(payout["id"], "paid")["status"] == "paid"
    assert [item.id for item in client.v1.payouts.list().data] == [payout["id"]]
    with pytest.raises(ShopError, match="nothing in usd"):
        control.pay_out("usd")
