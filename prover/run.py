"""A whole proof, from an empty scratch database to the report, with progress on the way."""

from __future__ import annotations

import asyncio
import json as jsonlib
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from makegood.workflows.checkout import open_checkout
from makegood.workflows.remedy import open_remedy
from prover.enumerate import Point, Prover, Report, choose_points, prove
from prover.ground import Ground, open_ground

LINE_EVERY_POINTS = 100  # where there is no terminal to draw a bar on


def run_crash_proof(
    admin_url: str,
    jobs_url: str,
    *,
    only: str | None = None,
    pairs: bool = False,
    every: int = 1,
    json: bool = False,
) -> Report:
    with open_ground(admin_url, jobs_url) as ground:
        register(ground)
        prover = Prover(ground)
        try:
            points = thin(choose_points(prover, only, pairs=pairs), every)
            with Meter(len(points)) as meter:
                return prove(prover, points, meter.show)
        finally:
            prover.close()


def thin(points: Sequence[Point], every: int) -> list[Point]:
    """Every n-th point of each scenario, each beginning at another place, so that no scenario and no blow is missed."""
    by_scenario: dict[str, list[Point]] = {}
    for point in points:
        by_scenario.setdefault(point.scenario, []).append(point)
    groups = enumerate(by_scenario.values())
    return [point for number, group in groups for point in group[number % min(every, len(group)) :: every]]


def register(ground: Ground) -> None:
    """Makes the types known to the scratch database, as the first worker of a new deployment would."""

    async def documents() -> list[str]:
        settings = ground.settings()
        async with open_checkout(settings) as checkout, open_remedy(settings, ground.jobs_url) as remedy:
            return [jsonlib.dumps(workflow.to_document()) for workflow in (checkout, remedy)]

    for document in asyncio.run(documents()):
        ground.rows("SELECT makegood.register_workflow(%s::jsonb)", (document,))


class Meter:
    """A bar on a terminal, a line now and then elsewhere. Drawn without a thread, because we fork."""

    def __init__(self, total: int) -> None:
        self._console = Console(stderr=True, highlight=False)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        terminal = self._console.is_terminal
        self._bar = Progress(*columns, console=self._console, auto_refresh=False, disable=not terminal)
        self._task = self._bar.add_task("striking", total=total, note="")
        self._total = total

    def __enter__(self) -> Meter:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, point: Point, report: Report) -> None:
        done = report.points + report.missed
        note = f"{len(report.violations)} violations  {point}"
        self._bar.update(self._task, completed=done, note=note, refresh=True)
        if not self._console.is_terminal and done % LINE_EVERY_POINTS == 0:
            self._console.print(f"{done} of {self._total} points, {note}", markup=False)
