"""What a run of the reconciliation says: totals that add up or a loud word that they do not, and what is open. Pure.

Facts go in as ``sql/queries/reconciliation/report.sql`` returns them; whatever shows a report reads these values.
Findings are as they stand when the report is written, also in the report of an older run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from makegood.money import format_money
from makegood.reconciliation.classes import ONLY_RECORDED
from makegood.story import lasting

STALE = "D32"
# Ages of what is open, by their upper ends; the last band has none.
BANDS = (("under 1 h", 3600), ("1 to 6 h", 21600), ("6 to 24 h", 86400), ("1 to 3 d", 259200), ("3 to 7 d", 604800))
BAND_NAMES = (*(name for name, _ in BANDS), "over 7 d")
BAND_SECONDS = [float(seconds) for _, seconds in BANDS]
KIND_WORDS = {
    "incremental": "what changed since the last run",
    "full": "everything",
    "window": "one span of time",
}


@dataclass(frozen=True, slots=True)
class Line:
    """Some charges of one currency: how many, and what they captured."""

    charges: int = 0
    amount_minor: int = 0

    def __add__(self, other: Line) -> Line:
        return Line(self.charges + other.charges, self.amount_minor + other.amount_minor)

    def __sub__(self, other: Line) -> Line:
        return Line(self.charges - other.charges, self.amount_minor - other.amount_minor)


@dataclass(frozen=True, slots=True)
class Totals:
    """One currency: what the provider has, and where each of its charges went."""

    currency: str
    exponent: int
    provider: Line
    matched: Line
    pending: Line
    classes: Mapping[str, Line]

    @property
    def findings(self) -> Line:
        return sum(self.classes.values(), Line())

    @property
    def unexplained(self) -> Line:
        """Zero, or the run is wrong."""
        return self.provider - (self.matched + self.pending + self.findings)

    @property
    def adds_up(self) -> bool:
        return self.unexplained == Line()

    def money(self, line: Line) -> str:
        return format_money(line.amount_minor, self.currency, self.exponent)


@dataclass(frozen=True, slots=True)
class Standing:
    """What is open of one class, in one currency, state and remedy."""

    class_: str
    currency: str | None
    state: str
    remedy: str
    findings: int
    new: int
    at_risk_minor: int
    oldest: datetime

    @property
    def needs_somebody(self) -> bool:
        """Nobody has looked at it yet, and no job will put it right unasked."""
        return self.state == "open" and self.remedy != "wait" and self.class_ not in ONLY_RECORDED


@dataclass(frozen=True, slots=True)
class Finding:
    id: str
    class_: str
    state: str
    order_id: str | None
    charge_id: str | None
    unit: str
    at_risk_minor: int
    currency: str | None
    remedy: str
    first_seen_at: datetime
    last_seen_at: datetime
    runs_seen: int
    reopened: int
    new: bool
    also: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    id: str
    kind: str
    state: str
    started_at: datetime
    finished_at: datetime | None
    watermark: datetime | None
    stale: str | None
    looked_at: int
    opened: int
    closed: int
    missed: int | None
    error: str | None
    triggered_by: str | None
    dry_run: bool
    parts: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True)
class Beat:
    """One run of the recent ones, for the trend."""

    started_at: datetime
    kind: str
    looked_at: int
    opened: int
    closed: int
    trusted: bool


@dataclass(frozen=True, slots=True)
class Report:
    run: Run
    written_at: datetime
    totals: tuple[Totals, ...]
    standings: tuple[Standing, ...]
    findings: tuple[Finding, ...]
    ages: tuple[int, ...]
    changes: Mapping[str, int]
    trend: tuple[Beat, ...]
    exponents: Mapping[str, int]

    @property
    def adds_up(self) -> bool:
        return all(totals.adds_up for totals in self.totals)

    @property
    def open_findings(self) -> int:
        return sum(one.findings for one in self.standings if one.state != "ignored")

    @property
    def need_somebody(self) -> int:
        return sum(one.findings for one in self.standings if one.needs_somebody)

    @property
    def left_out(self) -> int:
        """Findings that are counted and not listed."""
        return sum(one.findings for one in self.standings) - len(self.findings)

    @property
    def is_good(self) -> bool:
        return not find_problems(self) and not self.need_somebody

    def money(self, amount_minor: int, currency: str | None) -> str:
        if currency is None:
            return "–"
        return format_money(amount_minor, currency, self.exponents.get(currency, 2))

    def at_risk(self) -> dict[str, int]:
        """Money that is not where it should be, per currency; never added up across them."""
        sums: dict[str, int] = {}
        for one in self.standings:
            if one.currency is not None and one.state != "ignored":
                sums[one.currency] = sums.get(one.currency, 0) + one.at_risk_minor
        return {currency: sums[currency] for currency in sorted(sums)}


def find_problems(report: Report) -> list[str]:
    """What makes the whole report doubtful, the worst first; empty when it can be trusted."""
    run = report.run
    problems = [_explain_gap(totals) for totals in report.totals if not totals.adds_up]
    if run.state == "failed":
        problems.append(f"The run failed: {run.error or 'it did not say why'}")
    if run.state == "running":
        problems.append("The run has not ended: what stands here is not complete.")
    if run.stale is not None:
        problems.append(f"The provider's books are not here completely, so nothing was put right: {run.stale}")
    if run.missed:
        problems.append(f"The hourly runs missed {run.missed:,} verdicts that this full run found. That is a bug.")
    return problems


def describe_check(run: Run) -> str | None:
    """Whether the hourly runs before a full one missed anything, or that it was not looked at; None for other runs."""
    if run.kind != "full" or run.state != "matched":
        return None
    if run.missed is None:
        return "Not checked whether the hourly runs missed anything: there were none, or too much has changed since."
    if run.missed:
        return f"The hourly runs missed {run.missed:,} verdicts."
    return "Checked: the hourly runs missed nothing."


def summarise(report: Report) -> str:
    """One sentence for whoever reads only one."""
    if not report.adds_up:
        return "The totals do NOT add up."
    if find_problems(report):
        return "This run cannot be trusted."
    if report.need_somebody:
        noun = "finding needs" if report.need_somebody == 1 else "findings need"
        return f"The totals add up; {report.need_somebody:,} {noun} somebody."
    if report.open_findings:
        return "The totals add up, and nothing needs a person."
    return "The totals add up, and nothing is open."


def describe_run(run: Run) -> str:
    """``full, everything, 2 min 3 s``."""
    took = f", {lasting(run.finished_at - run.started_at)}" if run.finished_at else ""
    return f"{run.kind} ({KIND_WORDS.get(run.kind, run.kind)}){took}"


def age_of(moment: datetime, now: datetime) -> str:
    return lasting(max(now - moment, timedelta()))


def _explain_gap(totals: Totals) -> str:
    gap = totals.unexplained
    return (
        f"{totals.currency} does NOT add up: the provider has {totals.money(totals.provider)} in "
        f"{totals.provider.charges:,} charges, the parts come to {totals.money(totals.provider - gap)} in "
        f"{totals.provider.charges - gap.charges:,}. Off by {totals.money(gap)} and {gap.charges:,} charges."
    )
