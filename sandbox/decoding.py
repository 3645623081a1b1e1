"""A request becomes a Call, or a RefusedError: who is asking, with which parameters, for which order."""

from __future__ import annotations

import base64
import binascii
from dataclasses import replace

from starlette.requests import Request

from sandbox.answers import RefusedError, bad_parameter, bad_request, service_error, stripe_error
from sandbox.documents import decode_document
from sandbox.forms import decode_form
from sandbox.ids import new_id
from sandbox.shop import Call, Endpoint, Shop
from sandbox.store import Json

BODY_BYTES_MAX = 1024 * 1024
KEY_PREFIX = "sk_test_"
ACCOUNT = "acct_shop"


def begin_call(endpoint: Endpoint, request: Request) -> Call:
    """What is known before anything can be wrong with it."""
    stripe = endpoint.service == "stripe"
    return Call(
        endpoint=endpoint.name,
        path=request.scope["path"],
        operation=endpoint.operation,
        service=endpoint.service,
        scope=request.headers.get("stripe-account", ACCOUNT) if stripe else endpoint.service,
        request_id=new_id("req"),
        object_id=request.path_params.get("id"),
        key=request.headers.get("idempotency-key") or None,
        version=request.headers.get("stripe-version"),
    )


async def decode_call(shop: Shop, call: Call, request: Request) -> Call:
    if call.service == "stripe":
        _check_api_key(request)
    call = replace(call, params=await _read_params(call, request))
    return replace(call, order_id=_find_order(shop, call))


async def _read_params(call: Call, request: Request) -> Json:
    if request.method == "GET":
        return decode_form(request.scope["query_string"].decode("latin-1"))
    body = await _read_body(call, request)
    if call.service != "stripe":
        return decode_document(body)
    try:
        return decode_form(body.decode())
    except UnicodeDecodeError:
        raise bad_parameter("Invalid request: the body is not valid UTF-8.", None) from None


async def _read_body(call: Call, request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES_MAX:
            message = f"The body is larger than {BODY_BYTES_MAX} bytes."
            raise bad_parameter(message, None) if call.service == "stripe" else bad_request(message)
    return body


def _check_api_key(request: Request) -> None:
    """Any test key will do; a live key here is a mistake that must not pass."""
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    key = credentials.strip()
    if scheme.lower() == "basic":
        key = _read_basic(key)
    if not key:
        message = (
            "You did not provide an API key. You need to provide your API key in the Authorization header, using "
            "Bearer auth (e.g. 'Authorization: Bearer YOUR_SECRET_KEY')."
        )
        raise RefusedError(stripe_error(401, "invalid_request_error", message), kept=False)
    if scheme.lower() not in ("bearer", "basic") or not key.startswith(KEY_PREFIX):
        message = "Invalid API Key provided: " + key[:8] + "*" * min(len(key[8:]), 16)
        raise RefusedError(stripe_error(401, "invalid_request_error", message), kept=False)


def _read_basic(credentials: str) -> str:
    try:
        return base64.b64decode(credentials).decode().partition(":")[0]
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _find_order(shop: Shop, call: Call) -> str | None:
    """The order a request is about: as it says, or that of the object it names."""
    metadata = call.params.get("metadata")
    for holder in (metadata, call.params):
        if isinstance(holder, dict) and isinstance(holder.get("order_id"), str):
            return holder["order_id"] or None
    for object_id in (call.object_id, call.params.get("charge"), call.params.get("payment_intent")):
        if isinstance(object_id, str):
            return shop.store.get_order_of(object_id)
    return None


def no_such_url(request: Request) -> RefusedError:
    method, path = request.method, request.url.path
    if path.startswith("/v1/"):
        message = f"Unrecognized request URL ({method}: {path}). Please see https://stripe.com/docs."
        return RefusedError(stripe_error(404, "invalid_request_error", message), kept=False)
    return RefusedError(service_error(404, "not_found", f"there is nothing at {method} {path}"), kept=False)
