"""``makegood prove``: break workers everywhere and see whether the promises hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from makegood.cli import output
from makegood.cli.app import app
from makegood.errors import EXIT_DONE, EXIT_FOUND_WRONG

if TYPE_CHECKING:
    from prover.enumerate import Report

prove = typer.Typer(help="Break workers everywhere and see whether the promises hold.", no_args_is_help=True)
app.add_typer(prove, name="prove")


@prove.callback()
def _prove() -> None:
    """A group, so that further proofs can join."""


@prove.command(epilog="Example: makegood prove crash --only undeliverable/7/after")
def crash(
    only: Annotated[
        str | None, typer.Option("--only", help="scenario, scenario/number or scenario/number/blow: one part of it.")
    ] = None,
    pairs: Annotated[bool, typer.Option("--pairs", help="Also kill the recovering worker, at every pair.")] = False,
    every: Annotated[int, typer.Option("--every", min=1, help="Only every n-th point: a quick look.")] = 1,
    json: output.JsonFlag = False,
) -> int:
    """Kill, stop and deceive a real worker at every statement, commit and call of a checkout.

    Each order then goes to other workers, and the shop's own log is compared with the tables. Runs on a
    scratch database and a shop of its own. Exit 1 when a promise was broken.
    """
    from makegood.cli.server import running_server
    from prover.run import run_crash_proof

    with running_server() as server:
        report = run_crash_proof(server.admin_url, server.jobs_url, only=only, pairs=pairs, every=every, json=json)
    if json:
        output.show_json(report.to_document())
    else:
        _show(report)
    return EXIT_FOUND_WRONG if report.violations else EXIT_DONE


def _show(report: Report) -> None:
    from rich.table import Table

    table = Table("scenario", "points", box=None, pad_edge=False)
    for name, points in report.by_scenario.items():
        table.add_row(name, str(points))
    output.page.print(table)
    for violation in report.violations:
        output.page.print(
            f"\n{violation['point']} ({violation['label']}): {violation['violation']}", style="red", markup=False
        )
        output.page.print(f"  repeat: {violation['repeat']}", markup=False)
    style = "bold red" if report.violations else "bold green"
    output.page.print(f"\n{report.points} points, {len(report.violations)} violations", style=style)
