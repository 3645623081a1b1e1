"""An order's story on a terminal: tables a person reads at 3 in the morning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from makegood.cli import output
from makegood.story import ELLIPSIS, Section, find_headline, find_sections, write_amount

STYLES = {
    "completed": "green",
    "success": "green",
    "succeeded": "green",
    "failed": "red",
    "held": "bold red",
    "compensating": "yellow",
    "compensated": "yellow",
    "unknown": "magenta",
    "no answer": "magenta",
    "running": "cyan",
}
STYLED = ("state", "outcome")  # columns whose words have a colour


def show_story(story: Mapping[str, Any], exponents: Mapping[str, int]) -> None:
    """The headline, a table per section, and the money at the provider."""
    row = story["workflow"]
    name, summary, *more = find_headline(story, exponents)
    alarm = row["held_at"] or story["summary"].startswith("STUCK")
    output.page.print()
    output.page.print(_text(name, style="bold"))
    output.page.print(_text(summary, style="bold red" if alarm else STYLES.get(row["current_state"], "")))
    for line in more:
        output.page.print(_text(line, style="yellow"))
    for section in find_sections(story, exponents):
        output.page.print()
        output.page.print(_table(section))
    _show_money(story, exponents)
    output.page.print()


def _table(section: Section) -> Table:
    table = Table(*section.columns, title=section.title, title_justify="left", box=None, pad_edge=False)
    for row in section.rows:
        gap = ELLIPSIS in row
        styles = [
            STYLES.get(cell, "") if name in STYLED else "" for name, cell in zip(section.columns, row, strict=True)
        ]
        table.add_row(
            *(_text(cell, style="magenta" if gap else style) for cell, style in zip(row, styles, strict=True))
        )
    return table


def _show_money(story: Mapping[str, Any], exponents: Mapping[str, int]) -> None:
    money = story["money"]
    if money is None:
        output.page.print("\nMoney at the provider: no payment is known for this order.")
    elif "error" in money:
        output.page.print()
        output.page.print(_text(f"Money at the provider: it cannot be told now ({money['error']}).", style="magenta"))
    else:
        currency = money["currency"]
        amounts = {
            name: write_amount(money[name], currency, exponents) for name in ("charged", "refunded", "disputed", "net")
        }
        output.page.print("\nMoney at the provider", style="italic")
        output.page.print(
            _text("  ".join(f"{name} {amount}" for name, amount in amounts.items()) + f"   ({money['payment_intent']})")
        )


def _text(text: str, style: str = "") -> Text:
    """What others wrote, never as markup and never as a command to the terminal."""
    return Text(output.harmless(text), style=style)
