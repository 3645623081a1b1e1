"""Shipping: a shipment is created once per request that is answered 201, and cancelled at most once."""

from __future__ import annotations

from typing import Any

from sandbox.answers import Answer, RefusedError, answer_with, bad_request, not_found, service_error
from sandbox.documents import get_order_id, require_string
from sandbox.ids import new_id
from sandbox.ledger import record_effect
from sandbox.shop import Call, Shop
from sandbox.store import Json

NOWHERE = "XX"  # the country to which nothing can be delivered


def create_shipment(shop: Shop, call: Call) -> Answer:
    order_id = require_string(call.params, "order_id")
    address = _read_address(call.params)
    if address.get("country") == NOWHERE:
        raise undeliverable()
    shipment = _make_shipment(shop, order_id, address)
    shop.store.add_object(shipment, kind="shipment", order_id=order_id)
    record_effect(shop, call, "shipment", shipment["id"], order_id=order_id)
    return answer_with(shipment, 201)


def cancel_shipment(shop: Shop, call: Call) -> Answer:
    """Cancelling what is cancelled is not an error and has no second effect."""
    shipment = shop.store.find_object("shipment", call.object_id or "")
    if shipment is None:
        raise not_found(f"there is no shipment {call.object_id}")
    if shipment["status"] == "created":
        shipment.update(status="cancelled", cancelled_at=shop.clock.now_seconds())
        shop.store.save_object(shipment)
        record_effect(shop, call, "shipment_cancelled", shipment["id"], order_id=shipment["order_id"])
    return answer_with(shipment)


def list_shipments(shop: Shop, call: Call) -> Answer:
    found = shop.store.find_objects_of_order("shipment", get_order_id(call.params))
    return answer_with({"data": found})


def undeliverable() -> RefusedError:
    return RefusedError(service_error(422, "undeliverable", "nothing can be delivered to this address"), kept=True)


def _read_address(params: Json) -> dict[str, Any]:
    address = params.get("address")
    if not isinstance(address, dict):
        raise bad_request('address must be an object, for example {"country": "SE"}')
    return address


def _make_shipment(shop: Shop, order_id: str, address: Json) -> Json:
    shipment_id = new_id("shp")
    return {
        "id": shipment_id,
        "object": "shipment",
        "shipment_id": shipment_id,
        "tracking": "MG" + shipment_id[-12:].upper(),
        "order_id": order_id,
        "address": address,
        "status": "created",
        "created": shop.clock.now_seconds(),
        "cancelled_at": None,
    }
