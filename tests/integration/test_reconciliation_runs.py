"""What a run looks at and what it may act upon: incremental runs miss nothing, one of a window stays in its window."""

# ruff: noqa: E501 - a statement is one line
from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from books import NOW, TERMS, Books, Case, Charge, Order
from databases import DatabaseUrls
from psycopg.types.json import Jsonb

from makegood.reconciliation.remedy_terms import make_remedy_terms
from makegood.settings import Settings

ORPHAN = Case("orphan", None, (Charge(1000),))
DOUBLE = Case("double", Order(), (Charge(1000), Charge(1000)))


@pytest.fixture
def books(database: DatabaseUrls) -> Iterator[Books]:
    books = Books(database)
    yield books
    books.close()


def missed(books: Books) -> int | None:
    found: int | None = books.run("full")["missed"]
    return found


# What was ignored for a time


@pytest.mark.parametrize("case", [ORPHAN, DOUBLE])
def test_finding_that_was_ignored_for_long_enough_is_open_again_in_the_next_hour(books: Books, case: Case) -> None:
    books.write(case)
    books.run()
    books.rows(
        "UPDATE makegood.reconciliation_findings SET state = 'ignored', ignored_until = clock_timestamp() + '1 day'"
    )
    books.run("incremental")
    assert {row["state"] for row in books.findings()} == {"ignored"}

    books.rows("UPDATE makegood.reconciliation_findings SET ignored_until = clock_timestamp()")

    assert books.run("incremental")["opened"] == 1
    assert {row["state"] for row in books.findings()} == {"open"}
    assert missed(books) == 0


def test_full_run_says_of_what_was_ignored_for_long_enough_that_nothing_was_missed(books: Books) -> None:
    books.write(ORPHAN)
    books.run()
    books.rows("UPDATE makegood.reconciliation_findings SET state = 'ignored', ignored_until = clock_timestamp()")

    assert missed(books) == 0
    assert {row["state"] for row in books.findings()} == {"open"}


# Full and incremental say the same


@pytest.mark.parametrize(("status", "class_"), [("failed", "D07"), ("lapsed", "D14")])
def test_charge_that_took_nothing_and_only_names_its_order_is_the_same_to_both_kinds_of_run(
    books: Books, status: str, class_: str
) -> None:
    charge = Charge(0, status=status, amount=1000, pays=False)
    name = books.write(Case("named", Order(payment=False, status="paid"), (charge,)))
    books.run("full")
    assert books.open_by_unit() == {f"order:{name}": (class_, 1000)}
    other = books.write(Case("named", Order(payment=False, status="paid"), (charge,)))
    books.run("incremental")
    assert books.open_by_unit()[f"order:{other}"] == (class_, 1000)
    run = books.run("full")
    assert run["missed"] == 0
    books.check_totals(run)


def test_order_with_a_failed_payment_and_a_lapsed_one_that_names_it_is_the_same_to_both(books: Books) -> None:
    charges = (Charge(0, status="failed", amount=1000), Charge(0, status="lapsed", amount=1000, pays=False))
    name = books.write(Case("both", Order(status="paid"), charges))
    books.run("full")
    assert books.open_by_unit() == {f"order:{name}": ("D14", 1000)}
    other = books.write(Case("both", Order(status="paid"), charges))
    books.run("incremental")
    assert books.open_by_unit()[f"order:{other}"] == ("D14", 1000)
    assert missed(books) == 0


def test_deadline_that_passes_while_a_run_is_under_way_is_not_taken_for_one_that_was_missed(books: Books) -> None:
    books.run()
    books.write(Case("standing", Order(status="paid", workflow="active"), (Charge(1000),)))
    books.write(ORPHAN)
    books.rows(
        "CREATE FUNCTION public.rest() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1.5); RETURN NULL; END'"
    )
    books.rows("CREATE TRIGGER rest AFTER INSERT ON makegood.reconciliation_findings EXECUTE FUNCTION public.rest()")
    books.rows("UPDATE makegood.workflow_executions SET deadline_at = clock_timestamp() + interval '1 second'")

    assert missed(books) == 0

    books.run("incremental")
    assert {class_ for class_, _ in books.open_by_unit().values()} == {"D01", "D02"}


# What an order lets go of


@pytest.mark.parametrize("how", ["overwritten", "emptied", "deleted"])
def test_payment_that_an_order_let_go_of_leaves_an_orphan_that_the_next_run_sees(books: Books, how: str) -> None:
    """A retry paid once more and the shop keeps the second payment only; the first charge does not name its order."""
    name = books.write(Case("retried", Order(), (Charge(1000, names=None),)))
    books.run()
    books.write_charge(name, 2, Charge(1000, names=None))
    if how == "deleted":
        books.rows("DELETE FROM makegood.orders WHERE id = %s", name)
    else:
        payment = f"pi-{name}-2" if how == "overwritten" else None
        books.rows("UPDATE makegood.orders SET payment_ref = %s, changed_at = created_at WHERE id = %s", payment, name)

    books.run("incremental")

    assert books.open_by_unit()[f"charge:ch-{name}-1"] == ("D01", 1000)
    assert missed(books) == 0


# Workflows of a team's own orders


OWN_VIEW = """
CREATE OR REPLACE VIEW makegood.reconcilable_orders AS
SELECT o.id AS order_id, o.workflow_type, o.status, o.amount_minor, o.currency, o.payment_ref, o.customer_ref,
       o.refunded_minor, o.dispute_known, o.written_off_minor, o.partial_shipment, o.created_at,
       coalesce(o.changed_at, o.created_at) AS changed_at, o.changed_xid FROM public.orders o
"""


def own_orders(books: Books) -> None:
    """Their table has what ours has; ours is empty."""
    books.rows("CREATE TABLE public.orders (LIKE makegood.orders INCLUDING ALL)")
    books.rows("INSERT INTO public.orders SELECT * FROM makegood.orders")
    books.rows("ALTER TABLE makegood.orders DISABLE TRIGGER ALL")
    books.rows("DELETE FROM makegood.orders")
    books.rows("GRANT SELECT ON public.orders TO makegood_owner")
    books.rows(OWN_VIEW)


def move(books: Books, name: str, to_state: str) -> None:
    """As the engine moves it: only that it is told matters here."""
    books.rows("ALTER TABLE makegood.workflow_transitions DISABLE TRIGGER ALL")
    books.rows("ALTER TABLE makegood.workflow_transitions ENABLE ALWAYS TRIGGER transitions_are_followed_by_orders")
    books.rows(
        "UPDATE makegood.workflow_executions SET current_state = %s, updated_at = %s, finished_at = CASE WHEN %s THEN %s END,"
        " deadline_at = %s WHERE entity_id = %s",
        to_state, NOW - timedelta(days=1), to_state == "completed", NOW, NOW + timedelta(days=1), name,
    )  # fmt: skip
    books.rows(
        "INSERT INTO makegood.workflow_transitions (workflow_id, entity_id, seq, from_state, to_state, triggered_by)"
        " SELECT e.id, e.entity_id, 2, 'reserved', %s, 'test' FROM makegood.workflow_executions e WHERE e.entity_id = %s",
        to_state,
        name,
    )


def test_workflow_that_completes_after_a_run_is_seen_by_the_next_where_orders_are_a_teams_own(books: Books) -> None:
    name = books.write(Case("own", Order(status="pending", workflow="active"), (Charge(1000),)))
    own_orders(books)
    books.run()
    assert books.open_by_unit() == {}

    move(books, name, "completed")
    books.trust(NOW + timedelta(days=1))

    books.run("incremental")
    assert books.open_by_unit() == {f"order:{name}": ("D06", 1000)}
    assert missed(books) == 0


def test_workflow_that_completes_leaves_no_note_where_its_order_says_it(books: Books) -> None:
    name = books.write(Case("ours", Order(status="pending", workflow="active"), (Charge(1000),)))

    move(books, name, "completed")

    assert books.rows("SELECT * FROM makegood.reconciliation_units") == []


@pytest.mark.parametrize("state", ["shipping", "completed"])
def test_order_that_stood_still_and_was_taken_on_is_closed_in_the_next_hour(books: Books, state: str) -> None:
    name = books.write(Case("own", Order(status="paid", workflow="late"), (Charge(1000),)))
    own_orders(books)
    books.run()
    assert books.open_by_unit() == {f"order:{name}": ("D02", 1000)}

    move(books, name, state)
    books.trust(NOW + timedelta(days=1))

    books.run("incremental")
    assert books.open_by_unit() == {}
    assert missed(books) == 0


# Payouts and fees


def payout(books: Books, payout_id: str, amount: int, *parts: int, status: str = "paid") -> None:
    books.rows(
        "INSERT INTO makegood.provider_payouts (id, provider, status, amount_minor, currency, created_at)"
        " VALUES (%s, 'stripe', %s, %s, 'EUR', %s)", payout_id, status, amount, NOW - timedelta(days=5),
    )  # fmt: skip
    for number, net in enumerate(parts):
        books.rows(
            "INSERT INTO makegood.provider_balance_transactions (id, provider, kind, payout_ref, amount_minor, fee_minor,"
            " net_minor, currency, created_at) VALUES (%s, 'stripe', 'charge', %s, %s, 0, %s, 'EUR', %s)",
            f"txn-{payout_id}-{number}", payout_id, net, net, NOW - timedelta(days=5),
        )  # fmt: skip


@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_payout_whose_parts_cannot_be_asked_for_or_are_not_all_here_is_no_break(books: Books, kind: str) -> None:
    books.rows(
        "INSERT INTO makegood.provider_sync (provider, collection, watermark, fetched_at) VALUES ('stripe', 'payouts', %s, %s)",
        NOW,
        NOW,
    )
    payout(books, "po-by-hand", 900)
    payout(books, "po-half-read", 900, 400)
    payout(books, "po-read", 900, 400)
    payout(books, "po-of-nothing", 900)
    books.rows(
        "INSERT INTO makegood.provider_payouts_read VALUES ('po-by-hand', %(at)s, false), ('po-read', %(at)s, true),"
        " ('po-of-nothing', %(at)s, true)".replace("%(at)s", "clock_timestamp()")
    )

    books.run(kind)

    assert books.open_by_unit() == {"payout:po-read": ("D29", 500), "payout:po-of-nothing": ("D29", 900)}


@pytest.mark.parametrize("kind", ["full", "incremental"])
@pytest.mark.parametrize("status", ["failed", "canceled"])
def test_payout_break_closes_when_the_payout_came_back(books: Books, kind: str, status: str) -> None:
    payout(books, "po-1", 900, 400)
    books.run()
    assert books.open_by_unit() == {"payout:po-1": ("D29", 500)}

    row = {
        "id": "po-1",
        "status": status,
        "amount_minor": 900,
        "currency": "EUR",
        "created_at": (NOW - timedelta(days=5)).isoformat(),
    }
    books.rows("SELECT makegood.put_provider_rows('payouts', %s)", Jsonb([row]))

    books.run(kind)
    assert books.open_by_unit() == {}


@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_fee_that_was_put_right_or_is_allowed_by_now_closes(books: Books, kind: str) -> None:
    row = {"kind": "charge", "amount_minor": 1000, "net_minor": 0, "currency": "EUR", "created_at": NOW.isoformat()}
    fees = [row | {"id": f"txn-{number}", "fee_minor": 161} for number in (1, 2)]
    books.rows("SELECT makegood.put_provider_rows('balance_transactions', %s)", Jsonb(fees))
    books.run()
    assert set(books.open_by_unit()) == {"balance:txn-1", "balance:txn-2"}

    books.rows("SELECT makegood.put_provider_rows('balance_transactions', %s)", Jsonb([fees[0] | {"fee_minor": 160}]))
    books.run(kind)
    assert set(books.open_by_unit()) == {"balance:txn-2"}

    books.run(kind, fee_fixed_minor=200)
    assert books.open_by_unit() == {}


# Another server's transactions


def test_run_after_a_dump_and_restore_is_full_and_the_ones_after_it_are_what_they_were(books: Books) -> None:
    """Everything has the numbers of a server that had come much further."""
    old = books.write(DOUBLE)
    books.run()
    ahead = "UPDATE makegood.{} SET changed_xid = '999999999999'"
    books.rows("ALTER TABLE makegood.orders DISABLE TRIGGER orders_stamp_change")
    for table in ("orders", "provider_charges"):
        books.rows(ahead.format(table))
    books.rows("ALTER TABLE makegood.orders ENABLE ALWAYS TRIGGER orders_stamp_change")
    books.rows("UPDATE makegood.reconciliation_runs SET until_xid = '999999999999'")
    new = books.write(ORPHAN)

    first = books.run("incremental")

    assert (first["kind"], first["missed"]) == ("full", None)
    assert set(books.open_by_unit()) == {f"order:{old}", f"charge:ch-{new}-1"}
    assert books.rows("SELECT 1 FROM makegood.provider_charges WHERE changed_xid >= '999999999999'") == []
    later = books.write(ORPHAN)
    books.run("incremental")  # meets the orders that were renumbered, once
    run = books.run("incremental")
    assert (run["kind"], run["looked_at"]) == ("incremental", 3)
    assert f"charge:ch-{later}-1" in books.open_by_unit()
    assert missed(books) == 0
    finding = (
        "SELECT makegood.has_changed_since(f) AS changed FROM makegood.reconciliation_findings f WHERE f.class = 'D08'"
    )
    assert books.rows(finding) == [{"changed": False}]


# What a run may act upon


def candidates(books: Books, settings: Settings, run: dict[str, Any], **changes: Any) -> dict[str, str | None]:
    terms = make_remedy_terms(settings).to_document() | changes
    rows = books.rows("SELECT * FROM makegood.list_remedies(%s, %s, NULL, 1000)", run["id"], Jsonb(terms))
    return {row["unit"]: row["obstacle"] for row in rows}


def test_run_of_a_window_acts_on_nothing_outside_of_it(books: Books, settings: Settings) -> None:
    inside = books.write(DOUBLE)
    outside = books.write(Case("double", Order(age=timedelta(days=9)), (Charge(1000, age=timedelta(days=9)),) * 2))
    everything = books.run()
    (opened,) = books.rows(
        "SELECT (makegood.begin_reconciliation(makegood.new_id(), 'window', %s, tstzrange(%s, %s))).id",
        Jsonb(TERMS), NOW - timedelta(days=4), NOW,
    )  # fmt: skip
    books.rows("SELECT * FROM makegood.match_charges(%s)", opened["id"])

    assert set(candidates(books, settings, everything)) == {f"order:{inside}", f"order:{outside}"}
    assert set(candidates(books, settings, opened)) == {f"order:{inside}"}


def test_findings_of_a_run_that_opened_too_many_are_left_to_a_person_by_the_runs_after_it(
    books: Books, settings: Settings
) -> None:
    many = [books.write(DOUBLE) for _ in range(4)]
    first = books.run()
    assert set(candidates(books, settings, first, breaker_min=3).values()) == {"abnormal"}
    few = books.write(DOUBLE)

    after = books.run("incremental")

    found = candidates(books, settings, after, breaker_min=3)
    assert found == {f"order:{name}": "flood" for name in many} | {f"order:{few}": None}
    terms = make_remedy_terms(settings).to_document()
    finding = {row["unit"]: row["id"] for row in books.findings()}[f"order:{many[0]}"]
    carried = "SELECT verdict FROM makegood.carry_out_remedy(%s, %s, %s, 'job')"
    assert books.rows(carried, finding, after["id"], Jsonb(terms | {"breaker_min": 3})) == [{"verdict": "flood"}]
    # Who has looked says how many are fine.
    assert set(candidates(books, settings, after, breaker_min=10).values()) == {None}
    assert books.rows(carried, finding, after["id"], Jsonb(terms)) == [{"verdict": "dry_run"}]


def test_findings_that_a_run_reopened_in_a_flood_are_left_to_a_person_too(books: Books, settings: Settings) -> None:
    name = books.write(DOUBLE)
    books.run()
    books.rows(
        "UPDATE makegood.reconciliation_findings SET state = 'resolved', resolved_at = clock_timestamp(), resolution = 'late_arrival'"
    )
    for _ in range(6):
        books.write(DOUBLE)
    books.run("full")

    after = books.run("incremental")

    assert candidates(books, settings, after, breaker_min=3)[f"order:{name}"] == "flood"
