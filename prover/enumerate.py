"""Every point of every scenario, struck with every blow."""

from __future__ import annotations

import itertools
import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from makegood.errors import InputError
from prover.ground import Ground
from prover.oracle import find_violations
from prover.remedies import find_remedy_violations, plant_duplicate
from prover.scenarios import BY_NAME, SCENARIOS, Scenario
from prover.tripwire import BLOWS, STOPPING, Tripwire
from prover.worker import JOBS, Change, Task, Worker, check_out, request_cancel, start_worker

ABANDONING = "abandoning"
OVERTAKING_ROUNDS_MAX = 3
RECOVERIES_MAX = 2  # everything converges within two runs after the blow


@dataclass(frozen=True)
class Point:
    """Where and how a worker is struck; ``then`` strikes the recovering worker too, at that number."""

    scenario: str
    index: int
    label: str
    blow: str
    then: int | None = None

    def __str__(self) -> str:
        tail = "" if self.then is None else f"/{self.then}"
        return f"{self.scenario}/{self.index}/{self.blow}{tail}"


@dataclass
class Report:
    """``points`` were struck; ``violations`` name their point, what was wrong, and how to repeat it."""

    points: int = 0
    missed: int = 0
    by_scenario: dict[str, int] = field(default_factory=dict)
    by_blow: dict[str, int] = field(default_factory=dict)
    violations: list[dict[str, Any]] = field(default_factory=list)

    def to_document(self) -> dict[str, Any]:
        return {
            "points": self.points,
            "violations": len(self.violations),
            "missed": self.missed,
            "by_scenario": self.by_scenario,
            "by_blow": self.by_blow,
            "details": self.violations,
        }

    def add(self, point: Point, struck: bool, found: Sequence[str]) -> None:
        if not struck:
            self.missed += 1
            return
        self.points += 1
        self.by_scenario[point.scenario] = self.by_scenario.get(point.scenario, 0) + 1
        self.by_blow[point.blow] = self.by_blow.get(point.blow, 0) + 1
        for what in found:
            self.violations.append(
                {
                    "point": str(point),
                    "label": point.label,
                    "violation": what,
                    "repeat": f"makegood prove crash --only {point}",
                }
            )


class Prover:
    """Strikes workers on one ground; ``change`` is what a mutant changes about the workflow."""

    def __init__(self, ground: Ground, change: Change = lambda workflow: workflow) -> None:
        self._ground = ground
        self._change = change
        self._folder = tempfile.TemporaryDirectory(prefix="makegood-proof-")
        self._heard = Path(self._folder.name) / "heard"
        self._id = secrets.token_hex(2)  # one ground may see several provers
        self._numbers = itertools.count(1)

    def close(self) -> None:
        self._folder.cleanup()

    def count_points(self, scenario: Scenario) -> list[str]:
        """Runs it once unharmed and returns what its worker did, in order."""
        order_id = self._new_order(scenario)
        worker = self._start(scenario, order_id, "first", Tripwire())
        end = worker.wait()
        if scenario.job != "checkout":  # the struck worker runs one job, and an end may take both
            self._recover(scenario, order_id, None)
        found = self._find_violations(scenario, order_id) if end == "done" else [self._error(worker)]
        if found:
            raise AssertionError(f"{scenario.name} does not work even unharmed: {found}")
        return worker.labels()

    def strike(self, point: Point) -> tuple[bool, list[str]]:
        """Whether the blow was struck, and what was wrong in the end."""
        scenario = BY_NAME[point.scenario]
        order_id = self._new_order(scenario)
        worker = self._start(scenario, order_id, "first", Tripwire(point.index, point.blow))
        end = worker.wait()
        if end == "failed":
            return True, [self._error(worker)]
        stale: list[str] = []
        if end == "killed":
            self._ground.settle()
        if end == "stopped":
            stale = self._overtake(point, scenario, order_id, worker)
        self._recover(scenario, order_id, point.then)
        struck = end in {"killed", "stopped"} or point.blow == "unacknowledged"
        return struck, stale + self._find_violations(scenario, order_id)

    def _overtake(self, point: Point, scenario: Scenario, order_id: str, late: Worker) -> list[str]:
        """While one worker is stopped another takes over; what the first still writes afterwards is stale."""
        if scenario.cancel_when_stopped:
            request_cancel(None, order_id, self._ground.jobs_url)
        self._ground.pass_time(order_id)
        fence = self._fence(order_id)
        wire = Tripwire(0, "stopped_after", only="call ") if point.blow == "overtaken" else Tripwire()
        other = self._start(scenario, order_id, "second", wire)
        state = other.wait()
        rounds = range(OVERTAKING_ROUNDS_MAX) if state == "done" else ()
        for _ in itertools.takewhile(lambda _: self._is_open(order_id), rounds):
            self._recover(scenario, order_id, None)  # nothing may be left that the late one could claim anew
        taken_over = self._fence(order_id) > fence
        before = self._written_by("first", order_id)
        if late.resume() == "failed":
            return [self._error(late)]
        after = self._written_by("first", order_id)
        if state == "stopped":
            other.resume()
        return (
            [f"{after - before} stale writes by a worker that was taken over"] if taken_over and after > before else []
        )

    def _recover(self, scenario: Scenario, order_id: str, then: int | None) -> None:
        if then is not None:
            self._ground.pass_time(order_id)
            self._start(scenario, order_id, "second", Tripwire(then, "after")).wait()
            self._ground.settle()
        for number in range(RECOVERIES_MAX):
            self._ground.pass_time(order_id)
            self._start(scenario, order_id, f"recovery-{number + 1}", Tripwire()).wait()

    def _find_violations(self, scenario: Scenario, order_id: str) -> list[str]:
        if scenario.job == "remedy":
            return find_remedy_violations(self._ground, scenario, order_id)
        heard = self._heard.read_text() if self._heard.exists() else ""
        return find_violations(self._ground, scenario, order_id, heard)

    def _start(self, scenario: Scenario, order_id: str, name: str, wire: Tripwire) -> Worker:
        job = check_out if name == ABANDONING else JOBS[scenario.job]
        report = Path(self._folder.name) / f"{order_id}-{name}.json"
        return start_worker(self._ground, job, self._change, Task(scenario, order_id, name, self._hear), wire, report)

    async def _hear(self, title: str, body: str) -> bool:
        """People, as far as a proof needs them: what they were told stays, whoever dies afterwards."""
        with self._heard.open("a") as file:
            file.write(f"{title}\n{body}\n")
        return True

    def _new_order(self, scenario: Scenario) -> str:
        order_id = f"order-{self._id}-{next(self._numbers)}-{scenario.name}"
        self._ground.control.set_faults({"rules": scenario.faults_for(order_id)})
        if scenario.job == "remedy":
            plant_duplicate(self._ground, order_id)
        if scenario.abandoned_at is not None:
            self._abandon(scenario, order_id, scenario.abandoned_at)
        return order_id

    def _abandon(self, scenario: Scenario, order_id: str, at: str) -> None:
        """A worker of the checkout dies right after that point, and nobody comes until the deadline is over."""
        worker = self._start(scenario, order_id, ABANDONING, Tripwire(0, "after", only=at))
        if worker.wait() != "killed":
            raise AssertionError(f"{scenario.name}: the checkout never came to {at!r}: {self._error(worker)}")
        self._ground.settle()
        self._ground.pass_time(order_id)

    def _fence(self, order_id: str) -> int:
        rows = self._ground.rows(
            "SELECT fence FROM makegood.workflow_executions WHERE entity_id = %s OR context->>'order_id' = %s",
            (order_id, order_id),
        )
        return rows[0]["fence"] if rows else 0

    def _is_open(self, order_id: str) -> bool:
        return bool(
            self._ground.rows(
                "SELECT id FROM makegood.workflow_executions WHERE (entity_id = %s OR context->>'order_id' = %s)"
                " AND finished_at IS NULL AND held_at IS NULL",
                (order_id, order_id),
            )
        )

    def _written_by(self, worker: str, order_id: str) -> int:
        rows = self._ground.rows(
            "SELECT count(*) AS n FROM makegood.workflow_transitions t JOIN makegood.workflow_executions e"
            " ON e.id = t.workflow_id WHERE (e.entity_id = %s OR e.context->>'order_id' = %s) AND t.triggered_by = %s",
            (order_id, order_id, worker),
        )
        return int(rows[0]["n"])

    @staticmethod
    def _error(worker: Worker) -> str:
        path = worker.report.with_suffix(".error")
        return "the worker failed: " + (path.read_text().strip().splitlines()[-1] if path.exists() else "no trace")


def list_points(prover: Prover, scenarios: Sequence[Scenario], blows: Sequence[str]) -> Iterator[Point]:
    """Counts each scenario's points by running it unharmed, and crosses them with the blows."""
    for scenario in scenarios:
        for index, label in enumerate(prover.count_points(scenario)):
            for blow in blows:
                # Behind its back needs a back: a worker that is stopped.
                if not scenario.cancel_when_stopped or blow in STOPPING:
                    yield Point(scenario.name, index, label, blow)


def list_pairs(prover: Prover, scenario: Scenario) -> Iterator[Point]:
    """Every pair: killed after point i, and the recovering worker killed after point j."""
    labels = prover.count_points(scenario)
    for i, j in itertools.product(range(len(labels)), range(len(labels))):
        yield Point(scenario.name, i, labels[i], "after", then=j)


def choose_points(prover: Prover, only: str | None, *, pairs: bool) -> list[Point]:
    """All points, or those that ``only`` names: scenario, scenario/number, scenario/number/blow[/number]."""
    parts = only.split("/") if only else []
    scenario, blow = parts[0] if parts else None, parts[2] if len(parts) > 2 else None
    if scenario is not None and scenario not in BY_NAME:
        raise InputError(f"unknown scenario {scenario!r}; known are: {', '.join(BY_NAME)}")
    if blow is not None and blow not in BLOWS:
        raise InputError(f"unknown blow {blow!r}; known are: {', '.join(BLOWS)}")
    if len(parts) > 4 or any(not part.isdigit() for part in parts[1:2] + parts[3:4]):
        raise InputError(
            f"--only {only!r} is not scenario[/number[/blow[/number]]]", hint="For example completes/4/after."
        )
    if len(parts) == 4:
        return [Point(parts[0], int(parts[1]), "", parts[2], then=int(parts[3]))]
    scenarios = [BY_NAME[scenario]] if scenario else list(SCENARIOS)
    points = list(list_points(prover, scenarios, [blow] if blow else list(BLOWS)))
    if pairs:
        points += list_pairs(prover, BY_NAME[scenario or "undeliverable"])
    chosen = [point for point in points if len(parts) < 2 or point.index == int(parts[1])]
    if not chosen:
        raise InputError(f"--only {only!r} names no point: {scenario} has fewer")
    return chosen


def prove(prover: Prover, points: Sequence[Point], progress: Callable[[Point, Report], None]) -> Report:
    """Strikes each point in turn. A point that a run no longer reached (a shorter way) is counted as missed."""
    report = Report()
    for point in points:
        struck, found = prover.strike(point)
        report.add(point, struck, found)
        progress(point, report)
    return report
