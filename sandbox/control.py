"""The control API: tests and proofs steer the shop by it and read the truth from it. It meets no faults.

GET  /control/log?after=0&limit=1000     GET  /control/orders/{order_id}      GET  /control/totals
GET  /control/calls                      GET  /control/calls/list?after=0&order_id=&operation=
GET|PUT|DELETE /control/faults           POST /control/faults/say {"text": "the 3rd refund succeeds and then hangs"}
PUT  /control/latency {"ms": 50}         POST /control/clock {"advance_seconds": 86400}
POST /control/disputes {"charge", "status"?, "amount"?, "reason"?}
POST /control/disputes/{id}/close {"status": "won" | "lost"}
POST /control/refunds/{id}/settle {"status": "succeeded" | "failed"}
POST /control/payouts {"currency": "usd", "status"?: "pending" | "in_transit" | "paid"}
POST /control/payouts/{id}/settle {"status": "paid" | "failed"}
POST /control/reset
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from sandbox.answers import RefusedError, answer_with, bad_request, not_found
from sandbox.disputes import CLOSED_STATUSES, OPEN_STATUSES, close_dispute, open_dispute
from sandbox.documents import decode_document, get_number, get_whole_number, require_string
from sandbox.expiry import expire_authorizations
from sandbox.fault_plans import PlanError, add_rule, parse_plan, show_plan
from sandbox.fault_sentences import parse_sentence
from sandbox.faults import FaultPlan
from sandbox.ids import new_id
from sandbox.oracle import read_call_counts, read_calls, read_log, read_order, read_totals
from sandbox.parameters import AMOUNT_MAX
from sandbox.payouts import OPEN_STATUSES as PAYOUT_STATUSES
from sandbox.payouts import SETTLED_STATUSES, pay_out, settle_payout
from sandbox.refunds import settle_refund
from sandbox.shop import Call, Shop
from sandbox.store import Json
from sandbox.wire import to_response

Control = Callable[[Shop, Json], Json]
LOG_LIMIT_DEFAULT = 1000
LOG_LIMIT_MAX = 10_000
LATENCY_MS_MAX = 600_000
ADVANCE_SECONDS_MAX = 10 * 365 * 24 * 3600


def control_routes(shop: Shop) -> list[Route]:
    def route(method: str, path: str, control: Control) -> Route:
        return Route("/control" + path, _endpoint(shop, control), methods=[method])

    return [
        route("GET", "/log", _get_log),
        route("GET", "/orders/{id:path}", lambda shop, given: read_order(shop, given["id"])),
        route("GET", "/totals", lambda shop, _: read_totals(shop)),
        route("GET", "/calls", lambda shop, _: read_call_counts(shop)),
        route("GET", "/calls/list", _get_calls),
        route("GET", "/faults", lambda shop, _: show_plan(shop.faults)),
        route("PUT", "/faults", _put_faults),
        route("DELETE", "/faults", _delete_faults),
        route("POST", "/faults/say", _say_fault),
        route("PUT", "/latency", _put_latency),
        route("POST", "/clock", _advance_clock),
        route("POST", "/disputes", _open_dispute),
        route("POST", "/disputes/{id}/close", _close_dispute),
        route("POST", "/refunds/{id}/settle", _settle_refund),
        route("POST", "/payouts", _pay_out),
        route("POST", "/payouts/{id}/settle", _settle_payout),
        route("POST", "/reset", _reset),
    ]


def _endpoint(shop: Shop, control: Control) -> Callable[[Request], object]:
    async def handle(request: Request) -> Response:
        try:
            given = {**decode_document(await request.body()), **request.query_params, **request.path_params}
            return to_response(answer_with(control(shop, given)))
        except PlanError as error:
            return to_response(bad_request(str(error), "bad_plan").answer)
        except RefusedError as refusal:
            return to_response(refusal.answer)

    return handle


def _get_log(shop: Shop, given: Json) -> Json:
    return read_log(shop, *_read_page(given))


def _get_calls(shop: Shop, given: Json) -> Json:
    return read_calls(shop, *_read_page(given), given.get("order_id"), given.get("operation"))


def _read_page(given: Json) -> tuple[int, int]:
    """``after`` and ``limit`` of a query string."""
    numbers: Json = {}
    for name in ("after", "limit"):
        text = given.get(name)
        if text is not None:
            numbers[name] = int(text) if text.isascii() and text.isdigit() else text
    after = get_whole_number(numbers, "after", 0, 2**62, default=0)
    return after, get_whole_number(numbers, "limit", 1, LOG_LIMIT_MAX, default=LOG_LIMIT_DEFAULT)


def _put_faults(shop: Shop, given: Json) -> Json:
    shop.faults = parse_plan(given)
    return show_plan(shop.faults)


def _delete_faults(shop: Shop, _: Json) -> Json:
    shop.faults = FaultPlan()
    return show_plan(shop.faults)


def _say_fault(shop: Shop, given: Json) -> Json:
    add_rule(shop.faults, parse_sentence(require_string(given, "text")))
    return show_plan(shop.faults)


def _put_latency(shop: Shop, given: Json) -> Json:
    shop.latency_ms = get_number(given, "ms", 0, LATENCY_MS_MAX)
    return {"ms": shop.latency_ms}


def _advance_clock(shop: Shop, given: Json) -> Json:
    seconds = get_number(given, "advance_seconds", 0, ADVANCE_SECONDS_MAX)
    with shop.store.transaction():
        now = shop.clock.advance(seconds)
        expired = expire_authorizations(shop, _call_of("clock"))
    return {"now": now, "authorizations_expired": expired}


def _open_dispute(shop: Shop, given: Json) -> Json:
    charge = _get(shop, "charge", require_string(given, "charge"))
    if not charge["captured"]:
        raise bad_request(f"{charge['id']} was not captured, so there is nothing to dispute")
    status = _read_choice(given, OPEN_STATUSES, OPEN_STATUSES[0])
    captured = charge["amount_captured"]
    amount = get_whole_number(given, "amount", 1, AMOUNT_MAX, default=captured)
    reason = require_string({"reason": "fraudulent", **given}, "reason")
    with shop.store.transaction():
        return open_dispute(shop, _call_of("dispute"), charge, amount=amount, status=status, reason=reason)


def _close_dispute(shop: Shop, given: Json) -> Json:
    dispute = _get(shop, "dispute", given["id"])
    status = _read_choice(given, CLOSED_STATUSES, None)
    if dispute["status"] not in OPEN_STATUSES:
        raise bad_request(f"{dispute['id']} is closed: {dispute['status']}")
    charge = _get(shop, "charge", dispute["charge"])
    with shop.store.transaction():
        return close_dispute(shop, _call_of("dispute"), dispute, charge, status)


def _settle_refund(shop: Shop, given: Json) -> Json:
    refund = _get(shop, "refund", given["id"])
    status = _read_choice(given, ("succeeded", "failed"), None)
    if refund["status"] not in ("pending", "succeeded") or refund["status"] == status:
        raise bad_request(f"{refund['id']} is {refund['status']} and cannot become {status}")
    with shop.store.transaction():
        return settle_refund(shop, _call_of("refund"), refund, status)


def _pay_out(shop: Shop, given: Json) -> Json:
    currency = require_string(given, "currency").lower()
    status = _read_choice(given, PAYOUT_STATUSES, "paid")
    with shop.store.transaction():
        return pay_out(shop, _call_of("payouts"), currency, status)


def _settle_payout(shop: Shop, given: Json) -> Json:
    payout = _get(shop, "payout", given["id"])
    status = _read_choice(given, SETTLED_STATUSES, None)
    if payout["status"] not in PAYOUT_STATUSES or payout["status"] == status:
        raise bad_request(f"{payout['id']} is {payout['status']} and cannot become {status}")
    with shop.store.transaction():
        return settle_payout(shop, _call_of("payouts"), payout, status)


def _reset(shop: Shop, _: Json) -> Json:
    shop.reset()
    return {"status": "reset"}


def _get(shop: Shop, kind: str, object_id: str) -> Json:
    found = shop.store.find_object(kind, object_id)
    if found is None:
        raise not_found(f"there is no {kind} {object_id}")
    return found


def _read_choice(given: Json, choices: tuple[str, ...], default: str | None) -> str:
    status = given.get("status", default)
    if status not in choices:
        raise bad_request(f"status must be one of {', '.join(choices)}")
    return str(status)


def _call_of(what: str) -> Call:
    """What the bank or time does has no caller; the log names the control API."""
    return Call("POST /control/" + what, "/control/" + what, "control", "stripe", "control", new_id("req"))
