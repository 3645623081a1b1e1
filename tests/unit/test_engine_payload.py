"""What may be stored, and a hash that is the same for the same request."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from makegood.engine.payload import DEPTH_MAX, canonical, check_payload, request_hash
from makegood.errors import InputError


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "context is nan; JSON has no such number"),
        ({"a": float("inf")}, "context.a is inf; JSON has no such number"),
        ([0, {"b": float("-inf")}], "context[1].b is -inf; JSON has no such number"),
        ({"note": "a\0b"}, "context.note contains a NUL character"),
        ({"no\0te": 1}, "a key of context contains a NUL character"),
        ({"note": "\ud800"}, "context.note contains half a character (a lone surrogate)"),
        ({"\udfff": 1}, "a key of context contains half a character (a lone surrogate)"),
        (nested(DEPTH_MAX + 1), "is nested deeper than 32"),
        ({"a": nested(100_000)}, "is nested deeper than 32"),  # refused, not a stack overflow
        ({1: "x"}, "context has the key 1; keys are text"),
        ({None: "x"}, "context has the key None; keys are text"),
        ({("a",): 1}, "context has the key ('a',); keys are text"),
        ({"a": b"bytes"}, "context.a is a bytes, which JSON cannot hold"),
        ({"a": Decimal("1.5")}, "context.a is a Decimal, which JSON cannot hold"),
        ({"a": datetime(2026, 1, 2, tzinfo=UTC)}, "context.a is a datetime, which JSON cannot hold"),
        ({"a": {1, 2}}, "context.a is a set, which JSON cannot hold"),
        ({"a": object()}, "context.a is a object, which JSON cannot hold"),
        ({"a": MappingProxyType({})}, "context.a is a mappingproxy, which JSON cannot hold"),
        ({"a": 10**400}, "context.a is a number of more than 308 digits"),
        ({"a": -(10**5000)}, "context.a is a number of more than 308 digits"),  # str() itself would refuse it
        ("x" * 999, "context is 1,001 bytes; at most 1,000 are kept"),  # with its quotation marks
        ({"a": "é" * 500}, "context is 1,008 bytes; at most 1,000 are kept"),  # bytes, not characters
    ],
)
def test_payload_that_cannot_be_kept_is_refused_with_its_place(value: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        check_payload(value, name="context", bytes_max=1000)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -0.0,
        1e22,
        2**63,
        10**308,
        "",
        "→ 漢字 \U0001f6d2",
        "\x01\x1b[31m\x7f",  # ugly, but JSON and PostgreSQL hold it
        nested(DEPTH_MAX),
        {"": {"a": [1, 2.5, None, False, "x"]}},
        ("a", ("b",)),
        "x" * 998,
    ],
)
def test_payload_that_can_be_kept_is_accepted(value: Any) -> None:
    check_payload(value, name="context", bytes_max=1000)


def test_payload_of_ten_megabytes_is_refused_by_its_size() -> None:
    with pytest.raises(InputError, match=r"result is 10,000,012 bytes; at most 65,536 are kept") as refused:
        check_payload({"blob": "x" * 10_000_001}, name="result", bytes_max=65536)
    assert refused.value.hint == "Store a reference instead."


@pytest.mark.parametrize(
    "value",
    [
        "",
        "\x01" * 50,  # six bytes each
        '"\\' * 50,
        "é" * 50,
        [None, True, False] * 20,
        [10**17, -(10**17)] * 20,
        [1.2345678901234567e-300, -0.12345678901234567] * 20,
        {f"key {n}": {"a": [n]} for n in range(20)},
    ],
)
def test_payload_is_refused_from_its_first_byte_too_many(value: Any) -> None:
    size = len(canonical(value).encode())
    check_payload(value, name="result", bytes_max=size)
    with pytest.raises(InputError, match=rf"result is {size} bytes; at most {size - 1} are kept"):
        check_payload(value, name="result", bytes_max=size - 1)


def test_canonical_has_one_text_per_meaning() -> None:
    assert canonical({"b": 1, "a": [1, "é"]}) == canonical({"a": [1, "é"], "b": 1}) == '{"a":[1,"é"],"b":1}'


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),  # order of keys
        ({"a": (1, 2)}, {"a": [1, 2]}),  # a tuple comes back as a list
        ({"a": 1.0}, {"a": 1}),  # jsonb keeps 1.0, but a reader may say 1
        ({"a": -0.0}, {"a": 0}),  # no sign in jsonb
        ({"a": 1e22}, {"a": 10**22}),  # whole in jsonb
        ({"a": 1e23}, {"a": 10**23}),  # whole in jsonb, and not the integer nearest to the float
        ({"a": 1e300}, {"a": 10**300}),
        ({"a": MappingProxyType({"b": "x"})}, {"a": {"b": "x"}}),  # a context that may not be changed
        ({"a": MappingProxyType({"b": [1.0]})}, {"a": {"b": [1]}}),
    ],
)
def test_request_hash_is_the_same_for_the_same_meaning(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert request_hash(one) == request_hash(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"amount": 1999}, {"amount": 2000}),
        ({"amount": 1999}, {"amount": "1999"}),
        ({"amount": "19.0"}, {"amount": 19}),
        ({"a": True}, {"a": 1}),
        ({"a": None}, {}),
        ({"a": [1, 2]}, {"a": [2, 1]}),
        ({"a": 0.1}, {"a": 0.1 + 2**-56}),
        ({"id": 2**53}, {"id": 2**53 + 1}),  # an id of 64 bits, not a float
    ],
)
def test_request_hash_differs_where_the_request_does(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert request_hash(one) != request_hash(other)


def test_request_hash_is_sha256_in_hex() -> None:
    assert request_hash({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


@settings(max_examples=50)
@given(st.dictionaries(st.text(), st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists)))
def test_request_hash_survives_json_text(request: dict[str, Any]) -> None:
    assert request_hash(json.loads(json.dumps(request))) == request_hash(request)
