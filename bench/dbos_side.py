"""DOCSTRING_PLACEHOLDER"""

from __future__ import annotations

import argparse
import asyncio
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

import psycopg
from psycopg import sql

URL_VARIABLE: Final = "DBOS_SYSTEM_DATABASE_URL"  # DBOS's own name for it
STEPS: Final = ("charge", "reserve", "ship")
MODES: Final = ("call", "start", "async", "queue")
QUEUE: Final = "checkouts"
VERSION: Final = "bench"  # DBOS recovers only workflows of its own application version
READY: Final = "ready"
DONE: Final = "done"
SETTLED_POLL_SECONDS: Final = 0.1  # the end is read from the tables, so the wait's grain is not in the figure
EXIT_FOUND_WRONG: Final = 1
EXIT_NOT_READY: Final = 3

BeforeStep = Callable[[str, str], Awaitable[None]]


class BenchmarkError(Exception):
    """The run is void; the text says why."""


class NotReadyError(BenchmarkError):
    """The environment cannot run it: no database, or no DBOS."""


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


# --- the executors: processes that run DBOS --------------------------------------------------------------


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


# --- the coordinator: starts executors, keeps the time, reads the tables ----------------------------------


class Executor:
    """One executor process, spoken to a line at a time."""

    def __init__(self, role: str, plan: Plan, index: int, environment: dict[str, str]) -> None:
        self.name = f"{role} executor {index}"
        handed_over = json.dumps({"role": role, "index": index, "plan": asdict(plan)})
        self.process = subprocess.Popen(
            [sys.executable, "-I", __file__, "--executor", handed_over],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def expect(self, word: str) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if line != word:
            raise BenchmarkError(f"{self.name} did not get to {word!r}: {line or 'it ended or took too long'}")

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def environment_of_executors(url: str) -> dict[str, str]:
    """Ours, without anything that would configure DBOS behind the plan's back."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DBOS_")}
    return {**kept, URL_VARIABLE: url}


@contextmanager
def executors(role: str, plan: Plan, url: str, deadline_seconds: float) -> Iterator[list[Executor]]:
    """All executors of a role, ready; killed with SIGKILL at the end, or when the deadline passes."""
    crew: list[Executor] = []

    def kill_all() -> None:
        for executor in crew:
            executor.kill()

    alarm = threading.Timer(deadline_seconds, kill_all)
    alarm.daemon = True
    alarm.start()
    try:
        environment = environment_of_executors(url)
        for index in range(plan.processes):
            crew.append(Executor(role, plan, index, environment))
            if index == 0:
                crew[0].expect(READY)  # it alone creates the database and its tables
        for executor in crew[1:]:
            executor.expect(READY)
        yield crew
    finally:
        alarm.cancel()
        kill_all()


def connect(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url, autocommit=True, connect_timeout=10)


def check_server(url: str) -> None:
    """Fail at once on a dead server or a wrong password, where DBOS would try again for long."""
    try:
        connect(url).close()
    except psycopg.OperationalError:
        try:  # the database may be missing: DBOS makes it, from this one
            psycopg.connect(url, dbname="postgres", connect_timeout=10).close()
        except psycopg.OperationalError as error:
            raise NotReadyError(f"no PostgreSQL to run against: {error}") from error


def count_left(connection: psycopg.Connection[Any], plan: Plan) -> int:
    query = sql.SQL(
        "SELECT count(*) FROM {table} WHERE workflow_uuid LIKE %s AND status IN ('ENQUEUED', 'PENDING')"
    ).format(table=sql.Identifier(plan.schema, "workflow_status"))
    row = connection.execute(query, [f"order-{plan.run}-%"]).fetchone()
    return int(row[0]) if row else 0


def wait_until_settled(connection: psycopg.Connection[Any], plan: Plan, deadline_seconds: float) -> None:
    give_up_at = time.monotonic() + deadline_seconds
    while left := count_left(connection, plan):
        if time.monotonic() > give_up_at:
            raise BenchmarkError(f"{left} workflows unfinished after {deadline_seconds:.0f} s")
        time.sleep(SETTLED_POLL_SECONDS)


def analyze(connection: psycopg.Connection[Any], plan: Plan) -> None:
    """Give the planner the statistics that autovacuum would have given a database in use."""
    for table in ("workflow_status", "operation_outputs"):
        connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(plan.schema, table)))


def read_clock_ms(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").fetchone()
    assert row is not None
    return int(row[0])


def verify(connection: psycopg.Connection[Any], plan: Plan) -> int:
    """Return when the last workflow completed; refuse a run in which any is not whole in DBOS's own tables."""
    query = sql.SQL(
        """
        SELECT count(*), max(w.completed_at)
        FROM {workflows} AS w
        WHERE w.workflow_uuid LIKE %s
          AND w.status = 'SUCCESS'
          AND (SELECT array_agg(o.function_name ORDER BY o.function_id)
               FROM {steps} AS o WHERE o.workflow_uuid = w.workflow_uuid AND o.error IS NULL) = %s::text[]
        """
    ).format(
        workflows=sql.Identifier(plan.schema, "workflow_status"),
        steps=sql.Identifier(plan.schema, "operation_outputs"),
    )
    row = connection.execute(query, [f"order-{plan.run}-%", list(STEPS)]).fetchone()
    if row is None or row[0] != plan.workflows:
        whole = row[0] if row else 0
        raise BenchmarkError(f"{whole} of {plan.workflows} workflows are SUCCESS with their three steps")
    return int(row[1])


def strand(plan: Plan, url: str, deadline_seconds: float) -> None:
    """Leave the plan's workflows PENDING, each inside a step, by SIGKILL of the processes that run them."""
    hanging = {**asdict(plan), "mode": "async", "threads": 8}  # 8 at once is quick enough to get there
    with executors("strand", Plan(**hanging), url, deadline_seconds):
        pass
    with connect(url) as connection:
        left = count_left(connection, plan)
    if left != plan.workflows:
        raise BenchmarkError(f"{left} workflows were left pending instead of {plan.workflows}")


def measure(plan: Plan, url: str, deadline_seconds: float) -> float:
    """Seconds from the word go until the last workflow was complete, by the server's clock."""
    if plan.recover:
        strand(plan, url, deadline_seconds)
    role = "recover" if plan.recover else "forward"
    with executors(role, plan, url, deadline_seconds) as crew, connect(url) as connection:
        analyze(connection, plan)
        started_ms = read_clock_ms(connection)
        for executor in crew:
            executor.go()
        for executor in crew:
            executor.expect(DONE)
        wait_until_settled(connection, plan, deadline_seconds)
        return (verify(connection, plan) - started_ms) / 1000


def drop_schema(plan: Plan, url: str) -> None:
    """Leave nothing behind; without a word if the server is gone, for then that is the news."""
    with suppress(psycopg.OperationalError), connect(url) as connection:
        connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(plan.schema)))


def describe(plan: Plan) -> dict[str, Any]:
    """The configuration as it belongs beside the figure."""
    facts = {name: value for name, value in asdict(plan).items() if name not in ("run", "schema", "workflows")}
    versions = {name: importlib.metadata.version(name) for name in ("dbos", "psycopg", "sqlalchemy")}
    return {**facts, **versions, "python": platform.python_version()}


def at_least(minimum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text)
        if number < minimum:
            raise argparse.ArgumentTypeError(f"{number} is less than {minimum}")
        return number

    parse.__name__ = "number"  # argparse names it when the text is no number
    return parse


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="dbos_side", description="Measure DBOS Transact; one JSON line.")
    parser.add_argument("--url", default=os.environ.get(URL_VARIABLE), help=f"or the variable {URL_VARIABLE}")
    parser.add_argument("--workflows", type=at_least(1), default=3000)
    parser.add_argument("--recover", action="store_true", help="measure recovery after SIGKILL instead")
    parser.add_argument("--mode", choices=MODES, default="call")
    parser.add_argument("--processes", type=at_least(1), default=(os.cpu_count() or 1) + 1)
    parser.add_argument("--threads", type=at_least(0), default=2, help="per process; 0: DBOS's default")
    parser.add_argument("--pool-size", type=at_least(2), default=20, help="connections per process, at most")
    parser.add_argument("--pre-ping", action="store_true", help="ping at checkout, DBOS's default")
    parser.add_argument("--warm-up", type=at_least(1), default=100, help="workflows per process, not counted")
    parser.add_argument("--enqueue-batch", type=at_least(1), default=100, help="queue mode")
    parser.add_argument("--polling-seconds", type=float, default=0.2, help="queue mode")
    parser.add_argument("--stuck-in", choices=(*STEPS, "spread"), default="reserve", help="with --recover")
    parser.add_argument("--deadline-seconds", type=at_least(1), default=900, help="of each phase")
    parser.add_argument("--keep", action="store_true", help="leave the tables for a look")
    parsed = parser.parse_args(arguments)
    if not parsed.url:
        parser.error(f"--url or {URL_VARIABLE} is needed")
    if parsed.recover and parsed.mode == "queue":
        parser.error("--recover has no queue mode: DBOS recovers through a queue of its own")
    if not parsed.threads and not (parsed.mode == "start" or parsed.recover):
        parser.error("--threads 0 is for --mode start and --recover")
    return parsed


def make_plan(parsed: argparse.Namespace) -> Plan:
    run = uuid.uuid4().hex[:12]
    options = {name: value for name, value in vars(parsed).items() if name in Plan.__slots__}
    return Plan(run=run, schema=f"dbos_bench_{run}", **options)


def coordinate(arguments: list[str]) -> int:
    parsed = parse_arguments(arguments)
    url = re.sub(r"^postgres(ql)?(\+\w+)?:", "postgresql:", parsed.url)
    plan = make_plan(parsed)
    try:
        check_server(url)
        try:
            seconds = measure(plan, url, parsed.deadline_seconds)
        finally:
            if not parsed.keep:
                drop_schema(plan, url)
        config = describe(plan)
    except (NotReadyError, psycopg.OperationalError) as error:
        print(f"dbos_side: {error}", file=sys.stderr)
        return EXIT_NOT_READY
    except BenchmarkError as error:
        print(f"dbos_side: {error}", file=sys.stderr)
        return EXIT_FOUND_WRONG
    figure = {
        "workflows": plan.workflows,
        "seconds": seconds,
        "per_second": plan.workflows / seconds,
        "config": config,
    }
    print(json.dumps(figure))
    return 0


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--executor"]:
        handed_over = json.loads(arguments[1])
        execute(handed_over["role"], Plan(**handed_over["plan"]), handed_over["index"])
    return coordinate(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
