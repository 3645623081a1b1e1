"""Stripe's objects as rows of our books."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
import stripe
from stripe import StripeResponse

from makegood.errors import PermanentError
from makegood.gateways.ledger import read_list, read_page, translated
from makegood.gateways.ledger_rows import read_row
from makegood.reconciliation.source import SourceRefused, SourceUnavailable, SourceWrong

NOW = 1_790_000_000


def charge(**facts: Any) -> dict[str, Any]:
    return {
        "id": "ch_1",
        "amount": 1999,
        "amount_captured": 1999,
        "captured": True,
        "created": NOW - 100,
        "currency": "eur",
        "customer": "cus_1",
        "livemode": True,
        "metadata": {"order_id": "order-1"},
        "payment_intent": "pi_1",
        "payment_method_details": {"card": {"capture_before": NOW + 100}},
        "refunded": False,
        "status": "succeeded",
        **facts,
    }


UNCAPTURED = {"captured": False, "amount_captured": 0}


def test_charge_becomes_a_row() -> None:
    assert read_row("charges", charge(), NOW) == {
        "id": "ch_1",
        "payment_ref": "pi_1",
        "order_ref": "order-1",
        "customer_ref": "cus_1",
        "status": "succeeded",
        "amount_minor": 1999,
        "captured_minor": 1999,
        "currency": "EUR",
        "livemode": True,
        "capture_before": NOW + 100,
        "captures_open": False,
        "created_at": NOW - 100,
    }


@pytest.mark.parametrize(
    ("facts", "status", "captures_open"),
    [
        ({}, "succeeded", False),
        ({"status": "pending", **UNCAPTURED}, "pending", False),
        ({"status": "failed", **UNCAPTURED}, "failed", False),
        (UNCAPTURED, "authorized", False),
        # Its time is over, whether or not the provider has said so yet.
        ({**UNCAPTURED, "payment_method_details": {"card": {"capture_before": NOW}}}, "lapsed", False),
        ({**UNCAPTURED, "payment_intent": {"id": "pi_1", "status": "canceled"}}, "lapsed", False),
        ({**UNCAPTURED, "payment_intent": {"id": "pi_1", "status": "requires_capture"}}, "authorized", False),
        ({**UNCAPTURED, "refunded": True}, "lapsed", False),  # how older versions let an authorisation go
        # Captured in part, for good or not.
        ({"amount_captured": 500}, "succeeded", False),
        ({"amount_captured": 500, "captured": False}, "succeeded", True),
        ({"amount_captured": 500, "payment_intent": {"id": "pi_1", "status": "requires_capture"}}, "succeeded", True),
        ({"amount_captured": 500, "payment_intent": {"id": "pi_1", "status": "succeeded"}}, "succeeded", False),
        ({"payment_method_details": None}, "succeeded", False),  # not a card
    ],
)
def test_charge_status_says_what_was_taken(facts: dict[str, Any], status: str, captures_open: bool) -> None:
    row = read_row("charges", charge(**facts), NOW)
    assert (row["status"], row["captures_open"], row["payment_ref"]) == (status, captures_open, "pi_1")


def test_charge_without_a_payment_is_its_own() -> None:
    assert read_row("charges", charge(payment_intent=None), NOW)["payment_ref"] == "ch_1"


@pytest.mark.parametrize("order", [None, "", "x" * 256, "a\0b", 7])
def test_metadata_that_cannot_name_an_order_names_none(order: Any) -> None:
    assert read_row("charges", charge(metadata={"order_id": order}), NOW)["order_ref"] is None


@pytest.mark.parametrize(
    ("currency", "theirs", "ours"),
    [("eur", 1999, 1999), ("jpy", 500, 500), ("kwd", 12340, 12340), ("isk", 50000, 500), ("mga", 500, 50000)],
)
def test_amount_is_in_our_minor_units(currency: str, theirs: int, ours: int) -> None:
    row = read_row("charges", charge(currency=currency, amount=theirs, amount_captured=theirs), NOW)
    assert (row["amount_minor"], row["captured_minor"]) == (ours, ours)


@pytest.mark.parametrize(
    "facts",
    [
        {"amount": 19.99},
        {"amount": None},
        {"amount": True},
        {"currency": None},
        {"currency": "isk", "amount": 50},  # half a króna
    ],
)
def test_amount_that_does_not_fit_is_refused_never_rounded(facts: dict[str, Any]) -> None:
    with pytest.raises(PermanentError):
        read_row("charges", charge(**facts), NOW)


REFUND = {"id": "re_1", "charge": "ch_1", "amount": 5, "currency": "eur", "created": NOW, "status": "pending"}


@pytest.mark.parametrize(
    ("metadata", "named"),
    [({"compensation_id": "c-1"}, "c-1"), ({"remedy_id": "r-1"}, "r-1"), ({}, None), (None, None)],
)
def test_refund_names_the_compensation_or_remedy(metadata: Any, named: str | None) -> None:
    assert read_row("refunds", {**REFUND, "metadata": metadata}, NOW) == {
        "id": "re_1",
        "charge_id": "ch_1",
        "compensation_ref": named,
        "status": "pending",
        "amount_minor": 5,
        "currency": "EUR",
        "created_at": NOW,
    }


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("needs_response", "open"),
        ("under_review", "open"),
        ("warning_needs_response", "open"),
        ("warning_closed", "won"),
        ("prevented", "won"),
        ("won", "won"),
        ("lost", "lost"),
        ("a word of next year", "open"),  # unknown is not over
    ],
)
def test_dispute_is_open_until_it_is_known_to_be_over(theirs: str, ours: str) -> None:
    given = {"id": "du_1", "charge": "ch_1", "amount": 5, "currency": "eur", "created": NOW, "status": theirs}
    assert read_row("disputes", given, NOW)["status"] == ours


def test_movement_says_nothing_of_its_payout() -> None:
    given = {"id": "txn_1", "type": "charge", "source": "ch_1", "amount": 100, "fee": 3, "net": 97, "currency": "eur"}
    row = read_row("balance_transactions", {**given, "created": NOW}, NOW)
    assert "payout_ref" not in row
    assert (row["kind"], row["amount_minor"], row["fee_minor"], row["net_minor"]) == ("charge", 100, 3, 97)


@pytest.mark.parametrize("body", ["[]", "null", "{}", '{"data": null}', '{"data": {}}'])
def test_answer_that_is_no_list_is_one_to_ask_for_again(body: str) -> None:
    with pytest.raises(SourceUnavailable, match="it is no list"):
        read_list(StripeResponse(body, 200, {}))


def test_page_with_one_bad_object_keeps_the_others() -> None:
    items = [charge(), charge(id="ch_2", amount="much"), {**charge(id="ch_3"), "status": None}]
    page = read_page("charges", items, True, datetime.fromtimestamp(NOW, UTC))
    assert [row["id"] for row in page.rows] == ["ch_1"]
    assert page.ids == ["ch_1", "ch_2", "ch_3"]
    assert [name for name, _ in page.refused] == ["ch_2", "ch_3"]  # a word that is not known is never guessed at


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (stripe.AuthenticationError("no", http_status=401), SourceRefused),
        (stripe.PermissionError("no", http_status=403), SourceRefused),
        (stripe.RateLimitError("slow", http_status=429, headers={"retry-after": "7"}), SourceUnavailable),
        (stripe.APIConnectionError("away"), SourceUnavailable),
        (stripe.APIError("oops", http_status=500), SourceUnavailable),
        (stripe.InvalidRequestError("no such charge", "starting_after", http_status=400), SourceWrong),
    ],
)
def test_error_is_sorted_into_later_never_and_a_person(error: stripe.StripeError, kind: type[Exception]) -> None:
    found = translated(error)
    assert type(found) is kind
    if isinstance(error, stripe.RateLimitError):
        assert isinstance(found, SourceUnavailable)
        assert found.retry_after_seconds == 7
