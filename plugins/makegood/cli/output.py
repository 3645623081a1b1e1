"""What a person sees goes to stderr or as tables to stdout; what a program reads is one JSON document on stdout."""

from __future__ import annotations

import json
import sys
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any
from uuid import UUID

import typer
from rich.console import Console
from typer.exceptions import TyperException

from makegood import story
from makegood.errors import MakegoodError

JsonFlag = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, for programs.")]

wants_json = False  # set once by app.run, so that an error before a command starts is JSON too
people = Console(stderr=True, highlight=False)
page = Console(highlight=False)
harmless = story.harmless


def say(message: str, *, style: str | None = None) -> None:
    """Progress and notes; never on stdout, so that a pipe stays clean."""
    people.print(_harmless_lines(message), style=style, markup=False)


def show_json(document: Any) -> None:
    sys.stdout.write(to_json(document) + "\n")
    sys.stdout.flush()


def to_json(document: Any) -> str:
    """ASCII: every terminal, pipe and parser can take it, whatever an order is called."""
    return json.dumps(document, default=_plain, allow_nan=False)


def show_error(error: MakegoodError) -> None:
    if wants_json:
        show_json({"error": {"type": type(error).__name__, "message": str(error), "hint": error.hint}})
    people.print(_harmless_lines(f"error: {error}"), style="bold red", markup=False)
    if error.hint:
        people.print(_harmless_lines(f"       {error.hint}"), markup=False)


def show_usage_error(error: TyperException) -> None:
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    if wants_json:
        show_json({"error": {"type": "BadArguments", "message": message, "hint": None}})
    if not message:  # a group without a command: its help was shown
        return
    people.print(_harmless_lines(f"error: {message}"), style="bold red", markup=False)
    context = getattr(error, "ctx", None)
    if context is not None:
        people.print(f"       Try: {context.command_path} --help", markup=False)


def _harmless_lines(text: str) -> str:
    return "\n".join(harmless(line) for line in text.split("\n"))


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, UUID | Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
