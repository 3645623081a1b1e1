"""The life of a finding: seen once or often, closed by itself, broken again, ignored for a while."""

# ruff: noqa: E501 - a statement is one line
from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from books import NOW, TERMS, Books, Case, Charge, Order, Refund
from databases import DatabaseUrls
from psycopg.types.json import Jsonb

ORPHAN = Case("orphan", None, (Charge(1000),))
FULL = Charge(1000)


@pytest.fixture
def books(database: DatabaseUrls) -> Iterator[Books]:
    books = Books(database)
    yield books
    books.close()


def history(books: Books) -> list[tuple[str, str, str]]:
    rows = books.rows("SELECT * FROM makegood.reconciliation_history ORDER BY id")
    return [(row["from_state"], row["to_state"], row["class"]) for row in rows]


def test_run_with_nothing_to_look_at_finds_nothing(books: Books) -> None:
    run = books.run()
    assert (run["state"], run["looked_at"], run["opened"], run["closed"]) == ("matched", 3, 0, 0)


@pytest.mark.parametrize("kinds", [("full", "full"), ("incremental", "full"), ("full", "incremental")])
def test_finding_seen_again_is_still_one_row(books: Books, kinds: tuple[str, str]) -> None:
    books.write(ORPHAN)
    runs = [books.run(kind) for kind in kinds]
    (finding,) = books.findings()
    assert (finding["first_seen_run"], [run["opened"] for run in runs]) == (runs[0]["id"], [1, 0])


def test_finding_of_an_orphan_is_looked_at_again_an_hour_later(books: Books) -> None:
    books.write(ORPHAN)
    books.run()
    books.run("incremental")
    assert books.findings()[0]["runs_seen"] == 1
    books.rows("UPDATE makegood.reconciliation_units SET due_at = %s", NOW)
    books.run("incremental")
    assert books.findings()[0]["runs_seen"] == 2


@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_orphan_whose_order_comes_late_closes_by_itself_and_keeps_its_history(books: Books, kind: str) -> None:
    name = books.write(ORPHAN)
    books.run()
    books.write_order(name, Order())
    run = books.run(kind)
    (finding,) = books.findings()
    assert (finding["state"], finding["resolution"], run["closed"]) == ("resolved", "late_arrival", 1)
    assert history(books) == [("open", "resolved", "D28")]
    assert books.rows("SELECT * FROM makegood.reconciliation_units") == []


@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_order_whose_orphan_came_first_makes_a_duplicate_of_both(books: Books, kind: str) -> None:
    """The first charge is in no plain pair and the order's own pair looks plain; still both are seen."""
    books.write_charge("late", 1, Charge(1000, pays="pi-other", names="late"))
    books.run("incremental")
    books.write_order("late", Order(payment="pi-late-2"))
    books.write_charge("late", 2, Charge(1000, pays="pi-late-2"))
    books.run(kind)
    assert books.open_by_unit() == {"order:late": ("D08", 1000)}


@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_finding_that_breaks_again_is_reopened_in_its_own_row(books: Books, kind: str) -> None:
    name = books.write(Case("drift", Order(status="pending"), (FULL,)))
    books.run(kind)
    for status in ("paid", "pending"):
        books.rows("UPDATE makegood.orders SET status = %s, changed_at = created_at WHERE id = %s", status, name)
        books.rows("ALTER TABLE makegood.orders DISABLE TRIGGER orders_stamp_change")
        books.rows("UPDATE makegood.orders SET changed_at = created_at WHERE id = %s", name)
        books.rows("ALTER TABLE makegood.orders ENABLE ALWAYS TRIGGER orders_stamp_change")
        books.run(kind)
    (finding,) = books.findings()
    assert (finding["state"], finding["reopened"], finding["resolved_at"]) == ("open", 1, None)
    assert history(books) == [("open", "resolved", "D28"), ("resolved", "open", "D06")]


@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_finding_that_becomes_another_class_is_superseded(books: Books, kind: str) -> None:
    name = books.write(Case("missing", Order(), ()))
    books.run(kind)
    books.write_charge(name, 1, Charge(900))
    books.run(kind)
    states = {row["class"]: (row["state"], row["resolution"]) for row in books.findings()}
    assert states == {"D05": ("resolved", "superseded by D11"), "D11": ("open", None)}


def test_finding_whose_verdict_is_pending_stays_open(books: Books) -> None:
    name = books.write(Case("unrecorded", Order(), (Charge(1000, refunds=(Refund(300),)),)))
    books.run()
    books.rows(
        "INSERT INTO makegood.provider_refunds (id, provider, charge_id, status, amount_minor, currency, created_at)"
        " VALUES ('re-young', 'stripe', %s, 'succeeded', 100, 'EUR', %s)",
        f"ch-{name}-1",
        NOW,
    )
    books.run("incremental")
    assert books.rows("SELECT class FROM makegood.reconciliation_units") == [{"class": "PENDING"}]
    assert books.open_by_unit() == {f"order:{name}": ("D18", 300)}


def test_young_orphan_is_judged_when_its_time_has_come(books: Books) -> None:
    name = books.write(Case("young", None, (Charge(1000, age=timedelta(minutes=14)),)))
    books.run("incremental")
    assert books.open_by_unit() == {}
    (unit,) = books.rows("SELECT * FROM makegood.reconciliation_units")
    assert (unit["class"], unit["due_at"]) == ("PENDING", NOW + timedelta(minutes=1))
    books.trust(NOW + timedelta(minutes=2))
    books.rows(
        "UPDATE makegood.reconciliation_units SET due_at = %s", NOW
    )  # its minute is over, whatever the clock says
    books.run("incremental")
    assert books.open_by_unit() == {f"charge:ch-{name}-1": ("D01", 1000)}


def test_refund_of_an_old_charge_is_seen_by_an_incremental_run(books: Books) -> None:
    name = books.write(Case("old", Order(), (FULL,)))
    books.run()
    books.rows(
        "INSERT INTO makegood.provider_refunds (id, provider, charge_id, status, amount_minor, currency, created_at)"
        " VALUES ('re-1', 'stripe', %s, 'succeeded', 100, 'EUR', %s)",
        f"ch-{name}-1",
        NOW - timedelta(days=2),
    )
    books.rows("UPDATE makegood.provider_charges SET plain = false")
    books.run("incremental")
    assert books.open_by_unit() == {f"order:{name}": ("D18", 100)}


def test_change_in_a_transaction_that_began_earlier_and_commits_later_is_not_missed(
    books: Books, database: DatabaseUrls
) -> None:
    with psycopg.connect(database.admin) as slow:
        slow.execute(
            "INSERT INTO makegood.provider_charges (id, provider, payment_ref, status, amount_minor, captured_minor, currency,"
            " livemode, plain, created_at) VALUES ('ch-slow', 'stripe', 'pi-slow', 'succeeded', 5, 5, 'EUR', false, true, %s)",
            (NOW - timedelta(days=3),),
        )
        books.write(ORPHAN)
        books.run()  # a full one and an incremental one while it is open
        books.run("incremental")
        slow.commit()
    books.run("incremental")
    assert ("charge:ch-slow", ("D01", 5)) in books.open_by_unit().items()


def test_full_run_says_what_the_incremental_ones_missed(books: Books) -> None:
    books.write(ORPHAN)
    books.run()
    name = books.write(ORPHAN)
    books.rows("UPDATE makegood.provider_charges SET changed_xid = '3' WHERE id = %s", f"ch-{name}-1")  # unseen
    assert books.run("incremental")["opened"] == 0
    assert books.run("full")["missed"] == 1
    assert books.run("full")["missed"] == 0


def test_run_asked_for_twice_is_the_same_run(books: Books) -> None:
    books.write(ORPHAN)
    run = books.run()
    (again,) = books.rows("SELECT * FROM makegood.match_charges(%s)", run["id"])
    assert again == run
    assert books.findings()[0]["runs_seen"] == 1


def test_run_over_a_source_that_is_not_complete_is_stale_and_says_which(books: Books) -> None:
    books.trust(NOW, error="page 3 is missing")
    run = books.run()
    assert "stripe/charges page 3 is missing" in run["stale"]
    assert {unit for unit, (class_, _) in books.open_by_unit().items() if class_ == "D32"} == {
        "source:stripe/charges",
        "source:stripe/disputes",
        "source:stripe/refunds",
    }
    books.trust(NOW)
    assert books.run()["stale"] is None
    assert books.open_by_unit() == {}


def test_run_over_an_old_watermark_judges_nothing_younger(books: Books) -> None:
    books.trust(NOW - timedelta(days=4))
    books.write(ORPHAN)
    run = books.run()
    assert run["stale"] is not None
    assert {class_ for class_, _ in books.open_by_unit().values()} == {"D32"}


def test_run_without_any_watermark_judges_nothing_and_is_stale(books: Books) -> None:
    books.rows("DELETE FROM makegood.provider_sync")
    books.write(ORPHAN)
    run = books.run()
    assert (run["watermark"], books.open_by_unit()) == (None, {})
    assert "nothing was ever fetched" in run["stale"]


def test_payout_that_differs_from_its_movements_is_found(books: Books) -> None:
    for payout, paid in (("po-good", 900), ("po-bad", 901)):
        books.rows(
            "INSERT INTO makegood.provider_payouts (id, provider, status, amount_minor, currency, created_at)"
            " VALUES (%s, 'stripe', 'paid', %s, 'EUR', %s)", payout, paid, NOW - timedelta(days=5),
        )  # fmt: skip
        for kind, net in (("charge", 1000), ("refund", -100), ("payout", -paid)):
            books.rows(
                "INSERT INTO makegood.provider_balance_transactions (id, provider, kind, payout_ref, amount_minor, fee_minor,"
                " net_minor, currency, created_at) VALUES (%s, 'stripe', %s, %s, %s, 0, %s, 'EUR', %s)",
                f"txn-{payout}-{kind}", kind, payout, net, net, NOW - timedelta(days=5),
            )  # fmt: skip
    books.run("incremental")
    assert books.open_by_unit() == {"payout:po-bad": ("D29", 1)}


def test_fee_outside_its_band_is_recorded(books: Books) -> None:
    for number, fee in enumerate((59, 160, 161)):
        books.rows(
            "INSERT INTO makegood.provider_balance_transactions (id, provider, kind, amount_minor, fee_minor, net_minor, currency,"
            " created_at) VALUES (%s, 'stripe', 'charge', 1000, %s, 0, 'EUR', %s)", f"txn-{number}", fee, NOW,
        )  # fmt: skip
    books.run()
    assert books.open_by_unit() == {"balance:txn-2": ("D30", 1)}


def test_window_looks_only_at_its_span(books: Books) -> None:
    books.write(Case("inside", None, (Charge(1000),)))
    books.write(Case("outside", None, (Charge(1000, age=timedelta(days=9)),)))
    (opened,) = books.rows(
        "SELECT (makegood.begin_reconciliation(makegood.new_id(), 'window', %s, tstzrange(%s, %s))).id",
        Jsonb(TERMS), NOW - timedelta(days=4), NOW,
    )  # fmt: skip
    books.rows("SELECT * FROM makegood.match_charges(%s)", opened["id"])
    assert [unit.split("-")[1] for unit in books.open_by_unit()] == ["inside"]


def test_refund_pending_that_fails_later_is_found_then(books: Books) -> None:
    name = books.write(
        Case("later", Order(status="cancelled", workflow="compensated", refunded=1000),
             (Charge(1000, refunds=(Refund(1000, "pending"),)),))
    )  # fmt: skip
    assert books.run()["opened"] == 0
    books.rows("UPDATE makegood.provider_refunds SET status = 'failed', changed_xid = pg_current_xact_id()")
    books.run("incremental")
    assert books.open_by_unit() == {f"order:{name}": ("D21", 1000)}


def test_row_that_came_twice_is_recorded_once_and_closed(books: Books) -> None:
    row = {"id": "ch-twice", "status": "failed", "amount_minor": 5, "captured_minor": 0, "currency": "EUR"}
    row |= {"livemode": False, "created_at": NOW.isoformat()}
    for _ in range(2):
        books.rows("SELECT makegood.put_provider_rows('charges', %s, 'stripe', 'test')", Jsonb([row, row]))
        books.run("incremental")
    (finding,) = books.findings()
    assert (finding["unit"], finding["class"], finding["state"]) == ("row:stripe/charges/ch-twice", "D09", "resolved")
