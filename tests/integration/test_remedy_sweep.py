"""Findings are put right once: through the engine, within the limits, whatever happens on the way."""

# ruff: noqa: E501 - a statement is one line
from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from checkouts import NOWHERE, check_out, drive, get_row, hasten, let_stick, order, pass_time
from databases import DatabaseUrls
from remedying import AMOUNT_MINOR, Planted, Plot, open_remedies
from sweeps import read_tables, stick

from makegood.engine.definitions import Action, Call, Request, Workflow
from makegood.reconciliation.remedy import preview_remedies, remedy_findings
from makegood.settings import Settings
from sandbox.client import ShopControl


@pytest.fixture
def plot(database: DatabaseUrls, shop: ShopControl, settings: Settings) -> Iterator[Plot]:
    plot = Plot(database, str(settings.stripe_api_base), settings)
    yield plot
    plot.close()


def sweep(plot: Plot, *, change: Callable[[Workflow], Workflow] = hasten, **options: Any) -> Counter[str]:
    async def run() -> Counter[str]:
        async with open_remedies(plot.database.jobs, plot.settings, change=change) as runner:
            return await remedy_findings(runner, plot.run_id, dry_run=False, **options)

    return asyncio.run(run())


def finish(plot: Plot) -> None:
    """Whoever comes afterwards: workers, until nothing is due."""

    async def run() -> None:
        async with open_remedies(plot.database.jobs, plot.settings) as runner:
            await drive(runner, plot.database)

    asyncio.run(run())


def before_call(step_name: str, do: Callable[[], Any]) -> Callable[[Workflow], Workflow]:
    """Does something after the step was begun and before its call leaves."""

    def change(workflow: Workflow) -> Workflow:
        def wrapped(action: Action) -> Action:
            async def send(call: Call, request: Request) -> Any:
                do()
                return await action.send(call, request)

            return dataclasses.replace(action, send=send)

        steps = [
            dataclasses.replace(step, action=wrapped(step.action)) if step.name == step_name else step
            for step in hasten(workflow).steps
        ]
        return dataclasses.replace(workflow, steps=steps)

    return change


def refunds(shop: ShopControl, charge_id: str) -> list[dict[str, Any]]:
    return [entry for entry in shop.log() if entry["kind"] == "refund" and charge_id in str(entry)]


def count_refunds(shop: ShopControl) -> int:
    return sum(entry["kind"] == "refund" for entry in shop.log())


def test_duplicate_charge_is_refunded_once_and_its_finding_resolved(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D08")
    finding = plot.find("D08")
    assert sweep(plot) == {"started": 1, "remedied": 1}
    assert count_refunds(shop) == 1
    found = plot.finding(finding)
    assert (found["state"], found["resolution"]) == ("resolved", "remedied")
    assert plot.history(finding) == [("open", "remedying"), ("remedying", "resolved")]
    (remedy,) = plot.remedies()
    assert (remedy["state"], remedy["entity_id"]) == ("succeeded", f"remedy:{finding.charge_id}:D08:1")
    assert remedy["refund_ref"].startswith("re_")
    (entry,) = [entry for entry in shop.log() if entry["kind"] == "refund"]
    assert entry["compensation_id"] == str(remedy["id"])
    assert entry["idempotency_key"] == f"refund-{remedy['entity_id']}"
    assert sweep(plot) == Counter()
    assert count_refunds(shop) == 1


def test_refund_of_a_failed_order_is_told_to_our_books_in_the_same_breath(plot: Plot) -> None:
    plot.allow("D03")
    plot.order("order-1", status="cancelled")
    plot.find("D03")
    assert sweep(plot)["remedied"] == 1
    (row,) = plot.database.rows("SELECT * FROM makegood.orders WHERE id = 'order-1'")
    assert row["refunded_minor"] == AMOUNT_MINOR


@pytest.mark.parametrize(
    ("booked", "refunded", "says"),
    [
        (0, [], AMOUNT_MINOR),
        (AMOUNT_MINOR, [], AMOUNT_MINOR),  # their webhook was quicker
        (500, [500], AMOUNT_MINOR),  # the rest of it
        (0, [500], AMOUNT_MINOR),  # what was refunded before was never booked
    ],
)
def test_books_say_what_the_provider_refunded_in_all_whoever_else_wrote_it_down(
    plot: Plot, booked: int, refunded: list[int], says: int
) -> None:
    plot.allow("D03")
    plot.order("order-1", status="cancelled")
    finding = plot.find("D03", amount_minor=AMOUNT_MINOR)
    for number, amount in enumerate(refunded):
        plot.refund_by_hand(finding.charge_id, amount)
        plot.database.rows(
            "INSERT INTO makegood.provider_refunds (id, provider, charge_id, status, amount_minor, currency, created_at)"
            " VALUES (%s, 'stripe', %s, 'succeeded', %s, 'EUR', clock_timestamp())",
            (f"re_{number}", finding.charge_id, amount),
        )
    write = f"UPDATE makegood.orders SET refunded_minor = {booked}"
    assert sweep(plot, change=before_call("refund", lambda: plot.database.rows(write)))["remedied"] == 1
    (row,) = plot.database.rows("SELECT refunded_minor FROM makegood.orders WHERE id = 'order-1'")
    assert row["refunded_minor"] == says


def test_books_do_not_count_what_only_gave_back_a_duplicate(plot: Plot) -> None:
    plot.allow("D03")
    plot.order("order-1", status="cancelled")
    other = plot.charge("order-1")
    plot.database.rows(
        "INSERT INTO makegood.provider_refunds (id, provider, charge_id, status, amount_minor, currency, created_at)"
        " VALUES ('re_other', 'stripe', %s, 'succeeded', %s, 'EUR', clock_timestamp())",
        (other, AMOUNT_MINOR),
    )
    plot.find("D03")
    assert sweep(plot)["remedied"] == 1
    (row,) = plot.database.rows("SELECT refunded_minor FROM makegood.orders WHERE id = 'order-1'")
    assert row["refunded_minor"] == AMOUNT_MINOR


def test_books_that_cannot_be_told_do_not_lose_the_refund_and_are_told_later(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D03")
    finding = plot.find("D03")
    source = plot.database.rows("SELECT pg_get_functiondef('makegood.correct_order'::regproc) AS body")[0]["body"]
    plot.database.rows(source.replace("RETURN FOUND", "RAISE EXCEPTION 'our books are away'"))
    assert sweep(plot)["remedied"] == 1
    assert plot.finding(finding)["state"] == "resolved"
    (remedy,) = plot.remedies()
    assert (remedy["state"], remedy["books_due"]) == ("succeeded", True)
    plot.database.rows(source)
    assert sweep(plot) == {"books_told": 1}
    assert sweep(plot) == Counter()
    (row,) = plot.database.rows("SELECT * FROM makegood.orders WHERE id = 'order-1'")
    assert row["refunded_minor"] == AMOUNT_MINOR
    assert count_refunds(shop) == 1


def test_dry_run_changes_nothing_and_says_what_would_be_done(plot: Plot) -> None:
    plot.allow("D08")
    plot.find("D08", "order-1")
    plot.find("D03", "order-2")

    async def run() -> tuple[Counter[str], list[tuple[str, str]]]:
        async with open_remedies(plot.database.jobs, plot.settings) as runner:
            before = read_tables(plot.database)
            counts = await remedy_findings(runner, plot.run_id)
            decided = await preview_remedies(runner, plot.run_id)
            assert read_tables(plot.database) == before
            return counts, [(one.candidate.class_, one.decision.act) for one in decided]

    counts, decided = asyncio.run(run())
    assert counts == {"would_refund": 1, "would_tell": 1}
    assert sorted(decided) == [("D03", "tell"), ("D08", "refund")]


def test_class_without_a_policy_is_only_told_about(plot: Plot, shop: ShopControl) -> None:
    finding = plot.find("D08")
    assert sweep(plot) == {"tell": 1}
    assert plot.carry_out(finding)["verdict"] == "dry_run"
    assert count_refunds(shop) == 0


def test_two_sweeps_at_once_refund_once(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D08")
    for number in range(6):
        plot.find("D08", f"order-{number}", customer=f"cus-{number}")

    async def run() -> None:
        async with (
            open_remedies(plot.database.jobs, plot.settings, worker="one") as one,
            open_remedies(plot.database.jobs, plot.settings, worker="other") as other,
        ):
            await asyncio.gather(
                *(remedy_findings(r, plot.run_id, dry_run=False) for r in (one, other, one, other)),
            )

    asyncio.run(run())
    finish(plot)
    assert count_refunds(shop) == 6
    assert [row["state"] for row in plot.remedies()] == ["succeeded"] * 6


def test_charge_refunded_by_hand_after_the_verdict_is_left_alone(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D08")
    finding = plot.find("D08")
    plot.refund_by_hand(finding.charge_id)
    assert sweep(plot) == {"started": 1, "refused": 1}
    assert count_refunds(shop) == 1
    assert plot.finding(finding)["state"] == "open"
    (remedy,) = plot.remedies()
    assert (remedy["state"], remedy["reason"]) == ("refused", "0 of the charge is left, 1999 was to go back")


def test_remedy_refused_too_often_is_left_to_a_person(plot: Plot) -> None:
    plot.allow("D08")
    finding = plot.find("D08")
    plot.refund_by_hand(finding.charge_id)
    for _ in range(3):
        assert sweep(plot)["refused"] == 1
    assert sweep(plot) == {"leave": 1}
    assert plot.carry_out(finding)["verdict"] == "spent"
    assert [row["sequence"] for row in plot.remedies()] == [1, 2, 3]


def test_dispute_that_opens_after_the_verdict_stops_the_refund(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D08")
    finding = plot.find("D08")
    shop.open_dispute(finding.charge_id)
    assert sweep(plot) == {"started": 1, "refused": 1}
    assert count_refunds(shop) == 0
    assert "disputed" in plot.remedies()[0]["reason"]


def test_dispute_that_our_books_know_stops_it_before_anybody_is_asked(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D08")
    finding = plot.find("D08")
    plot.database.rows(
        "INSERT INTO makegood.provider_disputes (id, provider, charge_id, status, amount_minor, currency, created_at)"
        " VALUES ('du_1', 'stripe', %s, 'open', 1999, 'EUR', clock_timestamp())",
        (finding.charge_id,),
    )
    assert plot.carry_out(finding)["verdict"] == "disputed"


def test_dispute_of_the_orders_other_charge_stops_the_refund_in_our_books_and_at_the_provider(
    plot: Plot, shop: ShopControl
) -> None:
    """The customer got one of the two back from the bank: another refund would be the second."""
    plot.allow("D08")
    finding, other = plot.find("D08"), plot.charge("order-1")
    dispute = shop.open_dispute(other)
    assert sweep(plot) == {"started": 1, "refused": 1}
    assert "disputed" in plot.remedies()[0]["reason"]
    plot.database.rows(
        "INSERT INTO makegood.provider_disputes (id, provider, charge_id, status, amount_minor, currency, created_at)"
        " VALUES (%s, 'stripe', %s, 'lost', 1999, 'EUR', clock_timestamp())",
        (dispute["id"], other),
    )
    assert plot.carry_out(finding)["verdict"] == "disputed"
    assert count_refunds(shop) == 0


def test_switch_thrown_after_the_start_stops_the_refund(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D08")
    finding = plot.find("D08")
    assert sweep(plot, change=before_call("check", lambda: plot.switch(True))) == {"started": 1, "refused": 1}
    assert count_refunds(shop) == 0
    assert plot.finding(finding)["state"] == "open"
    assert plot.carry_out(finding)["verdict"] == "stopped"
    plot.switch(False)
    assert sweep(plot)["remedied"] == 1
    assert count_refunds(shop) == 1


def test_switch_thrown_in_the_middle_of_a_run_stops_the_rest(plot: Plot, shop: ShopControl, monkeypatch: Any) -> None:
    from makegood.reconciliation import remedy

    monkeypatch.setattr(remedy, "PAGE", 1)
    plot.allow("D08")
    for number in range(3):
        plot.find("D08", f"order-{number}")
    thrown = before_call("refund", lambda: plot.switch(True))
    counts = sweep(plot, change=thrown)
    assert counts["remedied"] == 1
    assert counts["started"] == 1
    assert count_refunds(shop) == 1


def test_finding_that_closed_after_the_start_is_not_refunded(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D08")
    finding = plot.find("D08")
    close = "UPDATE makegood.reconciliation_findings SET state = 'resolved', resolved_at = now(), resolution = 'late_arrival'"
    assert sweep(plot, change=before_call("check", lambda: plot.database.rows(close)))["refused"] == 1
    assert count_refunds(shop) == 0
    assert plot.finding(finding)["state"] == "resolved"


def test_charge_that_arrives_after_the_verdict_is_seen(plot: Plot, shop: ShopControl) -> None:
    """The run saw everything up to its transaction; what came later makes its verdict an old one."""
    plot.allow("D08")
    finding = plot.find("D08")
    plot.database.rows("UPDATE makegood.reconciliation_runs SET until_xid = pg_current_xact_id()")
    plot.database.rows("SELECT pg_current_xact_id()")
    arrive = before_call("check", lambda: plot.charge("order-1"))
    assert sweep(plot, change=arrive) == {"started": 1, "refused": 1}
    assert count_refunds(shop) == 0
    assert plot.carry_out(finding)["verdict"] == "changed"


def test_provider_that_is_down_costs_no_attempt_and_no_sequence(
    plot: Plot, shop: ShopControl, settings: Settings
) -> None:
    plot.allow("D08")
    finding = plot.find("D08")
    plot.database.rows("SELECT makegood.trip_breaker('payments', 'somebody', 'down', 600, 600)", role="jobs")
    assert sweep(plot) == {"wait": 1}
    assert plot.remedies() == []
    plot.database.rows("DELETE FROM makegood.breakers")
    assert sweep(plot)["remedied"] == 1
    assert plot.finding(finding)["state"] == "resolved"
    assert count_refunds(shop) == 1


def test_provider_that_goes_down_under_way_is_waited_for_without_an_attempt(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D08")
    plot.find("D08")
    shop.set_faults({"rules": [{"operation": "refund", "fault": "rate_limited", "times": 3}]})
    sweep(plot)
    finish(plot)
    assert count_refunds(shop) == 1
    assert plot.remedies()[0]["state"] == "succeeded"


@pytest.mark.parametrize("fault", ["reset_after", "error_500_after", "reset_before"])
def test_refund_whose_answer_is_lost_is_found_and_not_made_again(plot: Plot, shop: ShopControl, fault: str) -> None:
    plot.allow("D08")
    finding = plot.find("D08")
    shop.set_faults({"rules": [{"operation": "refund", "fault": fault, "times": 1}]})
    sweep(plot)
    finish(plot)
    assert count_refunds(shop) == 1
    assert plot.finding(finding)["resolution"] == "remedied"


def test_refund_that_nobody_can_tell_of_is_held_and_its_finding_stays(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D08")
    finding = plot.find("D08")
    shop.set_faults({"rules": [{"operation": "refund", "fault": "error_500_stored", "times": 1}]})
    sweep(plot)
    finish(plot)
    assert get_row(plot.database, plot.remedies()[0]["entity_id"])["held_at"] is not None
    assert plot.finding(finding)["state"] == "remedying"
    assert plot.carry_out(finding)["verdict"] == "busy"
    assert count_refunds(shop) == 0


def test_cancel_that_comes_while_the_refund_is_on_the_wire_does_not_hide_it(plot: Plot, shop: ShopControl) -> None:
    """The workflow ends compensated, and the money is back all the same: the answer decides."""
    plot.allow("D08")
    finding = plot.find("D08")
    cancel = "SELECT makegood.request_cancel('remedy', entity_id, 'eve', 'why not') FROM makegood.workflow_executions"
    sweep(plot, change=before_call("refund", lambda: plot.database.rows(cancel)))
    finish(plot)
    assert count_refunds(shop) == 1
    assert plot.remedies()[0]["state"] == "succeeded"
    assert plot.finding(finding)["resolution"] == "remedied"


def test_refund_above_the_cap_waits_for_a_second_person(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D08")
    plot.cap(item_minor=1000)
    finding = plot.find("D08")
    assert sweep(plot) == {"awaiting_approval": 1}
    assert sweep(plot) == {"awaiting_approval": 1}
    assert len(plot.remedies()) == 1
    assert [plot.approve(finding), plot.approve(finding, "cem")] == ["approved", "taken"]
    assert count_refunds(shop) == 0
    assert sweep(plot) == {"started": 1, "remedied": 1}
    assert count_refunds(shop) == 1
    assert sweep(plot) == Counter()


def test_whoever_asked_cannot_approve(plot: Plot) -> None:
    plot.allow("D08")
    plot.cap(item_minor=1000)
    finding = plot.find("D08")
    sweep(plot, actor="command:ann")
    assert plot.approve(finding, "Command:Ann") == "self"


def test_approval_of_an_amount_that_changed_is_not_used(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D08")
    plot.cap(item_minor=100)
    finding = plot.find("D08")
    sweep(plot)
    assert plot.approve(finding) == "approved"
    plot.database.rows("UPDATE makegood.reconciliation_findings SET details = '{\"act_minor\": 1500}'")
    assert sweep(plot) == {"awaiting_approval": 1}
    assert [row["state"] for row in plot.remedies()] == ["refused", "awaiting_approval"]
    assert count_refunds(shop) == 0


def test_approval_of_what_is_not_shown_any_more_is_refused(plot: Plot) -> None:
    plot.allow("D08")
    plot.cap(item_minor=100)
    finding = plot.find("D08")
    sweep(plot)
    plot.database.rows("UPDATE makegood.reconciliation_findings SET details = '{\"act_minor\": 1500}'")
    assert plot.approve(finding) == "changed"


def test_approval_refused_by_a_person_is_asked_for_no_more(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D08")
    plot.cap(item_minor=100)
    finding = plot.find("D08")
    sweep(plot)
    statement = "SELECT makegood.refuse_remedy(%s, 'ben', 'the customer wants both') AS verdict"
    assert plot.database.rows(statement, (finding.id,), role="jobs") == [{"verdict": "refused"}]
    assert plot.finding(finding)["state"] == "acknowledged"
    assert sweep(plot) == Counter()
    assert count_refunds(shop) == 0


def test_sweep_killed_between_start_and_refund_is_continued_by_a_worker(plot: Plot, shop: ShopControl) -> None:
    """Approved, used and started in one transaction: whoever comes afterwards finds a workflow, not an approval."""
    plot.allow("D08")
    plot.cap(item_minor=100)
    finding = plot.find("D08")
    sweep(plot)
    plot.approve(finding)

    async def register() -> None:
        async with open_remedies(plot.database.jobs, plot.settings):
            pass

    asyncio.run(register())
    assert plot.carry_out(finding)["verdict"] == "started"
    assert plot.carry_out(finding)["verdict"] == "busy"
    finish(plot)
    assert count_refunds(shop) == 1
    assert plot.finding(finding)["resolution"] == "remedied"


def test_earlier_refund_that_the_books_do_not_show_yet_blocks_the_next(plot: Plot, shop: ShopControl) -> None:
    """Part of a charge was given back and the provider's books here are not up to it: the verdict still stands."""
    plot.allow("D08")
    charge = plot.charge("order-1", 5000)
    finding = plot.find("D08", charge_id=charge)
    assert sweep(plot)["remedied"] == 1
    reopen = "UPDATE makegood.reconciliation_findings SET state = 'open', resolved_at = NULL, resolution = NULL"
    plot.database.rows(reopen)
    assert plot.carry_out(finding)["verdict"] == "unsettled"
    assert count_refunds(shop) == 1


def test_orphan_seen_once_waits_for_a_second_run(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D01")
    young = plot.find("D01", "order-1", with_order=False, hours_seen=0.5)
    once = plot.find("D01", "order-2", with_order=False, runs_seen=1)
    foreign = plot.find("D01", "order-3", with_order=False, charge_id=plot.charge("order-3", order_ref=None))
    known = plot.find("D01", "order-4", with_order=False)
    assert [plot.carry_out(one)["verdict"] for one in (young, once, foreign)] == ["too_young", "too_young", "not_ours"]
    plot.order("order-4")
    assert plot.carry_out(known)["verdict"] == "changed"
    plot.find("D01", "order-5", with_order=False)
    assert sweep(plot)["remedied"] == 1
    assert count_refunds(shop) == 1


def test_refund_that_is_missing_is_looked_for_before_it_is_made_again(plot: Plot, shop: ShopControl) -> None:
    """The undo said refunded; the provider has none. Its own key is recorded here, so another one is used."""
    plot.allow("D19")
    asyncio.run(check_out(plot.database, plot.settings, order("order-1", **NOWHERE)))
    charge_id = next(r["charge"] for r in shop.order("order-1")["refunds"])
    plot.database.rows(
        "INSERT INTO makegood.provider_charges (id, provider, payment_ref, order_ref, status, amount_minor, captured_minor,"
        " currency, livemode, plain, created_at) VALUES (%s, 'stripe', 'pi_1', 'order-1', 'succeeded', 1999, 1999, 'EUR',"
        " false, false, clock_timestamp())",
        (charge_id,),
    )
    finding = plot.find("D19", "order-1", charge_id=charge_id, remedy="retry_refund")
    assert sweep(plot)["refused"] == 1
    assert "is there after all" in plot.remedies()[0]["reason"]
    assert count_refunds(shop) == 1
    assert plot.finding(finding)["state"] == "open"


@pytest.mark.parametrize("class_", ["D19", "D08"])
def test_part_that_somebody_else_refunded_after_the_verdict_is_not_refunded_again(
    plot: Plot, shop: ShopControl, class_: str
) -> None:
    """Enough of the charge is left for a second one: only what was refunded already tells."""
    plot.allow(class_)
    charge_id = plot.charge("order-1", 1000)
    remedy = "retry_refund" if class_ == "D19" else "refund"
    finding = plot.find(class_, amount_minor=300, charge_id=charge_id, remedy=remedy)
    by_hand = plot.refund_by_hand(charge_id, 300)
    assert sweep(plot) == {"started": 1, "refused": 1}
    assert plot.remedies()[0]["reason"] == "300 of the charge was refunded, the verdict knows of 0"
    assert count_refunds(shop) == 1
    plot.database.rows(
        "INSERT INTO makegood.provider_refunds (id, provider, charge_id, status, amount_minor, currency, created_at)"
        " VALUES (%s, 'stripe', %s, 'succeeded', 300, 'EUR', clock_timestamp())",
        (by_hand, charge_id),
    )
    # Should a verdict know of it and still want one, it is another one.
    assert sweep(plot)["remedied"] == 1
    assert count_refunds(shop) == 2
    assert plot.finding(finding)["state"] == "resolved"


def test_refund_that_is_missing_is_made_under_a_key_of_its_own(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D19")
    plot.find("D19", remedy="retry_refund")
    assert sweep(plot)["remedied"] == 1
    assert count_refunds(shop) == 1


def test_order_past_its_deadline_is_taken_on_under_its_own_workflow(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D02")
    stick(plot.database, plot.settings, shop, {"order-1": "reserve"})
    plot.find("D02", charge_id="ch_1", remedy="resume")
    assert sweep(plot) == {"resumed": 1, "remedied": 1}
    assert get_row(plot.database)["current_state"] == "completed"
    assert shop.order("order-1")["counts"]["charge"] == 1


def test_held_order_is_left_to_its_person(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D02", "D23")
    stick(plot.database, plot.settings, shop, {"order-1": "reserve"})
    plot.database.rows("UPDATE makegood.workflow_executions SET held_at = now(), held_reason = 'odd'")
    plot.find("D02", charge_id="ch_1", remedy="resume")
    assert sweep(plot) == {"left": 1}
    assert get_row(plot.database)["held_at"] is not None


def test_refunded_order_that_goes_on_is_stopped_and_held(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D23")
    stick(plot.database, plot.settings, shop, {"order-1": "reserve"})
    finding = plot.find("D23", charge_id="ch_1", remedy="stop")
    assert sweep(plot) == {"stopped_order": 1}
    row = get_row(plot.database)
    assert row["cancel_requested"]
    assert row["held_at"] is not None
    assert plot.finding(finding)["state"] == "open"
    assert sweep(plot) == {"left": 1}


def test_order_that_goes_on_though_its_charge_failed_is_held_and_not_undone(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D07")
    stick(plot.database, plot.settings, shop, {"order-1": "reserve"})
    finding = plot.find("D07", charge_id="ch_1", remedy="stop")
    plot.database.rows(
        "UPDATE makegood.workflow_executions SET lease_owner = 'w', lease_until = now() + interval '1 minute'"
    )
    assert sweep(plot) == {"left": 1}
    plot.database.rows("UPDATE makegood.workflow_executions SET lease_owner = NULL, lease_until = NULL")
    assert sweep(plot) == {"stopped_order": 1}
    row = get_row(plot.database)
    assert not row["cancel_requested"]
    assert row["held_reason"].startswith("its charge failed")
    assert plot.finding(finding)["state"] == "open"
    assert sweep(plot) == {"left": 1}


@pytest.mark.parametrize(
    ("class_", "remedy", "column", "value"),
    [
        ("D06", "correct", "status", "fulfilled"),
        ("D18", "record", "refunded_minor", AMOUNT_MINOR),
        ("D24", "record", "dispute_known", True),
        ("D25", "record", "written_off_minor", AMOUNT_MINOR),
    ],
)
def test_our_books_are_corrected_once_with_history_and_audit(
    plot: Plot, class_: str, remedy: str, column: str, value: Any
) -> None:
    plot.allow(class_)
    finding = plot.find(class_, charge_id="ch_1", remedy=remedy)
    assert sweep(plot) == {"corrected" if remedy == "correct" else "recorded": 1}
    (row,) = plot.database.rows("SELECT * FROM makegood.orders WHERE id = 'order-1'")
    assert row[column] == value
    found = plot.finding(finding)
    assert (found["state"], found["resolution"]) == ("resolved", "recorded")
    actions = plot.database.rows("SELECT action FROM makegood.operator_actions WHERE subject = 'order-1'")
    assert actions == [{"action": f"remedy: {remedy}"}]
    assert sweep(plot) == Counter()


@pytest.mark.parametrize("class_", ["D11", "D15", "D30"])
def test_what_is_only_known_is_acknowledged_so_that_no_run_opens_it_again(plot: Plot, class_: str) -> None:
    plot.allow(class_)
    finding = plot.find(class_, charge_id="ch_1", remedy="record")
    assert sweep(plot) == {"recorded": 1}
    assert plot.finding(finding)["state"] == "acknowledged"
    assert sweep(plot) == Counter()


def test_order_that_cannot_be_corrected_from_here_is_left_to_a_person(plot: Plot) -> None:
    plot.allow("D06")
    finding = plot.find("D06", charge_id="ch_1", remedy="correct", with_order=False)
    assert plot.carry_out(finding)["verdict"] == "left"
    assert plot.finding(finding)["state"] == "open"


def test_finding_for_a_person_or_for_time_is_left(plot: Plot) -> None:
    person = plot.find("D10", "order-1", charge_id="ch_1", remedy="human")
    time = plot.find("D04", "order-2", charge_id="ch_2", remedy="wait")
    assert [plot.carry_out(one)["verdict"] for one in (person, time)] == ["left", "left"]
    assert sweep(plot) == Counter()


def test_more_findings_than_a_page_are_all_looked_at(plot: Plot, monkeypatch: Any) -> None:
    from makegood.reconciliation import remedy

    monkeypatch.setattr(remedy, "PAGE", 2)
    plot.allow("D15")
    for number in range(5):
        plot.find("D15", f"order-{number}", charge_id=f"ch_{number}", remedy="record")
    assert sweep(plot, limit=3) == {"recorded": 3}
    assert sweep(plot) == {"recorded": 2}


def test_stale_run_has_no_remedies_and_says_so_once(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D08")
    plot.find("D08")
    plot.run_id = plot.plant_run(stale="stripe/refunds was never fetched completely")
    assert sweep(plot) == {"leave": 1}
    assert sweep(plot) == {"leave": 1}
    alerts = plot.database.rows("SELECT payload->>'kind' AS kind FROM makegood.outbox WHERE topic = 'alert'")
    assert alerts == [{"kind": "remedies_blocked"}]
    assert count_refunds(shop) == 0


def test_remedy_left_behind_by_a_dead_worker_is_found_by_the_recovery(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D08")
    finding = plot.find("D08")

    async def run() -> None:
        async with open_remedies(plot.database.jobs, plot.settings) as runner:
            assert plot.carry_out(finding)["verdict"] == "started"
            let_stick(plot.database)
            pass_time(plot.database)
            from makegood.jobs import run_recovery
            from makegood.runs.model import Options

            report = await run_recovery(runner, Options(limit=10), triggered_by="test")
            assert report.counts["completed"] == 1

    asyncio.run(run())
    assert count_refunds(shop) == 1


def test_planted_charge_is_what_the_remedy_acts_on(plot: Plot, shop: ShopControl) -> None:
    plot.allow("D08")
    other = plot.charge("order-1")
    finding: Planted = plot.find("D08")
    sweep(plot)
    assert refunds(shop, finding.charge_id)
    assert not refunds(shop, other)
