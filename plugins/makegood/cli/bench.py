"""``makegood bench``: figures as ratios, measured in one run next to what a user would pick instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from makegood.cli import output
from makegood.cli.app import app
from makegood.errors import EXIT_DONE, EXIT_FOUND_WRONG, InputError

if TYPE_CHECKING:
    from bench.figures import Figure

bench = typer.Typer(help="Figures as ratios, measured in one run.", no_args_is_help=True)
app.add_typer(bench, name="bench")

Runs = Annotated[int, typer.Option("--runs", min=3, max=50, help="Alternating runs per figure.")]
Only = Annotated[list[str] | None, typer.Option("--only", help="One figure; may be given again.")]


@bench.callback()
def _bench() -> None:
    """A group, so that further benchmarks can join."""


@bench.command(epilog="Example: makegood bench engine --only claim_growth --runs 5")
def engine(runs: Runs = 3, only: Only = None, json: output.JsonFlag = False) -> int:
    """Measure the engine against DBOS Transact and pgbench. Exit 1 when a figure misses its limit.

    Runs in scratch databases on your server, for some minutes; DBOS gets an environment of its own.
    """
    from bench.engine import FIGURES, measure

    return _run(measure, FIGURES, runs, only, json=json)


@bench.command(epilog="Example: makegood bench recovery --only peak_mb --runs 5")
def recovery(runs: Runs = 3, only: Only = None, json: output.JsonFlag = False) -> int:
    """Measure recovery against DBOS Transact, pgbench and the bound on calls. Exit 1 when a figure misses its limit.

    Runs in scratch databases on your server, for some ten minutes; DBOS gets an environment of its own, and a shop
    that takes 50 ms for an answer is started beside it.
    """
    from bench.recovery import FIGURES, measure

    return _run(measure, FIGURES, runs, only, json=json)


@bench.command(epilog="Example: makegood bench dashboard --only overview_growth --only order_growth")
def dashboard(runs: Runs = 3, only: Only = None, json: output.JsonFlag = False) -> int:
    """Measure what looking costs beside 2 million orders and with 20 viewers. Exit 1 when a figure misses its limit.

    Writes 12 million transitions into a scratch database on your server (about 6 GB for the time being) and looks at
    the pages with Debian's chromium; some ten minutes.
    """
    from bench.dashboard import FIGURES, measure

    return _run(measure, FIGURES, runs, only, json=json)


@bench.command(epilog="Example: makegood bench reconcile --only full_vs_join --runs 5")
def reconcile(runs: Runs = 3, only: Only = None, json: output.JsonFlag = False) -> int:
    """Measure reconciliation against the bare join, pandas and datacompy. Exit 1 when a figure misses its limit.

    Plants up to 10 million orders with known discrepancies in scratch databases on your server (about 15 GB for the
    time being), for some twenty minutes; datacompy gets an environment of its own. A run that misses one is void.
    """
    from bench.reconcile import FIGURES, measure

    return _run(measure, FIGURES, runs, only, json=json)


def _run(
    measure: Callable[..., list[Figure]], known: Sequence[str], runs: int, only: list[str] | None, *, json: bool
) -> int:
    """The figures asked for, shown; exit 1 when one misses its limit."""
    from makegood.cli.server import running_server
    from makegood.local import where

    chosen = only or list(known)
    for name in chosen:
        if name not in known:
            raise InputError(f"--only is {name!r}; it must be one of {', '.join(known)}")
    with running_server() as server:
        figures = measure(server.admin_url, server.jobs_url, where.find_home(), runs=runs, only=chosen, say=output.say)
    if json:
        output.show_json({figure.name: figure.to_document() for figure in figures})
    for figure in figures:
        spread = f"{min(figure.runs):.2f}–{max(figure.runs):.2f}"
        verdict = "kept" if figure.kept else "MISSED"
        output.say(f"{figure.name}: {figure.value:.2f} ({spread}), {figure.kind} {figure.limit:g}: {verdict}")
    return EXIT_DONE if all(figure.kept for figure in figures) else EXIT_FOUND_WRONG
