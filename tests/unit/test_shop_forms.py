"""Forms as the stripe client encodes them, and amounts as people read them."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stripe._encode import _api_encode

from sandbox.answers import RefusedError
from sandbox.currencies import CURRENCIES, THREE_DECIMAL, WHOLE_HUNDREDS, ZERO_DECIMAL, show
from sandbox.documents import decode_document
from sandbox.forms import decode_form
from sandbox.parameters import get_metadata
from sandbox.stripe_objects import get_charge_fee

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
# Brackets nest and bare digits number a list, so neither can be part of a plain name.
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="[]"), min_size=1, max_size=8).filter(
    lambda name: not name.isdigit()
)


@given(st.dictionaries(NAMES, TEXT | st.dictionaries(NAMES, TEXT, min_size=1, max_size=4), max_size=6))
def test_form_encoded_by_the_stripe_client_comes_back_as_it_was(params: dict[str, Any]) -> None:
    assert decode_form(urlencode(list(_api_encode(params)))) == params


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("", {}),
        ("a=1&b=", {"a": "1", "b": ""}),
        ("metadata[order_id]=7", {"metadata": {"order_id": "7"}}),
        ("created[gte]=5&created[lt]=9", {"created": {"gte": "5", "lt": "9"}}),
        ("expand[]=a&expand[]=b", {"expand": ["a", "b"]}),
        ("expand[0]=a&expand[1]=b", {"expand": ["a", "b"]}),
        ("a[b][c]=1", {"a": {"b": {"c": "1"}}}),
        ("a=%C3%A5", {"a": "å"}),
    ],
)
def test_form_decodes_to_nested_parameters(text: str, params: dict[str, Any]) -> None:
    assert decode_form(text) == params


@pytest.mark.parametrize(
    "text", ["a=1&a[b]=2", "a[b]=2&a=1", "a]=1", "[a]=1", "a[b][c][d][e][f]=1", "a=%ff", "&".join(["a=1"] * 1001)]
)
def test_form_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(RefusedError) as refused:
        decode_form(text)
    assert (refused.value.answer.status, refused.value.kept) == (400, False)


@pytest.mark.parametrize(
    "metadata",
    [
        {"k" * 41: "v"},
        {"k": "v" * 501},
        {str(number) + "k": "v" for number in range(51)},
        {"k": {"nested": "v"}},
        "text",
    ],
)
def test_metadata_beyond_stripes_limits_is_refused(metadata: Any) -> None:
    with pytest.raises(RefusedError):
        get_metadata({"metadata": metadata})


def test_metadata_with_an_empty_value_is_unset() -> None:
    assert get_metadata({"metadata": {"order_id": "7", "note": ""}}) == {"order_id": "7"}


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'"x"', b'{"a": NaN}', b'{"a": Infinity}', b'{"a": "\\ud800"}', b"\xff", b"[" * 99_999]
)
def test_document_that_cannot_be_is_refused(body: bytes) -> None:
    with pytest.raises(RefusedError):
        decode_document(body)


@pytest.mark.parametrize(
    ("amount", "currency", "text"),
    [(2000, "usd", "$20.00"), (5, "eur", "€0.05"), (500, "jpy", "¥500"), (1250, "kwd", "1.250 KWD")],
)
def test_amount_is_shown_with_the_decimals_of_its_currency(amount: int, currency: str, text: str) -> None:
    assert show(amount, currency) == text


def test_special_currencies_are_known_and_of_one_kind_each() -> None:
    assert CURRENCIES >= ZERO_DECIMAL | THREE_DECIMAL | WHOLE_HUNDREDS
    assert not ZERO_DECIMAL & THREE_DECIMAL
    assert not ZERO_DECIMAL & WHOLE_HUNDREDS


@pytest.mark.parametrize(
    ("amount", "fee"), [(1, 30), (1000, 59), (1999, 88), (1017, 59), (1018, 60), (99_999_999, 2_900_030)]
)
def test_fee_is_rounded_half_up_in_integers(amount: int, fee: int) -> None:
    assert get_charge_fee(amount) == fee
