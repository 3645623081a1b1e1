"""Inventory: stock never goes below zero, a reservation is released at most once, released stock comes back.

Two reservations of one order are two, on purpose: a caller that repeats itself under another key reserves
twice, and the log shows it.
"""

from __future__ import annotations

from sandbox.answers import Answer, RefusedError, answer_with, bad_request, not_found, service_error
from sandbox.documents import get_order_id, get_whole_number, require_string
from sandbox.ids import new_id
from sandbox.ledger import record_effect
from sandbox.shop import Call, Shop
from sandbox.store import Json

STOCK_DEFAULT = 1_000_000_000  # what a sku that nobody stocked has: enough to never matter
DEFAULT_SETTING = "stock_default"
QUANTITY_MAX = 1_000_000


def create_reservation(shop: Shop, call: Call) -> Answer:
    order_id = require_string(call.params, "order_id")
    sku = require_string(call.params, "sku")
    quantity = get_whole_number(call.params, "quantity", 1, QUANTITY_MAX, default=1)
    available = get_available(shop, sku)
    if quantity > available:
        raise out_of_stock(sku, quantity, available)
    set_available(shop, sku, available - quantity)
    reservation = _make_reservation(shop, call, order_id, sku, quantity)
    shop.store.add_object(reservation, kind="reservation", order_id=order_id)
    record_effect(shop, call, "reservation", reservation["id"], order_id=order_id, quantity=quantity)
    return answer_with(reservation, 201)


def release_reservation(shop: Shop, call: Call) -> Answer:
    """Releasing what is released is not an error and has no second effect."""
    reservation = shop.store.find_object("reservation", call.object_id or "")
    if reservation is None:
        raise not_found(f"there is no reservation {call.object_id}")
    if reservation["status"] == "reserved":
        _release(shop, call, reservation)
    return answer_with(reservation)


def list_reservations(shop: Shop, call: Call) -> Answer:
    found = shop.store.find_objects_of_order("reservation", get_order_id(call.params))
    return answer_with({"data": found})


def get_available(shop: Shop, sku: str) -> int:
    row = shop.store.row("SELECT available FROM stock WHERE sku = ?", (sku,))
    if row is not None:
        return int(row["available"])
    return int(shop.store.get_setting(DEFAULT_SETTING) or STOCK_DEFAULT)


def set_available(shop: Shop, sku: str, available: int) -> None:
    shop.store.execute("INSERT OR REPLACE INTO stock (sku, available) VALUES (?, ?)", (sku, available))


def show_stock(shop: Shop, call: Call) -> Answer:
    sku = call.object_id or ""
    return answer_with({"sku": sku, "available": get_available(shop, sku)})


def put_stock(shop: Shop, call: Call) -> Answer:
    """Set what is available of a sku; the sku ``*`` sets what skus that nobody stocked have."""
    sku = call.object_id or ""
    if "available" not in call.params:
        raise bad_request("available is required: how many there are")
    available = get_whole_number(call.params, "available", 0, STOCK_DEFAULT, default=0)
    if sku == "*":
        shop.store.set_setting(DEFAULT_SETTING, str(available))
    else:
        set_available(shop, sku, available)
    return answer_with({"sku": sku, "available": available})


def out_of_stock(sku: str, quantity: int, available: int) -> RefusedError:
    message = f"{quantity} of {sku} asked for, {available} available"
    return RefusedError(service_error(409, "out_of_stock", message), kept=True)


def _make_reservation(shop: Shop, call: Call, order_id: str, sku: str, quantity: int) -> Json:
    reservation_id = new_id("rsv")
    return {
        "id": reservation_id,
        "object": "reservation",
        "reservation_id": reservation_id,
        "order_id": order_id,
        "sku": sku,
        "quantity": quantity,
        "status": "reserved",
        "created": shop.clock.now_seconds(),
        "released_at": None,
    }


def _release(shop: Shop, call: Call, reservation: Json) -> None:
    sku, quantity = reservation["sku"], reservation["quantity"]
    set_available(shop, sku, get_available(shop, sku) + quantity)
    reservation.update(status="released", released_at=shop.clock.now_seconds())
    shop.store.save_object(reservation)
    order_id = reservation["order_id"]
    record_effect(shop, call, "release", reservation["id"], order_id=order_id, quantity=quantity)
