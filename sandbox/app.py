"""Which address does what. Every service endpoint goes through ``handling``; the control API does not."""

from __future__ import annotations

import sys
import traceback

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sandbox.answers import service_error
from sandbox.control import control_routes
from sandbox.decoding import no_such_url
from sandbox.handling import handler_of
from sandbox.inventory import (
    create_reservation,
    list_reservations,
    put_stock,
    release_reservation,
    show_stock,
)
from sandbox.lists import COLLECTIONS, list_of, retrieval_of
from sandbox.payments import (
    cancel_payment_intent,
    capture_payment_intent,
    confirm_payment_intent,
    create_payment_intent,
)
from sandbox.refunds import create_refund
from sandbox.shipping import cancel_shipment, create_shipment, list_shipments
from sandbox.shop import Endpoint, Shop
from sandbox.wire import to_response

ANY_METHOD = ["GET", "POST", "PUT", "PATCH", "DELETE"]
ENDPOINTS = (
    Endpoint("POST", "/v1/payment_intents", "charge", create_payment_intent),
    Endpoint("POST", "/v1/refunds", "refund", create_refund),
    Endpoint("POST", "/inventory/reservations", "reserve", create_reservation),
    Endpoint("POST", "/shipping/shipments", "ship", create_shipment),
    Endpoint("POST", "/inventory/reservations/{id}/release", "release", release_reservation),
    Endpoint("POST", "/shipping/shipments/{id}/cancel", "cancel_shipment", cancel_shipment),
    Endpoint("POST", "/v1/payment_intents/{id}/confirm", "charge", confirm_payment_intent),
    Endpoint("POST", "/v1/payment_intents/{id}/capture", "capture", capture_payment_intent),
    Endpoint("POST", "/v1/payment_intents/{id}/cancel", "cancel_charge", cancel_payment_intent),
    *(Endpoint("GET", kind.url, "list", list_of(kind)) for kind in COLLECTIONS),
    *(Endpoint("GET", kind.url + "/{id}", "retrieve", retrieval_of(kind)) for kind in COLLECTIONS),
    Endpoint("GET", "/inventory/reservations", "list", list_reservations),
    Endpoint("GET", "/shipping/shipments", "list", list_shipments),
    # Stock is set up, not called by what is under test: it meets no faults.
    Endpoint("GET", "/inventory/stock/{id}", "stock", show_stock),
    Endpoint("PUT", "/inventory/stock/{id}", "stock", put_stock),
)


def make_app(shop: Shop) -> Starlette:
    routes = [Route(item.path, handler_of(shop, item), methods=[item.method]) for item in ENDPOINTS]
    rest = Route("/{path:path}", _show_no_such_url, methods=ANY_METHOD)
    return Starlette(
        routes=[Route("/health", _show_health), *routes, *control_routes(shop), rest],
        exception_handlers={Exception: _show_bug},
    )


async def _show_health(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _show_no_such_url(request: Request) -> Response:
    return to_response(no_such_url(request).answer)


async def _show_bug(_: Request, error: Exception) -> Response:
    """An oracle that is wrong must be loud: 500 with a code of its own, and the traceback on stderr."""
    traceback.print_exception(error, file=sys.stderr)
    return to_response(service_error(500, "shop_bug", f"the shop itself failed: {error!r}"))
