"""Every class and the borders between them: what both sides say, and the verdict that follows."""

# ruff: noqa: E501 - a case, and a statement, is one line
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from books import YOUNG, Books, Case, Charge, Dispute, Order, Refund
from databases import DatabaseUrls

FULL = Charge(1000)
GIVEN_BACK = Charge(1000, refunds=(Refund(1000),))
SECOND = timedelta(days=2)  # a later charge than the first
USD_BACK = Charge(1000, currency="USD", refunds=(Refund(1000),))
LATER = Charge(1000, age=SECOND)
DISPUTED, LOST = (Charge(1000, disputes=(Dispute(1000, status),)) for status in ("open", "lost"))
NOTHING: dict[str, tuple[str, int]] = {}


def of_order(class_: str, at_risk: int) -> dict[str, tuple[str, int]]:
    return {"order": (class_, at_risk)}


def of_charge(class_: str, at_risk: int, place: int = 1) -> dict[str, tuple[str, int]]:
    return {f"charge{place}": (class_, at_risk)}


CASES = [
    # Nothing is wrong.
    Case("plain", Order(), (FULL,), NOTHING),
    Case("declined", Order(status="cancelled", workflow="failed"), (Charge(0, "failed", 1000),), NOTHING),
    Case("never-paid", Order(status="pending", payment=False, workflow=None), (), NOTHING),
    Case("free-of-charge", Order(amount=0), (), NOTHING),
    Case("cancelled-and-refunded", Order(status="cancelled", workflow="compensated", refunded=1000), (GIVEN_BACK,), NOTHING),
    Case("partly-refunded-and-known", Order(refunded=300), (Charge(1000, refunds=(Refund(300),)),), NOTHING),
    Case("in-progress", Order(status="paid", workflow="active"), (FULL,), NOTHING),
    Case("two-captures-of-one-order", Order(), (Charge(300), Charge(700, pays="pi-x")), NOTHING),
    Case("second-charge-given-back", Order(), (FULL, Charge(1000, refunds=(Refund(1000),), age=SECOND)), NOTHING),
    Case("first-charge-given-back", Order(), (GIVEN_BACK, Charge(1000, age=SECOND)), NOTHING),
    Case("both-given-back", Order(status="cancelled", workflow="compensated", refunded=1000),
         (GIVEN_BACK, Charge(1000, refunds=(Refund(1000),), age=SECOND)), NOTHING),
    Case("dispute-won", Order(), (Charge(1000, disputes=(Dispute(1000, "won"),)),), NOTHING),
    Case("dispute-known", Order(dispute_known=True), (Charge(1000, disputes=(Dispute(1000),)),), NOTHING),
    Case("loss-written-off", Order(dispute_known=True, written_off=1000), (Charge(1000, disputes=(Dispute(1000, "lost"),)),), NOTHING),
    Case("orphan-that-failed", None, (Charge(0, "failed", 1000),), NOTHING),
    Case("orphan-given-back", None, (GIVEN_BACK,), NOTHING),
    Case("authorised-for-long", Order(status="pending", workflow="active"),
         (Charge(0, "authorized", 1000, lapses_in=timedelta(days=5)),), NOTHING),
    # A failed refund that was made again.
    Case("refund-made-again", Order(status="cancelled", workflow="compensated", refunded=1000),
         (Charge(1000, refunds=(Refund(1000, "failed"), Refund(1000))),), NOTHING),
    # Charges that belong to no single order.
    Case("orphan", None, (FULL,), of_charge("D01", 1000)),
    Case("orphan-of-nobody", None, (Charge(1000, names=None),), of_charge("D01", 1000)),
    Case("orphan-partly-given-back", None, (Charge(1000, refunds=(Refund(400),)),), of_charge("D01", 600)),
    Case("other-mode", Order(), (FULL, Charge(1000, live=True, age=SECOND)), of_charge("D27", 1000, 2)),
    # The order and its workflow.
    Case("charged-not-completed", Order(status="paid", workflow="late"), (FULL,), of_order("D02", 1000)),
    Case("charged-and-held", Order(status="paid", workflow="held"), (FULL,), of_order("D02", 1000)),
    Case("charged-but-failed", Order(status="cancelled", workflow="failed"), (FULL,), of_order("D03", 1000)),
    Case("charged-but-cancelled", Order(status="cancelled", workflow=None), (FULL,), of_order("D03", 1000)),
    Case("compensating", Order(status="paid", workflow="compensating"), (FULL,), of_order("D04", 1000)),
    Case("missing-charge", Order(), (), of_order("D05", 1000)),
    Case("status-drift", Order(status="pending"), (FULL,), of_order("D06", 1000)),
    Case("status-drift-without-workflow", Order(status="pending", workflow=None), (FULL,), of_order("D06", 1000)),
    Case("false-paid", Order(), (Charge(0, "failed", 1000),), of_order("D07", 1000)),
    # How much was taken.
    Case("duplicate", Order(), (FULL, Charge(1000, age=SECOND)), of_order("D08", 1000)),
    Case("duplicate-partly-given-back", Order(), (FULL, Charge(1000, age=SECOND, refunds=(Refund(300),))), of_order("D08", 700)),
    Case("duplicate-of-ten-times", Order(), (FULL, Charge(9000, age=SECOND)), of_order("D08", 9000)),
    Case("over-capture", Order(), (Charge(1100),), of_order("D10", 100)),
    Case("under-capture", Order(), (Charge(900),), of_order("D11", 100)),
    Case("under-capture-of-a-part", Order(partial=True), (Charge(900),), of_order("D11", 100)),
    Case("more-may-be-captured", Order(), (Charge(400, amount=1000, captures_open=True, lapses_in=timedelta(days=4)),), NOTHING),
    Case("no-more-can-be-captured", Order(), (Charge(400, amount=1000, captures_open=True, lapses_in=-YOUNG),), of_order("D11", 600)),
    Case("authorisation-ends-soon", Order(status="pending", workflow="active"),
         (Charge(0, "authorized", 1000, lapses_in=timedelta(hours=5)),), of_order("D13", 1000)),
    Case("authorisation-ended", Order(), (Charge(0, "lapsed", 1000),), of_order("D14", 1000)),
    Case("authorisation-ended-unpaid", Order(status="pending", workflow=None), (Charge(0, "lapsed", 1000),), NOTHING),
    Case("other-currency", Order(), (Charge(1000, currency="USD"),), of_order("D16", 1000)),
    Case("hundredfold", Order(), (Charge(100_000),), of_order("D17", 99_000)),
    Case("a-tenth", Order(), (Charge(100),), of_order("D17", 900)),
    Case("nearly-a-tenth", Order(), (Charge(101),), of_order("D11", 899)),
    Case("two-that-do-not-fit", Order(), (Charge(600), Charge(600, age=SECOND)), of_order("D31", 1200)),
    # Refunds.
    Case("refund-unrecorded", Order(), (Charge(1000, refunds=(Refund(300),)),), of_order("D18", 300)),
    Case("refund-missing", Order(status="cancelled", workflow="compensated", refunded=1000), (FULL,), of_order("D19", 1000)),
    Case("refund-of-another-amount", Order(refunded=300), (Charge(1000, refunds=(Refund(200),)),), of_order("D20", 100)),
    Case("refund-failed", Order(status="cancelled", workflow="compensated", refunded=1000),
         (Charge(1000, refunds=(Refund(1000, "failed"),)),), of_order("D21", 1000)),
    Case("refund-needs-action", Order(), (Charge(1000, refunds=(Refund(200, "requires_action"),)),), of_order("D21", 200)),
    Case("over-refund", Order(refunded=1000), (Charge(1000, refunds=(Refund(1000), Refund(200))),), of_order("D22", 200)),
    Case("refund-and-loss", Order(refunded=600, dispute_known=True),
         (Charge(1000, refunds=(Refund(600),), disputes=(Dispute(600, "lost"),)),), of_order("D22", 200)),
    Case("refunded-and-under-way", Order(status="paid", workflow="active", refunded=1000), (GIVEN_BACK,), of_order("D23", 1000)),
    Case("pending-refund-counts", Order(status="cancelled", workflow="compensated", refunded=1000),
         (Charge(1000, refunds=(Refund(1000, "pending"),)),), NOTHING),
    # Disputes.
    Case("dispute-open", Order(), (Charge(1000, disputes=(Dispute(1000),)),), of_order("D24", 1000)),
    Case("dispute-lost", Order(dispute_known=True), (Charge(1000, disputes=(Dispute(1000, "lost"),)),), of_order("D25", 1000)),
    Case("refund-plus-dispute", Order(refunded=400, dispute_known=True),
         (Charge(1000, refunds=(Refund(400),), disputes=(Dispute(500),)),), of_order("D26", 400)),
    # Of two charges the bank took one back, or may: the customer is whole, and the other one stays.
    Case("duplicate-lost-and-written-off", Order(dispute_known=True, written_off=1000), (LOST, LATER), NOTHING),
    Case("duplicate-disputed-and-known", Order(dispute_known=True), (DISPUTED, LATER), NOTHING),
    Case("later-duplicate-lost", Order(dispute_known=True, written_off=1000),
         (FULL, Charge(1000, age=SECOND, disputes=(Dispute(1000, "lost"),))), NOTHING),
    Case("duplicate-disputed-and-won", Order(dispute_known=True), (Charge(1000, disputes=(Dispute(1000, "won"),)), LATER),
         of_order("D08", 1000)),
    Case("three-and-one-lost", Order(dispute_known=True, written_off=1000), (LOST, LATER, LATER), of_order("D08", 1000)),
    Case("cancelled-and-lost", Order(status="cancelled", workflow="failed", dispute_known=True, written_off=1000), (LOST,), NOTHING),
    Case("cancelled-and-disputed", Order(status="cancelled", workflow="failed", dispute_known=True), (DISPUTED,), NOTHING),
    # What was given back of a duplicate, or of too much, may be booked or not: no other charge is to be refunded for it.
    Case("duplicate-given-back-and-booked", Order(refunded=1000), (FULL, replace(GIVEN_BACK, age=SECOND)), NOTHING),
    Case("first-given-back-and-booked", Order(refunded=1000), (GIVEN_BACK, LATER), NOTHING),
    Case("both-given-back-and-booked", Order(status="cancelled", workflow="failed", refunded=2000),
         (GIVEN_BACK, replace(GIVEN_BACK, age=SECOND)), NOTHING),
    Case("duplicate-given-back-and-part-booked", Order(refunded=300), (FULL, replace(GIVEN_BACK, age=SECOND)), of_order("D20", 300)),
    # Put right: what was too much or too little is over once it is given back, and our books know.
    Case("excess-given-back", Order(refunded=100), (Charge(1100, refunds=(Refund(100),)),), NOTHING),
    Case("excess-given-back-unbooked", Order(), (Charge(1100, refunds=(Refund(100),)),), NOTHING),
    Case("excess-given-back-in-part", Order(refunded=60), (Charge(1100, refunds=(Refund(60),)),), of_order("D10", 40)),
    Case("excess-lost-and-written-off", Order(dispute_known=True, written_off=100),
         (Charge(1100, disputes=(Dispute(100, "lost"),)),), NOTHING),
    Case("over-capture-refunded-in-full", Order(), (Charge(1100, refunds=(Refund(1100),)),), of_order("D18", 1000)),
    Case("hundredfold-put-right", Order(refunded=99_000), (Charge(100_000, refunds=(Refund(99_000),)),), NOTHING),
    Case("hundredfold-put-right-in-part", Order(refunded=9000), (Charge(100_000, refunds=(Refund(9000),)),), of_order("D17", 90_000)),
    Case("hundredfold-cancelled", Order(status="cancelled", workflow="failed", refunded=100_000),
         (Charge(100_000, refunds=(Refund(100_000),)),), NOTHING),
    Case("a-tenth-given-back", Order(refunded=100), (Charge(100, refunds=(Refund(100),)),), NOTHING),
    Case("two-that-do-not-fit-put-right", Order(), (Charge(600), Charge(500, age=SECOND, refunds=(Refund(100),))), NOTHING),
    Case("under-capture-given-back", Order(status="cancelled", workflow="failed", refunded=900),
         (Charge(900, refunds=(Refund(900),)),), NOTHING),
    Case("under-capture-given-back-in-part", Order(refunded=300), (Charge(900, refunds=(Refund(300),)),), of_order("D11", 100)),
    Case("other-currency-given-back", Order(status="cancelled", workflow="failed", refunded=920), (USD_BACK,), NOTHING),
    Case("other-currency-given-back-unpaid", Order(status="pending", workflow=None), (USD_BACK,), NOTHING),
    Case("other-currency-given-back-and-paid", Order(), (USD_BACK, LATER), NOTHING),
    Case("other-currency-given-back-in-part", Order(refunded=300), (Charge(1000, currency="USD", refunds=(Refund(300),)),),
         of_order("D16", 1000)),
    Case("other-currency-given-back-unbooked", Order(), (USD_BACK,), of_order("D16", 0)),
    Case("other-currency-given-back-under-way", Order(status="pending", workflow="active"), (USD_BACK,), of_order("D16", 0)),
    Case("refund-and-loss-known", Order(refunded=300, dispute_known=True, written_off=700),
         (Charge(1000, refunds=(Refund(300),), disputes=(Dispute(700, "lost"),)),), NOTHING),
    Case("given-back-unbooked-and-pending", Order(status="pending", workflow=None, refunded=1000), (GIVEN_BACK,), NOTHING),
    # Money that left twice, though the order is paid by another charge.
    Case("duplicate-given-back-and-disputed", Order(dispute_known=True),
         (FULL, Charge(1000, age=SECOND, refunds=(Refund(1000),), disputes=(Dispute(1000),))), of_order("D26", 1000)),
    Case("duplicate-given-back-and-lost", Order(dispute_known=True, written_off=1000),
         (FULL, Charge(1000, age=SECOND, refunds=(Refund(1000),), disputes=(Dispute(1000, "lost"),))), of_order("D22", 1000)),
    Case("duplicate-given-back-and-won", Order(dispute_known=True),
         (FULL, Charge(1000, age=SECOND, refunds=(Refund(1000),), disputes=(Dispute(1000, "won"),))), NOTHING),
    Case("duplicate-given-back-and-more", Order(), (FULL, Charge(1000, age=SECOND, refunds=(Refund(1000), Refund(200)))),
         of_order("D22", 200)),
    Case("orphan-given-back-and-disputed", None, (Charge(1000, refunds=(Refund(1000),), disputes=(Dispute(1000),)),),
         of_charge("D26", 1000)),
    Case("orphan-given-back-and-lost", None, (Charge(1000, refunds=(Refund(1000),), disputes=(Dispute(1000, "lost"),)),),
         of_charge("D22", 1000)),
    Case("orphan-lost", None, (LOST,), NOTHING),
    Case("orphan-disputed", None, (DISPUTED,), of_charge("D01", 1000)),
    # Too young to be judged: nothing is said, in either direction.
    Case("young-orphan", None, (Charge(1000, age=YOUNG),), NOTHING),
    Case("young-order-without-charge", Order(age=YOUNG), (), NOTHING),
    Case("young-refund", Order(), (Charge(1000, refunds=(Refund(300, age=timedelta(hours=3)),)),), NOTHING),
    Case("refund-out-of-its-grace", Order(), (Charge(1000, refunds=(Refund(300, age=timedelta(hours=25)),)),), of_order("D18", 300)),
    Case("young-second-charge", Order(), (FULL, Charge(1000, age=YOUNG)), NOTHING),
]  # fmt: skip


@pytest.fixture
def books(database: DatabaseUrls) -> Iterator[Books]:
    books = Books(database)
    yield books
    books.close()


def expected(cases: list[tuple[str, Case]]) -> dict[str, tuple[str, int]]:
    units = {}
    for name, case in cases:
        for unit, verdict in case.verdicts.items():
            units[f"order:{name}" if unit == "order" else f"charge:ch-{name}-{unit[6:]}"] = verdict
    return units


@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_verdicts_of_every_case_are_what_the_table_says(books: Books, kind: str) -> None:
    books.run()  # an empty house: what comes now is new
    written = [(books.write(case), case) for case in CASES]
    run = books.run(kind)
    assert books.open_by_unit() == expected(written)
    books.check_totals(run)


def test_verdicts_of_cases_that_come_one_by_one_are_the_same(books: Books) -> None:
    books.run()
    written = []
    for case in CASES:
        written.append((books.write(case), case))
        books.check_totals(books.run("incremental"))
        assert books.open_by_unit() == expected(written), case.name
    assert books.run("full")["missed"] == 0


def test_amount_beyond_all_reason_is_judged_and_stops_no_run(books: Books) -> None:
    """A thousand times it, or twice, is more than 64 bits hold."""
    huge = 2**62
    written = [
        (books.write(case), case)
        for case in (
            Case("huge-and-short", Order(amount=huge), (Charge(huge - 1),), of_order("D11", 1)),
            Case("huge-and-nothing", Order(amount=huge), (Charge(1),), of_order("D11", huge - 1)),
            Case("huge-charge", Order(amount=1), (Charge(huge),), of_order("D10", huge - 1)),
            Case("tenfold", Order(amount=10**14), (Charge(10**15),), of_order("D17", 10**15 - 10**14)),
        )
    ]
    run = books.run()
    assert books.open_by_unit() == expected(written)
    books.check_totals(run)


@pytest.mark.parametrize(
    ("column", "case"),
    [
        ("dispute_known", Case("null", Order(), (DISPUTED,), of_order("D24", 1000))),
        ("written_off_minor", Case("null", Order(dispute_known=True), (LOST,), of_order("D25", 1000))),
        ("refunded_minor", Case("null", Order(), (Charge(1000, refunds=(Refund(300),)),), of_order("D18", 300))),
        ("amount_minor", Case("null", Order(), (FULL,), of_order("D10", 1000))),
        ("currency", Case("null", Order(), (FULL,), of_order("D16", 1000))),
        ("partial_shipment", Case("null", Order(status="cancelled", workflow=None), (FULL,), of_order("D03", 1000))),
        ("status", Case("null", Order(), (Charge(900),), of_order("D11", 100))),
    ],
)  # fmt: skip
def test_null_in_a_view_of_another_team_is_not_read_as_matched(books: Books, column: str, case: Case) -> None:
    """Nothing is known, so nothing was booked; an amount and a currency that are not known are a person's."""
    books.rows(f"ALTER TABLE makegood.orders ALTER COLUMN {column} DROP NOT NULL")
    written = [(books.write(case), case)]
    books.rows("ALTER TABLE makegood.orders DISABLE TRIGGER orders_stamp_change")  # a change now would be a young one
    books.rows(f"UPDATE makegood.orders SET {column} = NULL")
    books.run()
    assert books.open_by_unit() == expected(written)


@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_order_with_a_very_long_id_is_judged_like_any_other(books: Books, kind: str) -> None:
    """A unit has room for 294 characters of it."""
    books.rows("ALTER TABLE makegood.orders DROP CONSTRAINT orders_id_check")
    ids = ["x" * 294, "x" * 295, "x" * 300 + "a", "x" * 300 + "b"]
    for place, name in enumerate(ids):
        books.write_order(name, Order(workflow=None, payment=f"pi-{place}"))
    books.write_charge("x", 1, Charge(1000, pays="pi-3", names=None))
    books.write_charge("x", 2, Charge(1000, pays="pi-2", names=None, age=SECOND, refunds=(Refund(300),)))
    for _ in range(2):
        books.check_totals(books.run(kind))
    found = {row["order_id"]: (row["class"], len(row["unit"]), row["runs_seen"] > 0) for row in books.findings()}
    assert found == {ids[0]: ("D05", 300, True), ids[1]: ("D05", 289, True), ids[2]: ("D18", 289, True)}
    assert len({row["unit"] for row in books.findings()}) == 3


def test_charge_with_two_orders_of_its_payment_is_ambiguous_and_both_orders_are_left_alone(books: Books) -> None:
    books.write_order("one", Order(payment="pi-shared"))
    books.write_order("two", Order(payment="pi-shared"))
    books.write_charge("x", 1, Charge(1000, pays="pi-shared", names="one"))
    run = books.run()
    assert books.open_by_unit() == {"charge:ch-x-1": ("D31", 1000)}
    books.check_totals(run)


def test_charge_that_pays_one_order_and_names_another_is_ambiguous(books: Books) -> None:
    books.write_order("one", Order(payment="pi-1"))
    books.write_order("two", Order(payment="pi-2"))
    books.write_charge("two", 2, Charge(1000, pays="pi-2", names="two"))
    books.write_charge("x", 1, Charge(1000, pays="pi-1", names="two"))
    run = books.run()
    assert books.open_by_unit() == {"charge:ch-x-1": ("D31", 1000)}
    books.check_totals(run)


@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_unnamed_charge_of_a_payment_that_two_orders_claim_is_ambiguous(books: Books, kind: str) -> None:
    books.run()
    books.write_order("one", Order(payment="pi-shared"))
    books.write_charge("x", 1, Charge(1000, pays="pi-shared", names=None))
    books.write_charge("y", 1, Charge(1000, pays="pi-y", names=None))
    books.write_order("fine", Order(payment="pi-y"))
    assert books.run(kind)["opened"] == 0
    books.write_order("two", Order(payment="pi-shared"))
    run = books.run(kind)
    assert books.open_by_unit() == {"charge:ch-x-1": ("D31", 1000)}
    books.check_totals(run)


def test_order_that_keeps_the_charges_own_id_is_matched(books: Books) -> None:
    books.write_order("one", Order(payment="ch-one-1"))
    books.write_charge("one", 1, Charge(1000, names=None))
    run = books.run()
    assert books.open_by_unit() == {}
    books.check_totals(run)


@pytest.mark.parametrize(
    ("difference", "verdict"), [(0, None), (1, "D15"), (2, "D15"), (3, "D10"), (-2, "D15"), (-3, "D11")]
)
def test_difference_within_the_tolerance_is_rounding(books: Books, difference: int, verdict: str | None) -> None:
    name = books.write(Case("rounded", Order(), (Charge(1000 + difference),)))
    books.run(tolerance_minor=2)
    assert books.open_by_unit().get(f"order:{name}", (None, 0)) == (verdict, abs(difference) if verdict else 0)


def test_finding_names_the_charge_to_give_back_and_how_much(books: Books) -> None:
    name = books.write(Case("duplicate", Order(), (Charge(400), Charge(1000, age=SECOND))))
    books.run()
    (finding,) = books.findings()
    assert (finding["class"], finding["charge_id"], finding["remedy"]) == ("D08", f"ch-{name}-1", "refund")
    assert finding["details"]["act_minor"] == 400
    assert [charge["captured_minor"] for charge in finding["details"]["charges"]] == [400, 1000]


@pytest.mark.parametrize(
    ("order", "remedy"),
    [
        (Order(status="cancelled", workflow="failed"), "refund"),
        (Order(status="cancelled", workflow="compensated"), "refund"),
        (Order(status="cancelled", workflow=None), "refund"),
        (Order(status="cancelled", workflow=None, partial=True), "human"),  # a part is with the customer
        (Order(status="cancelled", workflow="completed"), "human"),  # it was shipped before it was cancelled
        (Order(status="fulfilled", workflow="failed"), "human"),
        (Order(status="cancelled", workflow="active"), "wait"),  # it may be shipped yet, or undone
        (Order(status="cancelled", workflow="late"), "wait"),
        (Order(status="cancelled", workflow="held"), "human"),
    ],
)
def test_cancelled_order_is_refunded_only_where_nothing_was_shipped_or_still_can_be(
    books: Books, order: Order, remedy: str
) -> None:
    books.write(Case("cancelled", order, (FULL,)))
    books.run()
    (finding,) = books.findings()
    assert (finding["class"], finding["remedy"]) == ("D03", remedy)


@pytest.mark.parametrize(
    ("workflow", "remedy"),
    [("active", "stop"), ("late", "stop"), ("held", "human"), ("completed", "human"), (None, "human")],
)
def test_order_whose_charge_failed_is_stopped_where_it_goes_on(books: Books, workflow: str | None, remedy: str) -> None:
    books.write(Case("unpaid", Order(status="paid", workflow=workflow), (Charge(0, "failed", 1000),)))
    books.run()
    (finding,) = books.findings()
    assert (finding["class"], finding["remedy"]) == ("D07", remedy)


def test_duplicate_of_an_order_that_the_bank_had_a_say_in_is_a_persons_and_names_a_charge_with_money(
    books: Books,
) -> None:
    order = Order(dispute_known=True, written_off=1000)
    name = books.write(Case("three", order, (FULL, LATER, Charge(1000, age=timedelta(days=1), disputes=LOST.disputes))))
    books.run()
    (finding,) = books.findings()
    assert (finding["class"], finding["charge_id"], finding["remedy"]) == ("D08", f"ch-{name}-2", "human")


def test_finding_that_breaks_two_rules_has_the_first_and_names_the_other(books: Books) -> None:
    books.write(Case("both", Order(status="pending"), (FULL, Charge(1000, age=SECOND))))
    books.run()
    (finding,) = books.findings()
    assert (finding["class"], finding["details"]["also"]) == ("D08", "D06")


def test_orders_workflow_that_the_pair_does_not_show_is_looked_at_by_a_full_run(books: Books) -> None:
    name = books.write(Case("late", Order(status="paid", workflow="late"), (FULL,)))
    run = books.run()
    assert books.open_by_unit() == {f"order:{name}": ("D02", 1000)}
    assert books.totals(run) == {("EUR", "provider"): 1000, ("EUR", "D02"): 1000}
