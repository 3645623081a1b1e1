"""Undos that are due are tried again until done or held: twice, overlapped, killed, raced; each refund is made once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from checkouts import NOWHERE, get_attempts, get_row, get_undone, let_stick, open_checkouts, order, pass_time
from database_worker import Worker
from sweeps import count_states, kill_in_the_middle, read_decisions, read_runs, read_tables, stick, surroundings

from makegood import jobs
from makegood.compensation import sweep
from makegood.recovery.decide import BATCHES_MAX
from makegood.runs.model import Options
from makegood.settings import Settings, get_settings
from sandbox.client import ShopControl

UNDONE = {"charge": 1, "reservation": 1, "release": 1, "refund": 1}


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


def compensate(limit: int = 100, older_than_seconds: float | None = None, **options: Any) -> jobs.Report:
    return jobs.compensate(Options(limit, older_than_seconds), triggered_by="test", **options)


def owing(count: int, operation: str = "release", first: int = 0) -> dict[str, str | None]:
    """Orders that could not be shipped, whose undo of this operation met a reset."""
    return {f"order-{n}": operation for n in range(first, first + count)}


# How much there is


def test_compensation_with_nothing_to_do_says_so_and_calls_nobody(
    database: Any, environment: dict[str, str], shop: ShopControl
) -> None:
    assert compensate().counts == {}
    (run,) = read_runs(database)
    assert (run["job"], run["state"], run["counts"]) == ("retry_compensations", "done", {})
    assert shop.calls()["total"] == 0


def test_compensation_leaves_orders_on_their_way_forward_alone(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, {"order-0": None, "order-1": "charge"})
    assert compensate().counts == {}
    assert count_states(database) == {"created": 1, "charging": 1}


def test_compensation_undoes_the_rest_in_reverse_and_says_why(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, {"order-0": "release", "order-1": "refund"})
    report = compensate()
    assert report.counts == {"due": 2, "taken": 2, "resume": 2, "compensated": 2}
    for name in ("order-0", "order-1"):
        assert shop.order(name)["counts"] == UNDONE
        kinds = [entry["kind"] for entry in shop.log() if entry["order_id"] == name]
        assert kinds == ["charge", "reservation", "release", "refund"]
    assert read_decisions(database) == {
        "order-0": ("resume", "undo of step 'reserve': attempt 2 of 20"),
        "order-1": ("resume", "undo of step 'charge': attempt 2 of 20"),
    }
    (run,) = read_runs(database)
    assert (str(run["id"]), run["state"], run["counts"]) == (report.run_id, "done", report.counts)


def test_compensation_does_not_wait_for_a_deadline(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    """Money is owed: what is due is tried, however fresh it is. By age only when that is asked for."""
    stick(database, settings, shop, owing(1))
    database.rows("UPDATE makegood.workflow_executions SET deadline_at = now() + interval '1 hour'")
    assert compensate(older_than_seconds=86_400).counts == {}
    assert compensate().counts["compensated"] == 1


def test_compensation_before_its_time_counts_and_touches_nothing(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, owing(2))
    database.rows("UPDATE makegood.workflow_executions SET next_attempt_at = now() + interval '1 hour'")
    register(database)
    before = read_tables(database, "job_runs")
    assert compensate().counts == {"not_due": 2}
    assert read_tables(database, "job_runs") == before


def register(database: Any) -> None:
    """The definitions of this process are in the database, so that only a run itself can change something."""
    compensate(dry_run=True)
    database.rows("DELETE FROM makegood.job_runs")


def test_compensation_of_one_more_than_a_batch_takes_them_all(
    database: Any,
    environment: dict[str, str],
    settings: Settings,
    shop: ShopControl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change_settings(monkeypatch, claim_batch=3)
    stick(database, settings, shop, owing(4))
    assert compensate().counts == {"due": 4, "taken": 4, "resume": 4, "compensated": 4}


def test_compensation_with_a_limit_takes_no_more_and_the_next_one_the_rest(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, owing(5))
    assert compensate(3).counts["compensated"] == 3
    assert compensate(3).counts["compensated"] == 2


def test_compensation_run_twice_finds_nothing_the_second_time(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, owing(3, "refund"))
    compensate()
    before = read_tables(database, "job_runs")
    assert compensate().counts == {}
    assert read_tables(database, "job_runs") == before
    assert shop.totals()["counts"]["refund"] == 3


# Others beside it


def test_compensation_by_two_at_once_refunds_every_order_once(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, owing(24))
    small = settings.model_copy(update={"claim_batch": 4})

    async def run() -> list[jobs.Report]:
        async with (
            open_checkouts(database.jobs, small, worker="one") as one,
            open_checkouts(database.jobs, small, worker="other") as other,
        ):
            return await asyncio.gather(
                *(jobs.run_compensation(runner, Options(100), triggered_by="test") for runner in (one, other))
            )

    reports = asyncio.run(run())
    assert sum(report.counts.get("compensated", 0) for report in reports) == 24
    assert shop.totals()["counts"] == dict.fromkeys(UNDONE, 24)
    assert len(read_decisions(database)) == 24


def test_compensation_that_lost_the_race_does_nothing_and_says_so(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, owing(3))

    def steal(counts: Counter[str]) -> None:
        if "due" in counts:
            with Worker(database.jobs, "thief") as thief:
                assert len(thief.claim(100)) == 3

    async def run() -> jobs.Report:
        async with open_checkouts(database.jobs, settings) as runner:
            return await jobs.run_compensation(runner, Options(100), triggered_by="test", tell=steal)

    assert asyncio.run(run()).counts == {"due": 3}
    assert count_states(database) == {"compensating": 3}
    assert "refund" not in shop.totals()["counts"]


def test_compensation_killed_in_the_middle_of_a_refund_is_taken_up_and_refunds_once(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, owing(3))
    shop.set_faults({"hang_seconds": 60, "rules": [{"operation": "refund", "fault": "timeout_after"}]})
    kill_in_the_middle(["compensate"], environment, lambda: len(shop.list_calls(operation="refund")) == 3)
    shop.clear_faults()
    assert compensate().counts == {"leased": 3}  # the dead one's leases still hold
    pass_time(database)
    assert compensate().counts == {"due": 3, "taken": 3, "resume": 3, "compensated": 3}
    assert all(shop.order(name)["counts"] == UNDONE for name in owing(3))


def test_compensation_cancelled_after_its_claim_leaves_rows_that_the_next_one_takes(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, owing(2))
    shop.set_faults({"hang_seconds": 60, "rules": [{"operation": "release", "fault": "timeout_after"}]})

    async def run() -> Counter[str]:
        async with open_checkouts(database.jobs, settings) as runner:
            run_id = (await runner.database.call("SELECT makegood.new_id() AS id"))[0]["id"]
            working = asyncio.create_task(sweep.compensate_some(runner, run_id, Options(10), 10))
            async with asyncio.timeout(30):
                while len(await asyncio.to_thread(shop.list_calls, operation="release")) < 4:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            shop.clear_faults()
            assert await sweep.compensate_some(runner, run_id, Options(10), 10) == {}
            pass_time(database)
            return await sweep.compensate_some(runner, run_id, Options(10), 10)

    assert asyncio.run(run()) == {"taken": 2, "resume": 2, "compensated": 2}
    assert all(shop.order(name)["counts"] == UNDONE for name in owing(2))


# A dry run


def test_dry_run_changes_nothing_and_says_what_the_real_run_then_does(
    database: Any,
    environment: dict[str, str],
    settings: Settings,
    shop: ShopControl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change_settings(monkeypatch, claim_batch=2)
    stick(database, settings, shop, {**owing(3), **owing(2, "refund", 3), "order-9": None})
    register(database)
    calls = shop.calls()["total"]
    before = read_tables(database, "job_runs")
    report = compensate(dry_run=True)
    assert read_tables(database, "job_runs") == before
    assert shop.calls()["total"] == calls
    assert report.counts == {"would_resume": 5}
    compensate()
    assert read_decisions(database) == {one.entity_id: (one.decision, one.reason) for one in report.decided}


def test_dry_run_of_a_scheduled_run_has_counts_and_no_batches(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, owing(3))
    register(database)
    before = read_tables(database, "job_runs")
    begun = jobs.begin_compensation(dry_run=True, triggered_by="schedule")
    assert (begun["counts"], begun["batches"]) == ({"due": 3, "would_resume": 3}, [])
    assert read_tables(database, "job_runs") == before


# Undos that cannot be done


def test_compensation_that_is_refused_is_held_with_its_order_and_the_others_go_on(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, owing(4))
    shop.set_faults({"rules": [{"operation": "refund", "fault": "refused", "order_id": "order-2"}]})
    counts = compensate().counts
    assert (counts["taken"], counts["compensated"], counts["held"], counts["alerts"]) == (4, 3, 1, 1)
    row = get_row(database, "order-2")
    assert (row["current_state"], row["held_at"] is not None) == ("compensating", True)
    (letter,) = database.rows("SELECT * FROM makegood.dead_letters")
    assert (letter["entity_id"], letter["source"], letter["headers"]["step"]) == ("order-2", "compensation", "charge")
    shop.clear_faults()
    assert compensate().counts == {}  # a person's now
    assert "refund" not in shop.order("order-2")["counts"]


def test_compensation_whose_attempts_are_spent_is_looked_up_and_then_held(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    """Refunds and their look-ups meet a provider that never answers: bounded, then a person's."""
    stick(database, settings, shop, owing(1, "refund"))
    shop.set_faults(
        {"rules": [{"operation": "refund", "fault": "error_503"}, {"operation": "list", "fault": "error_503"}]}
    )
    ends: Counter[str] = Counter()

    async def run() -> None:
        async with open_checkouts(database.jobs, settings) as runner:
            for _ in range(30):
                report = await jobs.run_compensation(runner, Options(10), triggered_by="test")
                ends.update({name: report.counts.get(name, 0) for name in ("waiting", "held")})
                pass_time(database)

    asyncio.run(run())
    assert ends["held"] == 1
    assert get_undone(database)["charge"] == "held"
    # Four attempts, one of them before, then look-ups that are bounded too.
    assert len(get_attempts(database, "charge", "compensation")) == 4
    assert ends["waiting"] == 3 + 5


def test_compensation_while_its_provider_is_down_waits_and_spends_nothing(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, {**owing(2, "refund"), **owing(1, "release", 2)})
    database.rows("SELECT makegood.trip_breaker('payments', 'another', 'HTTP 503', 60, 60)", role="jobs")
    calls = len(shop.list_calls(operation="refund"))
    said = {one.entity_id: one.decision for one in compensate(dry_run=True).decided}
    counts = compensate().counts
    assert said == {"order-0": "wait", "order-1": "wait", "order-2": "resume"}
    assert (counts["taken"], counts["wait"], counts["resume"], counts["waiting"]) == (3, 2, 1, 3)
    assert set(read_decisions(database)) == {"order-2"}  # its goods are put back, its money waits
    assert "release" in shop.order("order-2")["counts"]
    assert len(shop.list_calls(operation="refund")) == calls
    attempts = database.rows("SELECT attempts FROM makegood.compensations WHERE step = 'charge' ORDER BY attempts")
    assert [row["attempts"] for row in attempts] == [0, 1, 1]
    assert compensate().counts == {"not_due": 3}


def test_compensation_without_its_end_is_ended(database: Any, settings: Settings, shop: ShopControl) -> None:
    """Everything was undone, and its worker died before it said so."""
    with Worker(database.jobs) as worker:
        worker.register()
        lease = worker.started("order-1")
        worker.do(lease, "charge")
        worker.compensate(lease, ["charge"])
        worker.begin_undo(lease, "charge")
        worker.finish_undo(lease, "charge")
    pass_time(database)

    async def run() -> jobs.Report:
        async with open_checkouts(database.jobs, settings) as runner:
            return await jobs.run_compensation(runner, Options(10), triggered_by="test")

    assert asyncio.run(run()).counts["compensated"] == 1
    assert read_decisions(database) == {"order-1": ("resume", "everything is undone: only its end is missing")}
    assert shop.calls()["total"] == 0


# The run itself, as a schedule carries it out


def test_scheduled_run_begun_twice_is_one_and_its_batches_carry_it_out(
    database: Any,
    environment: dict[str, str],
    settings: Settings,
    shop: ShopControl,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change_settings(monkeypatch, claim_batch=2)
    stick(database, settings, shop, owing(3))
    begun = [jobs.begin_compensation(key="2026-01-02", triggered_by="schedule") for _ in range(2)]
    assert begun[0] == begun[1]
    assert [batch["limit"] for batch in begun[0]["batches"]] == [2, 1]
    parts = jobs.name_batches("compensations", 2) * 2
    twice = zip(begun[0]["batches"] * 2, parts, strict=True)
    done = [jobs.compensate_batch(begun[0]["run_id"], batch, part) for batch, part in twice]
    assert [counts.get("compensated", 0) for counts in done] == [2, 1, 0, 0]
    assert jobs.finish_run(begun[0]["run_id"])["compensated"] == 3
    (run,) = read_runs(database)
    assert (run["state"], run["batches"]) == ("done", dict.fromkeys(parts, "done"))


def test_scheduled_run_of_very_many_has_few_larger_batches(
    database: Any, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow maps over batches, and has a bound of its own."""

    async def many(*_: Any) -> dict[str, int]:
        return {"due": 100_000}

    change_settings(monkeypatch, claim_batch=50)
    monkeypatch.setattr(jobs.compensation, "count_due", many)
    limits = [batch["limit"] for batch in jobs.begin_compensation(triggered_by="schedule", limit=99_999)["batches"]]
    assert (len(limits), sum(limits)) == (BATCHES_MAX, 99_999)


def test_batch_that_is_tried_again_adds_to_what_its_first_try_did(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    stick(database, settings, shop, owing(2))
    begun = jobs.begin_compensation(triggered_by="schedule", limit=1)
    for _ in range(2):
        jobs.compensate_batch(begun["run_id"], begun["batches"][0], "compensations-0")
    assert jobs.finish_run(begun["run_id"])["compensated"] == 2


def test_order_cancelled_while_stuck_is_undone_by_both_jobs_together(
    database: Any, environment: dict[str, str], settings: Settings, shop: ShopControl
) -> None:
    """Recovery enters the undo, which meets a reset; the other job ends it."""
    shop.set_faults({"rules": [{"operation": "release", "fault": "reset_before", "nth": 1}]})

    async def run() -> None:
        async with open_checkouts(database.jobs, settings) as runner:
            await runner.start([order(**NOWHERE)], triggered_by="shop")
            let_stick(database)

    asyncio.run(run())
    assert jobs.recover(Options(10), triggered_by="test").counts["waiting"] == 1
    pass_time(database)
    assert jobs.recover(Options(10), triggered_by="test").counts == {}  # not its own
    assert compensate().counts["compensated"] == 1
    assert shop.order("order-1")["counts"] == UNDONE
