"""``makegood bench``: figures as ratios, measured in one run next to what a user would pick instead."""

from __future__ import annotations

from typing import Annotated

import typer

from makegood.cli import output
from makegood.cli.app import app
from makegood.errors import EXIT_DONE, EXIT_FOUND_WRONG, InputError

bench = typer.Typer(help="Figures as ratios, measured in one run.", no_args_is_help=True)
app.add_typer(bench, name="bench")

FIGURES = ("dbos_ratio", "pgbench_ratio", "claim_growth")


@bench.callback()
def _bench() -> None:
    """A group, so that further benchmarks can join."""


@bench.command(epilog="Example: makegood bench engine --only claim_growth --runs 5")
def engine(
    runs: Annotated[int, typer.Option("--runs", min=3, max=50, help="Alternating runs per figure.")] = 3,
    only: Annotated[list[str] | None, typer.Option("--only", help="One figure; may be given again.")] = None,
    json: output.JsonFlag = False,
) -> int:
    """Measure the engine against DBOS Transact and pgbench. Exit 1 when a figure misses its limit.

    Runs in scratch databases on your server, for some minutes; DBOS gets an environment of its own.
    """
    from bench.engine import measure
    from makegood.cli.server import running_server
    from makegood.local import where

    chosen = only or list(FIGURES)
    for name in chosen:
        if name not in FIGURES:
            raise InputError(f"--only is {name!r}; it must be one of {', '.join(FIGURES)}")
    with running_server() as server:
        figures = measure(server.admin_url, server.jobs_url, where.find_home(), runs=runs, only=chosen, say=output.say)
    if json:
        output.show_json({figure.name: figure.to_document() for figure in figures})
    for figure in figures:
        spread = f"{min(figure.runs):.2f}–{max(figure.runs):.2f}"
        verdict = "kept" if figure.kept else "MISSED"
        output.say(f"{figure.name}: {figure.value:.2f} ({spread}), {figure.kind} {figure.limit:g}: {verdict}")
    return EXIT_DONE if all(figure.kept for figure in figures) else EXIT_FOUND_WRONG
