"""Inventory, shipping and the control API, over the wire."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from sandbox.client import ShopControl, ShopError, ShopProcess


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
def http(process: ShopProcess, control: ShopControl) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=process.url) as http:
        yield http


def reserve(http: httpx.Client, quantity: int = 1, order_id: str = "order-7") -> httpx.Response:
    body = {"order_id": order_id, "sku": "lamp", "quantity": quantity}
    return http.post("/inventory/reservations", json=body)


def ship(http: httpx.Client, country: str = "SE", order_id: str = "order-7") -> httpx.Response:
    return http.post("/shipping/shipments", json={"order_id": order_id, "address": {"country": country}})


def test_stock_that_runs_out_is_refused_and_comes_back_with_a_release(http: httpx.Client, control: ShopControl) -> None:
    control.set_stock("lamp", 3)
    first = reserve(http, 2).json()
    refused = reserve(http, 2)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "out_of_stock")
    assert http.post(f"/inventory/reservations/{first['reservation_id']}/release").json()["status"] == "released"
    assert (control.stock("lamp"), reserve(http, 3).status_code) == (3, 201)


def test_sku_that_nobody_stocked_has_plenty_unless_told(http: httpx.Client, control: ShopControl) -> None:
    assert reserve(http, 1_000_000).status_code == 201
    control.set_stock("*", 0)
    body = {"order_id": "order-7", "sku": "chair", "quantity": 1}
    assert http.post("/inventory/reservations", json=body).status_code == 409


def test_release_twice_has_one_effect(http: httpx.Client, control: ShopControl) -> None:
    control.set_stock("lamp", 5)
    address = f"/inventory/reservations/{reserve(http).json()['reservation_id']}/release"
    answers = [http.post(address, json={"compensation_id": "c1"}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert (control.stock("lamp"), control.order("order-7")["counts"]) == (5, {"reservation": 1, "release": 1})
    assert control.log()[-1]["compensation_id"] == "c1"


def test_lookup_by_order_finds_what_was_reserved_and_shipped(http: httpx.Client, control: ShopControl) -> None:
    for order_id in ("order-7", "order-8"):
        reserve(http, order_id=order_id)
        ship(http, order_id=order_id)
    for path in ("/inventory/reservations", "/shipping/shipments"):
        found = http.get(path, params={"order_id": "order-7"}).json()["data"]
        assert [item["order_id"] for item in found] == ["order-7"]


def test_address_nobody_can_deliver_to_is_a_definite_no(http: httpx.Client, control: ShopControl) -> None:
    refused = ship(http, "XX")
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "undeliverable")
    assert control.log() == []


def test_shipment_cancelled_twice_has_one_effect(http: httpx.Client, control: ShopControl) -> None:
    shipment = ship(http).json()
    assert shipment["tracking"]
    for _ in range(2):
        cancelled = http.post(f"/shipping/shipments/{shipment['shipment_id']}/cancel")
        assert (cancelled.status_code, cancelled.json()["status"]) == (200, "cancelled")
    assert control.order("order-7")["counts"] == {"shipment": 1, "shipment_cancelled": 1}


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/inventory/reservations", b"{", 400),
        ("/inventory/reservations", b"[]", 400),
        ("/inventory/reservations", b'{"order_id": "o", "sku": "lamp", "quantity": 1.5}', 400),
        ("/inventory/reservations", b'{"order_id": "o", "sku": "lamp", "quantity": NaN}', 400),
        ("/inventory/reservations", b'{"order_id": "o", "sku": "lamp", "quantity": true}', 400),
        ("/inventory/reservations", b'{"order_id": "o", "sku": "lamp", "quantity": 0}', 400),
        ("/inventory/reservations", b'{"order_id": "o", "sku": ""}', 400),
        ("/inventory/reservations", b'{"order_id": "\\ud800", "sku": "lamp"}', 400),
        ("/inventory/reservations", b"[" * 100_000, 400),
        ("/inventory/reservations", b" " * (1024 * 1024 + 1), 400),
        ("/shipping/shipments", b'{"order_id": "o"}', 400),
        ("/shipping/shipments", b'{"order_id": "o", "address": "here"}', 400),
        ("/inventory/reservations/rsv_none/release", b"", 404),
        ("/shipping/shipments/shp_none/cancel", b"", 404),
        ("/shipping/nothing", b"", 404),
    ],
)
def test_bad_request_is_refused_with_a_message(
    http: httpx.Client, control: ShopControl, path: str, body: bytes, status: int
) -> None:
    answer = http.post(path, content=body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]
    assert control.log() == []


def test_log_has_every_effect_in_order_without_gaps(http: httpx.Client, control: ShopControl) -> None:
    reservation = reserve(http).json()
    shipment = ship(http).json()
    http.post(f"/inventory/reservations/{reservation['id']}/release")
    entries = control.log()
    assert [entry["seq"] for entry in entries] == [1, 2, 3]
    assert [(entry["kind"], entry["object_id"]) for entry in entries] == [
        ("reservation", reservation["id"]),
        ("shipment", shipment["id"]),
        ("release", reservation["id"]),
    ]
    assert control.log(after=2) == entries[2:]
    page = http.get("/control/log", params={"after": "1", "limit": "1"}).json()
    assert (page["data"], page["has_more"]) == (entries[1:2], True)


def test_order_and_totals_add_up(http: httpx.Client, control: ShopControl) -> None:
    http.headers["Authorization"] = "Bearer sk_test_shop"
    given = {"currency": "usd", "payment_method": "pm_card_visa", "confirm": "true", "metadata[order_id]": "order/7 å"}
    intent = http.post("/v1/payment_intents", data={**given, "amount": "1000"}).json()
    refund = {"payment_intent": intent["id"], "amount": "300", "metadata[compensation_id]": "c1"}
    http.post("/v1/refunds", data=refund, headers={"Idempotency-Key": "refund-c1"})
    order = control.order("order/7 å")
    assert (order["charged"], order["refunded"], order["net"]) == ({"usd": 1000}, {"usd": 300}, {"usd": 700})
    assert [item["id"] for item in order["charges"]] == [intent["latest_charge"]]
    last = order["log"][-1]
    assert (last["kind"], last["amount"], last["currency"]) == ("refund", 300, "usd")
    assert (last["compensation_id"], last["idempotency_key"]) == ("c1", "refund-c1")
    totals = control.totals()
    assert (totals["counts"], totals["charged"], totals["last_seq"]) == ({"charge": 1, "refund": 1}, {"usd": 1000}, 2)


def test_calls_count_every_request_and_what_became_of_it(http: httpx.Client, control: ShopControl) -> None:
    ship(http, "SE")
    ship(http, "XX")
    control.say("the first shipment is rate limited")
    ship(http)
    assert httpx.get(str(http.base_url) + "/v1/charges").status_code == 401
    counted = control.calls()
    assert counted["operations"]["ship"]["statuses"] == {"201": 1, "422": 1, "429": 1}
    assert counted["operations"]["ship"]["faults"] == {"rate_limited": 1}
    assert counted["endpoints"]["GET /v1/charges"]["statuses"] == {"401": 1}
    assert counted["total"] == 4
    listed = control.list_calls(order_id="order-7", operation="ship")
    assert [(call["status"], call["fault"]) for call in listed] == [(201, None), (422, None), (429, "rate_limited")]


def test_reset_forgets_data_clock_faults_and_latency(http: httpx.Client, control: ShopControl) -> None:
    reserve(http)
    control.advance_clock(86_400)
    control.say("every shipment is refused")
    control.set_latency(5)
    control.reset()
    assert (control.log(), control.faults()["rules"], control.calls()["total"]) == ([], [], 0)
    reserve(http)
    assert [entry["seq"] for entry in control.log()] == [1]


def test_reset_drops_a_request_under_way_without_its_effect(process: ShopProcess, control: ShopControl) -> None:
    control.set_latency(1500)
    outcomes: list[str] = []

    def reserve_slowly() -> None:
        with httpx.Client(base_url=process.url) as http:
            try:
                outcomes.append(str(reserve(http).status_code))
            except httpx.TransportError as error:
                outcomes.append(type(error).__name__)

    thread = threading.Thread(target=reserve_slowly)
    thread.start()
    time.sleep(0.7)  # long enough to have arrived, short enough to be waiting still
    control.reset()
    thread.join()
    assert (outcomes, control.log()) == (["ReadError"], [])


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/control/latency", {"ms": -1}),
        ("PUT", "/control/latency", {}),
        ("POST", "/control/clock", {"advance_seconds": -5}),
        ("POST", "/control/clock", {"advance_seconds": "long"}),
        ("POST", "/control/disputes", {"charge": "ch_none"}),
        ("POST", "/control/faults/say", {"text": "be evil"}),
        ("PUT", "/control/faults", {"rules": "all"}),
        ("PUT", "/inventory/stock/lamp", {"available": -1}),
        ("PUT", "/inventory/stock/lamp", {}),
        ("GET", "/control/log?after=x", None),
        ("GET", "/control/log?limit=0", None),
    ],
)
def test_control_asked_for_what_cannot_be_says_so(http: httpx.Client, method: str, path: str, body: Any) -> None:
    answer = http.request(method, path, json=body)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["message"]


def test_control_client_raises_with_what_the_shop_said(control: ShopControl) -> None:
    with pytest.raises(ShopError, match="there is no charge ch_none"):
        control.open_dispute("ch_none")
