"""DBOS Transact doing what makegood does, in an environment of its own: one JSON line with its rate.

    python bench/dbos_side.py --url postgresql://… --workflows 3000
    {"workflows": 3000, "seconds": 10.1, "per_second": 297.0, "config": {…}}

Forward: a workflow ``checkout`` of three durable no-op steps. With ``--recover``: workflows left pending inside a
step by SIGKILL, recovered by a new process. Warmed up first; the seconds are from the word go until the last
workflow was complete, by the server's clock; a run counts only if DBOS's own tables show every workflow as
SUCCESS with its three steps.

DBOS can be driven in several ways (``--mode``): a thread pool that calls the workflow, ``start_workflow``, async
workflows, a queue. The defaults are the fastest that was found for two cores: calls from a few threads in each of
a few processes, without the ping at each checkout of a connection.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

# DBOS's environment does not have this project installed; nothing of it but these two files is needed there.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from bench import dbos_executor
from bench.dbos_executor import DONE, READY, STEPS, URL_VARIABLE, Plan

MODES: Final = ("call", "start", "async", "queue")
SETTLED_POLL_SECONDS: Final = 0.1  # the end is read from the tables, so the wait's grain is not in the figure
EXIT_FOUND_WRONG: Final = 1
EXIT_NOT_READY: Final = 3


class BenchmarkError(Exception):
    """The run is void; the text says why."""


class NotReadyError(BenchmarkError):
    """The environment cannot run it: no database, or no DBOS."""


class Executor:
    """One executor process, spoken to a line at a time."""

    def __init__(self, role: str, plan: Plan, index: int, environment: dict[str, str]) -> None:
        self.name = f"{role} executor {index}"
        handed_over = json.dumps({"role": role, "index": index, "plan": asdict(plan)})
        self.process = subprocess.Popen(
            [sys.executable, "-I", dbos_executor.__file__, handed_over],
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


if __name__ == "__main__":
    sys.exit(coordinate(sys.argv[1:]))
