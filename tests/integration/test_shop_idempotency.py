"""One key, one effect, as Stripe has it; the log is asked whether it was one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from sandbox.client import ShopControl, ShopProcess

CHARGE = {"amount": "500", "currency": "usd", "payment_method": "pm_card_visa", "confirm": "true"}


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
    with httpx.Client(base_url=process.url, headers={"Authorization": "Bearer sk_test_shop"}) as http:
        yield http


def charge(http: httpx.Client, key: str | None = "k1", **more: str) -> httpx.Response:
    headers = {} if key is None else {"Idempotency-Key": key}
    return http.post("/v1/payment_intents", data={**CHARGE, **more}, headers=headers)


def reserve(http: httpx.Client, key: str = "k1", **more: Any) -> httpx.Response:
    body = {"order_id": "order-7", "sku": "lamp", "quantity": 1, **more}
    return http.post("/inventory/reservations", json=body, headers={"Idempotency-Key": key})


def test_same_key_gets_the_same_answer_and_one_effect(http: httpx.Client, control: ShopControl) -> None:
    first, second = charge(http), charge(http)
    assert (first.content, first.status_code) == (second.content, second.status_code)
    assert "Idempotent-Replayed" not in first.headers
    assert second.headers["Idempotent-Replayed"] == "true"
    assert second.headers["Original-Request"] == first.headers["Request-Id"] != second.headers["Request-Id"]
    assert [entry["idempotency_key"] for entry in control.log()] == ["k1"]


def test_no_key_or_another_key_is_a_new_request(http: httpx.Client, control: ShopControl) -> None:
    for key in (None, None, "k1", "k2"):
        charge(http, key)
    assert control.totals()["counts"] == {"charge": 4}


def test_same_key_with_other_parameters_is_refused(http: httpx.Client, control: ShopControl) -> None:
    charge(http)
    other = charge(http, amount="501")
    assert (other.status_code, other.json()["error"]["type"]) == (400, "idempotency_error")
    assert "same parameters" in other.json()["error"]["message"]
    assert control.totals()["counts"] == {"charge": 1}


def test_same_key_on_another_endpoint_is_refused(http: httpx.Client, control: ShopControl) -> None:
    intent = charge(http).json()["id"]
    other = http.post("/v1/refunds", data={"payment_intent": intent}, headers={"Idempotency-Key": "k1"})
    assert (other.status_code, other.json()["error"]["type"]) == (400, "idempotency_error")
    assert "same endpoint" in other.json()["error"]["message"]


def test_same_key_at_another_service_is_another_key(http: httpx.Client, control: ShopControl) -> None:
    charge(http, "k1")
    assert reserve(http, "k1").status_code == 201


def test_key_in_progress_is_a_conflict_and_then_a_replay(http: httpx.Client, control: ShopControl) -> None:
    control.set_latency(1000)
    answers: list[httpx.Response] = []
    threads = [threading.Thread(target=lambda: answers.append(charge(http))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    conflict, done = sorted(answers, key=lambda answer: -answer.status_code)
    assert (done.status_code, conflict.status_code) == (200, 409)
    assert conflict.json()["error"]["code"] == "idempotency_key_in_use"
    assert charge(http).content == done.content
    assert control.totals()["counts"] == {"charge": 1}


def test_key_is_forgotten_after_a_day_and_not_before(http: httpx.Client, control: ShopControl) -> None:
    first = charge(http)
    control.advance_clock(86_400 - 60)
    assert charge(http).content == first.content
    control.advance_clock(61)
    again = charge(http)
    assert "Idempotent-Replayed" not in again.headers
    assert control.totals()["counts"] == {"charge": 2}
    assert charge(http).content == again.content  # and from then on it is the new one that is replayed


def test_stored_500_is_replayed_for_ever_without_the_effect(http: httpx.Client, control: ShopControl) -> None:
    control.say("the first charge fails for ever")
    assert [charge(http).status_code for _ in range(3)] == [500, 500, 500]
    assert control.log() == []
    assert control.calls()["operations"]["charge"]["replayed"] == 2


def test_declined_card_is_replayed(http: httpx.Client, control: ShopControl) -> None:
    first = charge(http, payment_method="pm_card_chargeDeclined")
    second = charge(http, payment_method="pm_card_chargeDeclined")
    assert (first.status_code, second.content) == (402, first.content)
    assert control.totals()["counts"] == {"decline": 1}


@pytest.mark.parametrize("sentence", ["the first charge is rate limited", "the first charge is unavailable"])
def test_answer_from_before_the_work_is_not_stored(http: httpx.Client, control: ShopControl, sentence: str) -> None:
    control.say(sentence)
    assert [charge(http).status_code in (429, 503), charge(http).status_code] == [True, 200]
    assert control.totals()["counts"] == {"charge": 1}


def test_bad_parameters_are_not_stored(http: httpx.Client, control: ShopControl) -> None:
    assert charge(http, amount="nothing").status_code == 400
    assert charge(http).status_code == 200


def test_key_longer_than_255_is_refused(http: httpx.Client, control: ShopControl) -> None:
    assert charge(http, "k" * 255).status_code == 200
    assert charge(http, "k" * 256).status_code == 400


def test_keys_work_the_same_for_inventory_and_shipping(http: httpx.Client, control: ShopControl) -> None:
    first, second, other = reserve(http), reserve(http), reserve(http, quantity=2)
    assert (first.status_code, second.content, second.headers["Idempotent-Replayed"]) == (201, first.content, "true")
    assert (other.status_code, other.json()["error"]["code"]) == (400, "idempotency_key_reused")
    body = {"order_id": "order-7", "address": {"country": "XX"}}
    refused = [http.post("/shipping/shipments", json=body, headers={"Idempotency-Key": "s"}) for _ in range(2)]
    assert [answer.status_code for answer in refused] == [422, 422]
    assert refused[1].headers["Idempotent-Replayed"] == "true"
    assert control.totals()["counts"] == {"reservation": 1}


def test_many_requests_at_once_under_one_key_have_one_effect(http: httpx.Client, control: ShopControl) -> None:
    control.set_latency(20)
    statuses: list[int] = []
    threads = [threading.Thread(target=lambda: statuses.append(charge(http).status_code)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(statuses) <= {200, 409}
    assert statuses.count(200) >= 1
    assert control.totals()["counts"] == {"charge": 1}
