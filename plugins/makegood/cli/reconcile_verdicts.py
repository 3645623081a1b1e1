"""``makegood reconcile verdicts``: the rules over Parquet files, on an engine for books that outgrew one machine."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from makegood.cli import output
from makegood.cli.reconcile import reconcile
from makegood.errors import EXIT_DONE, EXIT_FOUND_WRONG

if TYPE_CHECKING:
    from makegood.reconciliation.engines import DuckDB, Spark


class EngineName(StrEnum):
    duckdb = "duckdb"
    spark = "spark"


@reconcile.command(epilog="Example: makegood reconcile verdicts --engine duckdb --from books/ --to verdicts.parquet")
def verdicts(
    source: Annotated[
        Path,
        typer.Option(
            "--from", exists=True, file_okay=False, help="Folder with orders.parquet, charges.parquet and so on."
        ),
    ],
    to: Annotated[Path, typer.Option("--to", help="Parquet: a file from DuckDB, a folder of files from Spark.")],
    engine: Annotated[EngineName, typer.Option("--engine", help="Where the rules run.")] = EngineName.duckdb,
    master: Annotated[str, typer.Option("--master", help="Spark's master, as for spark-submit.")] = "local[*]",
    watermark: Annotated[
        datetime | None,
        typer.Option("--watermark", help="Up to where (UTC) the provider's books are complete; now, if not given."),
    ] = None,
    json: output.JsonFlag = False,
) -> int:
    """Judge orders and charges in Parquet files, by the same rules as in PostgreSQL. Exit 1 when something is broken.

    Each of orders and charges, and if there are any refunds, disputes and workflows, is a file NAME.parquet or a folder
    NAME of such files. docs/reconciliation.md names their columns. Nothing is written but the answer, which has
    everything that is not matched; findings and remedies stay with PostgreSQL. Needs the extra makegood[engines].
    """
    from makegood.reconciliation.engines import ANSWER, COUNTS, Moment, judge
    from makegood.reconciliation.stages import translate
    from makegood.reconciliation.terms import make_terms
    from makegood.settings import get_settings

    now = datetime.now(UTC)
    moment = Moment(now, watermark.replace(tzinfo=UTC) if watermark else now)
    with _open(engine, master) as opened:
        judge(opened, source, make_terms(get_settings()), moment)
        opened.write(translate(ANSWER, opened.dialect), to)
        counts = [
            {"class": row[0], "currency": row[3], "units": int(row[1]), "at_risk_minor": int(row[2])}
            for row in opened.rows(translate(COUNTS, opened.dialect))
        ]
    broken = sum(row["units"] for row in counts if str(row["class"]).startswith("D"))
    if json:
        output.show_json({"engine": engine.value, "to": str(to), "broken": broken, "counts": counts})
    else:
        _show(counts, to)
    return EXIT_FOUND_WRONG if broken else EXIT_DONE


def _open(engine: EngineName, master: str) -> AbstractContextManager[DuckDB | Spark]:
    from makegood.reconciliation.engines import DuckDB, Spark

    return DuckDB() if engine is EngineName.duckdb else Spark(master)


def _show(counts: list[dict[str, object]], to: Path) -> None:
    from rich.table import Table

    from makegood.reconciliation.classes import name_of

    table = Table("class", "", "currency", "units", "at risk (minor units)", box=None, pad_edge=False)
    for row in counts:
        broken = str(row["class"]).startswith("D")
        name = name_of(str(row["class"])) if broken else ""
        at_risk = f"{row['at_risk_minor']:,}" if broken else ""
        table.add_row(str(row["class"]), name, str(row["currency"]), f"{row['units']:,}", at_risk)
    output.page.print(table)
    output.page.print(f"written to {to}", markup=False)
