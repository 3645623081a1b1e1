"""What a person does about one order, beyond what SQL alone can do: it takes the order's definition, or its engine."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any

from makegood.engine.calls import RESULT_BYTES_MAX
from makegood.engine.definitions import Step, Workflow
from makegood.engine.outcomes import Failed, Success, to_response
from makegood.engine.payload import check_payload
from makegood.engine.runner import Runner
from makegood.engine.store import Wanted
from makegood.errors import InputError
from makegood.session import with_runner


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
