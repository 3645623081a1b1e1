"""A fetch that is killed at any statement or request leaves no watermark over a hole, and the next one ends it."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest
import stripe
from databases import DatabaseUrls

from makegood.database import Database
from makegood.gateways.ledger import Ledger
from makegood.reconciliation.rate import Bucket
from makegood.reconciliation.source import COLLECTIONS, Page
from makegood.reconciliation.sync import sync
from makegood.settings import Settings
from prover.tripwire import Tripwire, WiredConnection
from sandbox.client import ShopControl

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
WIRED = ("charges", "refunds", "payouts")
SINCE = 1_790_000_000


class WiredLedger(Ledger):
    """Pages of three, every request a point, and every reader that is idle gets half of a window."""

    def loses_turns(self) -> bool:
        return True

    async def list_page(self, collection: str, *, limit: int = 3, **more: Any) -> Page:
        return await super().list_page(collection, limit=min(limit, 3), **more)

    async def _ask(self, request: Any) -> Any:
        wire = WiredConnection.wire
        return await wire.around("call list", lambda: super(WiredLedger, self)._ask(request), lambda answer: answer)


async def fetch(url: str, settings: Settings) -> None:
    ledger = WiredLedger("sk_test_shop", str(settings.stripe_api_base), bucket=Bucket(1000))
    async with Database(url, connection_class=WiredConnection) as database:
        await sync(database, ledger, settings, collections=WIRED, since=SINCE)
    await ledger.close()


def run(url: str, settings: Settings, wire: Tripwire) -> tuple[bool, int]:
    """In a process of its own: whether it was killed, and how many points it had otherwise."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        WiredConnection.wire = wire
        try:
            asyncio.run(fetch(url, settings))
            os.write(writer, str(len(wire.labels)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, int(said or 0)


def in_shop(api: Any, name: str) -> dict[str, int]:
    return {item.id: item.created for item in getattr(api, name).list({"limit": 100}).data}


@pytest.mark.slow
def test_fetch_killed_anywhere_converges_without_a_watermark_over_a_hole(
    database: DatabaseUrls, shop: ShopControl, settings: Settings
) -> None:
    http = stripe.HTTPXClient(timeout=30, allow_sync_methods=True)
    base = str(settings.stripe_api_base)
    api = stripe.StripeClient("sk_test_shop", base_addresses={"api": base}, http_client=http).v1
    for number in range(7):
        given = {"amount": 100 + number, "currency": "eur", "payment_method": "pm_card_visa", "confirm": True}
        intent = api.payment_intents.create(given)  # type: ignore[arg-type]
        if number % 3 == 0:
            api.refunds.create({"payment_intent": intent.id})
    shop.pay_out("eur")
    shop.advance_clock(7200)
    books = {name: in_shop(api, name) for name in WIRED}
    http.close()
    quick = settings.model_copy(update={"sync_pages_at_once": 2})
    killed, points = run(database.jobs, quick, Tripwire())
    assert not killed
    assert points > 20
    for index in range(points):
        for table in (*(f"provider_{name}" for name in COLLECTIONS), "provider_payouts_read", "provider_windows"):
            database.rows(f"DELETE FROM makegood.{table}")
        database.rows("DELETE FROM makegood.provider_sync")
        run(database.jobs, quick, Tripwire(index, ("before", "after")[index % 2]))
        for row in database.rows("SELECT * FROM makegood.provider_sync WHERE watermark IS NOT NULL"):
            held = {one["id"] for one in database.rows(f"SELECT id FROM makegood.provider_{row['collection']}")}
            due = {key for key, at in books[row["collection"]].items() if at < row["watermark"].timestamp()}
            assert due <= held, (index, row["collection"])
        database.rows("UPDATE makegood.provider_sync SET lease_until = clock_timestamp() WHERE lease_until IS NOT NULL")
        run(database.jobs, quick, Tripwire())
        for name in WIRED:
            assert {one["id"] for one in database.rows(f"SELECT id FROM makegood.provider_{name}")} == set(books[name])
        assert database.rows("SELECT * FROM makegood.provider_windows") == []
