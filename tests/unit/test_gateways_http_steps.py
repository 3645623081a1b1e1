"""What an HTTP service's answer means: success, a definite failure, or unknown."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from makegood.engine.definitions import Action, Call
from makegood.engine.outcomes import Failed, Outcome, Success, Suspect, Unknown
from makegood.gateways import http_steps
from makegood.gateways.fulfilment import Inventory, Shipping
from makegood.gateways.http_steps import HttpEndpoint, classify, retry_after_seconds

REFUSAL = b'{"error": {"code": "out_of_stock", "message": "none left"}}'


@pytest.mark.parametrize(
    ("status", "body", "outcome"),
    [
        (200, b'{"id": "x"}', Success({"id": "x"})),
        (201, b"{}", Success({})),
        (204, b"", Unknown("malformed", "the answer is not a JSON object")),  # no body is no answer
        (200, b"", Unknown("malformed", "the answer is not a JSON object")),
        (200, b"<html>", Unknown("malformed", "the answer is not a JSON object")),  # a captive portal
        (200, b'{"id": ', Unknown("malformed", "the answer is not a JSON object")),  # cut off
        (200, b"[1]", Unknown("malformed", "the answer is not a JSON object")),
        (200, b'"ok"', Unknown("malformed", "the answer is not a JSON object")),
        (200, b"\xff\xfe", Unknown("malformed", "the answer is not a JSON object")),
        # A definite no is one of these statuses and a reason in the body.
        (400, REFUSAL, Failed("out_of_stock", "none left")),
        (402, REFUSAL, Failed("out_of_stock", "none left")),
        (409, REFUSAL, Failed("out_of_stock", "none left")),
        (410, REFUSAL, Failed("out_of_stock", "none left")),
        (412, REFUSAL, Failed("out_of_stock", "none left")),
        (413, REFUSAL, Failed("out_of_stock", "none left")),
        (422, REFUSAL, Failed("out_of_stock", "none left")),
        (422, b'{"error": {}}', Failed("http_422", "")),  # a refusal that gives no code
        (422, b'{"error": {"code": 7, "message": null}}', Failed("7", "")),
        # Without one it may be a proxy that speaks.
        (400, b"Bad Request", Unknown("http_400", "HTTP 400: Bad Request")),
        (402, b"{}", Unknown("http_402", "HTTP 402: {}")),
        (409, b'{"error": "conflict"}', Unknown("http_409", 'HTTP 409: {"error": "conflict"}')),
        (422, b"[]", Unknown("http_422", "HTTP 422: []")),
        # The first request under this key is still being worked on.
        (409, b'{"error": {"code": "in_progress"}}', Unknown("in_progress", "HTTP 409: ")),
        (
            409,
            b'{"error": {"code": "idempotency_key_in_use", "message": "wait"}}',
            Unknown("idempotency_key_in_use", "HTTP 409: wait"),
        ),
        # We, not the order, are at fault: tried again, then a person.
        (401, REFUSAL, Unknown("out_of_stock", "HTTP 401: none left", trouble="locked_out")),
        (403, b"", Unknown("http_403", "HTTP 403: ", trouble="locked_out")),
        (404, REFUSAL, Unknown("out_of_stock", "HTTP 404: none left")),
        (405, b"", Unknown("http_405", "HTTP 405: ")),
        (408, b"", Unknown("http_408", "HTTP 408: ")),
        (429, b"slow down", Unknown("http_429", "HTTP 429: slow down", trouble="unserved")),
        # It may have worked.
        (500, b"oops", Unknown("http_500", "HTTP 500: oops", trouble="service")),
        (
            500,
            REFUSAL,
            Unknown("out_of_stock", "HTTP 500: none left", trouble="service"),
        ),  # a reason does not make a 500 definite
        (502, b"", Unknown("http_502", "HTTP 502: ", trouble="service")),
        (503, b"", Unknown("http_503", "HTTP 503: ", trouble="service")),
        (504, b"", Unknown("http_504", "HTTP 504: ", trouble="service")),
        # Not followed: a POST elsewhere is another request.
        (301, b"", Unknown("http_301", "HTTP 301: ")),
        (302, b'{"id": "x"}', Unknown("http_302", 'HTTP 302: {"id": "x"}')),
        (307, b"", Unknown("http_307", "HTTP 307: ")),
    ],
)
def test_answer_is_classified_by_status_and_body(status: int, body: bytes, outcome: Outcome) -> None:
    assert classify(status, {}, body) == outcome


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, 0.0),
        ("7", 7.0),
        ("0", 0.0),
        ("2.5", 2.5),
        ("-5", 0.0),  # the past
        ("86400", 3600.0),  # bounded: a service cannot put an order to sleep for a day
        ("1e300", 3600.0),
        ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0),  # a date counts as none: clocks differ
        ("soon", 0.0),
        ("", 0.0),
        ("nan", 0.0),
        ("inf", 0.0),  # nonsense, not for ever
        ("-inf", 0.0),
    ],
)
def test_retry_after_is_seconds_bounded_and_nonsense_counts_as_none(header: str | None, seconds: float) -> None:
    headers = httpx.Headers({} if header is None else {"Retry-After": header})
    assert retry_after_seconds(headers) == seconds
    limited = classify(429, headers, b"")
    assert isinstance(limited, Unknown)
    assert limited.retry_after_seconds == seconds


# Against a transport that answers as told


def call(**context: Any) -> Call:
    when = datetime(2026, 1, 2, tzinfo=UTC)
    return Call(uuid.UUID(int=1), "trip", "order/1 ?", "reserve", "reserve-1", 1999, "EUR", context, 5.0, when)


def with_service(answer: Callable[[httpx.Request], httpx.Response], use: Callable[[httpx.AsyncClient], Any]) -> Any:
    async def run() -> Any:
        async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
            return await use(client)

    return asyncio.run(run())


def sent(action: Action, call: Call) -> Any:
    return action.send(call, action.request(call))


def test_endpoint_sends_its_key_and_its_body() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"id": "x"})

    def use(client: httpx.AsyncClient) -> Any:
        endpoint = HttpEndpoint(client, "http://svc/things", lambda call: {"order": call.entity_id})
        return sent(endpoint.action(), call())

    assert with_service(answer, use) == Success({"id": "x"})
    assert [request.headers["idempotency-key"] for request in seen] == ["reserve-1"]
    assert json.loads(seen[0].content) == {"order": "order/1 ?"}
    assert seen[0].method == "POST"


def test_endpoint_sends_what_was_hashed_not_what_it_would_say_now() -> None:
    bodies: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(200, json={})

    def use(client: httpx.AsyncClient) -> Any:
        endpoint = HttpEndpoint(client, lambda call: f"http://svc/{call.step}", lambda call: {"n": len(bodies)})
        request = endpoint.request(call())
        bodies.append("something happened in between")
        return endpoint.send(call(), request)

    with_service(answer, use)
    assert bodies[-1] == {"n": 0}


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        # Without a connection nothing can have happened: no attempt is spent.
        (httpx.ConnectError("refused"), "unserved"),
        (httpx.ConnectTimeout(""), "unserved"),
        # After one, everything can.
        (httpx.ReadTimeout(""), "service"),
        (httpx.ReadError("reset"), "service"),
        (httpx.WriteError("broken pipe"), "service"),
        (httpx.RemoteProtocolError("peer closed connection"), "service"),
        (httpx.DecodingError("bad gzip"), "service"),
    ],
)
def test_transport_error_is_unknown(error: httpx.HTTPError, trouble: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise error

    outcome = with_service(answer, lambda client: http_steps.exchange(client, "POST", "http://svc/"))
    assert isinstance(outcome, Unknown)
    assert outcome.error_type == type(error).__name__
    assert outcome.error  # also where the exception itself says nothing
    assert outcome.trouble == trouble
    assert outcome.spent is (trouble == "service")


def test_service_that_is_not_there_is_told_from_one_that_does_badly() -> None:
    """The real client against a port where nobody listens."""

    async def run() -> Any:
        async with httpx.AsyncClient(trust_env=False) as client:
            return await http_steps.exchange(client, "POST", "http://127.0.0.1:1/things")

    outcome = asyncio.run(run())
    assert isinstance(outcome, Unknown)
    assert (outcome.trouble, outcome.spent) == ("unserved", False)


def test_answer_larger_than_the_bound_is_unknown_and_not_read_to_its_end() -> None:
    chunks = 0

    async def endless() -> Any:
        nonlocal chunks
        while True:
            chunks += 1
            yield b"x" * 10_000

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=endless())

    outcome = with_service(answer, lambda client: http_steps.exchange(client, "POST", "http://svc/"))
    assert outcome == Unknown("too_large", "the answer is larger than 65,536 bytes")
    assert chunks == 7


@pytest.mark.parametrize(
    ("status", "document", "outcome"),
    [
        (200, {"data": []}, None),  # no trace
        (200, {"data": [{"reservation_id": "r-1"}]}, Success({"reservation_id": "r-1"})),
        (200, {"data": [{"reservation_id": "r-1", "noise": "x" * 500}]}, Success({"reservation_id": "r-1"})),
        (200, {"data": [{"id": "r-1"}]}, Unknown("malformed", "the answer has no reservation_id")),
        (200, {"rows": []}, Unknown("malformed", "the list has no data")),  # not "no trace"
        (200, {"data": "none"}, Unknown("malformed", "the list has no data")),
        (404, {"error": {"code": "not_found"}}, Unknown("not_found", "HTTP 404: ")),  # a wrong address is no proof
        (400, {"error": {"code": "bad_id", "message": "?"}}, Unknown("bad_id", "?")),  # nor is a refusal to look
        (503, {}, Unknown("http_503", "HTTP 503: {}", trouble="service")),
    ],
)
def test_look_up_tells_no_trace_from_no_answer(status: int, document: Any, outcome: Outcome | None) -> None:
    asked: list[httpx.URL] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url)
        return httpx.Response(status, json=document)

    def use(client: httpx.AsyncClient) -> Any:
        find = Inventory(client, "http://svc").reserve().look_up
        assert find is not None
        return find(call())

    assert with_service(answer, use) == outcome
    assert asked[0].params["order_id"] == "order/1 ?"  # whatever an order is called


@pytest.mark.parametrize(
    ("listed", "outcome", "posts"),
    [
        ([], Success({"nothing_to_undo": True}), []),  # nothing was ever reserved
        ([{"reservation_id": "r-1"}], Success({"reservation_id": "r-1"}), ["/inventory/reservations/r-1/release"]),
        (
            [{"reservation_id": "r-1"}, {"reservation_id": "r-2"}],
            Suspect("ambiguous", "2 found for order/1 ?, at most one was asked for"),
            [],
        ),
    ],
)
def test_undo_without_a_known_id_finds_out_what_there_is(listed: Any, outcome: Outcome, posts: list[str]) -> None:
    posted: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={"data": listed})
        posted.append(request.url.path)
        return httpx.Response(200, json={})

    assert with_service(answer, lambda client: sent(Inventory(client, "http://svc").release(), call())) == outcome
    assert posted == posts


@pytest.mark.parametrize(
    "context",
    [
        {"ship": {"shipment_id": "s-1"}},  # what the step left
        {},  # it left nothing
        {"ship": "express"},  # a word of the caller's own under the same name
        {"ship": {"shipment_id": 5}},
    ],
)
def test_undo_takes_the_id_of_the_context_or_asks(context: dict[str, Any]) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={"data": [{"shipment_id": "s-1"}]})
        assert request.url.path == "/shipping/shipments/s-1/cancel"
        assert request.headers["idempotency-key"] == "reserve-1"
        return httpx.Response(200, json={"status": "cancelled"})

    undone = with_service(answer, lambda client: sent(Shipping(client, "http://svc").cancel(), call(**context)))
    assert undone == Success({"shipment_id": "s-1"})


def test_undo_whose_look_up_fails_is_unknown_and_posts_nothing() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.method == "GET"
        return httpx.Response(503)

    undone = with_service(answer, lambda client: sent(Shipping(client, "http://svc").cancel(), call()))
    assert isinstance(undone, Unknown)


def test_reservation_keeps_only_the_id_that_its_undo_needs() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"reservation_id": "r-1", "customer_email": "a@example.com"})

    kept = with_service(answer, lambda client: sent(Inventory(client, "http://svc").reserve(), call(sku="s")))
    assert kept == Success({"reservation_id": "r-1"})


def test_reservation_answer_without_an_id_is_unknown() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"reservation_id": 7})

    kept = with_service(answer, lambda client: sent(Inventory(client, "http://svc").reserve(), call()))
    assert kept == Unknown("malformed", "the answer has no reservation_id")
