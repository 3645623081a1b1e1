"""The four metrics as cards: a number to see from afar, its trend, and a sentence that needs no legend. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dashboard.data import Period, Trends
from dashboard.formats import NONE, amounts, percent, plural, seconds, share
from makegood.story import name_attempt

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Card:
    """``word`` is what it speaks of, and gives the colour; ``trend`` is empty where there is nothing to draw."""

    name: str
    label: str
    value: str
    word: str
    note: str
    """Our own words and numbers only: it is shown as Markdown."""
    sentence: str
    trend: list[float]
    help: str


def make_cards(
    metrics: Mapping[str, Rows],
    trends: Trends,
    slices: Sequence[datetime],
    period: Period,
    exponents: Mapping[str, int],
) -> list[Card]:
    return [
        duration_card(metrics["durations"], _series(trends.ends, slices, "p95_seconds"), period),
        failure_card(metrics["step_failures"], trends.steps, slices, period),
        stuck_card(metrics["stuck"], _series(trends.stuck, slices, "stuck"), exponents),
        compensation_card(metrics["compensation_rate"][0], trends.ends, slices, period),
    ]


def duration_card(rows: Rows, trend: list[float], period: Period) -> Card:
    """Of what was completed: what failed early or had to be undone says nothing of how long a customer waits."""
    label = "Time to complete, median"
    help_text = "From start to completion. p95: 95 of 100 were quicker. The line is p95 over the period."
    found = next((row for row in rows if row["current_state"] == "completed"), None)
    if found is None:
        sentence = f"No order was completed in the last {period.name}."
        return Card("duration", label, NONE, "completed", "", sentence, [], help_text)
    p50, p95, p99 = (seconds(found[f"{name}_seconds"]) for name in ("p50", "p95", "p99"))
    sentence = (
        f"Half of {plural(found['workflows'], 'completed order')} took no longer than {p50}, 99 in 100 than {p99}."
    )
    return Card("duration", label, p50, "completed", f"p95 {p95} · p99 {p99}", sentence, trend, help_text)


def failure_card(rows: Rows, trend: Rows, slices: Sequence[datetime], period: Period) -> Card:
    label = "Failure rate, weakest step"
    help_text = "The share of calls that failed or had no clear answer, of the step where it is highest."
    weak = rows[0] if rows else None
    if weak is None:
        sentence = f"No step was attempted in the last {period.name}."
        return Card("failures", label, NONE, "failed", "", sentence, [], help_text)
    failures = weak["failed"] + weak["unknown"]
    if not failures:
        sentence = f"No weak link: all {plural(sum(row['attempts'] for row in rows), 'attempt')} succeeded."
        return Card("failures", label, "0 %", "completed", "", sentence, [], help_text)
    sentence = (
        f"The weak link is {name_attempt(weak)}: {weak['failed']:,} failed, {weak['unknown']:,} had no clear answer."
    )
    own = [row for row in trend if (row["step"], row["kind"]) == (weak["step"], weak["kind"])]
    rates = [{"slice": row["slice"], "rate": row["failures"] / row["attempts"]} for row in own]
    note = f"{failures:,} of {plural(weak['attempts'], 'attempt')}"
    value = percent(weak["failure_rate"])
    return Card("failures", label, value, "failed", note, sentence, _series(rates, slices, "rate"), help_text)


def stuck_card(rows: Rows, trend: list[float], exponents: Mapping[str, int]) -> Card:
    help_text = "Not finished, and without progress for five minutes. Held orders are among them: a person is asked."
    stuck, held = sum(row["stuck"] for row in rows), sum(row["held"] for row in rows)
    if not stuck:
        return Card("stuck", "Stuck now", "0", "completed", "", "No order is stuck.", trend, help_text)
    oldest = seconds(max(row["oldest_seconds"] for row in rows))
    money = amounts(rows, exponents)
    sentence = f"{plural(stuck, 'order')} stuck, oldest {oldest}" + (f", {money} at risk." if money else ".")
    sentence += _ages(rows) + (f" {held:,} held for a person." if held else "")
    return Card("stuck", "Stuck now", f"{stuck:,}", "stuck", f"oldest {oldest}", sentence, trend, help_text)


def compensation_card(row: Mapping[str, Any], ends: Rows, slices: Sequence[datetime], period: Period) -> Card:
    help_text = "The share of ended orders whose steps had to be undone, such as a charge that was refunded."
    held = f", {row['held']:,} held for a person." if row["held"] else "."
    owed = (
        f"{plural(row['compensating'], 'order is', 'orders are')} being undone now{held}" if row["compensating"] else ""
    )
    if not row["ended"]:
        sentence = f"No order ended in the last {period.name}. {owed}".strip()
        return Card("compensations", "Orders undone", NONE, "compensated", "", sentence, [], help_text)
    rates = [
        {"slice": end["slice"], "rate": end["compensated"] / total}
        for end in ends
        if (total := end["completed"] + end["compensated"] + end["failed"])
    ]
    sentence = owed or "Nothing is left to undo."
    note = f"{row['compensated']:,} of {row['ended']:,} ended"
    value = share(row["compensated"], row["ended"])
    trend = _series(rates, slices, "rate")
    return Card("compensations", "Orders undone", value, "compensated", note, sentence, trend, help_text)


def _ages(rows: Rows) -> str:
    """How many for how long; nothing where the oldest says it for all."""
    bands = (
        ("under_15_minutes", "under 15 min"),
        ("under_1_hour", "under 1 h"),
        ("under_1_day", "under 1 d"),
        ("over_1_day", "longer"),
    )
    counted = [(sum(row[column] for row in rows), text) for column, text in bands]
    found = [f"{count:,} {text}" for count, text in counted if count]
    return f" {', '.join(found)}." if len(found) > 1 else ""


def _series(rows: Iterable[Mapping[str, Any]], slices: Sequence[datetime], column: str) -> list[float]:
    """A number per slice, nothing where nothing happened; empty when nothing happened at all."""
    found = {row["slice"]: float(row[column] or 0) for row in rows}
    return [found.get(moment, 0.0) for moment in slices] if any(found.values()) else []
