"""The house's own orders: placed with their workflow, and following it in the transaction that moves it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from checkouts import GOOD, NOWHERE, drive, open_checkouts
from database_worker import Worker, refused
from databases import DatabaseUrls
from psycopg.types.json import Jsonb

from makegood.settings import Settings
from sandbox.client import ShopControl

PLACE = "SELECT makegood.place_order(%s, %s, 'EUR', 'cus-1', %s) AS id"


def carry_out(database: DatabaseUrls, settings: Settings, **context: Any) -> dict[str, Any]:
    async def all_of_it() -> None:
        async with open_checkouts(database.jobs, settings) as runner:
            database.rows(PLACE, ("order-1", 1999, Jsonb({**GOOD, **context})), role="jobs")
            await drive(runner, database)

    asyncio.run(all_of_it())
    (order,) = database.rows("SELECT * FROM makegood.reconcilable_orders")
    return order


def test_order_whose_workflow_completes_is_fulfilled_and_knows_its_payment(
    database: DatabaseUrls, settings: Settings, shop: ShopControl
) -> None:
    order = carry_out(database, settings)
    (charge,) = shop.order("order-1")["charges"]
    assert (order["status"], order["payment_ref"], order["refunded_minor"]) == (
        "fulfilled",
        charge["payment_intent"],
        0,
    )


def test_order_whose_workflow_is_undone_is_cancelled_and_knows_its_refund(
    database: DatabaseUrls, settings: Settings, shop: ShopControl
) -> None:
    order = carry_out(database, settings, **NOWHERE)
    assert (order["status"], order["refunded_minor"]) == ("cancelled", 1999)
    assert database.rows("SELECT unit FROM makegood.reconciliation_units") == [{"unit": "order:order-1"}]


def test_order_whose_card_is_declined_is_cancelled_without_a_refund(
    database: DatabaseUrls, settings: Settings, shop: ShopControl
) -> None:
    order = carry_out(database, settings, payment_method="pm_card_chargeDeclined")
    assert (order["status"], order["payment_ref"], order["refunded_minor"]) == ("cancelled", None, 0)


@pytest.fixture
def jobs(database: DatabaseUrls) -> Any:
    with Worker(database.jobs) as worker:
        worker.register()
        yield worker


def test_order_placed_twice_is_one_order_with_one_workflow(jobs: Worker) -> None:
    first, again = (jobs.row(PLACE, "order-1", 5, Jsonb({})) for _ in range(2))
    assert first == again
    assert len(jobs.rows("SELECT 1 FROM makegood.orders")) == 1


def test_order_placed_again_with_another_amount_is_refused_and_keeps_its_own(jobs: Worker) -> None:
    jobs.row(PLACE, "order-1", 5, Jsonb({}))
    with refused("MG010"):
        jobs.row(PLACE, "order-1", 6, Jsonb({}))
    assert jobs.rows("SELECT amount_minor FROM makegood.orders") == [{"amount_minor": 5}]


def test_order_of_an_unknown_currency_is_refused_and_leaves_nothing(jobs: Worker) -> None:
    with refused("MG005"):
        jobs.row("SELECT makegood.place_order('order-1', 5, 'XXX') AS id")
    assert jobs.rows("SELECT 1 FROM makegood.orders") == []


def test_change_of_an_order_carries_its_transaction_and_time(database: DatabaseUrls, jobs: Worker) -> None:
    jobs.row(PLACE, "order-1", 5, Jsonb({}))
    read = "SELECT changed_xid::text AS xid, changed_at, created_at FROM makegood.reconcilable_orders"
    (before,) = jobs.rows(read)
    database.rows("UPDATE makegood.orders SET status = status")
    assert jobs.rows(read) == [before]  # nothing changed, so nobody looks again
    database.rows("UPDATE makegood.orders SET status = 'paid'")
    (after,) = jobs.rows(read)
    assert int(after["xid"]) > int(before["xid"])
    assert after["changed_at"] > before["changed_at"]
