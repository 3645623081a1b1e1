"""Letting one order go on, for the commands that do."""

from __future__ import annotations

from typing import Any

from makegood.cli.connect import ask
from makegood.errors import UnknownOrder

SENTENCES = {
    "released": "{order} was held and is due now.",
    "hastened": "{order} was waiting and is due now.",
    "due": "{order} is due, or being worked on, already.",
    "finished": "{order} is {state}: there is nothing to do.",
    "unknown": "there is no {kind} of {order}",
}


def ask_release(workflow_type: str, order: str, actor: str, reason: str) -> dict[str, Any]:
    """The verdict of release_workflow."""
    return ask("SELECT * FROM makegood.release_workflow(%s, %s, %s, %s)", (workflow_type, order, actor, reason))[0]


def describe(workflow_type: str, order: str, row: dict[str, Any]) -> str:
    return SENTENCES[row["verdict"]].format(kind=workflow_type, order=order, state=row["current_state"])


def find_state(workflow_type: str, order: str) -> str:
    """Where an order is; one that does not exist raises."""
    rows = ask(
        "SELECT current_state FROM makegood.workflow_executions WHERE workflow_type = %s AND entity_id = %s",
        (workflow_type, order),
    )
    if not rows:
        raise UnknownOrder(f"there is no {workflow_type} of {order}", hint="Look it up with `makegood timeline`.")
    return str(rows[0]["current_state"])
