"""``makegood reconcile import``: a settlement report, line by line, into the provider's books."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from makegood.cli import output
from makegood.cli.reconcile import reconcile
from makegood.errors import EXIT_DONE, EXIT_FOUND_WRONG, InputError

if TYPE_CHECKING:
    from makegood.database import Database
    from makegood.reconciliation.importing import Imported

REJECTS_PAGE = 1000
COUNTED = ("lines", "rows", "changed", "duplicates", "rejected")

File = Annotated[Path, typer.Argument(help="CSV or Parquet.", show_default=False)]
MappingFile = Annotated[
    Path | None, typer.Option("--mapping", help="A TOML file that says what each column is; not needed for Stripe's.")
]
Provider = Annotated[str | None, typer.Option("--provider", help="Whose books it belongs to, if not the mapping's.")]
Encoding = Annotated[str | None, typer.Option("--encoding", help="Of a CSV file: utf-8, latin-1, cp1252, …")]
Rejects = Annotated[Path | None, typer.Option("--rejects", help="Write what was kept aside into this CSV file.")]


@reconcile.command("import", epilog="Example: makegood reconcile import balance.csv --rejects left-over.csv")
def import_report(
    file: File,
    mapping: MappingFile = None,
    provider: Provider = None,
    encoding: Encoding = None,
    rejects: Rejects = None,
    json: output.JsonFlag = False,
) -> int:
    """Take a settlement report into the provider's books. Exit 1 when a line was kept aside.

    Stripe's own reports are known by their columns. Killed at any moment, the same command goes on; run again, it
    changes nothing.
    """
    done = _run(file, mapping, provider, encoding, rejects, show=not json)
    rejected = done.counts["rejected"]
    if json:
        output.show_json(
            {
                "import_id": done.import_id,
                "provider": done.provider,
                "mapping": done.mapping,
                "resumed_after_line": done.resumed_after,
                "counts": {name: done.counts[name] for name in COUNTED},
                "rejected": [{"line": line, "reason": reason} for line, reason in done.faults],
            }
        )
    else:
        _show(done, rejects)
    return EXIT_FOUND_WRONG if rejected else EXIT_DONE


def _run(
    file: Path, mapping: Path | None, provider: str | None, encoding: str | None, rejects: Path | None, *, show: bool
) -> Imported:
    import asyncio

    from makegood.cli.progress import Counting
    from makegood.database import Database
    from makegood.local import where
    from makegood.reconciliation import mapping as mappings
    from makegood.reconciliation.files import check_file, is_parquet
    from makegood.reconciliation.importing import import_file
    from makegood.settings import get_settings

    check_file(file)
    chosen = mappings.load(mapping) if mapping else None
    livemode = "_live_" in get_settings().stripe_api_key.get_secret_value()[:8]
    total = None if is_parquet(file) else file.stat().st_size

    async def run() -> Imported:
        async with Database(where.database_url("jobs")) as database:
            done = await import_file(
                database, file, mapping=chosen, provider=provider, encoding=encoding, livemode=livemode, tell=bar.reach
            )
            if rejects is not None:
                await _write_rejects(database, done.import_id, rejects)
            return done

    with Counting("importing", ("lines", "changed", "duplicates", "rejected"), show=show, total=total) as bar:
        return asyncio.run(run())


async def _write_rejects(database: Database, import_id: str, path: Path) -> None:
    """Every line that was kept aside, those of an interrupted beginning too, safe to open in a spreadsheet."""
    from makegood.reconciliation.report_csv import guard

    after = 0
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("line", "reason", "content"))
            while rows := await _read_rejects(database, import_id, after):
                writer.writerows((row["line"], guard(row["reason"]), guard(row["content"] or "")) for row in rows)
                after = rows[-1]["line"]
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error


async def _read_rejects(database: Database, import_id: str, after: int) -> list[dict[str, Any]]:
    return await database.call(
        "SELECT l.line, r.reason, r.content FROM makegood.provider_rejects r,"
        " LATERAL (SELECT substr(r.position, 6)::bigint AS line) AS l"
        " WHERE r.source = 'import:' || %s AND l.line > %s ORDER BY l.line LIMIT %s",
        (import_id, after, REJECTS_PAGE),
    )


def _show(done: Imported, rejects: Path | None) -> None:
    if done.resumed_after:
        output.say(f"Went on after line {done.resumed_after:,}, where an earlier import had ended.")
    table = Table("", "", box=None, pad_edge=False, show_header=False)
    for name in COUNTED:
        table.add_row(f"{done.counts[name]:,}", name)
    output.page.print(table)
    for line, reason in done.faults:
        output.say(f"line {line:,}: {reason}", style="bold red")
    if done.counts["rejected"] > len(done.faults):
        output.say(f"… and {done.counts['rejected'] - len(done.faults):,} more; --rejects FILE has them all.")
    if done.counts["rejected"] and rejects is None:
        output.say("They are kept in makegood.provider_rejects.")
