"""Stuck orders are found and taken on: twice, overlapped, killed, raced; fairly, and with the reason written down."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkouts import (
    NoWait,
    after_call,
    get_attempts,
    get_row,
    hasten,
    let_stick,
    open_checkouts,
    order,
    pass_time,
    request_cancel,
)
from database_worker import Worker
from psycopg.types.json import Jsonb
from sweeps import count_states, kill_in_the_middle, read_decisions, read_runs, read_tables, stick, surroundings

from makegood import jobs
from makegood.engine.definitions import Action, Call, Request, Step, Workflow
from makegood.engine.outcomes import Outcome, Suspect
from makegood.engine.runner import Start, open_runner
from makegood.recovery import sweep
from makegood.runs.model import Options
from makegood.settings import Settings, get_settings
from sandbox.client import ShopControl

ONCE = {"charge": 1, "reservation": 1, "shipment": 1}


@pytest.fixture
def environment(
    database: Any, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """This process, as a scheduled job finds itself."""
    found = surroundings(database, settings, tmp_path)
    for name, value in found.items():
        monkeypatch.setenv(name, value)
    get_settings.cache_clear()
    yield found
    get_settings.cache_clear()


def change_settings(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    for name, value in changes.items():
        monkeypatch.setenv(f"MAKEGOOD_{name.upper()}", str(value))
    get_settings.cache_clear()


def recover(limit: int = 100, older_than_seconds: float | None = None, **options: Any) -> jobs.Report:
    return jobs.recover(Options(limit, older_than_seconds), triggered_by="test", **options)


def names(count: int, operation: str | None = None, first: int = 0) -> dict[str, str | None]:
    return {f"order-{n}": operation for n in range(first, first + count)}


# How much there is


def test_recovery_with_nothing_to_do_says_so_and_calls_nobody(
    database: Any, environment: dict[str, str], shop: ShopControl
) -> None:
    assert recover().counts == {}
    (run,) = read_runs(database)
    assert (run["job"], run["state"], run["counts"]) == ("recover_stuck_workflows", "done", {})
    assert (run["triggered_by"], run["parameters"]["dry_run"]) == ("test", False)
    assert shop.calls()["total"] == 0


def test_recovery_leaves_alone_what_is_not_past_its_deadline(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, names(3))
    database.rows("UPDATE makegood.workflow_executions SET deadline_at = now() + interval '1 minute'")
    with_runner_types_registered()
    before = read_tables(database, "job_runs")
    assert recover().counts == {}
    assert read_tables(database, "job_runs") == before
    assert recover(older_than_seconds=60).counts["completed"] == 3  # unless another age is asked for


def test_recovery_takes_the_stuck_and_not_those_beside_them_in_the_same_state(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, names(4))
    database.rows(
        "UPDATE makegood.workflow_executions SET deadline_at = now() + interval '1 minute',"
        " next_attempt_at = now() - interval '1 hour' WHERE entity_id IN ('order-1', 'order-2')"
    )
    assert recover().counts["completed"] == 2
    left = database.rows("SELECT entity_id FROM makegood.workflow_executions WHERE finished_at IS NULL ORDER BY 1")
    assert [row["entity_id"] for row in left] == ["order-1", "order-2"]


def test_recovery_takes_on_every_order_wherever_it_was_left(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    where = {"order-0": None, "order-1": "charge", "order-2": "reserve", "order-3": "ship"}
    stick(database, settings, shop, where)
    report = recover()
    assert report.counts == {"due": 4, "taken": 4, "resume": 4, "completed": 4}
    assert count_states(database) == {"completed": 4}
    assert all(shop.order(name)["counts"] == ONCE for name in where)
    again = "step {!r} was begun and has no answer: attempt 2 of 8 under the same key"
    assert read_decisions(database) == {
        "order-0": ("resume", "step 'charge' was never begun: it begins now"),
        "order-1": ("resume", again.format("charge")),
        "order-2": ("resume", again.format("reserve")),
        "order-3": ("resume", again.format("ship")),
    }
    (run,) = read_runs(database)
    assert (str(run["id"]), run["state"], run["counts"]) == (report.run_id, "done", report.counts)


def test_recovery_of_one_more_than_a_batch_takes_them_all(
    database: Any,
    environment: dict[str, str],
    settings: Settings,
    shop: ShopControl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change_settings(monkeypatch, claim_batch=4)
    stick(database, settings, shop, names(5))
    assert recover().counts == {"due": 5, "taken": 5, "resume": 5, "completed": 5}


def test_recovery_with_a_limit_takes_no_more_and_the_next_one_the_rest(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, names(5))
    assert recover(3).counts == {"due": 5, "taken": 3, "resume": 3, "completed": 3}
    assert recover(3).counts == {"due": 2, "taken": 2, "resume": 2, "completed": 2}


def test_recovery_run_twice_finds_nothing_the_second_time(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, names(3, "charge"))
    recover()
    before = read_tables(database, "job_runs")
    assert recover().counts == {}
    assert read_tables(database, "job_runs") == before
    assert shop.totals()["counts"] == {"charge": 3, "reservation": 3, "shipment": 3}


# Others beside it


def test_recovery_by_two_at_once_takes_every_order_once(database: Any, settings: Settings, shop: ShopControl) -> None:
    stick(database, settings, shop, names(30))
    small = settings.model_copy(update={"claim_batch": 5})

    async def run() -> list[jobs.Report]:
        async with (
            open_checkouts(database.jobs, small, worker="one") as one,
            open_checkouts(database.jobs, small, worker="other") as other,
        ):
            return await asyncio.gather(
                *(jobs.run_recovery(runner, Options(100), triggered_by="test") for runner in (one, other))
            )

    reports = asyncio.run(run())
    assert sum(report.counts.get("taken", 0) for report in reports) == 30
    assert sum(report.counts.get("completed", 0) for report in reports) == 30
    assert shop.totals()["counts"] == {"charge": 30, "reservation": 30, "shipment": 30}
    assert len(read_decisions(database)) == 30


def test_recovery_that_lost_the_race_for_one_provider_still_takes_the_others(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    """Somebody claims every order that waits for a payment, after it was planned who is taken."""
    stick(database, settings, shop, {**names(5), **names(4, "reserve", 5), **names(2, "ship", 9)})
    small = settings.model_copy(update={"claim_batch": 1})
    stolen: list[Any] = []

    def steal(counts: Counter[str]) -> None:
        if "due" in counts:
            with Worker(database.jobs, "thief") as thief:
                rows = "SELECT id FROM makegood.workflow_executions WHERE current_state = 'created'"
                stolen.extend(thief.claim(100, ids=[row["id"] for row in thief.rows(rows)]))

    async def run() -> jobs.Report:
        async with open_checkouts(database.jobs, small) as runner:
            return await jobs.run_recovery(runner, Options(100), triggered_by="test", tell=steal)

    report = asyncio.run(run())
    assert len(stolen) == 5
    assert (report.counts["due"], report.counts["taken"], report.counts["completed"]) == (11, 6, 6)
    assert count_states(database) == {"created": 5, "completed": 6}


def test_recovery_whose_lease_ran_out_in_a_call_counts_it_as_lost(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, names(1))

    def take_over(call: Call) -> None:
        pass_time(database)
        with Worker(database.jobs, "other") as other:
            assert len(other.claim(ids=[call.workflow_id])) == 1

    async def run() -> jobs.Report:
        change = lambda workflow: after_call(hasten(workflow), "charge", take_over)  # noqa: E731
        async with open_checkouts(database.jobs, settings, change=change) as runner:
            return await jobs.run_recovery(runner, Options(100), triggered_by="test")

    assert asyncio.run(run()).counts["lost"] == 1
    assert get_row(database, "order-0")["lease_owner"] == "other"
    assert shop.order("order-0")["counts"] == {"charge": 1}


def test_recovery_killed_in_the_middle_of_a_call_is_taken_up_after_its_lease(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, names(3))
    shop.set_faults({"hang_seconds": 60, "rules": [{"operation": "reserve", "fault": "timeout_after"}]})
    kill_in_the_middle(["recover"], environment, lambda: len(shop.list_calls(operation="reserve")) == 3)
    shop.clear_faults()
    # Not before: the dead one's leases still hold.
    assert recover().counts == {}
    let_stick(database)
    assert recover().counts == {"leased": 3}
    pass_time(database)
    assert recover().counts == {"due": 3, "taken": 3, "resume": 3, "completed": 3}
    assert all(shop.order(name)["counts"] == ONCE for name in names(3))
    states = [run["state"] for run in read_runs(database)]
    assert states == ["running", "done", "done", "done"]  # its own run ends when it has expired


async def until_called(shop: ShopControl, operation: str, times: int) -> None:
    async with asyncio.timeout(30):
        while len(await asyncio.to_thread(shop.list_calls, operation=operation)) < times:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def test_recovery_cancelled_after_its_claim_leaves_rows_that_the_next_one_takes(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, names(2))
    shop.set_faults({"hang_seconds": 60, "rules": [{"operation": "charge", "fault": "timeout_after"}]})

    async def run() -> Counter[str]:
        async with open_checkouts(database.jobs, settings) as runner:
            plan = await sweep.make_plan(runner, Options(100))
            (batch,) = plan.batches["payments"]
            run_id = (await runner.database.call("SELECT makegood.new_id() AS id"))[0]["id"]
            working = asyncio.create_task(sweep.recover_some(runner, run_id, batch, 10))
            await until_called(shop, "charge", 2)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            shop.clear_faults()
            assert await sweep.recover_some(runner, run_id, batch, 10) == {}
            let_stick(database)
            pass_time(database)
            (batch,) = (await sweep.make_plan(runner, Options(100))).batches["payments"]
            return await sweep.recover_some(runner, run_id, batch, 10)

    assert asyncio.run(run()) == {"taken": 2, "resume": 2, "completed": 2}
    assert shop.totals()["counts"] == {"charge": 2, "reservation": 2, "shipment": 2}


# A dry run


MIXED: dict[str, str | None] = {
    **{"order-0": None, "order-1": "charge", "order-2": "reserve", "order-3": None},
    **{"order-4": "ship", "order-5": None, "order-6": None},
}


def test_dry_run_changes_nothing_and_says_what_the_real_run_then_does(
    database: Any,
    environment: dict[str, str],
    settings: Settings,
    shop: ShopControl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also past a batch: each order is named once."""
    change_settings(monkeypatch, claim_batch=2)
    stick(database, settings, shop, MIXED)
    request_cancel(database, "order-3")
    with_runner_types_registered()
    calls = shop.calls()["total"]
    before = read_tables(database, "job_runs")
    report = recover(dry_run=True)
    assert read_tables(database, "job_runs") == before
    assert shop.calls()["total"] == calls
    assert sorted(one.entity_id for one in report.decided) == sorted(MIXED)
    assert report.counts["would_resume"] == 6
    assert report.counts["would_compensate"] == 1
    recover()
    assert read_decisions(database) == {one.entity_id: (one.decision, one.reason) for one in report.decided}


def with_runner_types_registered() -> None:
    """The definitions of this process are in the database, so that only a run itself can change something."""
    recover(dry_run=True)


def test_dry_run_is_on_record_as_one(database: Any, environment: dict[str, str], shop: ShopControl) -> None:
    recover(dry_run=True)
    (run,) = read_runs(database)
    assert (run["parameters"]["dry_run"], run["state"]) == (True, "done")


def test_dry_run_with_a_limit_names_no_more(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, names(5))
    assert len(recover(2, dry_run=True).decided) == 2


def test_dry_run_of_a_scheduled_run_has_counts_and_no_batches(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, names(3))
    with_runner_types_registered()
    before = read_tables(database, "job_runs")
    begun = jobs.begin_recovery(dry_run=True, triggered_by="schedule")
    assert (begun["counts"]["due"], begun["counts"]["would_resume"]) == (3, 3)
    assert all(batches == [] for batches in begun["batches"].values())
    assert read_tables(database, "job_runs") == before


# Fairness


async def nothing(call: Call, request: Request) -> None:
    pass


def one_step(name: str) -> Workflow:
    return Workflow(name, [Step("run", "running", None, Action(send=nothing))])


def run_with(database: Any, settings: Settings, *workflows: Workflow, limit: int = 100, start: Any = ()) -> jobs.Report:
    """One recovery by a worker that knows these types."""

    async def run() -> jobs.Report:
        known = {workflow.name: workflow for workflow in workflows}
        async with open_runner(database.jobs, known, settings, chance=NoWait()) as runner:
            if start:
                await runner.start(start, triggered_by="test")
                let_stick(database)
            return await jobs.run_recovery(runner, Options(limit), triggered_by="test")

    return asyncio.run(run())


def count_completed(database: Any) -> dict[str, int]:
    rows = database.rows(
        "SELECT workflow_type, count(*) AS n FROM makegood.workflow_executions WHERE finished_at IS NOT NULL GROUP BY 1"
    )
    return {row["workflow_type"]: row["n"] for row in rows}


def test_recovery_of_thousands_of_one_type_does_not_starve_three_of_another(database: Any, settings: Settings) -> None:
    many = [Start("errand", f"errand-{n}", {}) for n in range(3000)]
    few = [Start("gift", f"gift-{n}", {}) for n in range(3)]
    report = run_with(database, settings, one_step("errand"), one_step("gift"), limit=20, start=[*many, *few])
    assert report.counts["taken"] == 20
    assert count_completed(database) == {"errand": 17, "gift": 3}


def test_recovery_of_many_for_one_provider_does_not_starve_those_of_another(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, {**names(20), **names(2, "reserve", 20), **names(2, "ship", 22)})
    assert recover(9).counts["taken"] == 9
    left = database.rows("SELECT current_state, count(*) AS n FROM makegood.workflow_executions GROUP BY 1")
    assert {row["current_state"]: row["n"] for row in left} == {"created": 15, "completed": 9}


async def hang(call: Call, request: Request) -> None:
    await asyncio.sleep(3600)


def one_step_that_hangs(name: str) -> Workflow:
    return Workflow(name, [Step("run", "running", None, Action(send=hang), timeout_seconds=0.5)])


def test_recovery_of_many_that_hang_leaves_time_for_a_few_that_do_not(database: Any, settings: Settings) -> None:
    """A run's time is a second; the errands, one after the other, would take half a minute."""
    hurried = settings.model_copy(
        update={"job_seconds_max": 1.0, "calls_at_once": 2, "claim_batch": 10, "breaker_failures": 1000}
    )
    many = [Start("errand", f"errand-{n}", {}) for n in range(120)]
    few = [Start("gift", f"gift-{n}", {}) for n in range(3)]
    run_with(database, hurried, one_step_that_hangs("errand"), one_step("gift"), limit=1000, start=[*many, *few])
    assert count_completed(database) == {"gift": 3}


def test_step_that_names_no_provider_and_hangs_is_left_alone_like_one_that_does(
    database: Any, settings: Settings
) -> None:
    careful = settings.model_copy(update={"breaker_wait_seconds": 600, "breaker_failures": 3, "calls_at_once": 2})
    many = [Start("errand", f"errand-{n}", {}) for n in range(100)]
    counts = run_with(database, careful, one_step_that_hangs("errand"), start=many).counts
    assert counts["waiting"] == 100
    (row,) = database.rows("SELECT provider, state FROM makegood.breakers")
    assert (row["provider"], row["state"]) == ("errand.run", "open")
    (row,) = database.rows("SELECT count(*) AS n FROM makegood.step_attempts")
    assert row["n"] <= 3 + UNDER_WAY


UNDER_WAY = 3  # with two calls at once, and one prepared


# Rows that cannot be taken on


def test_recovery_of_a_bad_row_parks_it_and_takes_the_others_on(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, names(4))

    async def run() -> None:
        async with open_checkouts(database.jobs, settings) as runner:
            await runner.start([order("poison", payment_method=["no text"])], triggered_by="shop")
            let_stick(database)

    asyncio.run(run())
    counts = recover().counts
    assert (counts["taken"], counts["completed"], counts["held"]) == (5, 4, 1)
    assert (counts["alerts"], counts["messages"]) == (1, 1)
    (letter,) = database.rows("SELECT * FROM makegood.dead_letters")
    assert (letter["entity_id"], letter["error_type"], letter["state"]) == ("poison", "poisoned", "parked")
    assert read_decisions(database)["poison"] == ("park", letter["error"])
    assert recover().counts == {}  # held: no job touches it


def test_recovery_of_a_state_that_a_newer_worker_wrote_parks_it_at_once(database: Any, settings: Settings) -> None:
    newer = Workflow("errand", [Step("fly", "flying", None, Action(send=nothing))])
    database.rows("SELECT makegood.register_workflow(%s)", (Jsonb(newer.to_document()),))
    (row,) = database.rows("SELECT makegood.start_workflow('errand', 'errand-1') AS id")
    database.rows("SELECT makegood.transition_workflow(%s, 'created', 'flying', 0)", (row["id"],))
    let_stick(database)
    assert run_with(database, settings, one_step("errand")).counts["held"] == 1
    reason = "state 'flying' is not known to this worker (written by a newer one?)"
    assert get_row(database, "errand-1")["held_reason"] == reason
    assert read_decisions(database) == {"errand-1": ("park", reason)}


def start_unknown(database: Any, age_seconds: float) -> None:
    database.rows("SELECT makegood.register_workflow(%s)", (Jsonb(one_step("cruise").to_document()),))
    database.rows("SELECT makegood.start_workflow('cruise', 'cruise-1')")
    let_stick(database, seconds=age_seconds)


def test_recovery_of_a_type_that_is_not_known_leaves_it_to_whoever_knows_it(database: Any, settings: Settings) -> None:
    start_unknown(database, 3500)
    before = read_tables(database, "job_runs", "workflow_types", "workflow_states", "workflow_edges")
    assert run_with(database, settings, one_step("errand")).counts == {"not_mine": 1}
    assert read_tables(database, *set(read_tables(database)) - set(before)) == before


def test_recovery_of_a_type_that_nobody_came_for_parks_it(database: Any, settings: Settings) -> None:
    start_unknown(database, 3700)
    counts = run_with(database, settings, one_step("errand")).counts
    assert (counts["orphaned"], counts["taken"], counts["held"]) == (1, 1, 1)
    (letter,) = database.rows("SELECT * FROM makegood.dead_letters")
    assert letter["error_type"] == "unknown_type"
    assert read_decisions(database)["cruise-1"][0] == "park"


# What else is decided


def test_recovery_of_a_cancelled_order_undoes_it(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, {"order-0": None})
    request_cancel(database, "order-0")
    assert recover().counts["compensated"] == 1
    assert read_decisions(database) == {"order-0": ("compensate", "a cancel was requested: 0 steps to undo")}


def trip(database: Any, provider: str) -> None:
    database.rows("SELECT makegood.trip_breaker(%s, 'another', 'HTTP 503', 60, 60)", (provider,), role="jobs")


def test_recovery_while_a_provider_is_down_calls_it_not_and_records_no_resumption(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    """It is found out before it is decided; those of other providers go on."""
    stick(database, settings, shop, {**names(3), "order-3": "charge", "order-4": "ship"})
    trip(database, "payments")
    calls = len(shop.list_calls(operation="charge"))
    said = {one.entity_id: one.decision for one in recover(dry_run=True).decided}
    counts = recover().counts
    assert (counts["taken"], counts["wait"], counts["waiting"], counts["completed"]) == (5, 4, 4, 1)
    assert set(read_decisions(database)) == {"order-4"}
    assert said == {**dict.fromkeys(names(4), "wait"), "order-4": "resume"}
    assert len(shop.list_calls(operation="charge")) == calls
    assert len(get_attempts(database, "charge")) == 2  # those of before: order-3's, and order-4's
    assert get_row(database, "order-3")["attempts"] == 1
    assert recover().counts == {"not_due": 4}  # nobody asks before the provider may be tried


# The run itself, as a schedule carries it out


def test_scheduled_run_begun_twice_is_one_and_its_batches_told_twice_find_nothing_more(
    database: Any,
    environment: dict[str, str],
    settings: Settings,
    shop: ShopControl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change_settings(monkeypatch, claim_batch=2)
    stick(database, settings, shop, {**names(3), "order-3": "reserve"})
    begun = [jobs.begin_recovery(key="2026-01-02", triggered_by="schedule") for _ in range(2)]
    assert begun[0] == begun[1]
    assert {lane: [b["limit"] for b in group] for lane, group in begun[0]["batches"].items()} == {
        **{"payments": [2, 1], "inventory": [1], "shipping": [], "other": []},
    }
    done: Counter[str] = Counter()
    for lane, batches in begun[0]["batches"].items():
        for number, batch in enumerate(batches):
            done += Counter(jobs.recover_batch(begun[0]["run_id"], batch, f"{lane}-{number}"))
            assert jobs.recover_batch(begun[0]["run_id"], {**batch, "limit": 0}, "nothing") == {}
    assert done == {"taken": 4, "resume": 4, "completed": 4}
    repeated = [jobs.recover_batch(begun[0]["run_id"], b, "x") for group in begun[0]["batches"].values() for b in group]
    assert repeated == [{}] * 3
    totals = [jobs.finish_run(begun[0]["run_id"]) for _ in range(2)]
    assert totals[0] == totals[1] == {"due": 4, "taken": 4, "resume": 4, "completed": 4}
    (run,) = read_runs(database)
    assert (run["run_key"], run["state"]) == ("2026-01-02", "done")


def test_batch_whose_first_try_failed_and_second_did_not_is_a_run_well_done(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, names(2))
    begun = jobs.begin_recovery(triggered_by="schedule")
    database.rows("ALTER FUNCTION makegood.claim_workflows RENAME TO claim_later")
    with pytest.raises(jobs.MakegoodError):
        jobs.recover_batch(begun["run_id"], begun["batches"]["payments"][0], "payments-0")
    database.rows("ALTER FUNCTION makegood.claim_later RENAME TO claim_workflows")
    assert jobs.recover_batch(begun["run_id"], begun["batches"]["payments"][0], "payments-0")["completed"] == 2
    assert "batches_failed" not in jobs.finish_run(begun["run_id"])
    (run,) = read_runs(database)
    assert (run["state"], run["error"]) == ("done", None)


def test_batch_that_was_never_heard_of_is_a_run_that_failed(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    """Killed on every try: it said nothing at all."""
    stick(database, settings, shop, {**names(2), "order-2": "reserve"})
    begun = jobs.begin_recovery(triggered_by="schedule")
    jobs.recover_batch(begun["run_id"], begun["batches"]["payments"][0], "payments-0")
    assert jobs.finish_run(begun["run_id"])["batches_failed"] == 1
    (run,) = read_runs(database)
    assert (run["state"], run["error"]) == ("failed", "1 batches did not come to their end")


def test_run_whose_database_is_of_another_version_is_failed_and_parks_nothing(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    """A function is missing: no row's fault, so nothing is parked, and the run says why it failed."""
    stick(database, settings, shop, names(2))
    database.rows("ALTER FUNCTION makegood.begin_steps RENAME TO begin_steps_later")

    async def run() -> None:
        async with open_checkouts(database.jobs, settings) as runner:
            await jobs.run_recovery(runner, Options(10), triggered_by="test")

    with pytest.raises(jobs.MakegoodError, match="begin_steps"):
        asyncio.run(run())
    (row,) = read_runs(database)
    assert row["state"] == "failed"
    assert "begin_steps" in row["error"]
    assert row["counts"]["batches_failed"] == 1
    assert count_states(database) == {"created": 2}


def test_run_whose_time_is_up_takes_nothing_new(database: Any, settings: Settings) -> None:
    hurried = settings.model_copy(update={"job_seconds_max": 1e-6})
    starts = [Start("errand", f"errand-{n}", {}) for n in range(3)]
    assert run_with(database, hurried, one_step("errand"), start=starts).counts == {"due": 3}
    assert count_states(database) == {"created": 3}


def test_counts_of_many_claims_at_once_are_all_on_record(
    database: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim that tells late must not unsay what a later one told."""
    small = settings.model_copy(update={"claim_batch": 1})
    starts = [Start("errand", f"errand-{n}", {}) for n in range(25)]
    report = run_with(database, small, one_step("errand"), start=starts)
    assert report.counts == {"due": 25, "taken": 25, "resume": 25, "completed": 25}
    assert read_runs(database)[0]["counts"] == report.counts


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((None, None, 0), "the limit is 0"),
        ((None, None, 1_000_001), "the limit is 1000001"),
        ((-1.0, None, None), "older than is -1 s"),
        ((float("nan"), None, None), "older than is nan s"),
        ((float("inf"), None, None), "older than is inf s"),
        ((1e12, None, None), "older than is 1e\\+12 s"),
    ],
)
def test_options_that_cannot_be_are_refused_by_name(options: tuple[Any, Any, Any], said: str) -> None:
    with pytest.raises(jobs.InputError, match=said):
        jobs.check_options(*options)


def test_run_of_a_type_that_nobody_registered_is_refused(database: Any, environment: dict[str, str]) -> None:
    with pytest.raises(jobs.InputError, match="unknown workflow type 'cruise'; known are: checkout"):
        jobs.recover(Options(1, None, "cruise"), triggered_by="test")
    assert read_runs(database) == []


def test_run_of_one_type_takes_only_that(database: Any, settings: Settings) -> None:
    starts = [Start("errand", "errand-1", {}), Start("gift", "gift-1", {})]

    async def run() -> jobs.Report:
        known = {name: one_step(name) for name in ("errand", "gift")}
        async with open_runner(database.jobs, known, settings, chance=NoWait()) as runner:
            await runner.start(starts, triggered_by="test")
            let_stick(database)
            return await jobs.run_recovery(runner, Options(10, None, "gift"), triggered_by="test")

    assert asyncio.run(run()).counts["taken"] == 1
    assert count_completed(database) == {"gift": 1}


# Alerts


def test_alerts_of_a_run_that_fails_leave_all_the_same(database: Any, settings: Settings) -> None:
    """One was held before the database turned out to be of another version: nobody waits for the next run."""
    told: list[str] = []
    small = settings.model_copy(update={"claim_batch": 1})

    async def tell(title: str, body: str) -> bool:
        told.append(title)
        return True

    async def send(call: Call, request: Request) -> Outcome | None:
        if call.entity_id == "odd":
            return Suspect("odd", "not what was asked for")
        await asyncio.sleep(0.5)
        database.rows("ALTER FUNCTION makegood.finish_steps RENAME TO finish_later")
        return None

    async def run() -> None:
        errand = Workflow("errand", [Step("run", "running", None, Action(send=send))])
        async with open_runner(database.jobs, {"errand": errand}, small, chance=NoWait()) as runner:
            await runner.start([Start("errand", "odd", {}), Start("errand", "late", {})], triggered_by="test")
            let_stick(database)
            await jobs.run_recovery(runner, Options(10), triggered_by="test", send=tell)

    with pytest.raises(jobs.MakegoodError, match="finish_steps"):
        asyncio.run(run())
    assert told == ["An order is held"]
    assert read_runs(database)[0]["state"] == "failed"


def test_alert_leaves_while_the_run_still_lasts(
    database: Any, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "ALERT_SECONDS", 0.2)
    told: list[str] = []

    async def run() -> jobs.Report:
        heard = asyncio.Event()

        async def tell(title: str, body: str) -> bool:
            told.append(title)
            heard.set()
            return True

        async def send(call: Call, request: Request) -> Outcome | None:
            if call.entity_id == "odd":
                return Suspect("odd", "not what was asked for")
            await asyncio.wait_for(heard.wait(), 20)  # this order takes until somebody was told of the other
            return None

        errand = Workflow("errand", [Step("run", "running", None, Action(send=send))])
        async with open_runner(database.jobs, {"errand": errand}, settings, chance=NoWait()) as runner:
            await runner.start([Start("errand", "odd", {}), Start("errand", "slow", {})], triggered_by="test")
            let_stick(database)
            return await jobs.run_recovery(runner, Options(10), triggered_by="test", send=tell)

    counts = asyncio.run(run()).counts
    assert told == ["An order is held"]
    assert (counts["completed"], counts["held"], counts["alerts"], counts["messages"]) == (1, 1, 1, 1)
