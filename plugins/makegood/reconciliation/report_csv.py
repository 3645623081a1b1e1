"""A report as CSV for a spreadsheet: one kind of row per line, amounts with the decimals of their currency.

A cell that others wrote can never become a formula: one that begins like one is prefixed with an apostrophe.
"""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterator, Mapping
from decimal import Decimal

from makegood.reconciliation.classes import name_of
from makegood.reconciliation.report import Finding, Line, Report, Totals, describe_check

COLUMNS = (
    "row",
    "currency",
    "class",
    "name",
    "count",
    "amount",
    "amount_minor",
    "state",
    "remedy",
    "order",
    "charge",
    "first_seen_at",
    "last_seen_at",
    "id",
)
# The wide ones are the same to some; a break may end the cell and begin another.
FORMULA_STARTS = ("=", "+", "-", "@", "＝", "＋", "－", "＠", "|", "%")
BREAKS = frozenset("\t\r\n")

Cell = str | int | Decimal | None
Row = dict[str, Cell]


def render_csv(report: Report) -> str:
    """What a full run checked, totals with parts, what stands by class, each finding; the first column says what."""
    with io.StringIO(newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\r\n")
        writer.writeheader()
        for row in _rows(report):
            writer.writerow({name: guard(value) for name, value in row.items()})
        return file.getvalue()


def guard(value: Cell) -> str:
    """A number stays one; text that a spreadsheet would take for a formula is shown, not obeyed."""
    if isinstance(value, Decimal):
        return f"{value:f}"  # never 1E+2
    if isinstance(value, int):
        return str(value)
    text = value or ""
    return f"'{text}" if _may_run(text) else text


def _may_run(text: str) -> bool:
    """Some spreadsheets skip what nobody sees, such as a mark or a hard space, before they look for a formula."""
    unseen = list(itertools.takewhile(lambda one: one == " " or not one.isprintable(), text))
    return not BREAKS.isdisjoint(unseen) or text[len(unseen) :].startswith(FORMULA_STARTS)


def _rows(report: Report) -> Iterator[Row]:
    if check := describe_check(report.run):
        yield {"row": "missed", "count": report.run.missed, "name": check}
    for totals in report.totals:
        yield from _totals_rows(totals)
    for one in report.standings:
        yield {
            "row": "open",
            "class": one.class_,
            "name": name_of(one.class_),
            "count": one.findings,
            "state": one.state,
            "remedy": one.remedy,
            "first_seen_at": one.oldest.isoformat(),
            **_money(one.at_risk_minor, one.currency, report.exponents),
        }
    for finding in report.findings:
        yield _finding_row(finding, report.exponents)


def _totals_rows(totals: Totals) -> Iterator[Row]:
    lines = {"provider": totals.provider, "matched": totals.matched, "pending": totals.pending}
    for name, line in lines.items():
        yield _line(name, totals, line)
    for class_, line in totals.classes.items():
        yield _line("class", totals, line) | {"class": class_, "name": name_of(class_)}
    yield _line("off_by", totals, totals.unexplained)


def _line(row: str, totals: Totals, line: Line) -> Row:
    money = _money(line.amount_minor, totals.currency, {totals.currency: totals.exponent})
    return {"row": row, "count": line.charges, **money}


def _finding_row(one: Finding, exponents: Mapping[str, int]) -> Row:
    return {
        "row": "finding",
        "class": one.class_,
        "name": name_of(one.class_),
        "count": 1,
        "state": one.state,
        "remedy": one.remedy,
        "order": one.order_id,
        "charge": one.charge_id,
        "first_seen_at": one.first_seen_at.isoformat(),
        "last_seen_at": one.last_seen_at.isoformat(),
        "id": one.id,
        **_money(one.at_risk_minor, one.currency, exponents),
    }


def _money(amount_minor: int, currency: str | None, exponents: Mapping[str, int]) -> Row:
    """No thousands separators: a program reads this, and a spreadsheet in any country."""
    if currency is None:
        return {"currency": None, "amount": None, "amount_minor": None}
    exponent = exponents.get(currency, 2)
    amount = Decimal(amount_minor).scaleb(-exponent)
    return {"currency": currency, "amount": amount, "amount_minor": amount_minor}
