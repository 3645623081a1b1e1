"""One process of the DBOS side of a benchmark: the checkout as a user of DBOS writes it, run on command.

Started by ``dbos_side.py`` in DBOS's own environment and spoken to a line at a time: it says ``ready``, hears
``go``, says ``done``. Nothing here is timed; the coordinator keeps the time by the server's clock.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

URL_VARIABLE: Final = "DBOS_SYSTEM_DATABASE_URL"  # DBOS's own name for it
STEPS: Final = ("charge", "reserve", "ship")
QUEUE: Final = "checkouts"
VERSION: Final = "bench"  # DBOS recovers only workflows of its own application version
READY: Final = "ready"
DONE: Final = "done"

BeforeStep = Callable[[str, str], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one run does, handed to every executor as it is."""

    run: str
    schema: str
    workflows: int
    recover: bool
    mode: str
    processes: int
    threads: int
    pool_size: int
    pre_ping: bool
    warm_up: int
    enqueue_batch: int
    polling_seconds: float
    stuck_in: str

    def share(self, index: int) -> int:
        """How many workflows executor `index` starts: even shares, the first ones take the rest."""
        return self.workflows // self.processes + (index < self.workflows % self.processes)

    def order_ids(self, index: int, count: int, *, kind: str = "order") -> list[str]:
        return [f"{kind}-{self.run}-{index}-{number}" for number in range(count)]


def define_checkout(dbos: Any) -> Any:
    """The checkout as a user of DBOS writes it, synchronous."""

    def charge(order_id: str) -> dict[str, str]:
        return {"charge": order_id}

    def reserve(order_id: str) -> dict[str, str]:
        return {"reserve": order_id}

    def ship(order_id: str) -> dict[str, str]:
        return {"ship": order_id}

    # Called rather than written with @, because untyped decorators would make these functions untyped.
    steps = [dbos.DBOS.step(name=step.__name__)(step) for step in (charge, reserve, ship)]

    def checkout(order_id: str) -> dict[str, str]:
        for step in steps:
            step(order_id)
        return {"order": order_id}

    return dbos.DBOS.workflow(name="checkout")(checkout)


def define_checkout_async(dbos: Any, before_step: BeforeStep) -> Any:
    """The same workflow and step names as coroutines; `before_step` is where the stranded ones wait."""

    def define_step(name: str) -> Any:
        async def step(order_id: str) -> dict[str, str]:
            await before_step(name, order_id)
            return {name: order_id}

        return dbos.DBOS.step(name=name)(step)

    steps = [define_step(name) for name in STEPS]

    async def checkout(order_id: str) -> dict[str, str]:
        for step in steps:
            await step(order_id)
        return {"order": order_id}

    return dbos.DBOS.workflow(name="checkout")(checkout)


async def pass_by(_step: str, _order_id: str) -> None:
    """Nothing waits."""


def configure(dbos: Any, plan: Plan, index: int) -> None:
    """Construct DBOS, not yet launched; everything not named here is DBOS's default."""
    config: dict[str, Any] = {
        "name": "makegood-bench",
        "system_database_url": os.environ[URL_VARIABLE],
        "dbos_system_schema": plan.schema,
        "application_version": VERSION,
        "executor_id": f"executor-{index}",
        "log_level": "ERROR",
        "sys_db_pool_size": plan.pool_size,
        "db_engine_kwargs": {"pool_pre_ping": plan.pre_ping},
    }
    if plan.threads:  # 0 leaves DBOS its default: as many threads as there are workflows
        config["max_executor_threads"] = plan.threads
    dbos.DBOS(config=config)


def run_called(dbos: Any, checkout: Any, plan: Plan, order_ids: list[str]) -> None:
    """Each of a few threads calls the workflow and gets its result, as a web server's threads do."""

    def call(order_id: str) -> None:
        with dbos.SetWorkflowID(order_id):
            checkout(order_id)

    with ThreadPoolExecutor(plan.threads) as pool:
        for _ in pool.map(call, order_ids):
            pass


def run_started(dbos: Any, checkout: Any, order_ids: list[str]) -> None:
    """One thread starts them all in the background, DBOS's own threads run them."""
    handles = []
    for order_id in order_ids:
        with dbos.SetWorkflowID(order_id):
            handles.append(dbos.DBOS.start_workflow(checkout, order_id))
    for handle in handles:
        handle.get_result()


async def run_async(dbos: Any, checkout: Any, plan: Plan, order_ids: list[str]) -> None:
    """As many workflows at once on one event loop as there are threads."""
    waiting = iter(order_ids)

    async def work() -> None:
        for order_id in waiting:
            with dbos.SetWorkflowID(order_id):
                handle = await dbos.DBOS.start_workflow_async(checkout, order_id)
            await handle.get_result()

    await asyncio.gather(*(work() for _ in range(plan.threads)))


def enqueue(client: Any, engine: Any, plan: Plan, order_ids: list[str]) -> None:
    """Many to a transaction: DBOS's public way to enqueue at less than a commit each."""
    for first in range(0, len(order_ids), plan.enqueue_batch):
        with engine.begin() as connection:
            for order_id in order_ids[first : first + plan.enqueue_batch]:
                options = {
                    "workflow_name": "checkout",
                    "queue_name": QUEUE,
                    "workflow_id": order_id,
                    "app_version": VERSION,
                }
                client.enqueue_in_transaction(connection, options, order_id)


def say(word: str) -> None:
    print(word, flush=True)


def hear() -> None:
    """Wait for the coordinator's word; its end is ours, whatever it died of."""
    if not sys.stdin.readline():
        os._exit(0)


def execute_synchronous(dbos: Any, plan: Plan, index: int) -> None:
    checkout = define_checkout(dbos)
    dbos.DBOS.launch()

    def run(order_ids: list[str]) -> None:
        if plan.mode == "call":
            run_called(dbos, checkout, plan, order_ids)
        else:
            run_started(dbos, checkout, order_ids)

    run(plan.order_ids(index, plan.warm_up, kind="warm"))
    say(READY)
    hear()
    run(plan.order_ids(index, plan.share(index)))
    say(DONE)


def execute_queued(dbos: Any, plan: Plan, index: int) -> None:
    """Says done when all is enqueued; the coordinator sees in the tables when all is run."""
    import sqlalchemy  # noqa: PLC0415 — comes with DBOS; nothing else here needs it

    define_checkout(dbos)
    dbos.DBOS.launch()
    dbos.DBOS.register_queue(QUEUE, worker_concurrency=plan.enqueue_batch, polling_interval_sec=plan.polling_seconds)
    url = os.environ[URL_VARIABLE]
    client = dbos.DBOSClient(system_database_url=url, dbos_system_schema=plan.schema)
    engine = sqlalchemy.create_engine(sqlalchemy.make_url(url).set(drivername="postgresql+psycopg"))
    warm = plan.order_ids(index, plan.warm_up, kind="warm")
    enqueue(client, engine, plan, warm)
    for order_id in warm:
        client.retrieve_workflow(order_id).get_result()
    say(READY)
    hear()
    enqueue(client, engine, plan, plan.order_ids(index, plan.share(index)))
    say(DONE)


async def execute_asynchronous(dbos: Any, plan: Plan, index: int) -> None:
    checkout = define_checkout_async(dbos, pass_by)
    dbos.DBOS.launch()
    await run_async(dbos, checkout, plan, plan.order_ids(index, plan.warm_up, kind="warm"))
    say(READY)
    await asyncio.to_thread(hear)
    await run_async(dbos, checkout, plan, plan.order_ids(index, plan.share(index)))
    say(DONE)
    await asyncio.to_thread(hear)


async def execute_stranding(dbos: Any, plan: Plan, index: int) -> None:
    """Start this executor's share, say ready once every one is inside its step, and wait to be killed."""
    share = plan.share(index)
    all_inside = asyncio.Event()
    inside = 0

    async def wait_inside(step: str, order_id: str) -> None:
        nonlocal inside
        number = int(order_id.rsplit("-", 1)[1])
        if step != (STEPS[number % len(STEPS)] if plan.stuck_in == "spread" else plan.stuck_in):
            return
        inside += 1
        if inside == share:
            all_inside.set()
        await asyncio.Event().wait()

    checkout = define_checkout_async(dbos, wait_inside)
    dbos.DBOS.launch()
    for order_id in plan.order_ids(index, share):
        with dbos.SetWorkflowID(order_id):
            await dbos.DBOS.start_workflow_async(checkout, order_id)
    if share:
        await all_inside.wait()
    say(READY)
    await asyncio.to_thread(hear)


def execute_recovering(dbos: Any, plan: Plan) -> None:
    """Launching is recovering: DBOS takes up what its executor id left behind, in the background."""
    define_checkout(dbos)
    say(READY)
    hear()
    dbos.DBOS.launch()
    say(DONE)


async def execute_recovering_async(dbos: Any) -> None:
    define_checkout_async(dbos, pass_by)
    say(READY)
    await asyncio.to_thread(hear)
    dbos.DBOS.launch()
    say(DONE)
    await asyncio.to_thread(hear)


def execute(role: str, plan: Plan, index: int) -> None:
    """One executor process, from its start until the coordinator ends it."""
    # Imported here so that makegood's own environment, which has no DBOS, can read and check this module.
    import dbos  # type: ignore[import-not-found]  # noqa: PLC0415

    configure(dbos, plan, index)
    if role == "strand":
        asyncio.run(execute_stranding(dbos, plan, index))
    elif role == "recover" and plan.mode == "async":
        asyncio.run(execute_recovering_async(dbos))
    elif role == "recover":
        execute_recovering(dbos, plan)
    elif plan.mode == "async":
        asyncio.run(execute_asynchronous(dbos, plan, index))
    elif plan.mode == "queue":
        execute_queued(dbos, plan, index)
    else:
        execute_synchronous(dbos, plan, index)
    hear()
    os._exit(0)  # without DBOS's orderly end: there is nothing left to wait for


if __name__ == "__main__":
    handed_over = json.loads(sys.argv[1])
    execute(handed_over["role"], Plan(**handed_over["plan"]), handed_over["index"])
