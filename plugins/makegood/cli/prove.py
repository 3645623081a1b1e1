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
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Where money goes back, also kill whoever comes next, at every pair.")
    ] = False,
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


@prove.command(epilog="Example: makegood prove reconcile --orders 1000000")
def reconcile(
    orders: Annotated[int, typer.Option("--orders", min=1_000, max=20_000_000, help="How many to plant.")] = 1_000_000,
    seed: Annotated[int, typer.Option("--seed", help="The same seed plants the same.")] = 1,
    json: output.JsonFlag = False,
) -> int:
    """Plant known discrepancies of every class among many orders, reconcile, and compare with what was planted.

    One order in a hundred is broken. Runs on a scratch database. Exit 1 when something was missed or wrong, or off by a
    cent.
    """
    from makegood.cli.server import running_server
    from prover.ledgers.proof import prove_reconciliation

    with running_server() as server:
        proof = prove_reconciliation(server.admin_url, server.jobs_url, orders, seed, output.say)
    if json:
        output.show_json(proof.to_document())
    output.say(
        f"{proof.orders:,} orders, {proof.planted:,} planted:"
        f" precision {proof.precision:.6f}, recall {proof.recall:.6f},"
        f" {proof.totals_that_differ} totals differ; planted in {proof.planting_seconds} s,"
        f" matched in {proof.matching_seconds} s"
    )
    return EXIT_DONE if proof.holds else EXIT_FOUND_WRONG


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
