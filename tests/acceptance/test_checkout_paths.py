"""Every way through the checkout, with the real database and the real shop; the shop's own log is the judge."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest
from checkouts import (
    AMOUNT_MINOR,
    FORWARD,
    NOWHERE,
    after_call,
    check_out,
    get_row,
    get_states,
    get_undone,
    hasten,
    order,
    request_cancel,
)

from makegood.engine.definitions import Workflow
from makegood.engine.runner import Start
from makegood.settings import Settings
from sandbox.client import ShopControl

UNDONE = {"charge": 1, "refund": 1}


def standing(shop: ShopControl) -> dict[str, int]:
    """What the shop still has of order-1 when all is over."""
    found = shop.order("order-1")
    return {
        "money": sum(found["net"].values()),
        "reservations": sum(item["status"] == "reserved" for item in found["reservations"]),
        "shipments": sum(item["status"] == "created" for item in found["shipments"]),
    }


def test_checkout_of_a_good_order_completes(database: Any, settings: Settings, shop: ShopControl) -> None:
    asyncio.run(check_out(database, settings, order()))
    row = get_row(database)
    assert get_states(database) == FORWARD
    assert standing(shop) == {"money": AMOUNT_MINOR, "reservations": 1, "shipments": 1}
    assert shop.order("order-1")["counts"] == {"charge": 1, "reservation": 1, "shipment": 1}
    assert (row["held_at"], row["lease_owner"]) == (None, None)
    assert row["finished_at"] is not None
    messages = database.rows("SELECT topic, payload FROM makegood.outbox ORDER BY topic")
    assert [m["topic"] for m in messages] == ["send_confirmation", "update_analytics"]
    assert messages[0]["payload"] == {"entity_id": "order-1", "amount_minor": 1999, "currency": "EUR"}


def test_checkout_of_a_name_beyond_ascii_pays_and_goes_back_like_any_other(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    """Its keys travel in headers, where such a name cannot."""
    name = "заказ-ä-注文"
    asyncio.run(check_out(database, settings, order(name, **NOWHERE)))
    assert {kind: shop.order(name)["counts"][kind] for kind in UNDONE} == UNDONE
    assert sum(shop.order(name)["net"].values()) == 0
    assert database.rows("SELECT current_state FROM makegood.workflow_executions") == [{"current_state": "compensated"}]


def test_checkout_keeps_what_its_undo_would_need_and_every_key_is_recorded(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    asyncio.run(check_out(database, settings, order()))
    found = shop.order("order-1")
    context = get_row(database)["context"]
    assert context["charge"]["charge"] == found["charges"][0]["id"]
    assert context["reserve"]["reservation_id"] == found["reservations"][0]["reservation_id"]
    assert context["ship"]["shipment_id"] == found["shipments"][0]["shipment_id"]
    keys = database.rows("SELECT key, status FROM makegood.idempotency_keys ORDER BY key")
    assert [(k["key"], k["status"]) for k in keys] == [
        ("charge-order-1", "recorded"),
        ("reserve-order-1", "recorded"),
        ("ship-order-1", "recorded"),
    ]
    assert {entry["idempotency_key"] for entry in found["log"]} == {k["key"] for k in keys}


@pytest.mark.parametrize("currency", ["EUR", "JPY", "KWD", "ISK", "UGX", "MGA"])
def test_checkout_takes_and_returns_the_same_money_in_every_kind_of_currency(
    database: Any, settings: Settings, shop: ShopControl, currency: str
) -> None:
    """Whole units of it: two decimals, none, three, and those that Stripe counts in its own way."""
    exponent = database.rows("SELECT exponent FROM makegood.currencies WHERE code = %s", (currency,))[0]["exponent"]
    one_order = order(**NOWHERE)
    start = Start("checkout", "order-1", one_order.context, 20 * 10**exponent, currency)
    asyncio.run(check_out(database, settings, start))
    at_stripe = 20 * {"JPY": 1, "MGA": 1, "KWD": 1000}.get(currency, 100)
    found = shop.order("order-1")
    assert found["charged"] == {currency.lower(): at_stripe}
    assert found["refunded"] == found["charged"]
    assert get_row(database)["current_state"] == "compensated"


def test_checkout_with_a_declined_card_fails_and_nothing_happened(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    asyncio.run(check_out(database, settings, order(payment_method="pm_card_chargeDeclined")))
    assert get_states(database) == ["created", "charging", "failed"]
    assert standing(shop) == {"money": 0, "reservations": 0, "shipments": 0}
    assert shop.order("order-1")["counts"] == {"decline": 1}
    facts = database.rows("SELECT metadata FROM makegood.workflow_transitions WHERE to_state = 'failed'")[0]["metadata"]
    assert facts["failed_step"] == "charge"
    assert facts["error_type"] == "card_declined"
    assert database.rows("SELECT * FROM makegood.outbox") == []


def test_checkout_of_something_sold_out_is_refunded(database: Any, settings: Settings, shop: ShopControl) -> None:
    shop.set_stock("poster-signed", 0)
    asyncio.run(check_out(database, settings, order(sku="poster-signed")))
    assert get_states(database) == [*FORWARD[:4], "compensating", "compensated"]
    assert standing(shop) == {"money": 0, "reservations": 0, "shipments": 0}
    assert shop.order("order-1")["counts"] == UNDONE
    assert get_undone(database) == {"charge": "succeeded"}


def test_checkout_that_cannot_be_delivered_is_undone_in_reverse(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    asyncio.run(check_out(database, settings, order(**NOWHERE)))
    assert get_states(database) == [*FORWARD[:6], "compensating", "compensated"]
    assert standing(shop) == {"money": 0, "reservations": 0, "shipments": 0}
    kinds = [entry["kind"] for entry in shop.order("order-1")["log"]]
    assert kinds == ["charge", "reservation", "release", "refund"]
    assert list(get_undone(database)) == ["reserve", "charge"]
    refund = shop.order("order-1")["log"][-1]
    compensation = database.rows("SELECT * FROM makegood.compensations WHERE step = 'charge'")[0]
    assert refund["compensation_id"] == str(compensation["id"])
    assert refund["idempotency_key"] == compensation["idempotency_key"] == f"refund-{compensation['id']}"
    assert (compensation["amount_minor"], compensation["currency"]) == (AMOUNT_MINOR, "EUR")


def test_cancel_before_anything_happened_ends_compensated(database: Any, settings: Settings, shop: ShopControl) -> None:
    asyncio.run(check_out(database, settings, order(), before=lambda: request_cancel(database)))
    assert get_states(database) == ["created", "compensating", "compensated"]
    assert shop.order("order-1")["counts"] == {}


@pytest.mark.parametrize(
    ("step", "way", "happened"),
    [
        # Each cancel comes while the call of the step is out; it is honoured at the step's end.
        ("charge", FORWARD[:3], ["charge", "refund"]),
        ("reserve", FORWARD[:5], ["charge", "reservation", "release", "refund"]),
        # The last step is done, but nothing completes any more: it is undone with the rest.
        ("ship", FORWARD[:6], ["charge", "reservation", "shipment", "shipment_cancelled", "release", "refund"]),
    ],
)
def test_cancel_in_the_middle_of_a_call_undoes_that_step_too(
    database: Any, settings: Settings, shop: ShopControl, step: str, way: list[str], happened: list[str]
) -> None:
    def change(workflow: Workflow) -> Workflow:
        return after_call(hasten(workflow), step, lambda _: request_cancel(database))

    asyncio.run(check_out(database, settings, order(), change=change))
    assert get_states(database) == [*way, "compensating", "compensated"]
    assert [entry["kind"] for entry in shop.order("order-1")["log"]] == happened
    assert standing(shop) == {"money": 0, "reservations": 0, "shipments": 0}
    facts = database.rows("SELECT metadata FROM makegood.workflow_transitions WHERE to_state = 'compensating'")
    assert facts[0]["metadata"]["cancel_requested_by"] == "support"
    assert facts[0]["metadata"]["cancel_reason"] == "customer called"
    assert database.rows("SELECT * FROM makegood.outbox") == []


def test_cancel_after_the_end_is_too_late_and_changes_nothing(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    asyncio.run(check_out(database, settings, order()))
    assert request_cancel(database) == "too_late"
    assert get_row(database)["cancel_requested"] is False
    assert standing(shop)["money"] == AMOUNT_MINOR


@pytest.mark.parametrize("lie", ["wrong_amount", "wrong_currency"])
@pytest.mark.parametrize(
    ("operation", "state", "context"),
    [("charge", "charging", {}), ("refund", "compensating", NOWHERE)],
)
def test_answer_with_other_money_than_asked_holds_the_order_and_nothing_else_moves(
    database: Any, settings: Settings, shop: ShopControl, lie: str, operation: str, state: str, context: Any
) -> None:
    shop.set_faults({"rules": [{"operation": operation, "fault": lie}]})
    asyncio.run(check_out(database, settings, order(**context)))
    row = get_row(database)
    assert row["current_state"] == state
    assert row["held_at"] is not None
    assert "the answer says" in row["held_reason"]
    assert len(shop.list_calls(operation=operation)) == 1  # not asked again
    expected = {"charge": {"charge": 1}, "refund": {"charge": 1, "reservation": 1, "release": 1, "refund": 1}}
    assert shop.order("order-1")["counts"] == expected[operation]


def test_undo_that_is_pending_at_the_provider_counts_as_done(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    asyncio.run(check_out(database, settings, order(**NOWHERE, payment_method="pm_card_pendingRefund")))
    assert get_row(database)["current_state"] == "compensated"
    result = database.rows("SELECT result FROM makegood.compensations WHERE step = 'charge'")[0]["result"]
    assert result["result"]["status"] == "pending"


def test_undo_that_the_provider_refuses_is_held_and_the_order_stays_compensating(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    shop.set_faults({"rules": [{"operation": "refund", "fault": "refused"}]})
    asyncio.run(check_out(database, settings, order(**NOWHERE)))
    row = get_row(database)
    assert row["current_state"] == "compensating"
    assert row["held_reason"].startswith("the undo of step 'charge' did not succeed")
    assert get_undone(database) == {"reserve": "succeeded", "charge": "held"}
    assert standing(shop) == {"money": AMOUNT_MINOR, "reservations": 0, "shipments": 0}


def test_order_without_a_payment_method_is_held_with_the_reason(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    asyncio.run(check_out(database, settings, Start("checkout", "order-1", {}, 1999, "EUR")))
    assert get_row(database)["held_reason"] == "PermanentError: the context of order-1 has no payment_method"
    assert shop.calls()["total"] == 0


def test_cancel_while_the_card_is_declined_ends_compensated(
    database: Any, shop: ShopControl, settings: Settings
) -> None:
    """What was asked for is honoured, even if nothing has to be undone."""
    change = functools.partial(after_call, step_name="charge", do=lambda _: request_cancel(database))
    asyncio.run(check_out(database, settings, order(payment_method="pm_card_chargeDeclined"), change=change))
    assert get_states(database)[-2:] == ["compensating", "compensated"]
    assert shop.order("order-1")["counts"] == {"decline": 1}
