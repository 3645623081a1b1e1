"""``makegood reconcile report``, ``findings`` and ``show``: what the runs found, as a table, a file, or one by one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from makegood.cli import output
from makegood.cli.reconcile import reconcile, show_report
from makegood.errors import EXIT_DONE, EXIT_FOUND_WRONG, ConfigurationError, InputError, UnknownOrder
from makegood.money import format_money

FORMATS = ("table", "json", "csv", "html")
STATES = ("open", "acknowledged", "remedying", "resolved", "ignored")
LISTED = {"table": 1000, "json": 10_000, "csv": 100_000, "html": 1000}  # findings; the rest is a number


@reconcile.command(epilog="Example: makegood reconcile report --format html --to report.html")
def report(
    run: Annotated[str | None, typer.Argument(help="The run; the newest one, if not given.")] = None,
    form: Annotated[str, typer.Option("--format", help="table, json, csv or html.")] = "table",
    to: Annotated[Path | None, typer.Option("--to", help="A file to write it to, instead of the screen.")] = None,
    json: output.JsonFlag = False,
) -> int:
    """Show what a run came to: totals that add up, and what is open. Exit 1 when something needs somebody."""
    from makegood import reconciling

    form = "json" if json else form
    if form not in FORMATS:
        raise InputError(f"--format is {form!r}; it must be one of {', '.join(FORMATS)}")
    found = reconciling.get_report(_check_run(run), findings=LISTED[form])
    if to is None and form in {"table", "json"}:
        show_report(found, json=form == "json")
    else:
        _write(_render(found, form), to)
    return EXIT_DONE if found.is_good else EXIT_FOUND_WRONG


@reconcile.command(epilog="Example: makegood reconcile findings --class D08 --state open")
def findings(
    class_: Annotated[str | None, typer.Option("--class", help="Only this class, D01 to D32.")] = None,
    state: Annotated[
        str | None,
        typer.Option("--state", help="open, acknowledged, remedying, resolved or ignored; all but resolved."),
    ] = None,
    order: Annotated[str | None, typer.Option("--order", help="Only of this order.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 50,
    json: output.JsonFlag = False,
) -> int:
    """List findings: what waits for somebody first, then by money. Exit 1 when any is open."""
    from makegood.reconciliation.options import check_classes
    from makegood.reconciliation.read import find_findings
    from makegood.reconciling import ask

    if state is not None and state not in STATES:
        raise InputError(f"--state is {state!r}; it must be one of {', '.join(STATES)}")
    wanted = check_classes([class_])[0] if class_ else None
    rows = ask(lambda database: find_findings(database, class_=wanted, state=state, order=order, limit=limit))
    total = rows[0]["all_findings"] if rows else 0
    if json:
        kept = [{name: value for name, value in row.items() if name != "all_findings"} for row in rows]
        output.show_json({"findings": kept, "left_out": total - len(rows)})
    elif not rows:
        output.page.print("No findings.")
    else:
        output.page.print(_findings_table(rows))
        if total > len(rows):
            output.page.print(f"… and {total - len(rows):,} more")
        output.say("`makegood reconcile show FINDING` has both sides of one.")
    return EXIT_FOUND_WRONG if any(row["state"] == "open" for row in rows) else EXIT_DONE


@reconcile.command(epilog="Example: makegood reconcile show order-123")
def show(
    name: Annotated[str, typer.Argument(metavar="FINDING|ORDER", help="A finding's id, an order or a charge.")],
    json: output.JsonFlag = False,
) -> int:
    """Show a finding with both sides next to each other, as they are now, and what became of it so far."""
    from makegood.cli.finding import render_finding
    from makegood.reconciliation.read import find_documents
    from makegood.reconciling import ask

    documents = ask(lambda database: find_documents(database, name))
    if not documents:
        raise UnknownOrder(
            f"there is no finding {name}, and none of an order or charge of that name",
            hint="`makegood reconcile findings` lists what there is; `makegood timeline` tells an order's story.",
        )
    if json:
        kept = [{key: value for key, value in one.items() if key != "exponents"} for one in documents]
        output.show_json({"findings": kept})
    else:
        for one in documents:
            output.page.print(render_finding(one))
    return EXIT_DONE


def _check_run(text: str | None) -> str | None:
    from makegood.reconciliation.read import as_uuid

    if text is None:
        return None
    if (run_id := as_uuid(text)) is None:
        raise InputError(f"the run is {text!r}; it must be the id of a run, as a report's last line says it")
    return run_id


def _render(found: Any, form: str) -> str:
    from rich.console import Console

    from makegood.reconciliation.report_csv import render_csv
    from makegood.reconciliation.report_document import to_document
    from makegood.reconciliation.report_html import render_html
    from makegood.reconciliation.report_table import render_table

    if form == "csv":
        return render_csv(found)
    if form == "html":
        return render_html(found)
    if form == "json":
        return output.to_json(to_document(found)) + "\n"
    with (console := Console(width=160, color_system=None)).capture() as capture:
        console.print(render_table(found))
    return capture.get()


def _write(text: str, to: Path | None) -> None:
    """To a file, in one step; to the screen as it is, for a pipe."""
    if to is None:
        output.page.file.write(text)
        return
    staged = to.with_name(f".{to.name}.new")
    try:
        with staged.open("w", encoding="utf-8", newline="") as file:
            file.write(text)
        staged.replace(to)
    except OSError as error:
        raise ConfigurationError(
            f"{to} cannot be written: {error.strerror}", hint="Name another file with --to."
        ) from None
    output.say(f"Written to {to}")


def _findings_table(rows: list[dict[str, Any]]) -> Table:
    from makegood.reconciliation.classes import REMEDIES, name_of

    table = Table("order", "class", "", box=None, pad_edge=False)
    table.add_column("at risk", justify="right")
    for head in ("state", "since (UTC)", "remedy", "finding"):
        table.add_column(head)
    for row in rows:
        table.add_row(
            Text(output.harmless(row["order_id"] or row["charge_id"] or row["unit"])),
            Text(row["class"], style="dim"),
            name_of(row["class"]),
            _money(row),
            row["state"],
            _day(row["first_seen_at"]),
            REMEDIES.get(row["remedy"], row["remedy"]),
            Text(str(row["id"]), style="dim"),
        )
    return table


def _money(row: Mapping[str, Any]) -> str:
    if row["currency"] is None:
        return "–"
    return format_money(row["amount_at_risk_minor"], row["currency"], row["exponent"])


def _day(moment: datetime) -> str:
    return f"{moment:%m-%d %H:%M}"
