"""An order is found by whatever somebody knows of it, and its page tells where the money is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from shops import Place
from streamlit.testing.v1 import AppTest

from dashboard import data, trails
from dashboard.trails import OURS, PROVIDERS, Entry

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
EXPONENTS = {"EUR": 2, "JPY": 0}


def words(app: AppTest) -> str:
    return "\n".join(str(element.value) for kind in (app.text, app.caption) for element in kind)


def orders(app: AppTest) -> list[str]:
    return next((list(frame.value["order"]) for frame in app.dataframe if "order" in frame.value.columns), [])


@pytest.fixture(scope="module")
def known(normal: Place) -> Iterator[Place]:
    """Two orders have a row of their own with their customer, one of them the provider's books too."""
    for order, payment in (("order-2", "pi_two"), ("order-8", None)):
        normal.rows(
            "INSERT INTO makegood.orders (id, amount_minor, currency, customer_ref, payment_ref)"
            " VALUES (%s, 1999, 'EUR', 'cus_ann', %s)", (order, payment),
        )  # fmt: skip
    normal.rows(
        "INSERT INTO makegood.provider_charges (id, provider, payment_ref, order_ref, status, amount_minor,"
        " captured_minor, currency, livemode, plain, created_at) VALUES"
        " ('ch_two', 'stripe', 'pi_two', 'order-2', 'succeeded', 1999, 1999, 'EUR', false, true, now())"
    )
    normal.rows(
        "INSERT INTO makegood.provider_refunds (id, provider, charge_id, status, amount_minor, currency, created_at)"
        " VALUES ('re_two', 'stripe', 'ch_two', 'succeeded', 500, 'EUR', now()),"
        "        ('re_no', 'stripe', 'ch_two', 'failed', 700, 'EUR', now())"
    )
    normal.rows(
        "INSERT INTO makegood.provider_disputes (id, provider, charge_id, status, amount_minor, currency, created_at)"
        " VALUES ('dp_two', 'stripe', 'ch_two', 'open', 300, 'EUR', now())"
    )
    yield normal
    for table in ("provider_disputes", "provider_refunds", "provider_charges", "orders"):
        normal.rows(f"DELETE FROM makegood.{table}")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("der-42", ["order-42"]),  # the end of a number
        ("-8", ["order-8"]),
        ("cus_ann", ["order-2", "order-8"]),
        ("pi_two", ["order-2"]),
        ("ch_two", ["order-2"]),
        ("cus_", []),  # a customer is found by the whole name only
        ("%2", []),  # what is a pattern elsewhere is text here
        ("order_2", []),
    ],
)
def test_order_is_found_by_what_somebody_knows_of_it(look: Any, known: Place, text: str, found: list[str]) -> None:
    assert sorted(orders(look(known.read, "order", order=text))) == found


def test_money_of_an_order_that_was_undone_is_told_and_goes_into_the_ticket(look: Any, known: Place) -> None:
    app = look(known.read, "order", order="order-8")
    for part in ("charged 19.99 EUR", "refunded 19.99 EUR", "disputed 0.00 EUR", "net 0.00 EUR"):
        assert part in words(app)
    (ticket,) = (code.value for code in app.code if "States" in code.value)
    assert "by our orders: charged 19.99 EUR, refunded 19.99 EUR, disputed 0.00 EUR, net 0.00 EUR" in ticket


def test_money_in_the_providers_books_stands_beside_ours(look: Any, known: Place) -> None:
    app = look(known.read, "order", order="order-2")
    assert "By our orders" in words(app)
    assert "By the provider's books" in words(app)
    (ticket,) = (code.value for code in app.code if "States" in code.value)
    assert "by our orders: charged 19.99 EUR, refunded 0.00 EUR, disputed 0.00 EUR, net 19.99 EUR" in ticket
    assert "by the provider's books: charged 19.99 EUR, refunded 5.00 EUR, disputed 3.00 EUR, net 11.99 EUR" in ticket


def test_order_that_was_declined_was_not_charged(look: Any, known: Place) -> None:
    assert "Nothing was charged." in words(look(known.read, "order", order="order-7"))


def test_messages_about_an_order_that_failed_are_on_its_page(look: Any, known: Place) -> None:
    known.rows(
        "INSERT INTO makegood.dead_letters (id, source, broker, message_id, entity_id, payload, error_type, error,"
        " signature, attempts, first_failed_at, last_failed_at) VALUES (gen_random_uuid(), 'message', 'kafka', 'm-1',"
        " 'order-2', '', 'Timeout', 'nobody home', 's', 3, now(), now())"
    )
    app = look(known.read, "order", order="order-2")
    frame = next(frame.value for frame in app.dataframe if "message" in frame.value.columns)
    assert list(frame["message"]) == ["m-1"]
    known.rows("DELETE FROM makegood.dead_letters WHERE source = 'message'")


def entry(kind: str, status: str, amount: int, currency: str = "EUR", book: str = PROVIDERS) -> Entry:
    return Entry(book, kind, status, amount, currency, NOON)


@pytest.mark.parametrize(
    ("trail", "text"),
    [
        ([], {}),
        ([entry("charge", "failed", 100)], "charged 0.00 EUR, refunded 0.00 EUR, disputed 0.00 EUR, net 0.00 EUR"),
        # A refund on its way counts, one that failed does not; a dispute counts until it is won.
        (
            [
                entry("charge", "succeeded", 1000),
                entry("refund", "pending", 100),
                entry("refund", "failed", 900),
                entry("dispute", "lost", 50),
                entry("dispute", "won", 500),
            ],
            "charged 10.00 EUR, refunded 1.00 EUR, disputed 0.50 EUR, net 8.50 EUR",
        ),
        # More given back than taken is said as it is.
        (
            [entry("charge", "succeeded", 100), entry("refund", "succeeded", 300)],
            "charged 1.00 EUR, refunded 3.00 EUR, disputed 0.00 EUR, net -2.00 EUR",
        ),
        # Never added up across currencies.
        (
            [entry("charge", "succeeded", 100), entry("charge", "succeeded", 7, "JPY")],
            "charged 1.00 EUR, refunded 0.00 EUR, disputed 0.00 EUR, net 1.00 EUR; "
            "charged 7 JPY, refunded 0 JPY, disputed 0 JPY, net 7 JPY",
        ),
    ],
)
def test_sums_of_a_trail(trail: list[Entry], text: Any) -> None:
    assert trails.sum_trail(trail, EXPONENTS) == ({PROVIDERS: text} if text else {})


def test_undo_that_is_owed_is_no_refund_yet() -> None:
    trail = [entry("charge", "succeeded", 100, book=OURS), entry("refund", "owed, held", 100, book=OURS)]
    assert "refunded 0.00 EUR" in trails.sum_trail(trail, EXPONENTS)[OURS]


def test_pattern_takes_text_for_text() -> None:
    assert data._like("a%b_c\\d") == "a\\%b\\_c\\\\d%"
