"""Every fault of the shop, at the charge and at the refund: in the end one effect, or none and a person is asked."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest
import stripe
from checkouts import (
    AMOUNT_MINOR,
    NOWHERE,
    after_call,
    check_out,
    drive,
    get_attempts,
    get_row,
    get_undone,
    hasten,
    open_checkouts,
    order,
)

from makegood.settings import Settings
from sandbox.client import ShopControl

# Long enough for a busy machine, short enough for a fault that never answers.
SHORT_SECONDS = 0.8
hasten_more = functools.partial(hasten, timeout_seconds=SHORT_SECONDS)


def strike(shop: ShopControl, operation: str, fault: str, **which: Any) -> None:
    rule = {"operation": operation, "fault": fault, **which}
    shop.set_faults({"hang_seconds": 30, "drip_seconds": 30, "retry_after_seconds": 0, "rules": [rule]})


# What the caller cannot tell apart from nothing having happened, and a replay under the same key can.
ONCE_THEN_WELL = [
    "timeout_before",  # nothing happened, no answer
    "timeout_after",  # it happened, no answer
    "reset_before",
    "reset_after",
    "rate_limited",
    "error_503",
    "malformed",  # it happened, the body is no JSON
    "truncated",
    "slow_drip",
]


@pytest.mark.parametrize("fault", ONCE_THEN_WELL)
def test_charge_that_fails_once_is_made_once_and_the_order_completes(
    database: Any, settings: Settings, shop: ShopControl, fault: str
) -> None:
    strike(shop, "charge", fault, nth=1)
    asyncio.run(check_out(database, settings, order(), change=hasten_more))
    assert get_row(database)["current_state"] == "completed"
    assert shop.order("order-1")["counts"] == {"charge": 1, "reservation": 1, "shipment": 1}
    attempts = get_attempts(database, "charge")
    assert attempts[0]["outcome"] == "unknown"
    assert attempts[-1]["outcome"] == "success"
    assert {call["idempotency_key"] for call in shop.list_calls(operation="charge")} == {"charge-order-1"}


@pytest.mark.parametrize("fault", ONCE_THEN_WELL)
def test_refund_that_fails_once_is_made_once_and_the_order_is_compensated(
    database: Any, settings: Settings, shop: ShopControl, fault: str
) -> None:
    strike(shop, "refund", fault, nth=1)
    asyncio.run(check_out(database, settings, order(**NOWHERE), change=hasten_more))
    assert get_row(database)["current_state"] == "compensated"
    assert shop.order("order-1")["counts"] == {"charge": 1, "reservation": 1, "release": 1, "refund": 1}
    assert get_attempts(database, "charge", "compensation")[0]["outcome"] == "unknown"


@pytest.mark.parametrize("operation", ["reserve", "ship"])
@pytest.mark.parametrize("fault", ["timeout_after", "reset_before", "malformed", "error_503"])
def test_goods_that_fail_once_are_moved_once(
    database: Any, settings: Settings, shop: ShopControl, operation: str, fault: str
) -> None:
    strike(shop, operation, fault, nth=1)
    asyncio.run(check_out(database, settings, order(), change=hasten_more))
    assert get_row(database)["current_state"] == "completed"
    assert shop.order("order-1")["counts"] == {"charge": 1, "reservation": 1, "shipment": 1}


def test_charge_whose_500_is_kept_for_ever_but_happened_is_found_by_a_look_up(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    strike(shop, "charge", "error_500_after", nth=1)
    asyncio.run(check_out(database, settings, order()))
    assert get_row(database)["current_state"] == "completed"
    assert shop.order("order-1")["counts"] == {"charge": 1, "reservation": 1, "shipment": 1}
    assert [a["outcome"] for a in get_attempts(database, "charge")] == ["unknown"] * 4  # its attempts, then the look-up


def test_charge_whose_500_is_kept_for_ever_and_never_happened_is_held(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    strike(shop, "charge", "error_500_stored", nth=1)
    asyncio.run(check_out(database, settings, order()))
    row = get_row(database)
    assert row["current_state"] == "charging"
    assert row["held_reason"] == "its attempts are spent, and a look-up found no trace of step 'charge'"
    assert shop.order("order-1")["counts"] == {}


def test_refund_whose_500_is_kept_for_ever_but_happened_is_found_by_a_look_up(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    strike(shop, "refund", "error_500_after", nth=1)
    asyncio.run(check_out(database, settings, order(**NOWHERE)))
    assert get_row(database)["current_state"] == "compensated"
    assert shop.order("order-1")["counts"]["refund"] == 1
    assert get_undone(database) == {"reserve": "succeeded", "charge": "succeeded"}


def test_refund_whose_500_is_kept_for_ever_and_never_happened_is_held_with_its_order(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    strike(shop, "refund", "error_500_stored", nth=1)
    asyncio.run(check_out(database, settings, order(**NOWHERE)))
    row = get_row(database)
    assert (row["current_state"], row["finished_at"]) == ("compensating", None)
    assert "its attempts are spent, and a look-up found no trace of it" in row["held_reason"]
    assert get_undone(database) == {"reserve": "succeeded", "charge": "held"}
    assert "refund" not in shop.order("order-1")["counts"]


def test_charge_made_a_day_after_the_order_was_started_is_found_by_a_look_up(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    """No worker ran for a day: the order waited, and its payment is not among those of its first hours."""
    strike(shop, "charge", "error_500_after", nth=1)
    asyncio.run(check_out(database, settings, order(), before=lambda: shop.advance_clock(25 * 3600)))
    assert get_row(database)["current_state"] == "completed"
    assert shop.order("order-1")["counts"]["charge"] == 1


def test_look_up_that_does_not_answer_is_tried_again_and_decides_nothing(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    shop.set_faults(
        {
            "rules": [
                {"operation": "charge", "fault": "error_500_after", "nth": 1},
                {"operation": "list", "fault": "error_503", "to_nth": 3},
            ]
        }
    )
    asyncio.run(check_out(database, settings, order()))
    assert get_row(database)["current_state"] == "completed"
    assert shop.order("order-1")["counts"]["charge"] == 1


def test_shipping_that_is_down_for_good_undoes_the_order(database: Any, settings: Settings, shop: ShopControl) -> None:
    strike(shop, "ship", "error_503")
    asyncio.run(check_out(database, settings, order()))
    assert get_row(database)["current_state"] == "compensated"
    assert shop.order("order-1")["counts"] == {"charge": 1, "reservation": 1, "release": 1, "refund": 1}


def test_slow_drip_ends_at_the_total_deadline_of_the_step(database: Any, settings: Settings, shop: ShopControl) -> None:
    """Each byte comes in time; the whole would take half a minute."""
    strike(shop, "charge", "slow_drip", nth=1)
    asyncio.run(check_out(database, settings, order(), change=hasten_more))
    first = get_attempts(database, "charge")[0]
    assert (first["outcome"], first["error_type"]) == ("unknown", "timeout")
    assert SHORT_SECONDS <= first["seconds"] < 10
    strike(shop, "reserve", "slow_drip", nth=1)
    asyncio.run(check_out(database, settings, order("order-2"), change=hasten_more))
    first = next(a for a in get_attempts(database, "reserve") if a["outcome"] != "success")
    assert SHORT_SECONDS <= first["seconds"] < 10


# After a day the provider has forgotten the key: the same request would be a second charge.


@pytest.mark.parametrize(
    ("fault", "state", "held", "charges"),
    [
        ("timeout_after", "completed", False, 1),  # the look-up finds it
        ("timeout_before", "charging", True, 0),  # no trace: a person decides, nobody charges
    ],
)
def test_charge_under_a_forgotten_key_is_looked_up_and_never_sent_again(
    database: Any, settings: Settings, shop: ShopControl, fault: str, state: str, held: bool, charges: int
) -> None:
    strike(shop, "charge", fault, nth=1)

    async def run() -> None:
        async with open_checkouts(database.jobs, settings, change=hasten_more) as runner:
            await runner.start([order()], triggered_by="shop")
            await runner.run_once()
            shop.advance_clock(25 * 3600)
            await drive(runner, database, hours=25)

    asyncio.run(run())
    row = get_row(database)
    assert (row["current_state"], row["held_at"] is not None) == (state, held)
    assert shop.totals()["counts"].get("charge", 0) == charges
    assert len(shop.list_calls(operation="charge")) == 1
    if held:
        assert "the provider may have forgotten its key" in row["held_reason"]


@pytest.mark.parametrize(
    ("fault", "state", "held", "refunds"),
    [
        ("timeout_after", "compensated", False, 1),
        ("timeout_before", "compensating", True, 0),
    ],
)
def test_refund_under_a_forgotten_key_is_looked_up_and_never_sent_again(
    database: Any, settings: Settings, shop: ShopControl, fault: str, state: str, held: bool, refunds: int
) -> None:
    strike(shop, "refund", fault, nth=1)

    async def run() -> None:
        async with open_checkouts(database.jobs, settings, change=hasten_more) as runner:
            await runner.start([order(**NOWHERE)], triggered_by="shop")
            while not shop.list_calls(operation="refund"):
                await runner.run_once()
            shop.advance_clock(25 * 3600)
            await drive(runner, database, hours=25)

    asyncio.run(run())
    row = get_row(database)
    assert (row["current_state"], row["held_at"] is not None) == (state, held)
    assert shop.order("order-1")["refunded"].get("eur", 0) == refunds * AMOUNT_MINOR
    assert len(shop.list_calls(operation="refund")) == 1


def test_refund_made_by_somebody_else_is_held_not_taken_for_ours(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    """`charge_already_refunded` is success only where the refund carries our compensation's id."""

    def refund_by_hand(_: Any) -> None:
        http = stripe.HTTPXClient(timeout=10, allow_sync_methods=True)
        base: Any = {"api": settings.stripe_api_base}
        client = stripe.StripeClient("sk_test_person", base_addresses=base, http_client=http)
        intent = shop.order("order-1")["charges"][0]["payment_intent"]
        client.v1.refunds.create({"payment_intent": intent}, {"idempotency_key": "by-hand"})
        http.close()

    def change(workflow: Any) -> Any:
        return after_call(hasten(workflow), "reserve", refund_by_hand)

    asyncio.run(check_out(database, settings, order(**NOWHERE), change=change))
    row = get_row(database)
    assert row["current_state"] == "compensating"
    assert "the undo of step 'charge' did not succeed" in row["held_reason"]
    assert shop.order("order-1")["counts"]["refund"] == 1  # the person's, and no second one


def test_answer_that_came_after_the_lease_was_lost_is_used_and_nobody_is_called_again(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    """Another worker took the order over in the middle of the call: the late answer is kept with the key."""

    def take_over(_: Any) -> None:
        database.rows("UPDATE makegood.workflow_executions SET fence = fence + 1, lease_owner = 'other'")

    def change(workflow: Any) -> Any:
        return after_call(hasten(workflow), "charge", take_over)

    async def run() -> None:
        async with open_checkouts(database.jobs, settings, change=change) as runner:
            await runner.start([order()], triggered_by="shop")
            assert await runner.run_once() == {"lost": 1}
            key = database.rows("SELECT status, response FROM makegood.idempotency_keys")[0]
            assert (key["status"], key["response"]["outcome"]) == ("known", "success")
        async with open_checkouts(database.jobs, settings) as runner:
            await drive(runner, database)

    asyncio.run(run())
    assert get_row(database)["current_state"] == "completed"
    assert len(shop.list_calls(operation="charge")) == 1


def test_same_order_started_again_after_its_end_does_nothing(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    for _ in range(2):
        asyncio.run(check_out(database, settings, order()))
    assert shop.order("order-1")["counts"] == {"charge": 1, "reservation": 1, "shipment": 1}
