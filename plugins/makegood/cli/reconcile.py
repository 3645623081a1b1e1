"""``makegood reconcile``: what the DAG ``reconcile_charges`` does, without Airflow; its commands register here."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from makegood.cli import job, output
from makegood.cli.app import app
from makegood.errors import EXIT_DONE, EXIT_FOUND_WRONG

if TYPE_CHECKING:
    from makegood.reconciliation.report import Report

reconcile = typer.Typer(help="Compare the provider's charges with the orders, and put right what differs.")
app.add_typer(reconcile, name="reconcile")

STAGES = {
    "sync": "fetching the provider's books",
    "match": "comparing them with ours",
    "remedies": "putting right what may be",
    "report": "writing the report",
}
Classes = Annotated[
    list[str] | None, typer.Option("--class", help="Put right only this class, for example D08; may be repeated.")
]


@reconcile.callback(
    invoke_without_command=True, epilog="Example: makegood reconcile --since 2026-11-01 --until 2026-11-08"
)
def run(
    context: typer.Context,
    full: Annotated[bool, typer.Option("--full", help="Look at everything, not only at what changed.")] = False,
    since: Annotated[str | None, typer.Option("--since", help="Only orders and charges from this time on.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="And before this time.")] = None,
    classes: Classes = None,
    act: Annotated[
        bool, typer.Option("--act", help="Put right what the policy allows; otherwise only say what would be done.")
    ] = False,
    no_sync: Annotated[bool, typer.Option("--no-sync", help="With the provider's books as they are here.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many remedies.")] = None,
    json: output.JsonFlag = False,
) -> int:
    """Fetch the provider's charges, compare them with the orders, say what differs, and write a report.

    Nothing is put right unless you say --act, and then only what the policy allows (makegood reconcile policy). Exit 1
    when the totals do not add up or a finding needs somebody.
    """
    if context.invoked_subcommand is not None:
        return EXIT_DONE
    from makegood import reconciling
    from makegood.logs import configure_logs
    from makegood.reconciliation.options import check_options
    from makegood.settings import get_settings

    configure_logs(get_settings().log_level)
    options = check_options(
        kind="full" if full else "auto",
        since=since,
        until=until,
        classes=classes or (),
        act=act,
        sync=not no_sync,
        limit=limit,
    )
    with Stages(show=not json) as stages:
        done = reconciling.reconcile(options, triggered_by=f"command:{job.whoami()}", tell=stages.tell)
    show_report(done.report, json=json, more={"file": str(done.file), "counts": dict(done.counts)})
    if not json:
        output.say(f"The report is {done.file}")
        if not act:
            output.say("Nothing was put right: say --act for what the policy allows.")
    return EXIT_DONE if done.report.is_good else EXIT_FOUND_WRONG


def show_report(report: Report, *, json: bool, more: Mapping[str, Any] | None = None) -> None:
    from makegood.reconciliation.report_document import to_document
    from makegood.reconciliation.report_table import render_table

    if json:
        output.show_json(to_document(report) | dict(more or {}))
    else:
        output.page.print(render_table(report))


class Stages:
    """One line per stage: what is under way, then what it came to. Nothing where a program listens."""

    def __init__(self, *, show: bool) -> None:
        self._show = show
        self._status = output.people.status("") if show and output.people.is_terminal else None

    def __enter__(self) -> Stages:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def tell(self, stage: str, counts: Mapping[str, int]) -> None:
        if self._status is not None:
            self._status.update(STAGES[stage])
        if self._show and counts:
            numbers = ", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in counts.items() if n)
            output.say(f"- {STAGES[stage]}: {numbers or 'nothing'}")
