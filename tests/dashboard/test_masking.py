"""What is somebody's own does not come through the mask, whatever is around it; exports carry no formula."""

from __future__ import annotations

import csv
import io
import json
import uuid
from typing import Any

import pytest
import reports
import streamlit as st
from hypothesis import given
from hypothesis import strategies as some

from dashboard import data, exports, masking
from makegood.reconciliation.report_csv import BREAKS, FORMULA_STARTS
from makegood.reconciliation.report_html import render_html
from makegood.settings import PERSONAL

SECRET = "Brigitte Ångström"
JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(), inner, max_size=4),
    max_leaves=12,
)
PLAIN_TEXT = some.text(some.characters(exclude_categories=["Nd", "Cs"], exclude_characters="@"), max_size=30)


def card(prefix: list[int], length: int) -> str:
    digits = (prefix + [0] * length)[: length - 1]
    for check in range(10):
        found = "".join(map(str, [*digits, check]))
        if masking._is_card(found):
            return found
    raise AssertionError("one of ten check digits fits")


CARDS = some.builds(
    card,
    some.tuples(some.integers(2, 6), some.lists(some.integers(0, 9), min_size=18, max_size=18)).map(
        lambda parts: [parts[0], *parts[1]]
    ),
    some.integers(13, 19),
)


@given(before=PLAIN_TEXT, number=CARDS, after=PLAIN_TEXT, width=some.sampled_from([0, 4]), gap=some.sampled_from(" -"))
def test_card_number_anywhere_in_a_text_is_hidden(before: str, number: str, after: str, width: int, gap: str) -> None:
    written = gap.join(number[at : at + width] for at in range(0, len(number), width)) if width else number
    masked = masking.mask_text(f"{before} {written} {after}")
    assert written not in masked
    assert number not in masked.replace(gap, "")


@given(number=CARDS, other=CARDS)
def test_two_card_numbers_side_by_side_are_both_hidden(number: str, other: str) -> None:
    masked = masking.mask_text(f"{number} {other}")
    assert number not in masked
    assert other not in masked


@given(before=PLAIN_TEXT, after=PLAIN_TEXT, local=some.from_regex(r"[a-z0-9._+-]{1,20}", fullmatch=True))
def test_email_address_anywhere_in_a_text_is_hidden(before: str, after: str, local: str) -> None:
    assert f"{local}@example.com" not in masking.mask_text(f"{before} {local}@example.com {after}")


@given(
    value=JSON, key=some.sampled_from(["name", "customerEmail", "PHONE", "billing-address", "card.number", "last name"])
)
def test_value_under_a_personal_key_is_hidden_at_any_depth(value: Any, key: str) -> None:
    document = {"context": {"cart": [{"about": value, key: {"deep": [SECRET]}}]}, "other": value}
    assert SECRET in json.dumps(document, ensure_ascii=False)
    assert SECRET not in json.dumps(masking.mask_document(document, PERSONAL), ensure_ascii=False)


@pytest.mark.parametrize(
    "key",
    [
        "firstname", "lastName", "surname", "fullname", "postal_code", "postalCode", "zipcode", "zip_code", "dob",
        "date_of_birth", "nickname", "tel", "fax", "cardholder", "cardNumber", "cardnumber", "cvc", "client_ip", "ssn",
        "account_number", "tax_id", "username",
    ],
)  # fmt: skip
def test_key_that_names_something_of_a_person_is_personal(key: str) -> None:
    assert masking.is_personal(key, PERSONAL)


@pytest.mark.parametrize(
    "key", ["sku", "amount_minor", "currency", "description", "zipped", "shipped_at", "card_brand"]
)
def test_key_that_names_something_of_an_order_is_not_personal(key: str) -> None:
    assert not masking.is_personal(key, PERSONAL)


@pytest.mark.parametrize("key", sorted(masking.PLAIN))
@pytest.mark.parametrize("payload", sorted(masking.PAYLOADS))
def test_key_of_our_own_is_anybodys_key_inside_a_payload(payload: str, key: str) -> None:
    document = {payload: {"customer": {key: "ann@example.com"}, key: "4242424242424242"}}
    masked = json.dumps(masking.mask_document(document, PERSONAL))
    assert "ann@" not in masked
    assert "4242424242424242" not in masked


def test_report_that_is_mailed_around_has_no_address_and_no_card_in_its_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    told = reports.document(stale="refused for ann@example.com", error="paid with 4242 4242 4242 4242")

    class Books:
        def rows(self, *_: Any) -> list[dict[str, Any]]:
            return [{"document": told}]

    monkeypatch.setattr(data, "reader", Books)
    st.cache_data.clear()
    report = data.get_reconciliation(str(uuid.uuid4()))
    assert report is not None
    page = render_html(report)
    assert "refused for •••" in page
    assert "ann@" not in page
    assert "4242 4242" not in page


@given(JSON)
def test_masking_twice_is_masking_once(value: Any) -> None:
    once = masking.mask_value(value, PERSONAL)
    assert masking.mask_value(once, PERSONAL) == once


@pytest.mark.parametrize(
    "text",
    [
        "order-123 was charged 19.99 EUR at 12:30",
        "pi_3MtwBwLkdIwHu7ix28a3tqPa",
        "1700000000000",  # a time in milliseconds: no card begins with 1
        "4242424242424241",  # the check digit is wrong
        "12345678901234567890123",  # longer than any card's
        "019a9d3e-0000-7000-8000-000000000000",
    ],
)
def test_text_without_anything_personal_is_left_as_it_is(text: str) -> None:
    assert masking.mask_text(text) == text


def test_last_four_digits_of_a_card_stay_to_tell_it_by() -> None:
    assert masking.mask_text("card 4242 4242 4242 4242, please") == "card ••• 4242, please"


def test_step_and_order_keep_their_names() -> None:
    document = {
        "workflow": {"entity_id": "ann@example.com", "context": {"sku": "lamp", "name": "Ann"}},
        "definition": {"steps": [{"name": "charge"}]},
        "actions": [{"actor": "kim@example.com", "reason": "ann@example.com called", "details": {"proof": "re_1"}}],
    }
    masked = masking.mask_document(document, PERSONAL)
    assert masked["workflow"] == {"entity_id": "ann@example.com", "context": {"sku": "lamp", "name": "•••"}}
    assert masked["definition"] == document["definition"]
    assert masked["actions"] == [{"actor": "kim@example.com", "reason": "••• called", "details": {"proof": "re_1"}}]


@given(some.lists(some.text(some.characters(exclude_categories=["Cs"]), max_size=20), min_size=1, max_size=5))
def test_no_cell_of_an_export_is_a_formula_and_every_cell_comes_back(cells: list[str]) -> None:
    written = exports.write_csv({"=cmd|' /C calc'!A0": cells}).decode("utf-8").removeprefix(exports.MARK)
    (head,), *rows = csv.reader(io.StringIO(written, newline=""))
    assert head.startswith("'=")
    for (row,), cell in zip(rows, (cell.replace("\x00", "") for cell in cells), strict=True):
        assert row in (cell, f"'{cell}")
        assert not row.lstrip(" \u00a0\ufeff").startswith((*FORMULA_STARTS, *BREAKS))


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", " =", "＝", "\ufeff=", "|"])
def test_each_beginning_of_a_formula_is_defused(start: str) -> None:
    assert exports.harmless_cell(f"{start}1+1") == f"'{start}1+1"


def test_number_in_an_export_stays_a_number() -> None:
    assert exports.write_csv({"n": [-5, None]}).decode().splitlines()[1:] == ['"-5"', '""']
