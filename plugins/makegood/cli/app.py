"""The app that commands register on, and the one place where errors become messages and exit codes."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import typer
from typer.exceptions import TyperException

from makegood.cli import output
from makegood.errors import EXIT_BAD_ARGUMENTS, EXIT_DONE, MakegoodError

COMMAND_MODULES = (
    "local",
    "db",
    "shop",
    "timeline",
    "cancel",
    "recover",
    "compensate",
    "reconcile",
    "reconcile_report",
    "reconcile_sync",
    "reconcile_remedies",
    "reconcile_policy",
    "reconcile_verdicts",
    "reconcile_import",
    "dlq",
    "people",
    "prove",
    "bench",
)

app = typer.Typer(
    name="makegood",
    help="Finds orders stuck between two steps and makes them good.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def run(arguments: Sequence[str]) -> int:
    for name in COMMAND_MODULES:
        importlib.import_module(f"makegood.cli.{name}")
    output.wants_json = "--json" in arguments
    try:
        result = app(args=list(arguments), prog_name="makegood", standalone_mode=False)
    except MakegoodError as error:
        output.show_error(error)
        return error.exit_code
    except TyperException as error:
        output.show_usage_error(error)
        return EXIT_BAD_ARGUMENTS
    except (KeyboardInterrupt, typer.Abort):
        output.say("Stopped.")
        return 130
    return result if isinstance(result, int) else EXIT_DONE
