"""A report for a terminal: the verdict, the totals as a sum, what is open by class."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from makegood.reconciliation.classes import REMEDIES, name_of
from makegood.reconciliation.report import (
    Line,
    Report,
    Totals,
    age_of,
    describe_check,
    describe_run,
    find_problems,
    summarise,
)
from makegood.story import harmless

FINDINGS_SHOWN = 20


def render_table(report: Report) -> RenderableType:
    parts: list[RenderableType] = [*_verdict(report)]
    if report.totals:
        parts += [Text(""), _totals(report)]
    if report.standings:
        parts += [Text(""), _classes(report)]
    if report.findings:
        parts += [Text(""), findings_table(report, FINDINGS_SHOWN)]
        if (hidden := report.left_out + max(0, len(report.findings) - FINDINGS_SHOWN)) > 0:
            parts.append(Text(f"… and {hidden:,} more", style="dim"))
    return Group(*parts)


def findings_table(report: Report, limit: int) -> Table:
    """One line per finding, in the order in which they matter."""
    table = Table("order", "class", "", box=None, pad_edge=False)
    for head in ("at risk", "open for"):
        table.add_column(head, justify="right")
    for head in ("state", "remedy", "finding"):
        table.add_column(head)
    for one in report.findings[:limit]:
        new = " new" if one.new else ""
        table.add_row(
            Text(harmless(one.order_id or one.charge_id or one.unit)),
            Text(one.class_, style="dim"),
            Text.assemble(name_of(one.class_), (new, "yellow")),
            report.money(one.at_risk_minor, one.currency),
            age_of(one.first_seen_at, report.written_at),
            one.state,
            REMEDIES.get(one.remedy, one.remedy),
            Text(one.id, style="dim"),
        )
    return table


def _verdict(report: Report) -> list[RenderableType]:
    style = "bold green" if report.is_good else "bold red" if find_problems(report) else "bold yellow"
    lines: list[RenderableType] = [
        Text(f"{report.run.started_at:%Y-%m-%d %H:%M} UTC  {describe_run(report.run)}", style="dim"),
        Text(summarise(report), style=style),
    ]
    lines += [Text(harmless(problem), style="red") for problem in find_problems(report)]
    run = report.run
    lines.append(Text(f"{run.looked_at:,} units judged, {run.opened:,} findings opened, {run.closed:,} closed"))
    if check := describe_check(run):
        lines.append(Text(check))
    return lines


def _totals(report: Report) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for head in ("provider", "=  matched", "+  pending", "+  findings", "off by"):
        table.add_column(head, justify="right")
    for totals in report.totals:
        lines = (totals.provider, totals.matched, totals.pending, totals.findings)
        gap = Text("nothing", style="dim") if totals.adds_up else _cell(totals, totals.unexplained, "bold red")
        table.add_row(totals.currency, *(_cell(totals, line) for line in lines), gap)
    return table


def _cell(totals: Totals, line: Line, style: str = "") -> Text:
    return Text.assemble(
        (totals.money(line).removesuffix(f" {totals.currency}"), style), (f"  {line.charges:,}×", "dim")
    )


def _classes(report: Report) -> Table:
    table = Table("class", "", box=None, pad_edge=False)
    for head in ("open", "new", "at risk", "oldest"):
        table.add_column(head, justify="right")
    for head in ("state", "remedy"):
        table.add_column(head)
    for one in report.standings:
        table.add_row(
            Text(one.class_, style="dim"),
            Text(name_of(one.class_), style="bold" if one.needs_somebody else ""),
            f"{one.findings:,}",
            f"{one.new:,}" if one.new else "",
            report.money(one.at_risk_minor, one.currency),
            age_of(one.oldest, report.written_at),
            one.state,
            REMEDIES.get(one.remedy, one.remedy),
        )
    return table
