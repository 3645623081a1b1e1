"""One call has one of four outcomes, whatever the step does."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest

from makegood.engine.calls import RESULT_BYTES_MAX, look_up, make_call
from makegood.engine.definitions import Action, Call, describe_call
from makegood.engine.outcomes import Failed, Outcome, Success, Suspect, Unknown, from_response, to_response
from makegood.errors import PermanentError, TransientError


def call(timeout_seconds: float = 5.0) -> Call:
    when = datetime(2026, 1, 2, tzinfo=UTC)
    return Call(uuid.UUID(int=1), "trip", "trip-1", "fly", "fly-trip-1", 1999, "EUR", {"a": 1}, timeout_seconds, when)


def made(send: Callable[..., Any], timeout_seconds: float = 5.0) -> Outcome:
    return asyncio.run(make_call(Action(send=send), call(timeout_seconds), {}))


def raising(error: BaseException) -> Callable[..., Any]:
    async def send(call: Call, request: Any) -> Any:
        raise error

    return send


def answering(answer: Any) -> Callable[..., Any]:
    async def send(call: Call, request: Any) -> Any:
        return answer

    return send


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (None, Success({})),  # it returned, so it worked
        ({"id": "x"}, Success({"id": "x"})),
        (Success({"id": "x"}), Success({"id": "x"})),
        (MappingProxyType({"id": "x"}), Success({"id": "x"})),  # any mapping will do
        (Failed("no", "sold out"), Failed("no", "sold out")),
        (Unknown("maybe", "?", 3.0), Unknown("maybe", "?", 3.0)),
        (Suspect("odd", "another amount"), Suspect("odd", "another amount")),
        ("a text", Suspect("bad_result", "the step returned a str, not a mapping")),
        (7, Suspect("bad_result", "the step returned a int, not a mapping")),
        ([("id", "x")], Suspect("bad_result", "the step returned a list, not a mapping")),
        ({"n": float("nan")}, Suspect("bad_result", "result.n is nan; JSON has no such number")),
        ({"t": "\0"}, Suspect("bad_result", "result.t contains a NUL character")),
        ({1: 2}, Suspect("bad_result", "result has the key 1; keys are text")),
        (
            {"blob": "x" * RESULT_BYTES_MAX},
            Suspect("bad_result", "result is 16,395 bytes; at most 16,384 are kept"),
        ),
    ],
)
def test_answer_of_a_step_becomes_an_outcome(answer: Any, outcome: Outcome) -> None:
    assert made(answering(answer)) == outcome
    assert made(lambda call, request: answer) == outcome  # a plain function, in a thread


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (PermanentError("card stolen"), Failed("PermanentError", "card stolen")),  # the one definite failure
        (TransientError("later"), Unknown("TransientError", "later", trouble="service")),
        (
            ConnectionResetError("reset"),
            Unknown("ConnectionResetError", "reset", trouble="service"),
        ),  # it may have worked
        (KeyError("sku"), Unknown("KeyError", "'sku'", trouble="service")),
        (TimeoutError(), Unknown("timeout", "no answer within 5 s", trouble="service")),
    ],
)
def test_error_of_a_step_is_unknown_unless_permanent(error: Exception, outcome: Outcome) -> None:
    assert made(raising(error)) == outcome


@pytest.mark.parametrize(
    "text",
    [
        "a\0b",  # a proxy's binary page
        "\ud800 half",  # from an answer with a lone surrogate
    ],
)
def test_error_text_that_cannot_be_stored_is_cleaned_and_stays_what_it_was(text: str) -> None:
    """A reset with an ugly message is still a reset: it is tried again, not held."""
    for outcome in (made(raising(ConnectionError(text))), made(answering(Unknown(text, text)))):
        assert isinstance(outcome, Unknown)
        assert "\0" not in outcome.error + outcome.error_type
        (outcome.error + outcome.error_type).encode()
    refused = made(answering(Failed(text, text)))
    assert isinstance(refused, Failed)
    (refused.error + refused.error_type).encode()
    assert "\0" not in refused.error + refused.error_type


def test_error_text_is_bounded() -> None:
    outcome = made(answering(Failed("t" * 10_000, "e" * 100_000)))
    assert isinstance(outcome, Failed)
    assert len(outcome.error_type) <= 200
    assert len(outcome.error) <= 2000


def test_async_step_past_its_deadline_is_stopped_and_unknown() -> None:
    stopped = []

    async def send(call: Call, request: Any) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append(True)
            raise

    before = time.monotonic()
    assert made(send, 0.05) == Unknown("timeout", "no answer within 0.05 s", trouble="service")
    assert time.monotonic() - before < 5
    assert stopped == [True]


def test_plain_step_past_its_deadline_is_unknown_though_it_still_happens() -> None:
    happened = []

    def send(call: Call, request: Any) -> None:
        time.sleep(1)
        happened.append(call.key)

    async def run() -> tuple[Outcome, float]:
        before = time.monotonic()
        outcome = await make_call(Action(send=send), call(0.05), {})
        return outcome, time.monotonic() - before

    outcome, seconds = asyncio.run(run())
    assert outcome == Unknown("timeout", "no answer within 0.05 s", trouble="service")
    assert seconds < 0.9
    assert happened == ["fly-trip-1"]  # later, under the same key


def test_deadline_is_for_the_whole_call_not_for_each_wait() -> None:
    async def drip(call: Call, request: Any) -> None:
        for _ in range(1000):
            await asyncio.sleep(0.01)

    assert isinstance(made(drip, 0.1), Unknown)


def test_callable_object_with_an_async_call_is_awaited() -> None:
    class Sender:
        async def __call__(self, call: Call, request: Any) -> dict[str, str]:
            return {"key": call.key}

    assert made(Sender()) == Success({"key": "fly-trip-1"})


def looked_up(find: Any) -> Outcome | None:
    return asyncio.run(look_up(Action(send=answering(None), look_up=find), call(0.05)))


def test_look_up_says_what_it_found_or_that_it_cannot_tell() -> None:
    async def found(call: Call) -> Outcome:
        return Success({"id": "x"})

    async def nothing(call: Call) -> None:
        return None

    async def broken(call: Call) -> Outcome:
        raise ConnectionError("reset\0")

    async def slow(call: Call) -> Outcome:
        await asyncio.sleep(60)
        return Success()

    async def too_much(call: Call) -> Outcome:
        return Success({"blob": "x" * 100_000})

    assert looked_up(found) == Success({"id": "x"})
    assert looked_up(nothing) is None
    assert looked_up(None) is None  # no way to look it up is no trace
    assert looked_up(broken) == Unknown("ConnectionError", "reset�", trouble="service")
    assert looked_up(slow) == Unknown("timeout", "the look-up did not answer within 0.05 s", trouble="service")
    assert isinstance(looked_up(too_much), Suspect)


@pytest.mark.parametrize("outcome", [Success({"id": "x"}), Success(), Failed("no", "sold out")])
def test_stored_answer_reads_as_the_outcome_it_was(outcome: Success | Failed) -> None:
    assert from_response(to_response(outcome)) == outcome


@pytest.mark.parametrize("response", [{}, {"outcome": "perhaps"}])
def test_stored_answer_that_is_not_understood_is_never_guessed(response: dict[str, Any]) -> None:
    assert isinstance(from_response(response), Suspect)


def test_request_of_a_plain_callable_is_everything_it_may_look_at() -> None:
    assert describe_call(call()) == {
        "entity_id": "trip-1",
        "amount_minor": 1999,
        "currency": "EUR",
        "context": {"a": 1},
    }
