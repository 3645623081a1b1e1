"""The doctor on ``reconcilable_orders``."""

from __future__ import annotations

import psycopg
import pytest
from databases import DatabaseUrls

from makegood.local.order_checks import CONTRACT, check_orders


def test_doctor_accepts_our_own_view_and_names_what_another_lacks(database: DatabaseUrls) -> None:
    with psycopg.connect(database.admin, autocommit=True) as connection:
        assert check_orders(connection).verdict == "ok"
        connection.execute("ALTER VIEW makegood.reconcilable_orders RENAME COLUMN payment_ref TO payment")
        found = check_orders(connection)
    assert found.verdict == "fail"
    assert "payment_ref is missing" in found.detail


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        ("amount_minor", "NULL::bigint", "have no amount_minor"),
        ("amount_minor", "(-1)::bigint", "or one below zero"),
        ("amount_minor", "1000000000000000", "more than 15 digits"),
        ("currency", "NULL::text", "currencies are not known"),
        ("currency", "lower(currency)", "currencies are not known"),
        ("refunded_minor", "NULL::bigint", "is null: 0 or false is meant"),
        ("written_off_minor", "NULL::bigint", "is null: 0 or false is meant"),
        ("dispute_known", "NULL::boolean", "is null: 0 or false is meant"),
        ("partial_shipment", "NULL::boolean", "is null: 0 or false is meant"),
        ("created_at", "NULL::timestamptz", "have no created_at"),
    ],
)
def test_doctor_names_what_a_sample_of_another_view_lacks(
    database: DatabaseUrls, column: str, value: str, what: str
) -> None:
    with psycopg.connect(database.admin, autocommit=True) as connection:
        connection.execute("INSERT INTO makegood.orders (id, amount_minor, currency) VALUES ('o', 1, 'EUR')")
        others = ", ".join(name for name in CONTRACT if name != column)
        connection.execute("ALTER VIEW makegood.reconcilable_orders RENAME TO their_orders")
        theirs = f"SELECT {others}, {value} AS {column} FROM makegood.their_orders"
        connection.execute(f"CREATE VIEW makegood.reconcilable_orders AS {theirs}")
        found = check_orders(connection)
    assert found.verdict == "fail"
    assert found.detail.startswith("1 of a sample: ")
    assert what in found.detail


def test_doctor_warns_of_a_column_that_no_index_serves(database: DatabaseUrls) -> None:
    with psycopg.connect(database.admin, autocommit=True) as connection:
        connection.execute("DROP INDEX makegood.orders_changed")
        found = check_orders(connection)
    assert (found.verdict, found.detail) == ("warn", "keeps the contract, but no index serves changed_xid")
