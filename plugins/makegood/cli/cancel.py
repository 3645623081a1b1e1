"""``makegood cancel``: ask for an order to be undone."""

from __future__ import annotations

from typing import Annotated

import typer

from makegood.cli import job, output
from makegood.cli.app import app
from makegood.errors import EXIT_DONE, EXIT_FOUND_WRONG, InputError, UnknownOrder

ACTOR_LENGTH_MAX = 200
SENTENCES = {
    "requested": "{order} will be undone at its next step border (it is {state} now).",
    "already_requested": "{order} was already asked to be undone (it is {state} now).",
    "compensating": "{order} is being undone already.",
    "too_late": "Too late: {order} is {state}.",
}


@app.command(epilog='Example: makegood cancel order-123 --reason "customer called"')
def cancel(
    order: Annotated[str, typer.Argument(help="The order, for example order-123.")],
    reason: Annotated[str, typer.Option("--reason", help="Why; kept with the order.")],
    actor: Annotated[str | None, typer.Option("--as", help="Who asks; you, if not given.")] = None,
    workflow_type: Annotated[str, typer.Option("--type", help="The workflow type.")] = "checkout",
    json: output.JsonFlag = False,
) -> int:
    """Ask for an order to be undone. Exit 1 when it is too late."""
    from makegood.cli.connect import ask

    if actor is not None and len(actor) > ACTOR_LENGTH_MAX:
        raise InputError(f"--as has {len(actor)} characters; at most {ACTOR_LENGTH_MAX} are kept")
    row = ask(
        "SELECT * FROM makegood.request_cancel(%s, %s, %s, %s)", (workflow_type, order, actor or job.whoami(), reason)
    )[0]
    if row["verdict"] == "unknown":
        raise UnknownOrder(f"there is no {workflow_type} of {order}", hint="Look it up with `makegood timeline`.")
    if json:
        output.show_json({"order": order, "verdict": row["verdict"], "state": row["current_state"]})
    else:
        sentence = SENTENCES[row["verdict"]].format(order=order, state=row["current_state"])
        output.page.print(output.harmless(sentence), markup=False)
    return EXIT_FOUND_WRONG if row["verdict"] == "too_late" else EXIT_DONE
