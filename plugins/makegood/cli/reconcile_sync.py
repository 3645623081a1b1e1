"""``makegood reconcile sync``: the provider's books, fetched from where the last fetch was complete."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from makegood.cli import output
from makegood.cli.reconcile import reconcile
from makegood.errors import EXIT_DONE, EXIT_FOUND_WRONG, InputError

if TYPE_CHECKING:
    from makegood.cli.progress import Counting

Since = Annotated[
    str | None,
    typer.Option("--since", help="Read again from here (UTC), or begin here the first time: 2026-11-01."),
]
Collections = Annotated[
    list[str] | None,
    typer.Option("--collection", help="Only this: charges, refunds, disputes, balance_transactions, payouts."),
]
COUNTED = ("pages", "rows", "changed", "duplicates", "refused")


@reconcile.command(epilog="Example: makegood reconcile sync --since 2026-11-01 --collection charges")
def sync(since: Since = None, collection: Collections = None, json: output.JsonFlag = False) -> int:
    """Fetch the provider's charges, refunds, disputes, balance transactions and payouts. Exit 1 when not complete.

    Each is read from its watermark on, with an overlap for what came late. Killed at any moment, the next call goes on.
    """
    from makegood.logs import configure_logs
    from makegood.settings import get_settings

    configure_logs(get_settings().log_level)
    chosen = check_collections(collection)
    counts, states = _run(chosen, parse_since(since), show=not json)
    wrong = any(name.endswith((".failed", ".refused", ".busy")) and n for name, n in counts.items())
    if json:
        output.show_json({"complete": not wrong, "collections": _documents(chosen, counts, states)})
    else:
        _show(chosen, counts, states)
    return EXIT_FOUND_WRONG if wrong else EXIT_DONE


def check_collections(chosen: list[str] | None) -> list[str]:
    from makegood.reconciliation.source import COLLECTIONS

    for name in chosen or ():
        if name not in COLLECTIONS:
            raise InputError(f"--collection is {name!r}; it must be one of {', '.join(COLLECTIONS)}")
    return list(dict.fromkeys(chosen or COLLECTIONS))


def parse_since(text: str | None) -> int | None:
    """Seconds since 1970 of a day or a moment."""
    moment = parse_moment("--since", text)
    return None if moment is None else int(moment.timestamp())


def parse_moment(option: str, text: str | None) -> datetime | None:
    """A day or a moment; without an offset it is UTC, whatever the machine's zone."""
    if text is None:
        return None
    try:
        # A week or a bare number is a date to Python, and hardly one to a person.
        moment = datetime.fromisoformat(text.strip() if re.match(r"\d{4}-\d{2}-\d{2}", text.strip()) else "")
    except ValueError:
        raise InputError(
            f"{option} is {text!r}; it must be a day such as 2026-11-01, or 2026-11-01T12:00:00Z"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _run(chosen: list[str], since: int | None, *, show: bool) -> tuple[Counter[str], Mapping[str, Any]]:
    import asyncio

    from makegood.cli.progress import Counting
    from makegood.database import Database
    from makegood.gateways.ledger import open_ledger
    from makegood.local import where
    from makegood.reconciliation.sync import sync as fetch
    from makegood.settings import get_settings

    async def run(bar: Counting) -> tuple[Counter[str], Mapping[str, Any]]:
        settings = get_settings()
        async with Database(where.database_url("jobs")) as database, open_ledger(settings) as ledger:
            counts = await fetch(database, ledger, settings, tell=bar.show, collections=chosen, since=since)
            rows = await database.call(
                "SELECT collection, watermark, error FROM makegood.provider_sync WHERE provider = %s",
                (ledger.provider,),
            )
            return counts, {row["collection"]: row for row in rows}

    with Counting("fetching", ("pages", "rows", "changed"), show=show) as bar:
        return asyncio.run(run(bar))


def _documents(chosen: list[str], counts: Mapping[str, int], states: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {
            **{word: counts.get(f"{name}.{word}", 0) for word in COUNTED},
            "busy": bool(counts.get(f"{name}.busy")),
            "watermark": states[name]["watermark"] if name in states else None,
            "error": states[name]["error"] if name in states else None,
        }
        for name in chosen
    }


def _show(chosen: list[str], counts: Mapping[str, int], states: Mapping[str, Any]) -> None:
    table = Table("", *COUNTED, "complete until", box=None, pad_edge=False)
    for name in chosen:
        mark = states[name]["watermark"] if name in states else None
        shown = [f"{counts.get(f'{name}.{word}', 0):,}" for word in COUNTED]
        until = mark.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ") if mark else "never"
        table.add_row(name, *shown, Text(until, style="" if mark else "bold red"))
    output.page.print(table)
    for name in chosen:
        if counts.get(f"{name}.busy"):
            output.say(f"{name}: another fetch is at it; it was left alone.")
        elif name in states and states[name]["error"]:
            output.say(f"{name} is NOT complete: {states[name]['error']}", style="bold red")
    if any(counts.get(f"{name}.refused") for name in chosen):
        output.say("What could not be taken is in makegood.provider_rejects, with the reason.")
