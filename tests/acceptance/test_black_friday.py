"""The published Black Friday story: 312 customers paid, nothing can be shipped, refunds time out, and the server dies.

It ends with 312 refunds, each exactly once, by the provider's own books.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from black_friday_worker import make_settings
from checkouts import GOOD

from makegood import migrations
from makegood.engine.runner import Start, open_runner
from makegood.local.postgres import EmbeddedPostgres
from makegood.workflows import open_workflows
from sandbox.client import ShopControl

ORDERS = 312
AMOUNT_MINOR = 4999
SHIPPING_DOWN = {"operation": "ship", "fault": "error_503"}
REFUNDS_TIME_OUT = {"operation": "refund", "fault": "timeout_after"}
DEADLINE_SECONDS = 180


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """A server of its own, as it is deployed: what it has said is on disk, whoever is killed."""
    server = EmbeddedPostgres(tmp_path / "home")
    server.start()
    try:
        migrations.migrate(server.url("postgres"))
        yield server
    finally:
        server.wipe()


def place_orders(server: EmbeddedPostgres, shop: ShopControl, shop_url: str) -> None:
    """The shop's own web server: it takes the orders as far as they go, which is to a shipping service that is down."""

    async def place() -> None:
        settings = make_settings(shop_url)
        # With the ordinary timeouts: all 312 have paid before the story begins, however busy the machine is.
        async with open_workflows(settings) as known, open_runner(server.url(), known, settings) as runner:
            starts = [Start("checkout", f"order-{n}", GOOD, AMOUNT_MINOR, "EUR") for n in range(ORDERS)]
            started = await runner.start(starts, triggered_by="shop", worker="web")
            await runner.engine.advance(started)

    shop.set_faults({"hang_seconds": 60, "rules": [SHIPPING_DOWN]})
    asyncio.run(place())


def start_worker(server: EmbeddedPostgres, shop_url: str, log: Path) -> subprocess.Popen[bytes]:
    worker = Path(__file__).with_name("black_friday_worker.py")
    with log.open("ab") as output:
        return subprocess.Popen([sys.executable, worker, server.url(), shop_url], stdout=output, stderr=output)


def count_states(server: EmbeddedPostgres) -> Counter[str]:
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        rows = connection.execute(
            "SELECT CASE WHEN held_at IS NULL THEN current_state ELSE 'held' END, count(*)"
            " FROM makegood.workflow_executions GROUP BY 1"
        ).fetchall()
    return Counter({str(state): int(count) for state, count in rows})


def wait_until(reached: object, deadline: float) -> None:
    assert callable(reached)
    while not reached():
        assert time.monotonic() < deadline, "the story did not get there in time"
        time.sleep(0.2)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_black_friday_ends_with_312_refunds_each_exactly_once(
    own_server: EmbeddedPostgres, shop: ShopControl, settings: object, tmp_path: Path
) -> None:
    shop_url = str(settings.stripe_api_base)  # type: ignore[attr-defined]
    log = tmp_path / "worker.log"
    deadline = time.monotonic() + DEADLINE_SECONDS
    place_orders(own_server, shop, shop_url)
    assert shop.totals()["counts"]["charge"] == ORDERS
    assert count_states(own_server)["completed"] == 0

    # Refunds now happen at the provider, and nobody hears that they did.
    shop.set_faults({"hang_seconds": 60, "rules": [SHIPPING_DOWN, REFUNDS_TIME_OUT]})
    worker = start_worker(own_server, shop_url, log)
    try:
        wait_until(lambda: shop.totals()["counts"].get("refund", 0) >= 20, deadline)
        worker.send_signal(signal.SIGKILL)  # the server is killed in the middle
        worker.wait()
        worker = start_worker(own_server, shop_url, log)
        time.sleep(3)
        postmaster = own_server.find_process()
        assert postmaster is not None
        os.kill(postmaster.pid, signal.SIGKILL)  # and then the database
        assert own_server.start()
        time.sleep(3)
        worker.send_signal(signal.SIGKILL)
        worker.wait()

        shop.set_faults({"rules": [SHIPPING_DOWN]})  # the provider has recovered; shipping has not
        worker = start_worker(own_server, shop_url, log)
        wait_until(lambda: count_states(own_server)["compensated"] == ORDERS, deadline)
    finally:
        worker.kill()
        worker.wait()

    entries = shop.log()
    charges = Counter(entry["order_id"] for entry in entries if entry["kind"] == "charge")
    refunds = Counter(entry["order_id"] for entry in entries if entry["kind"] == "refund")
    assert set(charges.values()) == {1}
    assert set(refunds.values()) == {1}
    assert len(refunds) == len(charges) == ORDERS
    totals = shop.totals()
    assert totals["charged"] == totals["refunded"] == {"eur": ORDERS * AMOUNT_MINOR}
    assert totals["counts"].get("shipment", 0) == 0
    with psycopg.connect(own_server.url("postgres"), autocommit=True) as connection:
        ours = connection.execute(
            "SELECT count(*), sum(amount_minor) FROM makegood.compensations"
            " WHERE step = 'charge' AND state = 'succeeded'"
        ).fetchone()
        why = connection.execute(
            "SELECT count(*) FROM makegood.workflow_transitions"
            " WHERE to_state = 'compensating' AND (metadata ? 'reason' OR metadata ? 'error_type')"
        ).fetchone()
    assert ours == (ORDERS, ORDERS * AMOUNT_MINOR)
    assert why == (ORDERS,)
