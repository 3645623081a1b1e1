"""A recovery through the real stripe client and HTTP steps, against a shop that takes its time.

Known weakness: the shop and the recovering process share the machine. With a bound on calls that asks more of its
cores than they have, it is they that are measured.
"""

from __future__ import annotations

import asyncio
import statistics
import time
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime

from bench.checkouts import age, strand
from bench.figures import Say, alternate
from bench.recovering import recover_in_process
from bench.scratch import Scratch
from makegood.engine.definitions import Call, Workflow
from makegood.engine.outcomes import Success
from makegood.engine.runner import Start
from makegood.errors import ConfigurationError
from makegood.settings import Settings
from makegood.workflows import open_workflows
from sandbox.client import ShopControl, ShopProcess

CALLS_AT_ONCE = 8  # what two cores can serve with the shop and the database beside it; more: see RESULTS.md
FURTHER_CALLS_AT_ONCE = (16, 32, 64)  # told beside the figure: 32 is the default of MAKEGOOD_CALLS_AT_ONCE
LATENCY_MS = 50
ORDERS = 1_000
CALLS_PER_ORDER = 3  # stuck in charge: charge, reserve, ship
ALONE = 10  # orders whose calls are made one after the other, to know how long one takes
CONTEXT = {"payment_method": "pm_card_visa", "sku": "lamp-brass", "quantity": 1, "address": {"country": "SE"}}
STOCK = 10_000_000


def measure_calls(
    scratch: Scratch, runs: int, say: Say, *, orders: int = ORDERS, calls_at_once: int = CALLS_AT_ONCE
) -> list[tuple[float, float]]:
    """Calls per second as made and as allowed, run by run."""
    with ShopProcess(latency_ms=LATENCY_MS) as shop, ShopControl(shop.url) as control:
        control.set_stock(str(CONTEXT["sku"]), STOCK)
        return alternate(
            runs,
            lambda: recover_calls_per_second(scratch, shop.url, control, orders, calls_at_once),
            lambda: calls_at_once / asyncio.run(time_call_alone(shop.url)),
            say,
        )


def recover_calls_per_second(
    scratch: Scratch, shop_url: str, control: ShopControl, orders: int, calls_at_once: int
) -> float:
    """Calls per second of one recovery, each of them in the shop's books exactly once."""
    run = uuid.uuid4().hex[:8]
    asyncio.run(leave_charges_stuck(scratch, shop_url, run, orders))
    before = len(control.log())
    recovered = recover_in_process(scratch, orders, calls_at_once=calls_at_once, shop_url=shop_url)
    effects = len(control.log()) - before
    if effects != orders * CALLS_PER_ORDER:
        raise ConfigurationError(f"{effects} effects of {orders} orders are in the shop's books; the run is void")
    return effects / recovered.seconds


async def leave_charges_stuck(scratch: Scratch, shop_url: str, run: str, orders: int) -> None:
    """Orders whose worker was killed when it was about to charge the card."""
    async with open_workflows(make_settings(shop_url)) as workflows:
        checkout = workflows["checkout"]
    starts = [Start(checkout.name, f"order-{run}-{n}", CONTEXT, 1999, "EUR") for n in range(orders)]
    await strand(scratch, checkout, "charge", starts)
    age(scratch, run, "charging", orders)


async def time_call_alone(shop_url: str) -> float:
    """Seconds of a call of the checkout when no other is under way: the median over its steps."""
    seconds: list[float] = []
    async with open_workflows(make_settings(shop_url)) as workflows:
        for _ in range(ALONE + 1):
            seconds += await time_steps(workflows["checkout"])
    return statistics.median(seconds[CALLS_PER_ORDER:])  # the first order opens the connections


async def time_steps(checkout: Workflow) -> Sequence[float]:
    order_id, seconds = f"alone-{uuid.uuid4().hex[:12]}", []
    for step in checkout.steps:
        call = Call(
            workflow_id=uuid.uuid4(),
            workflow_type=checkout.name,
            entity_id=order_id,
            step=step.name,
            key=step.key_for(checkout.name, order_id),
            amount_minor=1999,
            currency="EUR",
            context=CONTEXT,
            timeout_seconds=step.timeout_seconds,
            started_at=datetime.now(UTC),
        )
        begin = time.perf_counter()
        outcome = await step.action.send(call, step.action.request(call))
        seconds.append(time.perf_counter() - begin)
        if not isinstance(outcome, Success):
            raise ConfigurationError(f"step {step.name} of the shop came to {outcome}; the run is void")
    return seconds


def make_settings(shop_url: str) -> Settings:
    return Settings(stripe_api_base=shop_url, inventory_url=shop_url, shipping_url=shop_url)
