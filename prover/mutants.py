"""The guards, taken out one at a time. A proof that does not notice proves nothing.

Each mutant names the guard, how it is removed (SQL on the scratch database, or a change inside the
worker), and the blows that must show the harm.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from makegood.engine import advance, decide
from makegood.engine.definitions import Action, Call, Request, Workflow
from makegood.engine.model import Compensation, Decision, Execution, FinishUndone
from makegood.migrations import sql_folder
from prover.enumerate import Point, Prover, Report, prove
from prover.ground import Ground, open_ground
from prover.run import register
from prover.worker import CHECKOUT, Job


@dataclass(frozen=True)
class Mutant:
    """A guard that is gone."""

    name: str
    points: Sequence[Point]
    edits: Sequence[tuple[str, str, str]] = ()
    """File below sql/functions, what is replaced, by what."""
    script: str = ""
    change: Callable[[Workflow], Workflow] = CHECKOUT.change


def forget_keys(workflow: Workflow) -> Workflow:
    """Every call under a new key, as a client does that is given none."""

    def renamed(action: Action | None) -> Action | None:
        if action is None:
            return None
        send = action.send

        async def send_renamed(call: Call, request: Request) -> Any:
            return await send(replace(call, key=str(uuid.uuid4())), request)

        return replace(action, send=send_renamed)

    steps = []
    for step in workflow.steps:
        action = renamed(step.action)
        assert action is not None
        steps.append(replace(step, action=action, undo=renamed(step.undo)))
    return Workflow(workflow.name, steps, workflow.topics_on_completed, workflow.stuck_after_seconds)


def finish_before_undoing(workflow: Workflow) -> Workflow:
    """Runs in the worker process only: the terminal state as soon as something is owed."""

    def decide_early(x: Execution, known: Workflow | None, owed: Sequence[Compensation] = ()) -> Decision:
        return FinishUndone() if owed else decide.decide(x, known, owed)

    setattr(advance, "decide", decide_early)  # noqa: B010 - what nobody but a mutant does
    return workflow


MUTANTS: Sequence[Mutant] = (
    Mutant(
        "fence",
        points=[Point("completes", 2, "call charge", "overtaken")],
        edits=[("move.sql", "       AND e.fence = i.fence\n", "")],
    ),
    Mutant(
        "state",
        points=[Point("completes", 3, "statement finish_steps", "unacknowledged")],
        edits=[("move.sql", "       AND e.current_state = i.from_state\n", "")],
    ),
    Mutant(
        "rowcount",
        points=[Point("cancelled_behind_its_back", 3, "statement finish_steps", "stopped_before")],
        edits=[
            ("steps.sql", "CASE WHEN i.state IS NOT NULL THEN 'moved'", "CASE WHEN true THEN 'moved'"),
            ("steps.sql", "WHERE i.via IS NOT NULL AND i.state = i.to_state", "WHERE i.via IS NOT NULL"),
        ],
    ),
    Mutant("stored_key", points=[Point("completes", 2, "call charge", "after")], change=forget_keys),
    Mutant(
        "terminal_last",
        points=[Point("undeliverable", 0, "statement start_workflows", "after")],
        script="ALTER TABLE makegood.workflow_transitions DISABLE TRIGGER transitions_continue_the_chain",
        change=finish_before_undoing,
    ),
)


def run_mutant(mutant: Mutant, admin_url: str, jobs_url: str) -> Report:
    """Strikes the mutant's points with its guard gone; a report without violations is a failed proof."""
    with open_ground(admin_url, jobs_url) as ground:
        register(ground)
        _remove_guard(mutant, ground)
        prover = Prover(ground, Job(mutant.name, CHECKOUT.work, mutant.change))
        try:
            return prove(prover, mutant.points, lambda point, report: None)
        finally:
            prover.close()


def _remove_guard(mutant: Mutant, ground: Ground) -> None:
    scripts = {name: (sql_folder() / "functions" / name).read_text(encoding="utf-8") for name, _, _ in mutant.edits}
    for name, guard, nothing in mutant.edits:
        if guard not in scripts[name]:
            raise AssertionError(f"the guard of mutant {mutant.name!r} is not in {name} any more: {guard!r}")
        scripts[name] = scripts[name].replace(guard, nothing)
    for script in scripts.values():
        ground.run_sql(script)
    if mutant.script:
        ground.run_sql(mutant.script)
