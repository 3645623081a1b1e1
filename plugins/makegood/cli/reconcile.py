"""``makegood reconcile``: the provider's books against ours. Its commands register themselves on this group."""

from __future__ import annotations

import typer

from makegood.cli.app import app

reconcile = typer.Typer(help="Compare the provider's charges with the orders, and put right what differs.")
app.add_typer(reconcile, name="reconcile")


@reconcile.callback(no_args_is_help=True)
def run() -> None:
    """Compare the provider's charges with the orders, and put right what differs."""
