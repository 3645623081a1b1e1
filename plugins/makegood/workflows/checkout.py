"""The checkout saga: charge, reserve, ship. What cannot be taken back comes last."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from makegood.engine.definitions import Action, Step, Workflow
from makegood.gateways.connections import open_client
from makegood.gateways.fulfilment import Inventory, Shipping
from makegood.gateways.payments import Payments
from makegood.settings import Settings

# Not critical: they leave through the outbox in the transaction that completes the order.
TOPICS_ON_COMPLETED = ("send_confirmation", "update_analytics")


@contextlib.asynccontextmanager
async def open_checkout(settings: Settings) -> AsyncIterator[Workflow]:
    """The checkout over the configured provider and services; their connections close with the block."""
    payments = Payments(settings.stripe_api_key.get_secret_value(), settings.stripe_api_base or settings.shop_url)
    # One each: a service that hangs fills its own connections only.
    async with open_client() as for_inventory, open_client() as for_shipping:
        inventory = Inventory(for_inventory, settings.inventory_url or settings.shop_url)
        shipping = Shipping(for_shipping, settings.shipping_url or settings.shop_url)
        try:
            yield make_checkout(
                charge=payments.charge(),
                refund=payments.refund(),
                reserve=inventory.reserve(),
                release=inventory.release(),
                ship=shipping.ship(),
                cancel_shipment=shipping.cancel(),
                stuck_after_seconds=settings.stuck_after_seconds,
            )
        finally:
            await payments.close()


def make_checkout(
    *,
    charge: Action,
    refund: Action,
    reserve: Action,
    release: Action,
    ship: Action,
    cancel_shipment: Action,
    stuck_after_seconds: float = 300,
) -> Workflow:
    return Workflow(
        "checkout",
        steps=[
            Step(
                "charge",
                "charging",
                "charged",
                action=charge,
                undo=refund,
                undo_name="refund",
                key="charge-{entity_id}",
                timeout_seconds=30,
                moves_money=True,
            ),
            Step(
                "reserve",
                "reserving",
                "reserved",
                action=reserve,
                undo=release,
                undo_name="release",
                key="reserve-{entity_id}",
                timeout_seconds=10,
                undo_when_unsure=True,
            ),
            Step(
                "ship",
                "shipping",
                None,
                action=ship,
                undo=cancel_shipment,
                undo_name="cancel_shipment",
                key="ship-{entity_id}",
                timeout_seconds=15,
                undo_when_unsure=True,
            ),
        ],
        topics_on_completed=TOPICS_ON_COMPLETED,
        stuck_after_seconds=stuck_after_seconds,
    )
