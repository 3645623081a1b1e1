"""``makegood reconcile import``: a settlement report, line by line, into the provider's books."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from makegood.cli import output
from makegood.cli.reconcile import reconcile
from makegood.cli.reconcile_sync import parse_moment
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
Until = Annotated[
    str | None,
    typer.Option(
        "--complete-until",
        help="With this file the provider's books are complete until then (UTC): 2026-12-01 is all of November.",
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--complete-from", help="The file has everything from then on: should one before it be missing, nothing moves."
    ),
]
Rejects = Annotated[Path | None, typer.Option("--rejects", help="Write what was kept aside into this CSV file.")]


@reconcile.command("import", epilog="Example: makegood reconcile import november.csv --complete-until 2026-12-01")
def import_report(
    file: File,
    mapping: MappingFile = None,
    provider: Provider = None,
    encoding: Encoding = None,
    complete_until: Until = None,
    complete_from: From = None,
    rejects: Rejects = None,
    json: output.JsonFlag = False,
) -> int:
    """Take a settlement report into the provider's books. Exit 1 when a line was kept aside.

    Stripe's own reports are known by their columns. Killed at any moment, the same command goes on; run again, it
    changes nothing. Orders are judged by such books only up to where --complete-until says that they are complete.
    """
    until, since = parse_moment("--complete-until", complete_until), parse_moment("--complete-from", complete_from)
    if since is not None and until is None:
        raise InputError("--complete-from says where the file begins; say with --complete-until where it ends")
    done = _run(file, mapping, provider, encoding, (until, since), rejects, show=not json)
    rejected = done.counts["rejected"] or any(one.reason for one in done.collections)
    if json:
        output.show_json(
            {
                "import_id": done.import_id,
                "provider": done.provider,
                "mapping": done.mapping,
                "resumed_after_line": done.resumed_after,
                "counts": {name: done.counts[name] for name in COUNTED},
                "complete": [vars(one) for one in done.collections],
                "rejected": [{"line": line, "reason": reason} for line, reason in done.faults],
            }
        )
    else:
        _show(done, rejects)
    return EXIT_FOUND_WRONG if rejected else EXIT_DONE


def _run(
    file: Path,
    mapping: Path | None,
    provider: str | None,
    encoding: str | None,
    complete: tuple[datetime | None, datetime | None],
    rejects: Path | None,
    *,
    show: bool,
) -> Imported:
    import asyncio

    from makegood.cli.progress import Counting
    from makegood.database import Database
    from makegood.local import where
    from makegood.reconciliation import mapping as mappings
    from makegood.reconciliation.files import check_file, count_to_read
    from makegood.reconciliation.importing import import_file
    from makegood.settings import get_settings

    check_file(file)
    chosen = mappings.load(mapping) if mapping else None
    livemode = "_live_" in get_settings().stripe_api_key.get_secret_value()[:8]
    total = count_to_read(file)

    async def run() -> Imported:
        async with Database(where.database_url("jobs")) as database:
            done = await import_file(
                database,
                file,
                mapping=chosen,
                provider=provider,
                encoding=encoding,
                livemode=livemode,
                complete_until=complete[0],
                complete_from=complete[1],
                tell=bar.reach,
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
    for one in done.collections:
        until = "never" if one.watermark is None else f"until {one.watermark.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
        said = f"{one.collection} of {done.provider}: complete {until}"
        if one.reason:
            output.say(f"{said}; this file did not move it: {one.reason}", style="bold red")
        elif one.watermark is None:
            output.say(f"{said}. Nothing is judged by it before --complete-until says up to when it is.")
        else:
            output.say(said)
