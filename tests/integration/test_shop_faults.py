"""Each fault as the caller sees it, and whether the log says that the effect happened."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import stripe

from sandbox.client import ShopControl, ShopProcess

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

CHARGE: Any = {"amount": 500, "currency": "usd", "payment_method": "pm_card_visa", "confirm": True}


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
    http = stripe.HTTPXClient(timeout=0.8, allow_sync_methods=True)
    yield stripe.StripeClient("sk_test_shop", base_addresses={"api": process.url}, http_client=http)
    http.close()


@pytest.fixture
def http(process: ShopProcess, control: ShopControl) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=process.url, timeout=0.8) as http:
        yield http


def charge(client: stripe.StripeClient, key: str = "k1") -> stripe.PaymentIntent:
    return client.v1.payment_intents.create(CHARGE, {"idempotency_key": key})


@pytest.mark.parametrize(
    ("fault", "error", "cause", "status", "effects"),
    [
        ("timeout_before", stripe.APIConnectionError, httpx.ReadTimeout, None, {}),
        ("timeout_after", stripe.APIConnectionError, httpx.ReadTimeout, None, {"charge": 1}),
        ("reset_before", stripe.APIConnectionError, httpx.ReadError, None, {}),
        ("reset_after", stripe.APIConnectionError, httpx.ReadError, None, {"charge": 1}),
        ("rate_limited", stripe.RateLimitError, None, 429, {}),
        ("error_500_stored", stripe.APIError, None, 500, {}),
        ("error_500_after", stripe.APIError, None, 500, {"charge": 1}),
        ("error_503", stripe.APIError, None, 503, {}),
        ("malformed", stripe.APIError, None, 200, {"charge": 1}),
        ("truncated", stripe.APIConnectionError, httpx.RemoteProtocolError, None, {"charge": 1}),
        ("refused", stripe.CardError, None, 402, {"decline": 1}),
    ],
)
def test_fault_on_a_charge_is_seen_as_it_should_and_the_log_is_true(
    client: stripe.StripeClient,
    control: ShopControl,
    fault: str,
    error: type[stripe.StripeError],
    cause: type[Exception] | None,
    status: int | None,
    effects: dict[str, int],
) -> None:
    control.set_faults({"rules": [{"operation": "charge", "nth": 1, "fault": fault}]})
    with pytest.raises(stripe.StripeError) as seen:
        charge(client)
    assert (type(seen.value), seen.value.http_status) == (error, status)
    assert cause is None or isinstance(seen.value.__cause__, cause)
    assert control.totals()["counts"] == effects
    assert control.list_calls()[0]["fault"] == fault


@pytest.mark.parametrize(
    ("fault", "replay"),
    [
        ("timeout_before", 200),
        ("timeout_after", 200),
        ("reset_before", 200),
        ("reset_after", 200),
        ("rate_limited", 200),
        ("error_503", 200),
        ("malformed", 200),
        ("truncated", 200),
        ("error_500_stored", 500),  # nothing happened, and the key will never say otherwise
        ("error_500_after", 500),  # it happened, and the key will never say so: only a lookup tells
        ("refused", 402),
    ],
)
def test_replay_with_the_same_key_after_a_fault_never_doubles(
    client: stripe.StripeClient, control: ShopControl, fault: str, replay: int
) -> None:
    control.set_faults({"rules": [{"operation": "charge", "nth": 1, "fault": fault}]})
    with pytest.raises(stripe.StripeError):
        charge(client)
    try:
        status: int | None = charge(client).last_response.code
    except stripe.StripeError as error:
        status = error.http_status
    assert status == replay
    expected = {"error_500_stored": {}, "refused": {"decline": 1}}.get(fault, {"charge": 1})
    assert control.totals()["counts"] == expected


def test_rate_limited_says_when_to_come_back(client: stripe.StripeClient, control: ShopControl) -> None:
    control.set_faults({"retry_after_seconds": 7, "rules": [{"operation": "charge", "fault": "rate_limited"}]})
    with pytest.raises(stripe.RateLimitError) as limited:
        charge(client)
    assert limited.value.headers is not None
    assert limited.value.headers["retry-after"] == "7"


def test_slow_drip_outlasts_every_read_timeout_and_is_whole_in_the_end(
    client: stripe.StripeClient, control: ShopControl
) -> None:
    control.set_faults({"drip_seconds": 1.6, "rules": [{"operation": "charge", "fault": "slow_drip"}]})
    started = time.monotonic()
    intent = charge(client)  # the client's timeout is 0.8 s, but for each read
    assert time.monotonic() - started >= 1.6
    assert intent.status == "succeeded"


def test_wrong_amount_and_currency_are_lies_on_the_wire_alone(
    client: stripe.StripeClient, control: ShopControl
) -> None:
    control.set_faults(
        {
            "rules": [
                {"operation": "charge", "nth": 1, "fault": "wrong_amount"},
                {"operation": "charge", "nth": 2, "fault": "wrong_currency"},
            ]
        }
    )
    first, second = charge(client, "k1"), charge(client, "k2")
    assert (first.amount, first.amount_received, first.currency) == (600, 600, "usd")
    assert (second.amount, second.currency) == (500, "eur")
    for key, lie in (("k1", first), ("k2", second)):
        truth = client.v1.payment_intents.retrieve(lie.id)
        assert (truth.amount, truth.currency, charge(client, key).amount) == (500, "usd", 500)
    assert control.totals()["charged"] == {"usd": 1000}


@pytest.mark.parametrize(
    ("operation", "path", "body", "status", "code"),
    [
        ("reserve", "/inventory/reservations", {"order_id": "o", "sku": "lamp"}, 409, "out_of_stock"),
        ("ship", "/shipping/shipments", {"order_id": "o", "address": {}}, 422, "undeliverable"),
    ],
)
def test_refused_service_says_no_and_does_nothing(
    http: httpx.Client, control: ShopControl, operation: str, path: str, body: Any, status: int, code: str
) -> None:
    control.set_faults({"rules": [{"operation": operation, "times": 1, "fault": "refused"}]})
    answers = [http.post(path, json=body, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert [(answer.status_code, answer.json()["error"]["code"]) for answer in answers] == [(status, code)] * 2
    assert control.log() == []


def test_refused_undo_leaves_what_it_would_have_undone(http: httpx.Client, control: ShopControl) -> None:
    reservation = http.post("/inventory/reservations", json={"order_id": "o", "sku": "lamp"}).json()["id"]
    shipment = http.post("/shipping/shipments", json={"order_id": "o", "address": {}}).json()["id"]
    control.say("every release is refused")
    control.say("every shipment cancellation is refused")
    assert http.post(f"/inventory/reservations/{reservation}/release").status_code == 409
    assert http.post(f"/shipping/shipments/{shipment}/cancel").status_code == 409
    assert control.order("o")["counts"] == {"reservation": 1, "shipment": 1}


def test_refused_refund_capture_and_cancellation_are_definite(
    client: stripe.StripeClient, control: ShopControl
) -> None:
    taken = charge(client)
    held = client.v1.payment_intents.create({**CHARGE, "capture_method": "manual"})
    for noun in ("refund", "capture", "charge cancellation"):
        control.say(f"every {noun} is refused")
    codes = []
    for ask in (
        lambda: client.v1.refunds.create({"payment_intent": taken.id}),
        lambda: client.v1.payment_intents.capture(held.id),
        lambda: client.v1.payment_intents.cancel(held.id),
    ):
        with pytest.raises(stripe.InvalidRequestError) as refused:
            ask()
        codes.append(refused.value.code)
    assert codes == ["charge_not_refundable", "charge_expired_for_capture", "payment_intent_unexpected_state"]
    assert control.totals()["counts"] == {"charge": 1, "authorization": 1}


@pytest.mark.parametrize("fault", ["timeout_before", "reset_after", "rate_limited", "error_500_stored", "truncated"])
def test_reads_meet_faults_too(client: stripe.StripeClient, control: ShopControl, fault: str) -> None:
    control.set_faults({"rules": [{"operation": "list", "nth": 1, "fault": fault}]})
    with pytest.raises(stripe.StripeError):
        client.v1.charges.list()
    assert client.v1.charges.list().data == []


def test_hang_ends_when_its_time_is_over(http: httpx.Client, control: ShopControl) -> None:
    control.set_faults({"hang_seconds": 0.1, "rules": [{"operation": "list", "fault": "timeout_before"}]})
    with pytest.raises(httpx.ReadError):
        http.get("/shipping/shipments", params={"order_id": "o"})


def test_script_for_one_order_leaves_others_alone(http: httpx.Client, control: ShopControl) -> None:
    rule = {"operation": "ship", "order_id": "order-7", "times": 2, "fault": "error_503"}
    control.set_faults({"rules": [rule]})
    statuses = []
    for order_id in ("order-8", "order-7", "order-8", "order-7", "order-7"):
        body = {"order_id": order_id, "address": {}}
        statuses.append(http.post("/shipping/shipments", json=body).status_code)
    assert statuses == [201, 503, 201, 503, 201]
    assert control.faults()["rules"] == [{**rule, "probability": 1.0, "seen": 3, "fired": 2}]


def test_refund_is_found_by_its_orders_rule_through_its_charge(
    client: stripe.StripeClient, control: ShopControl
) -> None:
    intent = client.v1.payment_intents.create({**CHARGE, "metadata": {"order_id": "order-7"}})
    control.say("the first refund succeeds and then is cut off for order-7")
    with pytest.raises(stripe.APIConnectionError):
        client.v1.refunds.create({"payment_intent": intent.id})
    assert control.order("order-7")["counts"] == {"charge": 1, "refund": 1}


def test_sentence_for_the_third_refund_strikes_the_third(client: stripe.StripeClient, control: ShopControl) -> None:
    control.say("the 3rd refund succeeds and then hangs")
    outcomes = []
    for number in range(4):
        intent = charge(client, f"k{number}")
        try:
            outcomes.append(client.v1.refunds.create({"payment_intent": intent.id}).status)
        except stripe.APIConnectionError:
            outcomes.append("no answer")
    assert outcomes == ["succeeded", "succeeded", "no answer", "succeeded"]
    assert control.totals()["counts"]["refund"] == 4


def test_same_seed_and_order_of_requests_meet_the_same_faults(http: httpx.Client, control: ShopControl) -> None:
    def storm(seed: int) -> list[int]:
        control.reset()
        rule = {"operation": "ship", "probability": 0.3, "fault": "error_503"}
        control.set_faults({"seed": seed, "rules": [rule]})
        body = {"order_id": "o", "address": {}}
        return [http.post("/shipping/shipments", json=body).status_code for _ in range(60)]

    first = storm(1)
    assert storm(1) == first
    assert storm(2) != first
    assert 5 <= first.count(503) <= 31


def test_faults_cleared_are_gone(http: httpx.Client, control: ShopControl) -> None:
    control.say("every call is unavailable")
    assert http.get("/shipping/shipments", params={"order_id": "o"}).status_code == 503
    control.clear_faults()
    assert http.get("/shipping/shipments", params={"order_id": "o"}).status_code == 200
