"""Fetching the provider's books, against what the shop can serve and the rate allows.

What is allowed is the lesser of two: the rate of the key, and the pages per second that the same shop gives to as many
askers at once who do nothing with them.

The amount is a small shop's hour, which is the harder case: of the 73 requests that it needs at the least, 8 are no
page (the time, the ends of two windows, the second look at three empty collections). With more they weigh less.
"""

from __future__ import annotations

import asyncio
import time

import httpx
import psycopg
from pydantic import SecretStr

from bench.figures import Say, alternate
from bench.scratch import Scratch
from makegood.database import Database
from makegood.errors import ConfigurationError
from makegood.gateways.ledger import open_ledger
from makegood.reconciliation.rate import allowed_per_second
from makegood.reconciliation.sync import sync
from makegood.settings import Settings
from sandbox.client import ShopProcess

KEY = "sk_test_bench"
CHARGES = 3_000  # 30 pages of charges and as many of balance transactions: a few seconds at the test rate
MAKERS = 8
BARE_PAGES = 100
SETTLING_SECONDS = 4  # a fetch leaves the last second alone, in which more could still come


def measure_sync(scratch: Scratch, runs: int, say: Say) -> list[tuple[float, float]]:
    """Pages per second as fetched and as allowed, run by run."""
    with ShopProcess() as shop:
        say(f"  making {CHARGES:,} charges in the shop …")
        asyncio.run(_make_charges(shop.url))
        time.sleep(SETTLING_SECONDS)
        return alternate(
            runs,
            lambda: asyncio.run(_sync_pages_per_second(scratch, shop.url)),
            lambda: min(allowed_per_second(KEY), asyncio.run(_bare_pages_per_second(shop.url))),
            say,
        )


async def _make_charges(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, auth=(KEY, "")) as client:

        async def make(numbers: range) -> None:
            for number in numbers:
                form = {"amount": 1999, "currency": "eur", "payment_method": "pm_card_visa", "confirm": "true"}
                form |= {"payment_method_types[]": "card", "metadata[order_id]": f"order-{number}"}
                headers = {"Idempotency-Key": f"bench-{number}"}
                (await client.post("/v1/payment_intents", data=form, headers=headers)).raise_for_status()

        await asyncio.gather(*(make(range(first, CHARGES, MAKERS)) for first in range(MAKERS)))


async def _sync_pages_per_second(scratch: Scratch, url: str) -> float:
    """One whole fetch into empty books."""
    with psycopg.connect(scratch.admin_url, autocommit=True) as admin:
        admin.execute(
            "TRUNCATE makegood.provider_charges, makegood.provider_balance_transactions, makegood.provider_sync,"
            " makegood.provider_windows, makegood.provider_payouts_read"
        )
    settings = Settings(stripe_api_key=SecretStr(KEY), stripe_api_base=url, sync_lag_seconds=1)
    async with Database(scratch.jobs_url) as database, open_ledger(settings) as ledger:
        began = time.perf_counter()
        counts = await sync(database, ledger, settings, since=int(time.time()) - 3600)
        seconds = time.perf_counter() - began
    if counts["charges.rows"] < CHARGES:
        raise ConfigurationError(f"of {CHARGES} charges not all were fetched, but {dict(counts)}; the run is void")
    pages = sum(n for name, n in counts.items() if name.endswith(".pages"))
    return pages / seconds


async def _bare_pages_per_second(url: str) -> float:
    async with httpx.AsyncClient(base_url=url, auth=(KEY, "")) as client:

        async def ask(count: int) -> None:
            for _ in range(count):
                (await client.get("/v1/charges", params={"limit": 100})).raise_for_status()

        began = time.perf_counter()
        at_once = Settings().sync_pages_at_once
        await asyncio.gather(*(ask(BARE_PAGES // at_once) for _ in range(at_once)))
        return (BARE_PAGES // at_once) * at_once / (time.perf_counter() - began)
