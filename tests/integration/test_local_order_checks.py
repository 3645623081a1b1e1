"""The doctor on ``reconcilable_orders``."""

from __future__ import annotations

import psycopg
from databases import DatabaseUrls

from makegood.local.order_checks import check_orders


def test_doctor_accepts_our_own_view_and_names_what_another_lacks(database: DatabaseUrls) -> None:
    with psycopg.connect(database.admin, autocommit=True) as connection:
        assert check_orders(connection).verdict == "ok"
        connection.execute("ALTER VIEW makegood.reconcilable_orders RENAME COLUMN payment_ref TO payment")
        found = check_orders(connection)
    assert found.verdict == "fail"
    assert "payment_ref is missing" in found.detail


def test_doctor_warns_of_a_column_that_no_index_serves(database: DatabaseUrls) -> None:
    with psycopg.connect(database.admin, autocommit=True) as connection:
        connection.execute("DROP INDEX makegood.orders_changed")
        found = check_orders(connection)
    assert (found.verdict, found.detail) == ("warn", "keeps the contract, but no index serves changed_xid")
