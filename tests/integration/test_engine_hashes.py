"""The hash of a request is the same after a stay in the database: a replay is never taken for another request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from makegood.engine.payload import check_payload, request_hash
from makegood.gateways.payments import from_stripe_amount, to_stripe_amount
from makegood.local.postgres import EmbeddedPostgres
from sandbox import currencies

text = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=10,
)


@pytest.fixture(scope="module")
def connection(server: EmbeddedPostgres) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        yield connection


def keep(connection: psycopg.Connection, value: Any) -> Any:
    """The value as the database gives it back."""
    row = connection.execute("SELECT %s::jsonb", (Jsonb(value),)).fetchone()
    assert row is not None
    return row[0]


@given(st.dictionaries(text, values, max_size=4))
@example({"a": -0.0})
@example({"a": 1e22})
@example({"a": 1e23})  # not a whole number of binary digits
@example({"a": 1.7976931348623157e308})  # the largest float
@example({"a": 5e-324})  # the smallest
@example({"a": 0.1, "b": 1 / 3, "c": 1e-7})
@example({"a": 2**53 + 1, "b": 2**64, "c": -(10**308)})
@example({"a": 100.0, "b": 1e2, "c": 12345678901234567890.0})
@example({"a": "\u2028 \x7f \U0001f6d2", "": {"": []}})
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_request_hash_survives_a_stay_in_the_database(connection: psycopg.Connection, request_: dict[str, Any]) -> None:
    check_payload(request_, name="request", bytes_max=10**9)
    assert request_hash(keep(connection, request_)) == request_hash(request_)


@given(numbers, numbers)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_request_hash_of_other_numbers_is_another(connection: psycopg.Connection, one: float, other: float) -> None:
    """As the database sees them: what it keeps apart, the hash keeps apart."""
    same = keep(connection, one) == keep(connection, other)
    assert (request_hash({"n": one}) == request_hash({"n": other})) == same


def test_every_currency_that_stripe_takes_is_counted_as_stripe_counts_it(server: EmbeddedPostgres) -> None:
    """One whole unit of each, from our table of exponents to what the shop (as Stripe) has for it."""
    with psycopg.connect(server.url("postgres", "makegood_template")) as connection:
        exponents = dict(connection.execute("SELECT lower(code), exponent FROM makegood.currencies").fetchall())
    known = set(exponents) & currencies.CURRENCIES
    assert len(known) > 120
    for code in known:
        ours = 10 ** exponents[code]
        theirs = to_stripe_amount(ours, code.upper())
        assert theirs == 10 ** currencies.get_exponent(code), code
        assert theirs % currencies.get_step(code) == 0, code
        assert from_stripe_amount(theirs, code.upper()) == ours, code
