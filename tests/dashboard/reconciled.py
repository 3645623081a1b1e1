"""Both sides of the books with something wrong between them, reconciled once, and one refund that needs two people."""

from __future__ import annotations

from books import TERMS, YOUNG, Books, Case, Charge, Order, Refund
from psycopg.types.json import Jsonb
from shops import HOSTILE, Place, grant

REMEDY_TERMS = {
    "livemode": False,
    "approval_seconds": 3600,
    "run_age_seconds_max": 3600,
    "orphan_seconds": 3600,
    "breaker_factor": 5,
    "breaker_min": 50,
    "refusals_max": 3,
}
ASKER = "demo-operator"


def write_books(place: Place) -> dict[str, str]:
    """Names of orders by what is wrong with them; ``run`` is the run's id and ``refund`` the finding that waits."""
    books = Books(place)
    try:
        cases = [
            Case("fine", Order(), (Charge(1000),)),
            Case("young", Order(age=YOUNG), (Charge(700, age=YOUNG),)),
            Case("undone", Order(50_000, status="cancelled", workflow="failed"), (Charge(50_000),)),
            Case("twice", Order(2000), (Charge(2000), Charge(2000))),
            Case("unpaid", Order(150_000, payment=False, workflow=None)),
            Case("yen", Order(900, currency="JPY"), (Charge(900, currency="JPY", refunds=(Refund(900),)),)),
            *(Case(name, Order(300, payment=False)) for name in HOSTILE),
        ]
        names = {case.name: books.write(case) for case in cases}
        run = books.run(**TERMS)
        names["run"] = str(run["id"])
        names["refund"] = ask_for_refund(books, names["undone"], names["run"])
        return names
    finally:
        books.close()


def ask_for_refund(books: Books, order: str, run_id: str) -> str:
    """The demo's operator asks, above the cap: the finding's id."""
    books.rows("SELECT makegood.set_remedy_policy('test', 'D03', false, 'root', 'a test')")
    (finding,) = books.rows("SELECT id FROM makegood.reconciliation_findings WHERE order_id = %s", order)
    statement = "SELECT verdict FROM makegood.carry_out_remedy(%s, %s, %s, %s)"
    (said,) = books.rows(statement, finding["id"], run_id, Jsonb(REMEDY_TERMS), ASKER)
    assert said["verdict"] == "awaiting_approval", said
    return str(finding["id"])


def let_people_in(place: Place) -> None:
    for role in ("viewer", "engineer", "operator", "approver"):
        grant(place, f"demo-{role}", "viewer", role)
