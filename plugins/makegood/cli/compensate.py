"""``makegood compensate``: what the DAG ``retry_compensations`` does, without Airflow, and what a person may do."""

from __future__ import annotations

from typing import Annotated

import typer

from makegood.cli import job, output
from makegood.cli.app import app
from makegood.errors import EXIT_DONE, EXIT_FOUND_WRONG, UnknownOrder

compensate = typer.Typer(help="Undo what is to be undone; retry or settle one by hand.")
app.add_typer(compensate, name="compensate")

Order = Annotated[str, typer.Argument(help="The order, for example order-123.")]
Type = Annotated[str, typer.Option("--type", help="The workflow type.")]


@compensate.callback(invoke_without_command=True, epilog="Example: makegood compensate --dry-run")
def run(
    context: typer.Context,
    dry_run: job.DryRun = False,
    limit: job.Limit = None,
    older_than: job.OlderThan = None,
    workflow_type: job.WorkflowType = None,
    json: output.JsonFlag = False,
) -> int:
    """Try every undo that is due, in reverse order of the steps. Exit 1 when one is held for a person."""
    if context.invoked_subcommand is not None:
        return EXIT_DONE
    from makegood import jobs
    from makegood.logs import configure_logs
    from makegood.settings import get_settings

    configure_logs(get_settings().log_level)
    options = jobs.check_options(job.parse_duration(older_than), workflow_type, limit)
    return job.run_job(
        lambda tell: jobs.compensate(options, triggered_by=f"command:{job.whoami()}", dry_run=dry_run, tell=tell),
        title="compensate",
        dry_run=dry_run,
        json=json,
    )


@compensate.command(epilog='Example: makegood compensate retry order-123 --reason "the provider is back"')
def retry(
    order: Order,
    reason: job.Reason,
    actor: job.Actor = None,
    workflow_type: Type = "checkout",
    json: output.JsonFlag = False,
) -> int:
    """Try an order's undo now, whether it is held or waits for its next attempt. Exit 1 if it is still not undone."""
    from makegood.cli.release import ask_release, find_state
    from makegood.operating import advance_one

    # Looked at first: one that is held on its way forward would go further forward.
    if (state_before := find_state(workflow_type, order)) not in {"compensating", "compensated"}:
        raise UnknownOrder(f"{order} owes no undo: it is {state_before}", hint="`makegood dlq release` lets it go on.")
    verdict = ask_release(workflow_type, order, actor or job.whoami(), reason)
    state = advance_one(verdict["id"]) if verdict["verdict"] in {"released", "hastened", "due"} else None
    state = state or verdict["current_state"]
    if json:
        output.show_json({"order": order, "verdict": verdict["verdict"], "state": state})
    else:
        output.page.print(output.harmless(f"{order} is {state} now."), markup=False)
    return EXIT_DONE if state == "compensated" else EXIT_FOUND_WRONG


@compensate.command(
    epilog='Example: makegood compensate settle order-123 --step charge --proof re_123 --reason "refunded by hand"'
)
def settle(
    order: Order,
    step: Annotated[str, typer.Option("--step", help="The step whose undo was done elsewhere, for example charge.")],
    proof: Annotated[str, typer.Option("--proof", help="What shows it, for example the id of the refund.")],
    reason: job.Reason,
    actor: job.Actor = None,
    workflow_type: Type = "checkout",
    json: output.JsonFlag = False,
) -> int:
    """Record that an undo was done elsewhere; it is never sent again. Exit 1 if a worker has or had it."""
    from makegood.cli.connect import ask

    row = ask(
        "SELECT * FROM makegood.settle_compensation(%s, %s, %s, %s, %s, %s)",
        (workflow_type, order, step, actor or job.whoami(), reason, proof),
    )[0]
    if row["verdict"] == "unknown":
        raise UnknownOrder(
            f"{order} owes no undo of a step {step!r}", hint=f"Look with `makegood timeline {output.harmless(order)}`."
        )
    if json:
        output.show_json({"order": order, "step": step, "verdict": row["verdict"]})
    else:
        output.page.print(output.harmless(SENTENCES[row["verdict"]].format(order=order, step=step)), markup=False)
    return EXIT_FOUND_WRONG if row["verdict"] in {"busy", "known"} else EXIT_DONE


SENTENCES = {
    "settled": "The undo of step {step} of {order} is settled.",
    "done": "The undo of step {step} of {order} was done already.",
    "known": "The provider did undo step {step} of {order}; its answer came late and is stored here. Nothing was"
    " recorded: `makegood compensate retry` takes it from there. If it was done by hand too, it was done twice.",
    "busy": "A worker has {order} right now: its call may be under way. Try again in a minute.",
}
