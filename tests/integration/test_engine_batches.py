"""Many at once: one bad row never stops the others, bounds hold, and workers do not get in each other's way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import string
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import psycopg
import pytest
from checkouts import NoWait, drive, get_row, open_checkouts, order, pass_time
from databases import DatabaseUrls
from psycopg.types.json import Jsonb

from makegood.engine.definitions import Action, Call, Request, Step, Workflow, describe_call
from makegood.engine.outcomes import Failed
from makegood.engine.runner import Runner, Start, open_runner
from makegood.engine.store import Wanted
from makegood.errors import PermanentError
from makegood.local.postgres import EmbeddedPostgres
from makegood.migrations import migrate
from makegood.settings import Settings
from sandbox.client import ShopControl


async def nothing(call: Call, request: Request) -> None:
    pass


def one_step(send: Callable[..., Any], **rest: Any) -> Workflow:
    return Workflow("errand", [Step("run", "running", None, Action(send=send), **rest)])


@contextlib.asynccontextmanager
async def opened(database: Any, settings: Settings, workflow: Workflow, **options: Any) -> AsyncIterator[Runner]:
    async with open_runner(database.jobs, {workflow.name: workflow}, settings, chance=NoWait(), **options) as runner:
        yield runner


def errands(count: int) -> list[Start]:
    return [Start("errand", f"errand-{n}", {}) for n in range(count)]


def count_states(database: Any) -> dict[str, int]:
    rows = database.rows(
        "SELECT CASE WHEN held_at IS NULL THEN current_state ELSE 'held' END AS state, count(*) AS n"
        " FROM makegood.workflow_executions GROUP BY 1"
    )
    return {row["state"]: row["n"] for row in rows}


async def until_completed(database: Any, count: int) -> int:
    """Waits for so many; returns how many there were."""
    while True:
        completed = count_states(database).get("completed", 0)
        if completed >= count:
            return completed
        await asyncio.sleep(0.01)


# Poison


def noise(size: int) -> str:
    """Text that does not shrink when it is compressed."""
    return "".join(random.Random(size).choices(string.ascii_letters + string.digits, k=size))


def ask(call: Call) -> Request:
    if call.context.get("poison") == "request":
        raise KeyError("sku")
    return describe_call(call)


async def answer(call: Call, request: Request) -> Any:
    return {
        "nan": {"price": float("nan")},
        "large": {"blob": "x" * 20_000},
        "nul": {"note": "\0"},
        "outgrown": {"blob": noise(16_000)},
    }.get(call.context.get("poison", ""))


POISONED = Workflow(
    "errand",
    [
        Step("fetch", "fetching", "fetched", Action(send=nothing)),
        Step("bring", "bringing", None, Action(send=answer, request=ask)),
    ],
    topics_on_completed=["brought"],
)
REASONS = {
    "request": "KeyError: 'sku'",
    "nan": "result.price is nan; JSON has no such number",
    "large": "result is 20,011 bytes; at most 16,384 are kept",
    "nul": "result.note contains a NUL character",
    "outgrown": "workflow_executions_context_check",
    "newer": "state 'flying' is not known to this worker (written by a newer one?)",
}


def write_rows_of_a_newer_version(database: Any) -> None:
    """What a database has after somebody deployed a version that this worker does not know."""
    parade = Workflow("parade", [Step("march", "marching", None, Action(send=nothing))]).to_document()
    database.rows("SELECT makegood.register_workflow(%s)", (Jsonb(parade),))
    database.rows("SELECT makegood.start_workflow('parade', 'unknown_type')")
    newer = Workflow("errand", [Step("fly", "flying", None, Action(send=nothing))]).to_document()
    database.rows("SELECT makegood.register_workflow(%s)", (Jsonb(newer),))
    started = database.rows("SELECT makegood.start_workflow('errand', 'newer') AS id")[0]["id"]
    moved = database.rows("SELECT makegood.transition_workflow(%s, 'created', 'flying', 0) AS moved", (started,))
    assert moved == [{"moved": True}]


def test_six_poisoned_among_a_thousand_are_held_with_the_reason_and_the_rest_complete(
    database: Any, settings: Settings
) -> None:
    kinds = ["request", "nan", "large", "nul", "outgrown"]
    starts = [Start("errand", f"errand-{n}", {"n": n}) for n in range(993)]
    for place, kind in enumerate(kinds):
        blob = {"blob": noise(60_000)} if kind == "outgrown" else {}
        starts.insert(place * 190, Start("errand", kind, {"poison": kind, **blob}))

    async def run() -> Counter[str]:
        async with opened(database, settings, POISONED) as runner:
            await runner.start(starts, triggered_by="shop")
            write_rows_of_a_newer_version(database)
            return await drive(runner, database)

    counts = asyncio.run(run())
    assert counts == {"completed": 993, "held": 6}
    # The one of a type that this worker does not know is another worker's: it is left alone.
    assert count_states(database) == {"completed": 993, "held": 6, "created": 1}
    held = database.rows(
        "SELECT entity_id, held_reason, lease_owner FROM makegood.workflow_executions WHERE held_at IS NOT NULL"
    )
    assert {row["entity_id"] for row in held} == set(REASONS)
    for row in held:
        assert REASONS[row["entity_id"]] in row["held_reason"], row
        assert row["lease_owner"] is None
    told = database.rows("SELECT topic, count(*) AS n FROM makegood.outbox GROUP BY topic ORDER BY topic")
    assert told == [{"topic": "alert", "n": 6}, {"topic": "brought", "n": 993}]


def test_poisoned_rows_that_are_held_are_left_alone_by_the_next_batch(database: Any, settings: Settings) -> None:
    async def run() -> Counter[str]:
        async with opened(database, settings, POISONED) as runner:
            await runner.start([Start("errand", "nan", {"poison": "nan"})], triggered_by="shop")
            await drive(runner, database)
            pass_time(database)
            return await runner.run_once()

    assert asyncio.run(run()) == {}


def test_batch_of_nothing_to_do_is_empty(database: Any, settings: Settings) -> None:
    async def run() -> Counter[str]:
        async with opened(database, settings, one_step(nothing)) as runner:
            return await runner.run_once()

    assert asyncio.run(run()) == {}


def test_one_more_than_a_batch_is_left_for_the_next(database: Any, settings: Settings) -> None:
    async def run() -> list[Counter[str]]:
        async with opened(database, settings.model_copy(update={"claim_batch": 10}), one_step(nothing)) as runner:
            await runner.start(errands(11), triggered_by="shop")
            return [await runner.run_once() for _ in range(3)]

    assert asyncio.run(run()) == [{"completed": 10}, {"completed": 1}, {}]


def test_only_the_stuck_are_taken_when_only_those_are_asked_for(database: Any, settings: Settings) -> None:
    async def run() -> list[Counter[str]]:
        async with opened(database, settings, one_step(nothing)) as runner:
            await runner.start(errands(3), triggered_by="shop")
            database.rows("UPDATE makegood.workflow_executions SET deadline_at = now() WHERE entity_id = 'errand-1'")
            return [await runner.run_once(Wanted(stuck_only=True)) for _ in range(2)]

    assert asyncio.run(run()) == [{"completed": 1}, {}]
    assert get_row(database, "errand-1")["current_state"] == "completed"


# Bounds


class Gauge:
    """How many are inside at once, and the most there ever were. All wait until as many are in as there may be."""

    def __init__(self, bound: int) -> None:
        self.inside = self.most = 0
        self._bound = bound
        self._patience_until = time.monotonic() + 10
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.inside -= 1

    @property
    def filling(self) -> bool:
        return self.most < self._bound and time.monotonic() < self._patience_until

    async def visit(self, call: Call, request: Request) -> None:
        with self:
            for _ in range(1000):
                await asyncio.sleep(0.01)
                if not self.filling:
                    return

    def visit_plainly(self, call: Call, request: Request) -> None:
        with self:
            time.sleep(0.01)
            while self.filling:
                time.sleep(0.01)


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_calls_at_once_are_reached_and_never_exceeded(database: Any, settings: Settings, kind: str) -> None:
    gauge = Gauge(24)
    workflow = one_step(gauge.visit if kind == "async" else gauge.visit_plainly)

    async def run() -> Counter[str]:
        async with opened(database, settings.model_copy(update={"calls_at_once": 24}), workflow) as runner:
            await runner.start(errands(150), triggered_by="shop")
            return await runner.run_once()

    assert asyncio.run(run()) == {"completed": 150}
    assert gauge.most == 24


def test_calls_of_two_batches_at_once_share_the_bound(database: Any, settings: Settings) -> None:
    gauge = Gauge(5)

    async def run() -> Counter[str]:
        async with opened(database, settings.model_copy(update={"calls_at_once": 5}), one_step(gauge.visit)) as runner:
            await runner.start(errands(40), triggered_by="shop")
            halves = await asyncio.gather(runner.run_once(batch=20), runner.run_once(batch=20))
            return halves[0] + halves[1]

    assert asyncio.run(run()) == {"completed": 40}
    assert gauge.most == 5


def test_undo_calls_are_within_the_bound_too(database: Any, settings: Settings) -> None:
    gauge = Gauge(3)

    async def refuse(call: Call, request: Request) -> None:
        raise PermanentError("no")

    workflow = Workflow(
        "errand",
        [
            Step("one", "doing_one", "done_one", Action(send=nothing), undo=Action(send=gauge.visit)),
            Step("two", "doing_two", None, Action(send=refuse)),
        ],
    )

    async def run() -> Counter[str]:
        async with opened(database, settings.model_copy(update={"calls_at_once": 3}), workflow) as runner:
            await runner.start(errands(20), triggered_by="shop")
            return await runner.run_once()

    assert asyncio.run(run()) == {"compensated": 20}
    assert gauge.most == 3


# Promise 2: no transaction is open while something outside is called


async def find_open_transactions(url: str, condition: str) -> list[dict[str, Any]]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute(
            "SELECT state, query FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name = 'makegood' AND " + condition
        )
        return [{"state": row[0], "query": row[1]} for row in await cursor.fetchall()]


def test_no_transaction_is_open_during_a_call(database: Any, settings: Settings) -> None:
    """Forward and back; a single order, so that every backend of ours is looked at while it waits for the call."""
    seen: list[Any] = []

    async def look(call: Call, request: Request) -> None:
        seen.append(await find_open_transactions(database.admin, "xact_start IS NOT NULL"))

    async def look_and_refuse(call: Call, request: Request) -> Any:
        await look(call, request)
        return Failed("no", "no")

    workflow = Workflow(
        "errand",
        [
            Step("one", "doing_one", "done_one", Action(send=look), undo=Action(send=look)),
            Step("two", "doing_two", None, Action(send=look_and_refuse)),
        ],
    )

    async def run() -> Counter[str]:
        async with opened(database, settings, workflow) as runner:
            await runner.start(errands(1), triggered_by="shop")
            return await runner.run_once()

    assert asyncio.run(run()) == {"compensated": 1}
    assert seen == [[], [], []]


def test_no_transaction_waits_for_a_call_in_a_busy_batch(database: Any, settings: Settings) -> None:
    seen: list[Any] = []

    async def look(call: Call, request: Request) -> None:
        seen.extend(await find_open_transactions(database.admin, "state LIKE 'idle in transaction%'"))

    async def run() -> Counter[str]:
        async with opened(database, settings.model_copy(update={"calls_at_once": 8}), one_step(look)) as runner:
            await runner.start(errands(60), triggered_by="shop")
            return await runner.run_once()

    assert asyncio.run(run()) == {"completed": 60}
    assert seen == []


# Deadlines and leases


def test_plain_step_that_outlives_its_deadline_is_unknown_and_tried_again_under_its_key(
    database: Any, settings: Settings
) -> None:
    keys: list[str] = []

    def send(call: Call, request: Request) -> None:
        keys.append(call.key)
        if len(keys) == 1:
            time.sleep(2)

    async def run() -> tuple[Counter[str], float]:
        async with opened(database, settings, one_step(send, timeout_seconds=0.2)) as runner:
            await runner.start(errands(1), triggered_by="shop")
            before = time.monotonic()
            first = await runner.run_once()
            seconds = time.monotonic() - before
            await drive(runner, database)
            return first, seconds

    first, seconds = asyncio.run(run())
    assert first == {"waiting": 1}
    assert seconds < 2
    attempts = database.rows("SELECT outcome, error_type FROM makegood.step_attempts ORDER BY attempt")
    assert [tuple(a.values()) for a in attempts] == [("unknown", "timeout"), ("success", None)]
    assert keys == ["errand-run-errand-0"] * 2


def test_leases_are_renewed_while_rows_wait_their_turn(database: Any, settings: Settings) -> None:
    """The batch takes longer than two leases; somebody else looks for free rows all the while."""
    stolen: list[Any] = []
    calls: Counter[str] = Counter()

    async def send(call: Call, request: Request) -> None:
        calls[call.key] += 1
        await asyncio.sleep(0.4)

    quick = settings.model_copy(update={"lease_seconds": 1.5, "calls_at_once": 4})

    async def steal(thief: Runner, done: asyncio.Event) -> None:
        while not done.is_set():
            stolen.extend(await thief.store.claim(100))
            await asyncio.sleep(0.1)

    async def run() -> Counter[str]:
        workflow = one_step(send)
        async with (
            opened(database, quick, workflow, worker="owner") as runner,
            opened(database, quick, workflow, worker="thief") as thief,
        ):
            await runner.start(errands(40), triggered_by="shop")
            done = asyncio.Event()
            claimed = await runner.store.claim(100)
            stealing = asyncio.create_task(steal(thief, done))
            counts = await runner.engine.advance(claimed)
            done.set()
            await stealing
            return counts

    assert asyncio.run(run()) == {"completed": 40}
    assert stolen == []
    assert set(calls.values()) == {1}
    assert database.rows("SELECT DISTINCT fence FROM makegood.workflow_executions") == [{"fence": 1}]


def test_lease_that_ran_out_is_taken_over_and_the_late_worker_writes_nothing(database: Any, settings: Settings) -> None:
    async def run() -> tuple[Counter[str], Counter[str]]:
        entered, go_on = asyncio.Event(), asyncio.Event()

        async def stall(call: Call, request: Request) -> None:
            entered.set()
            await go_on.wait()

        async with (
            opened(database, settings, one_step(stall), worker="late") as slow,
            opened(database, settings, one_step(nothing), worker="other") as other,
        ):
            await slow.start(errands(1), triggered_by="shop")
            working = asyncio.create_task(slow.run_once())
            await entered.wait()
            pass_time(database)  # its lease is over before it knows
            taken = await other.run_once()
            go_on.set()
            return taken, await working

    taken, lost = asyncio.run(run())
    assert (taken, lost) == ({"completed": 1}, {"lost": 1})
    writers = database.rows("SELECT triggered_by FROM makegood.workflow_transitions ORDER BY seq")
    assert [w["triggered_by"] for w in writers] == ["shop", "late", "other"]


# Workers beside each other, and a database that goes away


def test_four_workers_over_one_database_charge_every_order_once(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    busy = settings.model_copy(update={"claim_batch": 25, "calls_at_once": 8})

    async def run() -> Counter[str]:
        async with contextlib.AsyncExitStack() as stack:
            runners = [
                await stack.enter_async_context(open_checkouts(database.jobs, busy, worker=f"worker-{n}"))
                for n in range(4)
            ]
            await runners[0].start([order(f"order-{n}") for n in range(200)], triggered_by="shop")

            async def work(runner: Runner) -> Counter[str]:
                total: Counter[str] = Counter()
                while counts := await runner.run_once():
                    total += counts
                return total

            return sum(await asyncio.gather(*map(work, runners)), Counter())

    assert asyncio.run(run()) == {"completed": 200}
    assert shop.totals()["counts"] == {"charge": 200, "reservation": 200, "shipment": 200}
    workers = database.rows("SELECT DISTINCT worker FROM makegood.step_attempts")
    assert len(workers) > 1
    assert len({entry["order_id"] for entry in shop.log() if entry["kind"] == "charge"}) == 200


def test_worker_takes_what_comes_and_ends_what_it_began_when_told_to_stop(database: Any, settings: Settings) -> None:
    told: Counter[str] = Counter()

    async def run() -> None:
        async def send(call: Call, request: Request) -> None:
            await asyncio.sleep(0.3 if call.entity_id == "errand-0" else 0)

        async with opened(database, settings, one_step(send)) as runner:
            stop = asyncio.Event()
            working = asyncio.create_task(runner.work(stop, told.update))
            await runner.start(errands(1), triggered_by="shop")
            await asyncio.sleep(0.25)  # it is in its call now
            await runner.start(errands(5)[1:], triggered_by="shop")  # and these do not wait for it
            await until_completed(database, 4)
            stop.set()
            await working

    asyncio.run(asyncio.wait_for(run(), 30))
    assert told == {"completed": 5}


def test_database_restarted_in_the_middle_of_a_run_loses_nothing(
    tmp_path: Any, settings: Settings, shop: ShopControl
) -> None:
    postgres = EmbeddedPostgres(tmp_path / "server", server_settings={"fsync": "off"})
    postgres.start()
    try:
        shop.set_latency(30)  # so that some are in a call when it happens
        migrate(postgres.url("postgres"))
        database = DatabaseUrls(postgres.url("postgres"), postgres.url(), postgres.url("makegood_read"))
        asyncio.run(asyncio.wait_for(run_through_a_restart(postgres, database, settings), 120))
        assert count_states(database) == {"completed": 60}
        assert shop.totals()["counts"] == {"charge": 60, "reservation": 60, "shipment": 60}
        chains = database.rows(
            "SELECT workflow_id FROM makegood.workflow_transitions GROUP BY 1 HAVING count(*) <> 7 OR max(seq) <> 7"
        )
        assert chains == []
    finally:
        postgres.stop()


async def run_through_a_restart(postgres: EmbeddedPostgres, database: Any, settings: Settings) -> None:
    # Short leases: whatever was under way when the server went is taken up soon.
    quick = settings.model_copy(update={"lease_seconds": 3.0, "calls_at_once": 4})

    async with open_checkouts(database.jobs, quick) as runner:
        await runner.start([order(f"order-{n}") for n in range(60)], triggered_by="shop")
        stop = asyncio.Event()
        working = asyncio.create_task(runner.work(stop))
        assert await until_completed(database, 5) < 60
        await asyncio.to_thread(postgres.stop)
        await asyncio.to_thread(postgres.start)
        while count_states(database).get("completed", 0) < 60:
            assert not working.done()
            pass_time_of_the_forgotten(database)
            await asyncio.sleep(0.2)
        stop.set()
        await working


def pass_time_of_the_forgotten(database: Any) -> None:
    """Waits are over; leases run out by themselves."""
    database.rows(
        "UPDATE makegood.workflow_executions SET next_attempt_at = clock_timestamp() - interval '1 second'"
        " WHERE finished_at IS NULL AND lease_until IS NULL"
    )


def test_document_of_a_type_is_what_the_database_keeps(database: Any, settings: Settings) -> None:
    async def run() -> None:
        async with opened(database, settings, POISONED):
            pass

    asyncio.run(run())
    kept = database.rows("SELECT definition FROM makegood.workflow_types WHERE name = 'errand'")[0]["definition"]
    assert kept == json.loads(json.dumps(POISONED.to_document()))
    edges = database.rows("SELECT from_state, to_state FROM makegood.workflow_edges WHERE workflow_type = 'errand'")
    assert {tuple(edge.values()) for edge in edges} == set(POISONED.to_document()["edges"])
