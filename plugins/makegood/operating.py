"""What a person does about one order, beyond what SQL alone can do: it takes the order's definition, or its engine."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from makegood.engine.calls import RESULT_BYTES_MAX
from makegood.engine.definitions import Step, Workflow
from makegood.engine.outcomes import Failed, Success, to_response
from makegood.engine.payload import check_payload
from makegood.engine.runner import Runner
from makegood.engine.store import Wanted
from makegood.errors import InputError
from makegood.reconciliation import remedy
from makegood.reconciliation.remedies import Decided
from makegood.session import with_runner


@dataclass(frozen=True)
class Remedied:
    """What was done about the findings of the last run; ``decided`` only for a dry run, which changes nothing."""

    run_id: uuid.UUID | None
    counts: Mapping[str, int]
    decided: Sequence[Decided] = field(default_factory=list)

    def to_document(self) -> dict[str, Any]:
        decisions = [one.to_document() for one in self.decided]
        return {"run_id": self.run_id, "counts": dict(self.counts), "decisions": decisions}


def remedy_last_run(classes: Sequence[str], *, dry_run: bool, limit: int | None, actor: str) -> Remedied:
    """Puts right what may be of what the last run found, or only says what would be done."""

    async def work(runner: Runner) -> Remedied:
        run_id = await remedy.find_run(runner)
        if run_id is None:
            raise InputError("there was no run of the reconciliation yet", hint="Run `makegood reconcile` first.")
        if dry_run:
            decided = await remedy.preview_remedies(runner, run_id, classes=classes, limit=limit)
            return Remedied(run_id, remedy.tally(decided), decided)
        counts = await remedy.remedy_findings(runner, run_id, classes=classes, dry_run=False, limit=limit, actor=actor)
        return Remedied(run_id, counts)

    return with_runner(work)


def advance_one(workflow_id: uuid.UUID) -> str | None:
    """Takes one workflow as far as it goes, now; its state then, or None when it could not be had."""

    async def advance(runner: Runner) -> str | None:
        counts = await runner.run_once(Wanted(ids=[workflow_id]))
        return next(iter(counts), None)

    return with_runner(advance)


def settle_step(
    workflow_type: str,
    entity_id: str,
    step: str,
    result: Mapping[str, Any] | None,
    *,
    actor: str,
    reason: str,
    proof: str,
) -> dict[str, Any]:
    """Records what a person found out about a held step: its ``result``, or None when it did not happen."""
    outcome = Failed("settled", f"{actor}: {proof}") if result is None else Success(result)
    response = to_response(outcome)
    check_payload(response, name="the result", bytes_max=RESULT_BYTES_MAX)

    async def settle(runner: Runner) -> dict[str, Any]:
        key = _find_step(runner.workflows.get(workflow_type), workflow_type, step).key_for(workflow_type, entity_id)
        rows = await runner.database.call(
            "SELECT * FROM makegood.settle_step(%s, %s, %s, %s, %s::jsonb, %s, %s, %s)",
            (workflow_type, entity_id, step, key, json.dumps(response), actor, reason, proof),
        )
        return rows[0]

    return with_runner(settle)


def _find_step(workflow: Workflow | None, workflow_type: str, name: str) -> Step:
    steps = {step.name: step for step in workflow.steps} if workflow else {}
    if name not in steps:
        known = f"Its steps are: {', '.join(steps)}." if steps else "That type is not known here."
        raise InputError(f"{workflow_type!r} has no step {name!r}", hint=known)
    return steps[name]
