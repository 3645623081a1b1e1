"""A provider that is down is left alone by every worker: one probe at a time, nothing spent on waiting, and nobody
waits for ever whose money can be given back."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from checkouts import drive, get_attempts, get_row, hasten, open_checkouts, order, pass_time, request_cancel
from pydantic import SecretStr
from sweeps import count_states

from makegood.database import Database
from makegood.engine import breakers
from makegood.engine.breakers import Breakers, Limits
from makegood.engine.decide import LOOK_UPS_MAX
from makegood.engine.definitions import Workflow
from makegood.engine.outcomes import Failed, Outcome, Success, Suspect, Trouble, Unknown
from makegood.settings import Settings
from sandbox.client import ShopControl

FAILURES = 3
UNDER_WAY = 2  # with one call at once: the one that is made, and one that is prepared meanwhile
ATTEMPTS_MAX = 4


@pytest.fixture(autouse=True)
def look_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's view is as old as its last question, so that no test has to wait for a second to pass."""
    monkeypatch.setattr(breakers, "LOOK_AGAIN_SECONDS", 0.0)


@pytest.fixture
def careful(settings: Settings) -> Settings:
    """One call after the other, and a breaker that stays open until a test lets its time pass."""
    changes = {"breaker_failures": FAILURES, "breaker_wait_seconds": 600, "breaker_wait_seconds_max": 6000}
    return settings.model_copy(update={"calls_at_once": 1, **changes})


def strike(shop: ShopControl, *operations: str, fault: str = "error_503") -> None:
    rules = [{"operation": operation, "fault": fault} for operation in operations]
    shop.set_faults({"retry_after_seconds": 0, "rules": rules})


def read_breakers(database: Any) -> dict[str, str]:
    return {row["provider"]: row["state"] for row in database.rows("SELECT provider, state FROM makegood.breakers")}


def let_probe(database: Any) -> None:
    """The time of the next probe has come."""
    database.rows("UPDATE makegood.breakers SET retry_at = now() - interval '1 second' WHERE state = 'open'")


def let_outage_last(database: Any, hours: int = 1) -> None:
    database.rows("UPDATE makegood.breakers SET opened_at = opened_at - make_interval(hours => %s)", (hours,))


def orders(count: int) -> list[Any]:
    return [order(f"order-{n}") for n in range(count)]


def money_left(shop: ShopControl, count: int) -> int:
    """What the provider still has of so many orders."""
    return sum(sum(shop.order(f"order-{n}")["net"].values()) for n in range(count))


# Opening


@pytest.mark.parametrize(
    ("fault", "calls_max", "burnt"),
    [
        ("error_503", FAILURES + UNDER_WAY, True),  # it may have worked: those few attempts count
        ("rate_limited", FAILURES + UNDER_WAY, False),  # it surely did not
        ("wrong key", 1 + UNDER_WAY, False),  # no other order will fare better: at once
    ],
)
def test_storm_against_a_provider_that_is_down_becomes_no_storm_of_calls(
    database: Any, careful: Settings, shop: ShopControl, fault: str, calls_max: int, burnt: bool
) -> None:
    if fault == "wrong key":
        careful = careful.model_copy(update={"stripe_api_key": SecretStr("sk_live_of_somebody_else")})
    else:
        strike(shop, "charge", fault=fault)

    async def run() -> None:
        async with open_checkouts(database.jobs, careful) as runner:
            await runner.start(orders(20), triggered_by="shop")
            assert await runner.run_once() == {"waiting": 20}
            for _ in range(3):  # however often they come due meanwhile
                pass_time(database)
                assert await runner.run_once() == {"waiting": 20}

    asyncio.run(run())
    assert read_breakers(database) == {"payments": "open"}
    called = get_attempts(database, "charge")
    assert 1 <= len(called) <= calls_max
    assert len({attempt["workflow_id"] for attempt in called}) == len(called)  # one each, by distinct orders
    spent = database.rows("SELECT attempts FROM makegood.workflow_executions WHERE attempts > 0")
    assert len(spent) == (len(called) if burnt else 0)


def test_breaker_that_another_worker_opened_keeps_a_new_one_from_calling(
    database: Any, careful: Settings, shop: ShopControl
) -> None:
    database.rows("SELECT makegood.trip_breaker('payments', 'another', 'HTTP 503', 600, 600)", role="jobs")

    async def run() -> Counter[str]:
        async with open_checkouts(database.jobs, careful) as runner:
            await runner.start(orders(5), triggered_by="shop")
            return await runner.run_once()

    assert asyncio.run(run()) == {"waiting": 5}
    assert shop.calls()["total"] == 0
    waits = database.rows(
        "SELECT extract(epoch FROM next_attempt_at - clock_timestamp())::float AS s FROM makegood.workflow_executions"
    )
    assert all(500 < row["s"] <= 600 for row in waits)  # until it may be tried, not before


def test_orders_go_on_as_far_as_other_providers_take_them(database: Any, careful: Settings, shop: ShopControl) -> None:
    strike(shop, "ship")

    async def run() -> None:
        async with open_checkouts(database.jobs, careful) as runner:
            await runner.start(orders(12), triggered_by="shop")
            await runner.run_once()

    asyncio.run(run())
    assert read_breakers(database) == {"shipping": "open"}
    assert shop.totals()["counts"] == {"charge": 12, "reservation": 12}
    assert FAILURES <= len(shop.list_calls(operation="ship")) <= FAILURES + UNDER_WAY


def test_order_that_is_never_connected_spends_no_attempt(database: Any, careful: Settings, shop: ShopControl) -> None:
    nowhere = careful.model_copy(update={"inventory_url": "http://127.0.0.1:1"})

    async def run() -> None:
        async with open_checkouts(database.jobs, nowhere) as runner:
            await runner.start(orders(1), triggered_by="shop")
            for _ in range(2 * ATTEMPTS_MAX):
                assert await runner.run_once() == {"waiting": 1}
                pass_time(database)

    asyncio.run(run())
    row = get_row(database, "order-0")
    assert (row["current_state"], row["attempts"], row["held_at"]) == ("reserving", 0, None)
    assert read_breakers(database) == {}  # one order is no storm


# The probe


def test_probe_is_one_of_two_runners_at_once_and_when_it_fails_the_wait_doubles(
    database: Any, careful: Settings, shop: ShopControl
) -> None:
    strike(shop, "charge")

    async def run() -> None:
        async with (
            open_checkouts(database.jobs, careful, worker="one") as one,
            open_checkouts(database.jobs, careful, worker="other") as other,
        ):
            await one.start(orders(20), triggered_by="shop")
            await one.run_once()
            before = len(shop.list_calls(operation="charge"))
            for probes in (1, 2):
                let_probe(database)
                pass_time(database)
                ends = await asyncio.gather(one.run_once(batch=10), other.run_once(batch=10))
                assert ends[0] + ends[1] == {"waiting": 20}
                assert len(shop.list_calls(operation="charge")) == before + probes
            shop.clear_faults()
            let_probe(database)
            await drive(one, database)

    asyncio.run(run())
    assert count_states(database) == {"completed": 20}
    assert shop.totals()["counts"] == {"charge": 20, "reservation": 20, "shipment": 20}
    assert read_breakers(database) == {"payments": "closed"}
    (alert,) = database.rows("SELECT payload FROM makegood.outbox WHERE topic = 'alert'")
    assert (alert["payload"]["kind"], alert["payload"]["provider"]) == ("provider_down", "payments")


def test_probe_that_failed_keeps_the_others_waiting_longer(database: Any, careful: Settings, shop: ShopControl) -> None:
    strike(shop, "charge")

    async def run() -> None:
        async with open_checkouts(database.jobs, careful) as runner:
            await runner.start(orders(8), triggered_by="shop")
            await runner.run_once()
            let_probe(database)
            pass_time(database)
            await runner.run_once()

    asyncio.run(run())
    (row,) = database.rows(
        "SELECT failed_probes, extract(epoch FROM retry_at - updated_at)::float AS wait FROM makegood.breakers"
    )
    assert (row["failed_probes"], round(row["wait"])) == (1, 1200)


def test_probe_whose_worker_died_is_followed_by_another_after_its_time(
    database: Any, careful: Settings, shop: ShopControl
) -> None:
    database.rows("SELECT makegood.trip_breaker('payments', 'dead', 'HTTP 503', 0.001, 0.001)", role="jobs")
    database.rows("SELECT pg_sleep(0.01)")
    assert database.rows("SELECT makegood.take_probe('payments', 'dead', 60) AS taken", role="jobs") == [
        {"taken": True}
    ]

    async def run() -> None:
        async with open_checkouts(database.jobs, careful) as runner:
            await runner.start(orders(2), triggered_by="shop")
            assert await runner.run_once() == {"waiting": 2}
            assert shop.calls()["total"] == 0
            database.rows("UPDATE makegood.breakers SET probe_until = now()")
            await drive(runner, database)

    asyncio.run(run())
    assert count_states(database) == {"completed": 2}


def test_healed_provider_gets_every_order_once_however_the_outage_was_met(
    database: Any, careful: Settings, shop: ShopControl
) -> None:
    """Some calls had their effect and no answer: they are found out, not made again."""
    shop.set_faults({"rules": [{"operation": "charge", "fault": "reset_after"}]})

    async def run() -> None:
        async with open_checkouts(database.jobs, careful) as runner:
            await runner.start(orders(10), triggered_by="shop")
            await runner.run_once()
            shop.clear_faults()
            let_probe(database)
            await drive(runner, database)

    asyncio.run(run())
    assert count_states(database) == {"completed": 10}
    assert shop.totals()["counts"] == {"charge": 10, "reservation": 10, "shipment": 10}


PROBES = ATTEMPTS_MAX + LOOK_UPS_MAX + 2


@pytest.mark.parametrize(("count", "attempts"), [(1, 0), (3, 0), (1, ATTEMPTS_MAX)], ids=["one", "several", "look-up"])
def test_probes_of_a_long_outage_spend_nobodys_attempts(
    database: Any, careful: Settings, shop: ShopControl, count: int, attempts: int
) -> None:
    """A probe is made for all who wait, so its failure is nobody's own: none is held while payments are away."""
    strike(shop, "charge", "list")
    database.rows("SELECT makegood.trip_breaker('payments', 'another', 'HTTP 503', 0.001, 0.001)", role="jobs")

    async def run() -> None:
        async with open_checkouts(database.jobs, careful) as runner:
            await runner.start(orders(count), triggered_by="shop")
            await runner.run_once()
            database.rows(
                "UPDATE makegood.workflow_executions SET attempts = %s WHERE current_state = 'charging'", (attempts,)
            )
            for _ in range(PROBES * count):
                let_probe(database)
                pass_time(database)
                assert await runner.run_once() == {"waiting": count}
            (row,) = database.rows("SELECT max(attempts) AS n FROM makegood.workflow_executions")
            assert row["n"] == attempts
            database.rows("UPDATE makegood.workflow_executions SET attempts = 0")
            shop.clear_faults()
            let_probe(database)
            await drive(runner, database)

    asyncio.run(run())
    assert count_states(database) == {"completed": count}
    assert len(shop.list_calls(operation="list" if attempts else "charge")) > PROBES * count


@pytest.mark.parametrize("attempts", [0, 4], ids=["call", "look-up"])
def test_probes_by_a_refund_spend_none_of_its_attempts(
    database: Any, careful: Settings, shop: ShopControl, attempts: int
) -> None:
    strike(shop, "refund", "list")

    async def run() -> None:
        async with open_checkouts(database.jobs, careful) as runner:
            await runner.start([order(address={"country": "XX"})], triggered_by="shop")
            await runner.run_once()
            database.rows("SELECT makegood.trip_breaker('payments', 'another', 'HTTP 503', 60, 60)", role="jobs")
            database.rows("UPDATE makegood.compensations SET attempts = %s WHERE step = 'charge'", (attempts,))
            for _ in range(PROBES):
                let_probe(database)
                pass_time(database)
                assert await runner.run_once() == {"waiting": 1}
            (row,) = database.rows("SELECT attempts, state FROM makegood.compensations WHERE step = 'charge'")
            assert (row["attempts"], row["state"]) == (attempts, "pending")
            shop.clear_faults()
            let_probe(database)
            database.rows("UPDATE makegood.compensations SET attempts = 0 WHERE step = 'charge'")
            await drive(runner, database)

    asyncio.run(run())
    assert count_states(database) == {"compensated": 1}
    assert sum(shop.order("order-1")["net"].values()) == 0


# Patience


def test_order_that_waited_too_long_for_shipping_is_undone_and_its_money_is_back(
    database: Any, careful: Settings, shop: ShopControl
) -> None:
    """Those whose shipment was never asked for at once; the others when shipping can be asked to forget it."""
    strike(shop, "ship", "cancel_shipment")

    async def run() -> None:
        async with open_checkouts(database.jobs, careful) as runner:
            await runner.start(orders(10), triggered_by="shop")
            await runner.run_once()
            let_outage_last(database)
            pass_time(database)
            await runner.run_once()
            asked = len({call["order_id"] for call in shop.list_calls(operation="ship")})
            assert count_states(database) == {"compensated": 10 - asked, "compensating": asked}
            assert money_left(shop, 10) == asked * 1999
            shop.clear_faults()
            let_probe(database)
            await drive(runner, database)

    asyncio.run(run())
    assert count_states(database) == {"compensated": 10}
    assert money_left(shop, 10) == 0
    assert "shipment" not in shop.totals()["counts"]
    reasons = database.rows(
        "SELECT metadata->>'reason' AS why FROM makegood.workflow_transitions WHERE to_state = 'compensating'"
    )
    assert all(row["why"].startswith("shipping has been down for 36") for row in reasons)


def test_order_that_waited_too_long_for_inventory_is_undone_and_its_money_is_back(
    database: Any, careful: Settings, shop: ShopControl
) -> None:
    strike(shop, "reserve", "release")

    async def run() -> None:
        async with open_checkouts(database.jobs, careful) as runner:
            await runner.start(orders(10), triggered_by="shop")
            await runner.run_once()
            let_outage_last(database)
            pass_time(database)
            await runner.run_once()
            shop.clear_faults()
            let_probe(database)
            await drive(runner, database)

    asyncio.run(run())
    assert count_states(database) == {"compensated": 10}
    assert money_left(shop, 10) == 0


def test_charge_waits_for_payments_for_as_long_as_it_takes(database: Any, careful: Settings, shop: ShopControl) -> None:
    """Nothing was taken from anybody, or nobody can tell yet: neither undone nor given to a person."""
    strike(shop, "charge")

    async def run() -> None:
        async with open_checkouts(database.jobs, careful) as runner:
            await runner.start(orders(5), triggered_by="shop")
            await runner.run_once()
            await runner.start(orders(10), triggered_by="shop")  # five more
            let_outage_last(database, hours=100)
            for _ in range(3):
                pass_time(database)
                assert await runner.run_once() == {"waiting": 10}
            assert set(count_states(database)) == {"created", "charging"}
            shop.clear_faults()
            let_probe(database)
            await drive(runner, database)

    asyncio.run(run())
    assert count_states(database) == {"completed": 10}


def test_refund_waits_for_payments_and_no_attempt_is_spent_on_it(
    database: Any, careful: Settings, shop: ShopControl
) -> None:
    strike(shop, "refund")
    nowhere = [order(f"order-{n}", address={"country": "XX"}) for n in range(8)]

    async def run() -> None:
        async with open_checkouts(database.jobs, careful) as runner:
            await runner.start(nowhere, triggered_by="shop")
            await runner.run_once()
            for _ in range(2 * ATTEMPTS_MAX):
                pass_time(database)
                await runner.run_once()
            assert count_states(database) == {"compensating": 8}  # none is held
            shop.clear_faults()
            let_probe(database)
            await drive(runner, database)

    asyncio.run(run())
    assert count_states(database) == {"compensated": 8}
    assert shop.totals()["counts"]["refund"] == 8


# Cancelled meanwhile


def test_cancel_during_an_outage_of_payments_ends_what_was_not_begun_and_finds_out_the_rest(
    database: Any, careful: Settings, shop: ShopControl
) -> None:
    """One charge happened and its answer was lost; it is refunded when it can be found out."""
    shop.set_faults({"rules": [{"operation": "charge", "fault": "reset_after"}]})

    async def run() -> None:
        async with open_checkouts(database.jobs, careful) as runner:
            await runner.start(orders(4), triggered_by="shop")
            await runner.run_once()
            await runner.start(orders(8), triggered_by="shop")  # four more
            await runner.run_once()
            begun = {attempt["workflow_id"] for attempt in get_attempts(database, "charge")}
            for number in range(8):
                assert request_cancel(database, f"order-{number}") == "requested"
            pass_time(database)
            await runner.run_once()
            assert count_states(database) == {"compensated": 8 - len(begun), "charging": len(begun)}
            shop.clear_faults()
            let_probe(database)
            await drive(runner, database)

    asyncio.run(run())
    assert count_states(database) == {"compensated": 8}
    assert money_left(shop, 8) == 0
    assert shop.totals()["counts"]["charge"] == shop.totals()["counts"]["refund"] > 0


def test_cancelled_order_that_makes_no_call_does_not_use_up_the_probe(
    database: Any, careful: Settings, shop: ShopControl
) -> None:
    database.rows("SELECT makegood.trip_breaker('payments', 'another', 'HTTP 503', 0.001, 0.001)", role="jobs")

    async def run() -> None:
        async with open_checkouts(database.jobs, careful) as runner:
            await runner.start(orders(1), triggered_by="shop")
            request_cancel(database, "order-0")
            assert await runner.run_once() == {"compensated": 1}
            await runner.start(orders(3), triggered_by="shop")
            await drive(runner, database)

    asyncio.run(run())
    assert count_states(database) == {"compensated": 1, "completed": 2}


def test_cancel_during_an_outage_of_shipping_gives_the_money_back_at_once(
    database: Any, careful: Settings, shop: ShopControl
) -> None:
    strike(shop, "ship")

    async def run() -> None:
        async with open_checkouts(database.jobs, careful) as runner:
            await runner.start(orders(10), triggered_by="shop")
            await runner.run_once()
            never_asked = {f"order-{n}" for n in range(10)} - {c["order_id"] for c in shop.list_calls(operation="ship")}
            for name in never_asked:
                request_cancel(database, name)
            pass_time(database)
            await runner.run_once()
            assert all(get_row(database, name)["current_state"] == "compensated" for name in never_asked)
            assert all(sum(shop.order(name)["net"].values()) == 0 for name in never_asked)

    asyncio.run(run())


# Look-ups are bounded too


def test_charge_that_nobody_can_tell_of_is_held_after_its_look_ups(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    strike(shop, "charge", "list")
    change = functools.partial(hasten, timeout_seconds=0.4)

    async def run() -> Counter[str]:
        async with open_checkouts(database.jobs, settings, change=change) as runner:
            await runner.start(orders(1), triggered_by="shop")
            return await drive(runner, database)

    ends = asyncio.run(run())
    assert ends == {"waiting": ATTEMPTS_MAX + LOOK_UPS_MAX, "held": 1}
    row = get_row(database, "order-0")
    assert (row["current_state"], row["held_reason"]) == ("charging", "nobody can tell what became of step 'charge'")
    (letter,) = database.rows("SELECT error_type FROM makegood.dead_letters")
    assert letter["error_type"] == "look_ups_spent"


def test_shipment_that_nobody_can_tell_of_is_undone_after_its_look_ups(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    shop.set_faults(
        {
            "rules": [
                {"operation": "ship", "fault": "error_503"},
                {"operation": "list", "fault": "error_503", "to_nth": LOOK_UPS_MAX},
            ]
        }
    )

    async def run() -> Counter[str]:
        async with open_checkouts(database.jobs, settings) as runner:
            await runner.start(orders(1), triggered_by="shop")
            return await drive(runner, database)

    ends = asyncio.run(run())
    assert ends == {"waiting": ATTEMPTS_MAX + LOOK_UPS_MAX, "compensated": 1}
    assert len(get_attempts(database, "ship")) == ATTEMPTS_MAX
    assert shop.order("order-0")["counts"] == {"charge": 1, "reservation": 1, "release": 1, "refund": 1}


# One worker's count


@pytest.fixture
def counting(database: Any) -> Callable[..., dict[str, str]]:
    """Tells one worker's breakers of outcomes, in turn; returns what is open then."""

    def tell(*outcomes: tuple[int, Outcome | None]) -> dict[str, str]:
        async def run() -> None:
            async with Database(database.jobs) as opened:
                view = Breakers(opened, "worker", Limits(FAILURES))
                for number, outcome in outcomes:
                    await view.record("payments", uuid.UUID(int=number), outcome)

        asyncio.run(run())
        return read_breakers(database)

    return tell


def unknown(trouble: Trouble = "service") -> Unknown:
    return Unknown("http_503", "HTTP 503", trouble=trouble)


OPEN = {"payments": "open"}


@pytest.mark.parametrize(
    ("outcomes", "found"),
    [
        ([(1, unknown()), (2, unknown()), (3, unknown())], OPEN),  # so many orders in a row
        ([(1, unknown()), (2, unknown())], {}),  # one fewer
        ([(1, unknown()), (1, unknown()), (1, unknown()), (1, unknown())], {}),  # one order, however often
        ([(1, unknown("unserved")), (2, unknown()), (3, unknown("unserved"))], OPEN),
        ([(1, unknown("locked_out"))], OPEN),  # it does not know us: no other order will fare better
        ([(n, unknown("request")) for n in range(9)], {}),  # of these orders alone
        ([(1, unknown()), (2, unknown()), (9, Success()), (3, unknown())], {}),  # somebody is there
        ([(1, unknown()), (2, unknown()), (9, Failed("declined", "no")), (3, unknown())], {}),  # a no is an answer
        ([(1, unknown()), (2, unknown()), (9, Suspect("wrong_amount", "")), (3, unknown())], {}),
        ([(1, unknown()), (2, unknown()), (9, None), (3, unknown())], {}),  # so is a look-up without a trace
        ([(1, unknown()), (2, unknown()), (9, unknown("request")), (3, unknown())], {}),
    ],
)
def test_breaker_opens_after_so_many_orders_in_a_row_without_an_answer(
    counting: Any, outcomes: list[tuple[int, Outcome | None]], found: dict[str, str]
) -> None:
    assert counting(*outcomes) == found


def test_call_without_a_provider_is_never_down(database: Any) -> None:
    async def run() -> None:
        async with Database(database.jobs) as opened:
            view = Breakers(opened, "worker", Limits(1))
            await view.record(None, uuid.UUID(int=1), unknown("locked_out"))
            assert view.known_outage(None) is None

    asyncio.run(run())
    assert read_breakers(database) == {}


def one_patient_second(workflow: Workflow) -> Workflow:
    steps = [dataclasses.replace(step, patience_seconds=0.001) for step in hasten(workflow).steps]
    return dataclasses.replace(workflow, steps=steps)


def test_patience_of_a_type_is_its_own(database: Any, careful: Settings, shop: ShopControl) -> None:
    strike(shop, "ship")

    async def run() -> None:
        async with open_checkouts(database.jobs, careful, change=one_patient_second) as runner:
            await runner.start(orders(8), triggered_by="shop")
            await runner.run_once()
            pass_time(database)
            await runner.run_once()

    asyncio.run(run())
    assert count_states(database)["compensated"] >= 8 - FAILURES - UNDER_WAY


# The probe is one order's


ONE, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)


@pytest.fixture
def with_view(database: Any) -> Callable[..., None]:
    """Runs something with one worker's view of payments, which is down and may be tried."""
    database.rows("SELECT makegood.trip_breaker('payments', 'another', 'HTTP 503', 0.001, 0.001)", role="jobs")

    def run(use: Callable[[Breakers], Coroutine[Any, Any, None]]) -> None:
        async def opened() -> None:
            async with Database(database.jobs) as opened:
                await asyncio.sleep(0.01)
                await use(Breakers(opened, "worker", Limits(FAILURES)))

        asyncio.run(opened())

    return run


@pytest.mark.parametrize(
    ("heard", "state"),
    [
        ([(ONE, Success())], "closed"),
        ([(ONE, Failed("declined", "no"))], "closed"),  # a no is an answer
        ([(ONE, unknown())], "open"),
        ([(ONE, unknown("request"))], "closed"),  # it is there, and busy with this one
        ([(OTHER, Success())], "half_open"),  # a call from before it went down says nothing of now
        ([(OTHER, unknown())], "half_open"),
        ([(OTHER, unknown()), (ONE, Success())], "closed"),
    ],
)
def test_breaker_hears_of_the_probe_from_the_probe_alone(
    database: Any, with_view: Any, heard: list[tuple[uuid.UUID, Outcome]], state: str
) -> None:
    async def use(view: Breakers) -> None:
        async with view.admission("payments", ONE, 30.0) as admitted:
            assert admitted
            for workflow_id, outcome in heard:
                await view.record("payments", workflow_id, outcome)
            assert read_breakers(database) == {"payments": state}

    with_view(use)


def test_admission_while_another_order_of_the_same_worker_is_the_probe_is_refused(
    database: Any, with_view: Any
) -> None:
    async def use(view: Breakers) -> None:
        async with view.admission("payments", ONE, 30.0) as one:
            async with view.admission("payments", OTHER, 30.0) as other:
                assert (one, other) == (True, False)
            assert read_breakers(database) == {"payments": "half_open"}  # who was refused gave nothing back

    with_view(use)


def test_outage_that_another_worker_found_out_is_seen_while_this_one_knows_of_none(database: Any) -> None:
    """And its end: a view is at most a second old in both directions."""

    async def run() -> None:
        async with Database(database.jobs) as opened:
            view = Breakers(opened, "worker", Limits(FAILURES))
            assert await view.ask("payments") is None
            database.rows("SELECT makegood.trip_breaker('payments', 'another', 'HTTP 503', 600, 600)", role="jobs")
            assert await view.ask("payments") is not None
            database.rows("DELETE FROM makegood.breakers")
            assert await view.ask("payments") is None

    asyncio.run(run())


def test_view_of_who_is_down_is_asked_for_once_a_second_however_many_ask(
    database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(breakers, "LOOK_AGAIN_SECONDS", 60.0)
    database.rows("SELECT makegood.trip_breaker('shipping', 'another', 'HTTP 503', 600, 600)", role="jobs")

    async def run() -> int:
        async with Database(database.jobs) as opened:
            view = Breakers(opened, "worker", Limits(FAILURES))
            call, asked = opened.call, 0

            async def counted(*arguments: Any) -> Any:
                nonlocal asked
                asked += 1
                return await call(*arguments)

            monkeypatch.setattr(opened, "call", counted)
            await asyncio.gather(*(view.ask(name) for name in ["payments", "shipping"] * 500))
            return asked

    assert asyncio.run(run()) == 1


@pytest.mark.parametrize(("call_seconds_max", "seconds"), [(30.0, 60), (120.0, 150)])
def test_probe_is_not_given_up_while_its_own_call_may_still_be_answered(
    database: Any, with_view: Any, call_seconds_max: float, seconds: int
) -> None:
    async def use(view: Breakers) -> None:
        async with view.admission("payments", ONE, call_seconds_max):
            (row,) = database.rows(
                "SELECT extract(epoch FROM probe_until - updated_at)::float AS s FROM makegood.breakers"
            )
            assert round(row["s"]) == seconds

    with_view(use)


@pytest.mark.parametrize("how", ["no call", "an error"])
def test_probe_that_comes_to_no_call_is_anothers_at_once(database: Any, with_view: Any, how: str) -> None:
    async def use(view: Breakers) -> None:
        with contextlib.suppress(KeyError):
            async with view.admission("payments", ONE, 30.0) as admitted:
                assert admitted
                if how == "an error":
                    raise KeyError("sku")
        assert read_breakers(database) == {"payments": "open"}
        async with view.admission("payments", OTHER, 30.0) as admitted:
            assert admitted
        (row,) = database.rows("SELECT failed_probes FROM makegood.breakers")
        assert row["failed_probes"] == 0  # nothing was found out

    with_view(use)


def test_admission_without_a_provider_is_always_given(with_view: Any) -> None:
    async def use(view: Breakers) -> None:
        async with view.admission(None, ONE, 30.0) as admitted:
            assert admitted

    with_view(use)
