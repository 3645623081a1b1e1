"""The calls of a workflow, forward and back, worked out from its row alone."""

from __future__ import annotations

from typing import Any

from makegood.engine.definitions import Call, Step, Workflow, compensation_id, undo_key
from makegood.engine.model import Execution
from makegood.engine.payload import request_hash


def forward_call(x: Execution, step: Step) -> Call:
    return _call(x, step, step.key_for(x.workflow_type, x.entity_id))


def undo_call(x: Execution, step: Step) -> Call:
    return _call(x, step, undo_key(step, x.id), undo=True)


def plan_compensations(x: Execution, workflow: Workflow, done_count: int) -> list[dict[str, Any]]:
    """One entry per undo of the first ``done_count`` steps, with its key and the hash of its request."""
    plan = []
    for position, step in enumerate(workflow.steps[:done_count], start=1):
        if step.undo is None:
            continue
        call = undo_call(x, step)
        plan.append(
            {
                "compensation_id": str(call.compensation_id),
                "step": step.name,
                "position": position,
                "key": call.key,
                "operation": f"{workflow.name}.{step.undo_name}",
                "request_hash": request_hash(step.undo.request(call)),
                "amount_minor": x.amount_minor if step.moves_money else None,
                "currency": x.currency if step.moves_money else None,
            }
        )
    return plan


def _call(x: Execution, step: Step, key: str, *, undo: bool = False) -> Call:
    return Call(
        workflow_id=x.id,
        workflow_type=x.workflow_type,
        entity_id=x.entity_id,
        step=step.name,
        key=key,
        amount_minor=x.amount_minor,
        currency=x.currency,
        context=x.context,
        timeout_seconds=step.timeout_seconds,
        started_at=x.created_at,
        compensation_id=compensation_id(x.id, step.name) if undo else None,
    )
