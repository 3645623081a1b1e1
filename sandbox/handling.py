"""Every request takes one road: decode, draw a fault, answer once per key, commit, then (perhaps) answer.

The order is what makes the log an oracle. A fault that comes before touches nothing. Otherwise the effect,
its line in the log and the stored answer are one commit, and only after it does anything leave.
"""

from __future__ import annotations

import email.utils
import functools
from collections.abc import Awaitable, Callable
from dataclasses import replace

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from sandbox.answers import Answer, RefusedError
from sandbox.decoding import begin_call, decode_call
from sandbox.faults import BEFORE, IN_LISTS, OPERATIONS
from sandbox.idempotency import answer_once, check_key, keep_answer
from sandbox.lies import answer_before, failure, list_wrongly, refuse, tell_wrongly
from sandbox.shop import Call, Endpoint, Shop
from sandbox.wire import Hang, Reset, SlowDrip, Truncated, to_response

Handler = Callable[[Request], Awaitable[Response]]


class ForgottenError(Exception):
    """The shop was reset while this request waited: its caller gets a reset, its effect never happens."""


def handler_of(shop: Shop, endpoint: Endpoint) -> Handler:
    async def handle(request: Request) -> Response:
        call = begin_call(endpoint, request)
        try:
            call = await decode_call(shop, call, request)
        except RefusedError as refusal:
            note(shop, call, None, refusal.answer.status)
            return _finish(shop, call, refusal.answer)
        except ClientDisconnect:
            return Reset()  # the caller left in the middle of its own request, which was never complete
        try:
            return await _handle(shop, endpoint, call)
        except ForgottenError:
            return Reset()

    return handle


async def _handle(shop: Shop, endpoint: Endpoint, call: Call) -> Response:
    fault = shop.faults.draw(call.operation, call.order_id) if call.operation in OPERATIONS else None
    if fault in BEFORE:
        return _stop_before(shop, call, fault)
    try:
        if endpoint.method == "GET":
            answer = await _read(shop, endpoint, call, fault)
        else:
            check_key(call)
            answer = await answer_once(shop, call, functools.partial(_write, shop, endpoint, call, fault))
    except RefusedError as refusal:
        answer = refusal.answer
        note(shop, call, fault, _status_seen(fault, answer))
    else:
        if endpoint.method == "GET" or answer.replayed:
            note(shop, call, fault, _status_seen(fault, answer), replayed=answer.replayed)
    return _send(shop, call, fault, answer)


async def _read(shop: Shop, endpoint: Endpoint, call: Call, fault: str | None) -> Answer:
    await shop.pause()
    if fault in ("error_500_stored", "error_500_after"):
        return failure(call)
    if fault in IN_LISTS:
        return list_wrongly(shop, call, endpoint.perform, fault)
    return endpoint.perform(shop, call)


async def _write(shop: Shop, endpoint: Endpoint, call: Call, fault: str | None) -> Answer:
    """The one commit: effect, log, stored answer and the note of this call."""
    age = shop.age
    await shop.pause()
    if shop.age != age:
        raise ForgottenError
    with shop.store.transaction():
        answer = _perform(shop, endpoint, call, fault)
        keep_answer(shop, call, answer)
        note(shop, call, fault, _status_seen(fault, answer))
    return answer


def _perform(shop: Shop, endpoint: Endpoint, call: Call, fault: str | None) -> Answer:
    if fault == "error_500_stored":
        return failure(call)
    try:
        with shop.store.savepoint():
            answer = refuse(shop, call, endpoint.perform) if fault == "refused" else endpoint.perform(shop, call)
    except RefusedError as refusal:
        if not refusal.kept:
            raise
        return refusal.answer
    return failure(call) if fault == "error_500_after" else answer


def _stop_before(shop: Shop, call: Call, fault: str | None) -> Response:
    answer = answer_before(shop, call, fault)
    note(shop, call, fault, None if answer is None else answer.status)
    if answer is not None:
        return _finish(shop, call, answer)
    return Reset() if fault == "reset_before" else Hang(shop, shop.faults.hang_seconds)


def _send(shop: Shop, call: Call, fault: str | None, answer: Answer) -> Response:
    if fault == "timeout_after":
        return Hang(shop, shop.faults.hang_seconds)
    if fault == "reset_after":
        return Reset()
    answer = _with_headers(shop, call, tell_wrongly(fault, answer))
    if fault == "truncated":
        return Truncated(answer.body, answer.status, answer.headers, media_type="application/json")
    if fault == "slow_drip":
        return SlowDrip(shop, answer, shop.faults.drip_seconds)
    return to_response(answer)


def _finish(shop: Shop, call: Call, answer: Answer) -> Response:
    return to_response(_with_headers(shop, call, answer))


def _with_headers(shop: Shop, call: Call, answer: Answer) -> Answer:
    # The shop's own time, which a test may have advanced: who asks what time it is here must not hear the machine's.
    date = email.utils.formatdate(shop.clock.now(), usegmt=True)
    headers = {"Date": date, "Request-Id": call.request_id, **answer.headers}
    if call.key is not None:
        headers["Idempotency-Key"] = call.key
    if call.version is not None:
        headers["Stripe-Version"] = call.version
    return replace(answer, headers=headers)


def _status_seen(fault: str | None, answer: Answer) -> int | None:
    return None if fault in ("timeout_after", "reset_after") else answer.status


def note(shop: Shop, call: Call, fault: str | None, status: int | None, *, replayed: bool = False) -> None:
    values = (
        shop.clock.now(),
        call.endpoint,
        call.operation,
        call.key,
        call.order_id,
        fault,
        status,
        replayed,
    )
    shop.store.note_call((*values, call.request_id))
