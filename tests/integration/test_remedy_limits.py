"""The limits on remedies: in SQL, exact under any number of callers, each change with who and why."""

# ruff: noqa: E501 - a statement is one line
from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from database_worker import CHECKOUT, Worker, refused
from databases import DatabaseUrls
from psycopg.rows import dict_row
from remedying import Planted, Plot

from makegood.engine.definitions import Action
from makegood.settings import Settings
from makegood.workflows.remedy import make_remedy

NOTHING = Action(send=lambda call, request: {})
REMEDY = make_remedy(check=NOTHING, refund=NOTHING)
AT_ONCE = 100


@pytest.fixture
def plot(database: DatabaseUrls, settings: Settings) -> Iterator[Plot]:
    """No shop is asked: charges are in our books only."""
    plot = Plot(database, "http://127.0.0.1:9", settings)
    with Worker(database.jobs) as worker:
        worker.register(REMEDY.to_document())
        worker.register(CHECKOUT.to_document())
    plot.allow("D08")
    yield plot
    plot.close()


def charge(plot: Plot, name: str, amount_minor: int = 1000, **books: Any) -> str:
    row = {"livemode": False, "captured_minor": amount_minor, **books}
    plot.database.rows(
        "INSERT INTO makegood.provider_charges (id, provider, payment_ref, order_ref, status, amount_minor, captured_minor,"
        " currency, livemode, plain, created_at) VALUES (%s, 'stripe', %s, %s, 'succeeded', %s, %s, 'EUR', %s, false,"
        " clock_timestamp())",
        (f"ch_{name}", f"pi_{name}", name, amount_minor, row["captured_minor"], row["livemode"]),
    )
    return f"ch_{name}"


def find(plot: Plot, name: str, amount_minor: int = 1000, *, customer: str | None = None, **books: Any) -> Planted:
    charge_id = charge(plot, name, amount_minor, **books)
    return plot.find("D08", name, amount_minor=amount_minor, charge_id=charge_id, customer=customer)


def at_once(plot: Plot, findings: list[Planted]) -> Counter[str]:
    """Each finding by a caller of its own, all at the same time; as many connections as the server has room for."""
    verdicts: list[str] = []
    waiting = list(findings)
    lock = threading.Lock()

    def work() -> None:
        with psycopg.connect(plot.database.jobs, autocommit=True, row_factory=dict_row) as connection:
            while True:
                with lock:
                    if not waiting:
                        return
                    one = waiting.pop()
                statement = "SELECT verdict FROM makegood.carry_out_remedy(%s, %s, %s::jsonb, 'job')"
                row = connection.execute(statement, (one.id, plot.run_id, plot.terms)).fetchone()
                assert row is not None
                with lock:
                    verdicts.append(row["verdict"])

    threads = [threading.Thread(target=work) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Counter(verdicts)


def plant_many(plot: Plot, count: int) -> list[Planted]:
    plot.database.rows(
        "INSERT INTO makegood.provider_charges (id, provider, payment_ref, order_ref, status, amount_minor, captured_minor,"
        " currency, livemode, plain, created_at) SELECT 'ch_' || n, 'stripe', 'pi_' || n, 'order-' || n, 'succeeded', 1000,"
        " 1000, 'EUR', false, false, clock_timestamp() FROM generate_series(1, %s) AS n",
        (count,),
    )
    rows = plot.database.rows(
        "INSERT INTO makegood.reconciliation_findings (id, unit, class, order_id, charge_id, customer_ref,"
        " amount_at_risk_minor, currency, remedy, first_seen_run, last_seen_run, first_seen_at, last_seen_at)"
        " SELECT gen_random_uuid(), 'order:order-' || n, 'D08', 'order-' || n, 'ch_' || n, 'cus-' || n, 1000, 'EUR',"
        " 'refund', %(run)s, %(run)s, clock_timestamp(), clock_timestamp() FROM generate_series(1, %(n)s) AS n RETURNING *",
        {"run": plot.run_id, "n": count},
    )
    return [Planted(row["id"], row["charge_id"], row["order_id"]) for row in rows]


def spent(plot: Plot) -> tuple[int, int]:
    (row,) = plot.database.rows(
        "SELECT count(*) AS n, coalesce(sum(amount_minor), 0)::bigint AS minor FROM makegood.reconciliation_remedies"
        " WHERE state = 'started'"
    )
    return row["n"], row["minor"]


@pytest.mark.parametrize(
    ("caps", "verdict", "count"),
    [
        # Just so much money, and not a cent more.
        ({"run_minor": 37_500}, "run_cap", 37),
        ({"run_minor": 10**9, "day_minor": 20_000}, "day_cap", 20),
        # Just so many, whatever they come to.
        ({"run_minor": 10**9, "day_minor": 10**9, "run_count": 11}, "run_cap", 11),
        ({"run_minor": 10**9, "day_minor": 10**9, "day_count": 7}, "day_cap", 7),
    ],
)
def test_hundred_refunds_at_once_stay_within_the_cap(
    plot: Plot, caps: dict[str, int], verdict: str, count: int
) -> None:
    plot.cap(**{"run_count": 1000, "day_count": 1000, **caps})
    verdicts = at_once(plot, plant_many(plot, AT_ONCE))
    assert verdicts == {"started": count, verdict: AT_ONCE - count}
    assert spent(plot) == (count, count * 1000)


def test_hundred_callers_of_one_finding_start_it_once(plot: Plot) -> None:
    (finding,) = plant_many(plot, 1)
    assert at_once(plot, [finding] * AT_ONCE) == {"started": 1, "busy": AT_ONCE - 1}
    assert len(plot.database.rows("SELECT * FROM makegood.workflow_executions")) == 1


def test_customer_who_got_enough_has_to_wait_for_a_person(plot: Plot) -> None:
    plot.cap(customer_count=2, customer_minor=2500)
    ends = [plot.carry_out(find(plot, f"o-{n}", customer="cus-9"))["verdict"] for n in range(3)]
    assert ends == ["started", "started", "customer_cap"]
    assert plot.carry_out(find(plot, "o-9", customer="cus-8"))["verdict"] == "started"


def test_refused_remedy_does_not_count_against_the_caps(plot: Plot) -> None:
    plot.cap(run_count=1)
    first, second = find(plot, "o-1"), find(plot, "o-2")
    assert [plot.carry_out(one)["verdict"] for one in (first, second)] == ["started", "run_cap"]
    plot.database.rows(
        "UPDATE makegood.reconciliation_remedies SET state = 'refused', finished_at = clock_timestamp(), reason = 'no'"
    )
    assert plot.carry_out(second)["verdict"] == "started"


def test_approved_refund_counts_and_goes_past_the_caps(plot: Plot) -> None:
    plot.cap(item_minor=999, run_minor=1000, day_minor=1000)
    finding = find(plot, "o-1", 5000)
    assert plot.carry_out(finding)["verdict"] == "awaiting_approval"
    assert plot.approve(finding) == "approved"
    assert plot.carry_out(finding)["verdict"] == "started"
    assert plot.carry_out(find(plot, "o-2", 10))["verdict"] == "run_cap"


def test_currency_without_caps_is_not_refunded(plot: Plot) -> None:
    finding = find(plot, "o-1")
    plot.database.rows("DELETE FROM makegood.remedy_caps")
    row = plot.carry_out(finding)
    assert row["verdict"] == "no_caps"
    assert "policy set --currency EUR" in row["reason"]


def test_approval_past_its_time_is_asked_for_anew(plot: Plot) -> None:
    plot.cap(item_minor=0)
    finding = find(plot, "o-1")
    plot.carry_out(finding)
    plot.approve(finding)
    plot.database.rows("ALTER TABLE makegood.approvals DISABLE TRIGGER approvals_keep_what_was_shown")
    plot.database.rows(
        "UPDATE makegood.approvals SET requested_at = requested_at - interval '9 days', expires_at = clock_timestamp()"
    )
    plot.database.rows("ALTER TABLE makegood.approvals ENABLE ALWAYS TRIGGER approvals_keep_what_was_shown")
    assert plot.carry_out(finding)["verdict"] == "awaiting_approval"
    assert [row["state"] for row in plot.remedies()] == ["refused", "awaiting_approval"]
    assert plot.approve(finding) == "approved"
    assert plot.carry_out(finding)["verdict"] == "started"


def test_minor_unit_error_halts_its_currency_until_somebody_has_looked(plot: Plot) -> None:
    halting = plot.find("D17", "o-9", charge_id=charge(plot, "o-9"), remedy="human")
    finding = find(plot, "o-1")
    assert plot.carry_out(finding)["verdict"] == "halted"
    plot.database.rows(
        "SELECT makegood.ignore_finding(%s, 'ann', 'a gift card', clock_timestamp() + interval '1 day')", (halting.id,)
    )
    assert plot.carry_out(finding)["verdict"] == "started"


def test_charge_of_the_other_mode_is_never_refunded(plot: Plot) -> None:
    assert plot.carry_out(find(plot, "o-1", livemode=True))["verdict"] == "mode"


@pytest.mark.parametrize("class_", ["D10", "D16", "D20", "D22", "D26", "D31"])
def test_class_for_people_is_not_refunded_even_where_a_finding_says_so(plot: Plot, class_: str) -> None:
    plot.allow(class_)
    finding = plot.find(class_, "o-1", charge_id=charge(plot, "o-1"), remedy="refund")
    assert plot.carry_out(finding)["verdict"] == "not_automatic"


def test_amount_is_never_more_than_the_charge_still_has(plot: Plot) -> None:
    finding = plot.find("D08", "o-1", amount_minor=5000, charge_id=charge(plot, "o-1", 1000))
    plot.database.rows(
        "INSERT INTO makegood.provider_refunds (id, provider, charge_id, status, amount_minor, currency, created_at)"
        " VALUES ('re_1', 'stripe', 'ch_o-1', 'succeeded', 400, 'EUR', clock_timestamp())"
    )
    plot.carry_out(finding)
    assert [row["amount_minor"] for row in plot.remedies()] == [600]


def test_one_charge_in_two_findings_is_refunded_for_one_of_them(plot: Plot) -> None:
    plot.allow("D03")
    first = find(plot, "o-1")
    second = plot.find("D03", "o-1", charge_id=first.charge_id, amount_minor=1000)
    assert [plot.carry_out(one)["verdict"] for one in (first, second)] == ["started", "busy"]


@pytest.mark.parametrize(
    ("opened", "before", "verdict"),
    [
        (50, [], "started"),  # up to the minimum, whatever the house is used to
        (51, [], "abnormal"),  # a first run of more than that is looked at by a person
        (51, [1, 2, 3], "abnormal"),
        (100, [20, 20, 20], "started"),  # five times the usual
        (101, [20, 20, 20], "abnormal"),
        (101, [1, 21, 100], "started"),  # the median, not the mean
    ],
)
def test_run_with_more_findings_than_usual_has_no_remedies(
    plot: Plot, opened: int, before: list[int], verdict: str
) -> None:
    for place, usual in enumerate(before):
        plot.plant_run(opened=usual, days_ago=1 + place)
    plot.plant_run(opened=10_000, days_ago=9)  # more than a week ago
    plot.plant_run(opened=10_000, days_ago=1, kind="full")  # another kind of run
    plot.database.rows("DELETE FROM makegood.reconciliation_runs WHERE id = %s", (plot.run_id,))
    run_id = plot.plant_run(opened=opened)
    assert plot.carry_out(find(plot, "o-1"), run_id)["verdict"] == verdict


def test_run_that_is_stale_old_unfinished_or_unknown_has_no_remedies(plot: Plot) -> None:
    finding = find(plot, "o-1")
    stale, old, unfinished = plot.plant_run(stale="late"), plot.plant_run(days_ago=1), plot.plant_run()
    plot.database.rows(
        "UPDATE makegood.reconciliation_runs SET state = 'running', finished_at = NULL WHERE id = %s", (unfinished,)
    )
    ends = [plot.carry_out(finding, run_id)["verdict"] for run_id in (stale, old, unfinished, finding.id)]
    assert ends == ["stale", "stale", "no_run", "no_run"]


def test_switch_waits_for_whoever_is_starting_and_then_nothing_starts(plot: Plot, database: DatabaseUrls) -> None:
    first, second = find(plot, "o-1"), find(plot, "o-2")
    statement = "SELECT verdict FROM makegood.carry_out_remedy(%s, %s, %s::jsonb, 'job')"
    answers: list[Any] = []
    with Worker(database.jobs, "starter") as starter, Worker(database.jobs, "ann") as ann:
        with starter.connection.transaction():
            assert starter.row(statement, first.id, plot.run_id, plot.terms)["verdict"] == "started"
            throw = "SELECT makegood.switch_remedies(true, 'ann', 'odd') AS verdict"
            waiting = threading.Thread(target=lambda: answers.append(ann.row(throw)["verdict"]))
            waiting.start()
            with Worker(database.jobs) as third:
                third.wait_until_blocked(ann)
        waiting.join()
        assert answers == ["stopped"]
        assert starter.row(statement, second.id, plot.run_id, plot.terms)["verdict"] == "stopped"
        entity = plot.remedies()[0]["entity_id"]
        again = "SELECT verdict FROM makegood.recheck_remedy(%s, %s::jsonb)"
        assert starter.row(again, entity, plot.terms)["verdict"] == "stopped"


def test_every_change_of_policy_is_written_down(plot: Plot) -> None:
    plot.cap(item_minor=5)
    plot.switch(True)
    plot.switch(True)
    plot.switch(False)
    rows = plot.database.rows("SELECT actor, action, reason FROM makegood.operator_actions ORDER BY id")
    assert [(row["actor"], row["action"]) for row in rows] == [
        ("ann", "set remedy policy"),
        ("ann", "set remedy caps"),
        ("ann", "stop remedies"),
        ("ann", "allow remedies"),
    ]
    assert all(row["reason"] for row in rows)


@pytest.mark.parametrize("reason", ["", "   ", None])
def test_policy_without_a_reason_is_refused(plot: Plot, database: DatabaseUrls, reason: str | None) -> None:
    with Worker(database.jobs) as worker, refused("MG011"):
        worker.rows("SELECT makegood.set_remedy_policy('test', 'D08', false, 'ann', %s)", reason)


def test_cap_of_an_unknown_name_is_refused(plot: Plot, database: DatabaseUrls) -> None:
    with Worker(database.jobs) as worker, refused("MG011", "no cap week_minor"):
        worker.rows(
            "SELECT makegood.set_remedy_caps('test', 'EUR', %s::jsonb, 'ann', 'x')", json.dumps({"week_minor": 1})
        )


@pytest.mark.parametrize(
    "change",
    [
        "amount_minor = 99999",
        "charge_id = 'ch_other'",
        "digest = repeat('0', 64)",
        "state = 'proposed'",
        "entity_id = 'x'",
    ],
)
def test_remedy_edited_after_it_was_proposed_is_refused_even_for_the_owner(plot: Plot, change: str) -> None:
    plot.carry_out(find(plot, "o-1"))
    with Worker(plot.database.admin) as admin:
        admin.rows("SET session_replication_role = replica")
        with refused("MG013"):
            admin.rows(f"UPDATE makegood.reconciliation_remedies SET {change}")


def test_person_who_acknowledges_keeps_the_job_away_and_ignoring_ends_a_request(plot: Plot) -> None:
    plot.cap(item_minor=0)
    seen, ignored = find(plot, "o-1"), find(plot, "o-2")
    plot.carry_out(ignored)
    rows = plot.database.rows(
        "SELECT makegood.acknowledge_finding(%s, 'ann', 'on it') AS a,"
        " makegood.ignore_finding(%s, 'ann', 'a test', clock_timestamp() + interval '1 day') AS b",
        (seen.id, ignored.id),
        role="jobs",
    )
    assert rows == [{"a": "acknowledged", "b": "ignored"}]
    assert [plot.carry_out(one)["verdict"] for one in (seen, ignored)] == ["busy", "busy"]
    assert [row["state"] for row in plot.remedies()] == ["refused"]
    assert plot.history(seen) == [("open", "acknowledged")]
    assert plot.history(ignored) == [("open", "ignored")]
    assert plot.finding(ignored)["note"] == "a test"


@pytest.mark.parametrize(
    "until", ["clock_timestamp() - interval '1 s'", "clock_timestamp() + interval '2 years'", "NULL"]
)
def test_finding_ignored_for_ever_or_for_no_time_is_refused(plot: Plot, until: str) -> None:
    finding = find(plot, "o-1")
    with Worker(plot.database.jobs) as worker, refused("MG011"):
        worker.rows(f"SELECT makegood.ignore_finding(%s, 'ann', 'x', {until})", finding.id)


def test_finding_that_is_closed_or_being_put_right_is_not_marked(plot: Plot) -> None:
    finding = find(plot, "o-1")
    plot.carry_out(finding)
    statement = "SELECT makegood.acknowledge_finding(%s, 'ann', 'on it') AS verdict"
    assert plot.database.rows(statement, (finding.id,)) == [{"verdict": "busy"}]
    plot.database.rows(
        "UPDATE makegood.reconciliation_findings SET state = 'resolved', resolved_at = now(), resolution = 'late_arrival'"
    )
    assert plot.database.rows(statement, (finding.id,)) == [{"verdict": "closed"}]
    assert plot.database.rows(statement, (plot.run_id,)) == [{"verdict": "unknown"}]
