"""What the commands of the scheduled jobs have in common: their options, a progress bar, a summary."""

from __future__ import annotations

import getpass
import re
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from makegood.cli import output
from makegood.errors import EXIT_DONE, EXIT_FOUND_WRONG, InputError

if TYPE_CHECKING:
    from makegood.jobs import Report, Tell

UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
ROWS_SHOWN = 30
# What each count means, in the order in which a person asks.
WORDS = {
    "due": "found",
    "not_due": "wait for their next attempt",
    "leased": "are being worked on",
    "not_mine": "are of a type that is not known here",
    "orphaned": "are of a type that nobody came for",
    "taken": "taken",
    "completed": "completed",
    "compensated": "undone",
    "failed": "failed, nothing to undo",
    "waiting": "wait for their next attempt",
    "held": "HELD for a person",
    "lost": "taken over by another worker",
    "interrupted": "interrupted",
    "alerts": "alerts sent",
    "alerts_unsent": "alerts that could NOT be sent",
    "batches_failed": "batches FAILED",
}
WRONG = ("held", "interrupted", "alerts_unsent", "batches_failed")

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done, and why.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many workflows.")]
OlderThan = Annotated[
    str | None,
    typer.Option("--older-than", help="Without progress for at least this long: 90, 90s, 10m, 2h, 1d."),
]
WorkflowType = Annotated[str | None, typer.Option("--type", help="Only this workflow type.")]
Actor = Annotated[str | None, typer.Option("--as", help="Who acts; you, if not given.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept with the order.")]


def parse_duration(text: str | None) -> float | None:
    """Seconds of 90, 90s, 10m, 2h or 1d."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    if not found:
        raise InputError(f"--older-than is {text!r}; it must be a number with a unit, such as 90s, 10m, 2h or 1d")
    return float(found[1]) * UNITS[found[2]]


def run_job(work: Callable[[Tell], Report], *, title: str, dry_run: bool, json: bool) -> int:
    """Runs with a bar on a terminal, and ends with a summary. Exit 1 when something needs a person."""
    with Bar(title, show=not json and not dry_run) as bar:
        report = work(bar.show)
    if json:
        output.show_json({"run_id": report.run_id, "counts": dict(report.counts), "decisions": _documents(report)})
    else:
        _show(title, report, dry_run=dry_run)
    return EXIT_FOUND_WRONG if any(report.counts.get(name) for name in WRONG) else EXIT_DONE


def whoami() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        return "unknown"


class Bar:
    """A progress bar on a terminal; nothing otherwise."""

    def __init__(self, title: str, *, show: bool) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[ends]}"),
        )
        self._bar = Progress(*columns, console=output.people, disable=not show or not output.people.is_terminal)
        self._task = self._bar.add_task(title, total=None, ends="")
        self._seen: Counter[str] = Counter()

    def __enter__(self) -> Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, counts: Counter[str]) -> None:
        if "due" in counts:
            self._bar.update(self._task, total=counts["due"])
            return
        self._seen.update(counts)
        ends = "  ".join(f"{n:,} {name}" for name, n in self._seen.items() if name in WORDS)
        self._bar.update(self._task, advance=counts["taken"], ends=ends)


def _show(title: str, report: Report, *, dry_run: bool) -> None:
    if dry_run:
        _show_decisions(report)
    counts = {name: n for name, n in report.counts.items() if n}
    if not counts:
        output.page.print(f"{title}: nothing to do.")
        return
    table = Table("", "", box=None, pad_edge=False, show_header=False)
    for name, words in WORDS.items():
        if name in counts:
            style = "bold red" if name in WRONG else ""
            table.add_row(Text(f"{counts[name]:,}", style=style), Text(words, style=style))
    output.page.print(table)
    if counts.get("held"):
        output.say("Look at them with `makegood dlq list`.")


def _show_decisions(report: Report) -> None:
    table = Table("order", "state", "would", "why", box=None, pad_edge=False)
    for one in report.decided[:ROWS_SHOWN]:
        # As Text: what an order is called may look like markup.
        table.add_row(*(Text(output.harmless(word)) for word in (one.entity_id, one.state, one.decision, one.reason)))
    if report.decided:
        output.page.print(table)
    if len(report.decided) > ROWS_SHOWN:
        output.page.print(f"… and {len(report.decided) - ROWS_SHOWN:,} more")
    output.say("A dry run: nothing was changed.")


def _documents(report: Report) -> list[dict[str, Any]]:
    return [
        {"order": one.entity_id, "state": one.state, "decision": one.decision, "reason": one.reason}
        for one in report.decided
    ]
