"""The four metrics as cards: a number to see from afar, its trend, its target, and a plain sentence. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from dashboard.data import Trends
from dashboard.formats import NONE, amounts, percent, plural, seconds, share
from dashboard.periods import Period
from makegood.story import name_attempt

Rows = Sequence[Mapping[str, Any]]
BANDS = ("under 15 min", "15 min to 1 h", "1 h to 1 d", "over 1 d")  # as stuck.sql numbers them


@dataclass(frozen=True, slots=True)
class Targets:
    """How it should be; each has its reason in the settings."""

    p95_seconds: float
    failure_rate: float
    stuck: int
    compensation_rate: float


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
    target: str = ""
    """Our own words and numbers, too."""
    met: bool | None = None
    """None where there is nothing to hold against the target."""


def make_cards(
    metrics: Mapping[str, Rows],
    trends: Trends,
    slices: Sequence[datetime],
    period: Period,
    exponents: Mapping[str, int],
    targets: Targets,
) -> list[Card]:
    ends, steps = metrics["durations"], metrics["step_failures"]
    return [
        duration_card(ends, _series(trends.ends, slices, "p95_seconds"), period, targets),
        failure_card(steps, trends.steps, slices, period, targets),
        stuck_card(metrics["stuck"], [row["stuck"] for row in trends.stuck], exponents, targets),
        compensation_card(ends, steps, metrics["owed"][0], trends.ends, slices, period, targets),
    ]


def duration_card(rows: Rows, trend: list[float], period: Period, targets: Targets) -> Card:
    """Of what was completed: what failed early or had to be undone says nothing of how long a customer waits."""
    label = "Time to complete, median"
    help_text = "From start to completion, to within 2 %. p95: 95 of 100 were quicker. The line is p95 over the period."
    target = f"p95 within {seconds(targets.p95_seconds)}"
    found = next((row for row in rows if row["current_state"] == "completed"), None)
    if found is None:
        sentence = f"No order was completed in the last {period.name}."
        return Card("duration", label, NONE, "completed", "", sentence, [], help_text, target)
    p50, p95, p99 = (seconds(found[f"{name}_seconds"]) for name in ("p50", "p95", "p99"))
    sentence = (
        f"Half of {plural(found['workflows'], 'completed order')} took no longer than {p50}, 99 in 100 than {p99}."
    )
    met = found["p95_seconds"] <= targets.p95_seconds
    note = f"p95 {p95} · p99 {p99}"
    return Card("duration", label, p50, "completed", note, sentence, trend, help_text, target, met)


def failure_card(rows: Rows, trend: Rows, slices: Sequence[datetime], period: Period, targets: Targets) -> Card:
    label = "Failure rate, weakest step"
    help_text = "The share of calls that failed or had no clear answer, of the step where it is highest."
    target = f"at most {percent(targets.failure_rate)}"
    weak = rows[0] if rows else None
    if weak is None:
        sentence = f"No step was attempted in the last {period.name}."
        return Card("failures", label, NONE, "failed", "", sentence, [], help_text, target)
    failures = weak["failed"] + weak["unknown"]
    if not failures:
        sentence = f"No weak link: all {plural(sum(row['attempts'] for row in rows), 'attempt')} succeeded."
        return Card("failures", label, "0 %", "completed", "", sentence, [], help_text, target, True)
    sentence = (
        f"The weak link is {name_attempt(weak)}: {weak['failed']:,} failed, {weak['unknown']:,} had no clear answer."
    )
    own = [row for row in trend if (row["step"], row["kind"]) == (weak["step"], weak["kind"])]
    rates = [{"slice": row["slice"], "rate": row["failures"] / row["attempts"]} for row in own]
    note = f"{failures:,} of {plural(weak['attempts'], 'attempt')}"
    value, met = percent(weak["failure_rate"]), weak["failure_rate"] <= targets.failure_rate
    line = _series(rates, slices, "rate")
    return Card("failures", label, value, "failed", note, sentence, line, help_text, target, met)


def stuck_card(rows: Rows, trend: list[float], exponents: Mapping[str, int], targets: Targets) -> Card:
    help_text = "Not finished, and without progress for five minutes. Held orders are among them: a person is asked."
    target = "none" if not targets.stuck else f"at most {targets.stuck:,}"
    stuck, held = sum(row["stuck"] for row in rows), sum(row["held"] for row in rows)
    trend = [*trend, float(stuck)] if stuck or any(trend) else []  # the line ends in what is now
    if not stuck:
        sentence = "No order is stuck."
        return Card("stuck", "Stuck now", "0", "completed", "", sentence, trend, help_text, target, True)
    oldest = seconds(max(row["oldest_seconds"] for row in rows))
    money = amounts(sum_money(rows), exponents)
    sentence = f"{plural(stuck, 'order')} stuck, oldest {oldest}" + (f", {money} at risk." if money else ".")
    sentence += f" {held:,} held for a person." if held else ""
    met = stuck <= targets.stuck
    return Card(
        "stuck", "Stuck now", f"{stuck:,}", "stuck", f"oldest {oldest}", sentence, trend, help_text, target, met
    )


def compensation_card(
    rows: Rows,
    steps: Rows,
    owed: Mapping[str, Any],
    ends: Rows,
    slices: Sequence[datetime],
    period: Period,
    targets: Targets,
) -> Card:
    help_text = "The share of ended orders whose steps had to be undone, such as a charge that was refunded."
    target = f"at most {percent(targets.compensation_rate)}"
    ended = sum(row["workflows"] for row in rows)
    undone = sum(row["workflows"] for row in rows if row["current_state"] == "compensated")
    sentence = _undoing(owed, steps)
    if not ended:
        sentence = f"No order ended in the last {period.name}. {sentence}".strip()
        return Card("compensations", "Orders undone", NONE, "compensated", "", sentence, [], help_text, target)
    rates = [
        {"slice": end["slice"], "rate": end["compensated"] / total}
        for end in ends
        if (total := end["completed"] + end["compensated"] + end["failed"])
    ]
    note, met = f"{undone:,} of {ended:,} ended", undone / ended <= targets.compensation_rate
    return Card(
        "compensations", "Orders undone", share(undone, ended), "compensated", note,
        sentence or "Nothing is left to undo.", _series(rates, slices, "rate"), help_text, target, met,
    )  # fmt: skip


def sum_money(rows: Rows) -> list[dict[str, Any]]:
    """Per currency, the largest sum first."""
    sums: Counter[str] = Counter()
    for row in rows:
        if row["currency"] is not None:
            sums[row["currency"]] += row["amount_minor"]
    return [{"currency": currency, "amount_minor": total} for currency, total in sums.most_common()]


def find_bands(rows: Rows, exponents: Mapping[str, int]) -> list[tuple[str, int, str]]:
    """How many are stuck for how long, with their money; every band, also where there is none."""
    bands = []
    for number, name in enumerate(BANDS):
        own = [row for row in rows if row["band"] == number]
        bands.append((name, sum(row["stuck"] for row in own), amounts(sum_money(own), exponents)))
    return bands


def _undoing(owed: Mapping[str, Any], steps: Rows) -> str:
    """What is being undone now, and how often undoing did not work; empty when there is nothing to say."""
    texts = []
    if owed["compensating"]:
        held = f", {owed['held']:,} held for a person." if owed["held"] else "."
        texts.append(f"{plural(owed['compensating'], 'order is', 'orders are')} being undone now{held}")
    undos = [row for row in steps if row["kind"] == "compensation"]
    failures = sum(row["failed"] + row["unknown"] for row in undos)
    if failures:
        texts.append(
            f"{failures:,} of {plural(sum(row['attempts'] for row in undos), 'undo')} did not succeed at once."
        )
    return " ".join(texts)


def _series(rows: Iterable[Mapping[str, Any]], slices: Sequence[datetime], column: str) -> list[float]:
    """A number per slice, nothing where nothing happened; empty when nothing happened at all."""
    found = {row["slice"]: float(row[column] or 0) for row in rows}
    return [found.get(moment, 0.0) for moment in slices] if any(found.values()) else []
