"""The guards, taken out one at a time. A proof that does not notice proves nothing.

Each mutant names the guard, how it is removed (SQL on the scratch database, or a change inside the
worker), and the blows that must show the harm.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from makegood import notify
from makegood.database import Database
from makegood.engine import advance, decide
from makegood.engine.definitions import Action, Call, Request, Workflow
from makegood.engine.model import Compensation, Decision, Execution, FinishUndone, Outage
from makegood.migrations import sql_folder
from makegood.notify import Send
from prover.enumerate import Point, Prover, Report, prove
from prover.ground import Ground, open_ground
from prover.run import register
from prover.scenarios import BY_NAME
from prover.worker import Change


@dataclass(frozen=True)
class Strike:
    """Where a missing guard must show: at the first point of that name. Numbers change with every statement added."""

    scenario: str
    label: str
    blow: str

    def __str__(self) -> str:
        return f"{self.scenario}, {self.label}, {self.blow}"

    def find(self, prover: Prover) -> Point:
        labels = prover.count_points(BY_NAME[self.scenario])
        return Point(self.scenario, labels.index(self.label), self.label, self.blow)


@dataclass(frozen=True)
class Mutant:
    """A guard that is gone."""

    name: str
    strikes: Sequence[Strike]
    edits: Sequence[tuple[str, str, str]] = ()
    """File below sql/functions, what is replaced, by what."""
    script: str = ""
    change: Change = lambda workflow: workflow


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

    def decide_early(
        x: Execution, known: Workflow | None, owed: Sequence[Compensation] = (), outage: Outage | None = None
    ) -> Decision:
        return FinishUndone() if owed else decide.decide(x, known, owed, outage)

    setattr(advance, "decide", decide_early)  # noqa: B010 - what nobody but a mutant does
    return workflow


def mark_before_sending(workflow: Workflow) -> Workflow:
    """Runs in the worker process only: an alert counts as sent before it is."""

    async def send_alerts(database: Database, send: Send, **_: Any) -> Counter[str]:
        rows = await database.call("SELECT * FROM makegood.take_alerts(10, 60)")
        if rows:
            await database.call("SELECT makegood.publish_alerts(%s)", ([row["id"] for row in rows],))
        for row in rows:
            await send("alert", str(row["payload"]))
        return Counter()

    setattr(notify, "send_alerts", send_alerts)  # noqa: B010 - what nobody but a mutant does
    return workflow


MUTANTS: Sequence[Mutant] = (
    Mutant(
        "fence",
        strikes=[Strike("completes", "call charge", "overtaken")],
        edits=[("move.sql", "       AND e.fence = i.fence\n", "")],
    ),
    Mutant(
        "state",
        strikes=[Strike("completes", "statement finish_steps", "unacknowledged")],
        edits=[("move.sql", "       AND e.current_state = i.from_state\n", "")],
    ),
    Mutant(
        "rowcount",
        strikes=[Strike("cancelled_behind_its_back", "statement finish_steps", "stopped_before")],
        edits=[
            ("steps.sql", "CASE WHEN i.state IS NOT NULL THEN 'moved'", "CASE WHEN true THEN 'moved'"),
            ("steps.sql", "WHERE i.via IS NOT NULL AND i.state = i.to_state", "WHERE i.via IS NOT NULL"),
        ],
    ),
    Mutant("stored_key", strikes=[Strike("completes", "call charge", "after")], change=forget_keys),
    Mutant(
        "terminal_last",
        strikes=[Strike("undeliverable", "statement start_workflows", "after")],
        script="ALTER TABLE makegood.workflow_transitions DISABLE TRIGGER transitions_continue_the_chain",
        change=finish_before_undoing,
    ),
    Mutant(
        "dead_letter_and_alert",
        strikes=[Strike("undo_to_hold", "call look up refund", "after")],
        edits=[("claim.sql", "    PERFORM makegood.keep_held(v_paused, p_items);\n", "    NULL;\n")],
    ),
    Mutant(
        "sent_before_marked",
        # Where the others send, this one has just marked.
        strikes=[Strike("undo_to_hold", "call alert", "after")],
        change=mark_before_sending,
    ),
)


def run_mutant(mutant: Mutant, admin_url: str, jobs_url: str) -> Report:
    """Strikes the mutant's points with its guard gone; a report without violations is a failed proof."""
    with open_ground(admin_url, jobs_url) as ground:
        register(ground)
        with closing(Prover(ground)) as intact:
            points = [strike.find(intact) for strike in mutant.strikes]
        _remove_guard(mutant, ground)
        with closing(Prover(ground, mutant.change)) as prover:
            return prove(prover, points, lambda point, report: None)


def run_strike(strike: Strike, admin_url: str, jobs_url: str) -> Report:
    """The same blow with every guard in place."""
    with open_ground(admin_url, jobs_url) as ground:
        register(ground)
        with closing(Prover(ground)) as prover:
            return prove(prover, [strike.find(prover)], lambda point, report: None)


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
