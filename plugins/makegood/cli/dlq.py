"""``makegood dlq``: what failed too often, by what went wrong; look at one, let one or a group go on."""

from __future__ import annotations

import json as jsonlib
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from makegood.cli import job, output
from makegood.cli.app import app
from makegood.errors import EXIT_DONE, EXIT_FOUND_WRONG, InputError, UnknownOrder

dlq = typer.Typer(help="Dead letters: what failed too often and waits for a person.", no_args_is_help=True)
app.add_typer(dlq, name="dlq")

STATES = ("parked", "redriving", "resolved", "discarded")
LEFT_OUT = ("payload", "broker", "workflow_id", "message_key", "entity_id")  # in the story, or for messages only
RELEASED_MAX = 10_000  # in one command


@dlq.command("list", epilog="Example: makegood dlq list --state parked")
def list_letters(
    state: Annotated[str, typer.Option("--state", help="parked, redriving, resolved or discarded.")] = "parked",
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many groups.")] = 50,
    json: output.JsonFlag = False,
) -> int:
    """Show dead letters grouped by what went wrong, the most frequent first. Exit 1 when any is parked."""
    from makegood.cli.connect import ask

    if state not in STATES:
        raise InputError(f"--state is {state!r}; it must be one of {', '.join(STATES)}")
    groups = ask(
        "SELECT signature, source, count(*) AS letters, min(first_failed_at) AS oldest, max(last_failed_at) AS newest,"
        " (array_agg(entity_id ORDER BY last_failed_at))[1:3] AS orders"
        " FROM makegood.dead_letters WHERE state = %s"
        " GROUP BY signature, source ORDER BY letters DESC, oldest LIMIT %s",
        (state, limit),
        role="read",
    )
    if json:
        output.show_json({"state": state, "groups": groups})
    elif not groups:
        output.page.print(f"No dead letters are {state}.")
    else:
        output.page.print(_group_table(groups))
        output.say("`makegood dlq show ORDER` has the whole story of one; `makegood dlq release` lets it go on.")
    return EXIT_FOUND_WRONG if groups and state == "parked" else EXIT_DONE


@dlq.command(epilog="Example: makegood dlq show order-123")
def show(order: Annotated[str, typer.Argument(help="The order.")], json: output.JsonFlag = False) -> int:
    """Show the dead letters of one order with everything that was kept."""
    from makegood.cli.connect import ask

    letters = ask(
        "SELECT d.*, convert_from(d.payload, 'UTF8') AS story FROM makegood.dead_letters d WHERE d.entity_id = %s",
        (order,),
        role="read",
    )
    if not letters:
        raise UnknownOrder(f"there is no dead letter of {order}", hint="`makegood dlq list` shows what there is.")
    documents = [_document(letter) for letter in letters]
    if json:
        output.show_json({"order": order, "letters": documents})
        return EXIT_DONE
    for document in documents:
        story = document.pop("story")
        for name, value in document.items():
            output.page.print(Text.assemble((f"{name:<16}", "dim"), output.harmless(str(value))))
        output.page.print_json(jsonlib.dumps(story), ensure_ascii=True)  # nothing of it steers a terminal
    return EXIT_DONE


@dlq.command(epilog='Example: makegood dlq release order-123 order-124 --reason "stock is back"')
def release(
    reason: job.Reason,
    orders: Annotated[list[str] | None, typer.Argument(help="Orders to let go on.")] = None,
    signature: Annotated[
        str | None, typer.Option("--signature", help="All that failed in this way, as `dlq list` shows it.")
    ] = None,
    actor: job.Actor = None,
    workflow_type: Annotated[str, typer.Option("--type", help="The workflow type.")] = "checkout",
    json: output.JsonFlag = False,
) -> int:
    """Let orders that are held go on, with a new budget of attempts. The next run of the jobs takes them.

    Exit 1 when one of them does not exist; the others are let go all the same.
    """
    from makegood.cli.release import ask_release, describe

    wanted = [(workflow_type, order) for order in orders or []] + (_find_alike(signature) if signature else [])
    if not wanted:
        raise InputError("nothing to release: name orders, or a --signature that `makegood dlq list` shows")
    released = []
    for kind, order in wanted:
        row = ask_release(kind, order, actor or job.whoami(), reason)
        released.append({"order": order, "verdict": row["verdict"], "state": row["current_state"]})
        if not json:
            output.page.print(output.harmless(describe(kind, order, row)), markup=False)
    if json:
        output.show_json({"released": released})
    return EXIT_FOUND_WRONG if any(one["verdict"] == "unknown" for one in released) else EXIT_DONE


@dlq.command(
    epilog='Example: makegood dlq settle order-123 --step charge --did-not-happen --proof "no payment at the provider"'
    ' --reason "looked it up"'
)
def settle(
    order: Annotated[str, typer.Argument(help="The order, for example order-123.")],
    step: Annotated[str, typer.Option("--step", help="The step it is held in, for example charge.")],
    proof: Annotated[str, typer.Option("--proof", help="What shows it, for example an id at the provider.")],
    reason: job.Reason,
    did_not_happen: Annotated[bool, typer.Option("--did-not-happen", help="It definitely did not happen.")] = False,
    result: Annotated[str | None, typer.Option("--result", help="It happened, and this is its result as JSON.")] = None,
    actor: job.Actor = None,
    workflow_type: Annotated[str, typer.Option("--type", help="The workflow type.")] = "checkout",
    json: output.JsonFlag = False,
) -> int:
    """Record what became of the step an order is held in, as you found it out. The next run of the jobs goes on."""
    from makegood.operating import settle_step

    if did_not_happen == (result is not None):
        example = """For example --result '{"shipment_id": "s1"}'."""
        raise InputError("say either --did-not-happen or --result", hint=example)
    row = settle_step(
        workflow_type, order, step, _parse_result(result), actor=actor or job.whoami(), reason=reason, proof=proof
    )
    if row["verdict"] == "unknown":
        raise UnknownOrder(f"there is no {workflow_type} of {order}", hint="Look it up with `makegood timeline`.")
    if json:
        output.show_json({"order": order, "step": step, "verdict": row["verdict"], "state": row["current_state"]})
    else:
        sentence = SETTLED[row["verdict"]].format(order=order, step=step, state=row["current_state"])
        output.page.print(output.harmless(sentence), markup=False)
    return EXIT_DONE if row["verdict"] == "settled" else EXIT_FOUND_WRONG


SETTLED = {
    "settled": "What became of step {step} of {order} is recorded; it is due now.",
    "known": "The answer of step {step} of {order} is known already: release it.",
    "not_held": "{order} is {state} and not held: there is nothing to settle.",
    "other_step": "{order} is {state}, not in the midst of step {step}.",
}


def _parse_result(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        found = jsonlib.loads(text)
    except ValueError as error:
        raise InputError(f"--result is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InputError("--result must be a JSON object, for example {}")
    return found


def _find_alike(signature: str) -> list[tuple[str, str]]:
    from makegood.cli.connect import ask

    rows = ask(
        "SELECT message_key, entity_id FROM makegood.dead_letters"
        " WHERE signature = %s AND state = 'parked' AND source <> 'message' ORDER BY last_failed_at LIMIT %s",
        (signature, RELEASED_MAX),
        role="read",
    )
    return [(row["message_key"], row["entity_id"]) for row in rows]


def _group_table(groups: list[dict[str, Any]]) -> Table:
    table = Table("", "what went wrong", "since (UTC)", "for example", box=None, pad_edge=False)
    for group in groups:
        examples = ", ".join(output.harmless(str(order)) for order in group["orders"])
        table.add_row(
            f"{group['letters']:,}",
            Text(output.harmless(group["signature"])),
            f"{group['oldest']:%m-%d %H:%M}",
            Text(examples),
        )
    return table


def _document(letter: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in letter.items() if name not in LEFT_OUT}
    return {**kept, "story": jsonlib.loads(letter["story"])}
