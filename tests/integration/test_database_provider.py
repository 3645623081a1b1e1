"""The provider's books: one row per object in whatever order it comes, and plain kept with all that bears on it."""

from __future__ import annotations

import itertools
import json
import random
import threading
from typing import Any

import psycopg
import pytest
from databases import DatabaseUrls

Row = dict[str, Any]


def charge(number: int = 1, **facts: Any) -> Row:
    return {
        "id": f"ch_{number}",
        "payment_ref": f"pi_{number}",
        "order_ref": f"order-{number}",
        "customer_ref": None,
        "status": "succeeded",
        "amount_minor": 1999,
        "captured_minor": 1999,
        "currency": "EUR",
        "livemode": False,
        "capture_before": None,
        "captures_open": False,
        "created_at": 1_790_000_000 + number,
        **facts,
    }


def refund(number: int = 1, **facts: Any) -> Row:
    common = {"id": f"re_{number}", "charge_id": f"ch_{number}", "compensation_ref": None, "status": "succeeded"}
    return {**common, "amount_minor": 1999, "currency": "EUR", "created_at": 1_790_000_100 + number, **facts}


def dispute(number: int = 1, **facts: Any) -> Row:
    common = {"id": f"du_{number}", "charge_id": f"ch_{number}", "status": "open"}
    return {**common, "amount_minor": 1999, "currency": "EUR", "created_at": 1_790_000_200 + number, **facts}


def movement(number: int = 1, **facts: Any) -> Row:
    common = {"id": f"txn_{number}", "kind": "charge", "source_ref": f"ch_{number}", "amount_minor": 1999}
    more = {"fee_minor": 88, "net_minor": 1911, "currency": "EUR", "created_at": 1_790_000_000 + number}
    return {**common, **more, **facts}


def payout(number: int = 1, **facts: Any) -> Row:
    common = {"id": f"po_{number}", "status": "paid", "amount_minor": 1911, "currency": "EUR"}
    return {**common, "created_at": 1_790_000_300 + number, **facts}


def put(database: DatabaseUrls, collection: str, *rows: Row, **options: Any) -> Row:
    parameters = [collection, json.dumps(rows), options.get("provider", "stripe"), options.get("source", "test")]
    (found,) = database.rows(
        "SELECT makegood.put_provider_rows(%s, %s::jsonb, %s, %s, %s) AS said",
        [*parameters, options.get("only_new", False)],
        role="jobs",
    )
    said: Row = found["said"]
    return said


def books(database: DatabaseUrls, collection: str = "charges") -> dict[str, Row]:
    return {row["id"]: row for row in database.rows(f"SELECT * FROM makegood.provider_{collection} ORDER BY id")}


def stamp(database: DatabaseUrls, number: int = 1) -> tuple[bool, str]:
    row = books(database)[f"ch_{number}"]
    return row["plain"], str(row["changed_xid"])


EVERYTHING = [
    ("charges", charge(), {"amount_minor": 2500}),
    ("refunds", refund(), {"amount_minor": 500}),
    ("disputes", dispute(), {"amount_minor": 500}),
    ("balance_transactions", movement(), {"net_minor": 1}),
    ("payouts", payout(), {"amount_minor": 1}),
]


@pytest.mark.parametrize(("collection", "row", "change"), EVERYTHING)
def test_row_put_again_changes_nothing_and_put_changed_is_stamped(
    database: DatabaseUrls, collection: str, row: Row, change: Row
) -> None:
    assert put(database, collection, row) == {"rows": 1, "changed": 1, "duplicates": [], "refused": []}
    first = books(database, collection)
    assert put(database, collection, row)["changed"] == 0
    assert books(database, collection) == first
    assert put(database, collection, {**row, **change})["changed"] == 1
    (after,) = books(database, collection).values()
    assert after["changed_xid"] != first[row["id"]]["changed_xid"]


@pytest.mark.parametrize(
    ("collection", "newer", "older"),
    [
        ("charges", charge(), charge(status="authorized", captured_minor=0)),
        ("charges", charge(), charge(status="pending", captured_minor=0)),
        # A first capture of several is older than the last.
        ("charges", charge(), charge(captured_minor=500, captures_open=True)),
        ("charges", charge(captured_minor=900, captures_open=True), charge(captured_minor=500, captures_open=True)),
        # Inferred from the clock; a capture just before the end is the later truth.
        ("charges", charge(), charge(status="lapsed", captured_minor=0)),
        ("charges", charge(status="failed", captured_minor=0), charge(status="pending", captured_minor=0)),
        ("refunds", refund(), refund(status="pending")),
        # A refund that seemed done and came back from the bank.
        ("refunds", refund(status="failed"), refund()),
        ("refunds", refund(status="canceled"), refund(status="requires_action")),
        ("disputes", dispute(status="lost"), dispute()),
        ("disputes", dispute(status="won"), dispute()),
        ("payouts", payout(), payout(status="in_transit")),
        ("payouts", payout(status="failed"), payout()),
        # A list does not say with which payout it left; a later one does not take that away.
        ("balance_transactions", movement(payout_ref="po_1"), movement()),
    ],
)
def test_older_copy_after_a_newer_one_or_before_it_ends_the_same(
    database: DatabaseUrls, collection: str, newer: Row, older: Row
) -> None:
    put(database, collection, newer)
    first = books(database, collection)
    assert put(database, collection, older)["changed"] == 0
    assert books(database, collection) == first
    again = {"id": "another"}
    put(database, collection, {**older, **again})
    put(database, collection, {**newer, **again})
    ours = ("id", "changed_xid", "plain")  # the payment has two charges by now
    shown = [{k: v for k, v in row.items() if k not in ours} for row in books(database, collection).values()]
    assert shown[0] == shown[1]


def test_same_id_twice_in_one_input_counts_once_and_is_told(database: DatabaseUrls) -> None:
    said = put(database, "refunds", refund(), refund(status="pending"), refund(2), source="a file")
    assert said == {"rows": 2, "changed": 2, "duplicates": ["re_1"], "refused": []}
    assert books(database, "refunds")["re_1"]["status"] == "succeeded"  # the one that is further in its life
    (kept,) = database.rows("SELECT provider, collection, id, source FROM makegood.provider_duplicates")
    assert kept == {"provider": "stripe", "collection": "refunds", "id": "re_1", "source": "a file"}


@pytest.mark.parametrize(
    ("collection", "row", "reason"),
    [
        ("charges", charge(currency="eur"), "three capitals"),
        ("charges", charge(currency="XQX"), "does not exist"),
        ("charges", charge(currency=None), "missing"),
        ("charges", charge(amount_minor="19.99"), "whole number"),
        ("charges", charge(amount_minor=None), "missing"),
        ("charges", charge(amount_minor=10**30), "whole number"),
        ("charges", charge(amount_minor=-1), "below zero"),
        ("charges", charge(captured_minor=None), "captured_minor"),
        ("charges", charge(status="refunded"), "not one of ours"),
        ("charges", charge(status="failed"), "something was captured"),
        ("charges", charge(livemode="yes"), "livemode"),
        ("charges", charge(created_at="yesterday"), "must be a time"),
        ("charges", charge(created_at="2026-13-45 00:00:00"), "must be a time"),
        ("charges", charge(order_ref="x" * 256), "longer than 255"),
        ("charges", charge(id="x" * 256), "1 to 255"),
        ("refunds", refund(charge_id=None), "names no charge"),
        ("disputes", dispute(status="warning_closed"), "not one of ours"),
        ("balance_transactions", movement(fee_minor=None), "fee_minor"),
        ("balance_transactions", movement(kind=""), "kind"),
        ("payouts", payout(status=None), "missing"),
    ],
)
def test_row_that_cannot_be_is_kept_aside_with_its_reason_and_the_rest_goes_on(
    database: DatabaseUrls, collection: str, row: Row, reason: str
) -> None:
    good = {**{c: r for c, r, _ in EVERYTHING}[collection], "id": "good"}
    said = put(database, collection, row, good)
    assert (said["rows"], said["changed"]) == (1, 1)
    assert reason in said["refused"][0]["reason"]
    assert set(books(database, collection)) == {"good"}
    (kept,) = database.rows("SELECT * FROM makegood.provider_rejects")
    assert reason in kept["reason"]


def test_row_that_was_refused_and_is_taken_later_is_no_longer_kept_aside(database: DatabaseUrls) -> None:
    put(database, "charges", charge(currency="XQX"))
    put(database, "charges", charge())
    assert database.rows("SELECT * FROM makegood.provider_rejects") == []


def test_id_that_is_in_the_books_of_another_provider_is_refused(database: DatabaseUrls) -> None:
    put(database, "charges", charge())
    said = put(database, "charges", charge(amount_minor=1, captured_minor=1), provider="adyen")
    assert said["refused"][0]["reason"] == "its id is in the books of stripe"
    assert books(database)["ch_1"]["amount_minor"] == 1999


def test_source_that_knows_less_leaves_what_is_known(database: DatabaseUrls) -> None:
    put(database, "charges", charge())
    told = {k: v for k, v in charge(amount_minor=5, captured_minor=1999).items() if k != "order_ref"}
    put(database, "charges", told, charge(2), only_new=True)
    assert {k: (v["amount_minor"], v["order_ref"]) for k, v in books(database).items()} == {
        "ch_1": (1999, "order-1"),
        "ch_2": (1999, "order-2"),
    }
    put(database, "charges", {**told, "amount_minor": 1999})  # not said is not the same as said to be nothing
    assert books(database)["ch_1"]["order_ref"] == "order-1"
    put(database, "charges", charge(order_ref=None))
    assert books(database)["ch_1"]["order_ref"] is None


@pytest.mark.parametrize(
    ("row", "plain"),
    [
        (charge(), True),
        (charge(status="authorized", captured_minor=0), False),
        (charge(status="pending", captured_minor=0), False),
        (charge(status="failed", captured_minor=0), False),
        (charge(status="lapsed", captured_minor=0), False),
        (charge(captured_minor=500, captures_open=True), False),
        # Less than was authorised, but for good: its amount is all there is to look at.
        (charge(captured_minor=500), True),
    ],
)
def test_charge_alone_is_plain_when_it_was_captured_for_good(database: DatabaseUrls, row: Row, plain: bool) -> None:
    put(database, "charges", row)
    assert stamp(database)[0] is plain


def test_charge_whose_refund_comes_later_is_plain_no_more_and_is_looked_at_again(database: DatabaseUrls) -> None:
    put(database, "charges", charge())
    plain, before = stamp(database)
    assert plain
    put(database, "refunds", refund(status="pending"))
    plain, after = stamp(database)
    assert not plain
    assert after != before
    put(database, "refunds", refund())  # it was not plain before either
    assert stamp(database)[1] != after
    last = stamp(database)
    put(database, "refunds", refund())  # nothing new
    assert stamp(database) == last


@pytest.mark.parametrize(
    ("collection", "row"), [("refunds", refund(status="failed")), ("disputes", dispute(status="won"))]
)
def test_charge_that_comes_after_its_refund_or_dispute_is_not_plain(
    database: DatabaseUrls, collection: str, row: Row
) -> None:
    put(database, collection, row)
    assert row["id"] in books(database, collection)  # kept, although its charge is not here yet
    put(database, "charges", charge())
    assert not stamp(database)[0]


def test_payment_with_a_second_charge_has_no_plain_one_until_it_failed(database: DatabaseUrls) -> None:
    put(database, "charges", charge())
    before = stamp(database)[1]
    put(database, "charges", charge(2, payment_ref="pi_1", status="pending", captured_minor=0))
    plain, after = stamp(database)
    assert not plain
    assert after != before
    put(database, "charges", charge(2, payment_ref="pi_1", status="failed", captured_minor=0))
    plain, last = stamp(database)
    assert plain
    assert last != after


def test_charges_of_one_payment_in_one_input_are_not_plain_unless_the_others_failed(database: DatabaseUrls) -> None:
    put(database, "charges", charge(1), charge(2, payment_ref="pi_1"))
    put(database, "charges", charge(3), charge(4, payment_ref="pi_3", status="failed", captured_minor=0))
    assert {k: v["plain"] for k, v in books(database).items()} == {
        "ch_1": False,
        "ch_2": False,
        "ch_3": True,
        "ch_4": False,
    }


def test_authorised_charge_once_captured_becomes_plain(database: DatabaseUrls) -> None:
    put(database, "charges", charge(status="authorized", captured_minor=0, capture_before=1_790_600_000))
    put(database, "charges", charge(capture_before=1_790_600_000))
    assert stamp(database)[0]


def story() -> list[tuple[str, Row]]:
    """Three payments with everything that can happen to them."""
    return [
        ("charges", charge(1)),
        ("charges", charge(2, status="authorized", captured_minor=0)),
        ("charges", charge(2)),
        ("charges", charge(3)),
        ("charges", charge(4, payment_ref="pi_3", status="pending", captured_minor=0)),
        ("charges", charge(4, payment_ref="pi_3", status="failed", captured_minor=0)),
        ("charges", charge(5)),
        ("charges", charge(6, payment_ref="pi_5")),
        ("refunds", refund(1, status="pending")),
        ("refunds", refund(1)),
        ("disputes", dispute(2)),
        ("disputes", dispute(2, status="lost")),
    ]


PLAIN = {"ch_1": False, "ch_2": False, "ch_3": True, "ch_4": False, "ch_5": False, "ch_6": False}


@pytest.mark.parametrize("seed", range(12))
def test_rows_in_any_order_and_any_cut_end_the_same(database: DatabaseUrls, seed: int) -> None:
    chance = random.Random(seed)
    rows = story() + chance.sample(story(), 6)
    chance.shuffle(rows)
    while rows:
        cut = chance.randint(1, 5)
        for collection, group in itertools.groupby(sorted(rows[:cut], key=lambda r: r[0]), key=lambda r: r[0]):
            put(database, collection, *(row for _, row in group))
        rows = rows[cut:]
    found = books(database)
    assert {k: v["plain"] for k, v in found.items()} == PLAIN
    assert {k: v["status"] for k, v in found.items()} == {**dict.fromkeys(PLAIN, "succeeded"), "ch_4": "failed"}
    assert books(database, "refunds")["re_1"]["status"] == "succeeded"
    assert books(database, "disputes")["du_2"]["status"] == "lost"


def test_rows_put_at_once_from_many_connections_keep_plain_right(database: DatabaseUrls) -> None:
    """Each refund against its charge, each charge against its sibling, at the same moment."""
    numbers = range(1, 41)
    jobs: list[tuple[str, Row]] = []
    for number in numbers:
        jobs += [("charges", charge(number))]
        jobs += [("refunds", refund(number))] if number % 2 else []
        jobs += [("charges", charge(number + 1000, payment_ref=f"pi_{number}"))] if number % 4 == 0 else []
    start = threading.Barrier(8)
    errors: list[BaseException] = []

    def work(mine: list[tuple[str, Row]]) -> None:
        try:
            with psycopg.connect(database.jobs, autocommit=True) as connection:
                start.wait(30)
                for collection, row in mine:
                    given = (collection, json.dumps([row]))
                    connection.execute("SELECT makegood.put_provider_rows(%s, %s::jsonb)", given)
        except BaseException as error:
            errors.append(error)

    random.Random(7).shuffle(jobs)
    threads = [threading.Thread(target=work, args=(jobs[n::8],)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert {k for k, v in books(database).items() if v["plain"]} == {f"ch_{n}" for n in numbers if n % 4 == 2}


def test_caller_with_an_old_snapshot_is_refused_rather_than_blind(database: DatabaseUrls) -> None:
    with psycopg.connect(database.jobs) as late:
        late.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        late.execute("SELECT count(*) FROM makegood.provider_refunds")
        put(database, "refunds", refund())
        with pytest.raises(psycopg.errors.SerializationFailure):
            late.execute("SELECT makegood.put_provider_rows('charges', %s::jsonb)", (json.dumps([charge()]),))


def test_second_plain_charge_of_a_payment_is_refused_by_the_index(database: DatabaseUrls) -> None:
    put(database, "charges", charge(), charge(2))
    with pytest.raises(psycopg.errors.UniqueViolation):
        database.rows("UPDATE makegood.provider_charges SET payment_ref = 'pi_1'")
