"""A report as one page of HTML that can be mailed: no script, no outside request, light, dark and on paper.

A browser that opens it is told to run and load nothing (Content-Security-Policy), so that even a mistake here could
not be turned into more than wrong text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from makegood.reconciliation import plots
from makegood.reconciliation.classes import REMEDIES, meaning_of, name_of
from makegood.reconciliation.markup import Child, Markup, tag
from makegood.reconciliation.report import (
    BAND_NAMES,
    Finding,
    Line,
    Report,
    Standing,
    Totals,
    age_of,
    describe_check,
    describe_run,
    find_problems,
    summarise,
)

FINDINGS_SHOWN = 200
CLASSES_PLOTTED = 12  # per currency; the table has them all
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
STYLE = Path(__file__).with_name("report.css")
NUMBERS = frozenset({"provider", "matched", "pending", "findings", "off by", "open", "at risk", "oldest", "open for"})
PARTS = {"sync": "Fetched", "match": "Matched", "remedies": "Put right", "alerts": "Alerts"}


def render_html(report: Report) -> str:
    """The whole page, some tens of kilobytes."""
    title = f"Reconciliation {_when(report.run.started_at)}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("style", Markup(STYLE.read_text(encoding="utf-8"))),
    )
    body = tag("body", tag("main", *_sections(report)))
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def _sections(report: Report) -> list[Markup]:
    return [
        _header(report),
        _cards(report),
        _totals(report),
        _at_risk(report),
        _over_time(report),
        _classes(report),
        _findings(report),
        _job(report),
        _footer(report),
    ]


def _header(report: Report) -> Markup:
    problems = find_problems(report)
    mood = "bad" if problems else "warn" if report.need_somebody else "good"
    return tag(
        "header",
        tag("p", "makegood · reconciliation", class_="over"),
        tag("h1", f"{_when(report.run.started_at)} UTC"),
        tag("p", describe_run(report.run), class_="quiet"),
        tag("p", describe_check(report.run), class_="quiet") if describe_check(report.run) else None,
        tag(
            "div",
            tag("strong", summarise(report)),
            *(tag("p", problem) for problem in problems),
            class_=f"verdict {mood}",
            role="status",
        ),
    )


def _cards(report: Report) -> Markup:
    charges = sum((totals.provider.charges for totals in report.totals), 0)
    matched = sum((totals.matched.charges for totals in report.totals), 0)
    share = f"{100 * matched / charges:.1f} % of the charges" if charges else "no charges looked at"
    run = report.run
    changed = f"{run.opened:,} opened, {run.closed:,} closed by this run"
    return tag(
        "div",
        _card(f"{charges:,}", "charges looked at", f"{run.looked_at:,} units judged"),
        _card(f"{matched:,}", "matched", share, "matched"),
        _card(f"{report.open_findings:,}", "findings open", changed),
        _card(
            f"{report.need_somebody:,}",
            "need somebody",
            "nothing waits for a person" if not report.need_somebody else "not looked at yet",
            "finding" if report.need_somebody else "matched",
        ),
        class_="cards",
    )


def _card(number: str, noun: str, more: str, kind: str = "") -> Markup:
    return tag("div", tag("b", number, class_=kind or None), tag("span", noun), tag("small", more), class_="card")


def _totals(report: Report) -> Markup:
    if not report.totals:
        return _section("Totals", tag("p", "This run looked at no charge.", class_="quiet"))
    rows = [_totals_row(totals) for totals in report.totals]
    heads = ("", "provider", "matched", "pending", "findings", "off by")
    return _section(
        "Totals",
        tag("p", "Every charge is in exactly one of matched, pending and findings, to the cent.", class_="quiet"),
        _table(heads, rows, "totals"),
        _legend(("matched", "matched"), ("pending", "pending: too young to judge"), ("finding", "findings")),
        *(_totals_plot(totals) for totals in report.totals),
    )


def _totals_row(totals: Totals) -> Markup:
    lines = {"provider": totals.provider, "matched": totals.matched, "pending": totals.pending}
    gap = totals.unexplained
    off = _cell("off by", "nothing", class_="num quiet")
    if not totals.adds_up:
        off = _cell("off by", totals.money(gap), tag("small", _charges(gap)), class_="num off")
    cells = [_line_cell(totals, name, line) for name, line in {**lines, "findings": totals.findings}.items()]
    return tag("tr", tag("th", totals.currency, scope="row"), *cells, off)


def _line_cell(totals: Totals, name: str, line: Line) -> Markup:
    sign = {"provider": None, "matched": "= "}.get(name, "+ ")
    money = tag("span", tag("span", sign, class_="sign") if sign else None, totals.money(line))
    return _cell(name, money, tag("small", _charges(line)), class_="num")


def _charges(line: Line) -> str:
    return f"{line.charges:,} charge" + ("" if line.charges == 1 else "s")


def _totals_plot(totals: Totals) -> Markup:
    parts = [("matched", totals.matched), ("pending", totals.pending), ("finding", totals.findings)]
    told = [(kind, line.amount_minor, f"{kind} {totals.money(line)}") for kind, line in parts]
    if not any(size for _, size, _ in told):
        return Markup("")
    label = f"{totals.currency}: " + ", ".join(words for _, _, words in told)
    return tag("div", tag("span", totals.currency), plots.stacked_bar(told, label), class_="row two")


def _at_risk(report: Report) -> Markup:
    sums = report.at_risk()
    if not any(sums.values()):
        return _section("Money at risk", tag("p", "None.", class_="quiet"))
    return _section(
        "Money at risk",
        tag("p", "Money of open findings that is not where it should be, by class.", class_="quiet"),
        *(_currency_at_risk(report, currency, total) for currency, total in sums.items() if total),
    )


def _currency_at_risk(report: Report, currency: str, total: int) -> Markup:
    sums: dict[str, int] = {}
    for one in report.standings:
        if one.currency == currency and one.state != "ignored":
            sums[one.class_] = sums.get(one.class_, 0) + one.at_risk_minor
    largest_first = sorted(((size, class_) for class_, size in sums.items() if size), reverse=True)
    shown, largest = largest_first[:CLASSES_PLOTTED], largest_first[0][0]
    rows = []
    for size, class_ in shown:
        money = report.money(size, currency)
        words = f"{class_} {name_of(class_)}: {money}"
        rows.append(
            tag(
                "div",
                tag("span", tag("code", class_), " ", name_of(class_)),
                plots.bar("finding", size, largest, words),
                tag("span", money, class_="num"),
                class_="row three",
            )
        )
    more = len(largest_first) - len(shown)
    rest = tag("p", f"and {more} more classes, in the table below", class_="quiet") if more else None
    return tag("div", tag("h3", report.money(total, currency)), *rows, rest, class_="risk")


def _over_time(report: Report) -> Markup:
    if not any(report.ages) and len(report.trend) < 2:
        return Markup("")
    words = [f"{name}: {n:,}" for name, n in zip(BAND_NAMES, report.ages, strict=True)]
    ages = tag(
        "div",
        tag("h3", "How long they have been open"),
        plots.columns("finding", report.ages, words, "Age of open findings: " + ", ".join(words)),
        tag(
            "div",
            *(
                tag("span", tag("b", f"{n:,}"), tag("small", name))
                for name, n in zip(BAND_NAMES, report.ages, strict=True)
            ),
            class_="bands",
        ),
    )
    return _section("Over time", tag("div", ages, _trend(report), class_="pair"))


def _trend(report: Report) -> Markup:
    beats = report.trend
    words = [
        f"{_when(one.started_at)}, {one.kind}: {one.opened:,} opened, {one.closed:,} closed"
        + ("" if one.trusted else ", not to be trusted")
        for one in beats
    ]
    opened, closed = [one.opened for one in beats], [one.closed for one in beats]
    if len(beats) < 2:
        return tag("div", tag("h3", "Findings opened and closed"), tag("p", "A trend needs a second run."))
    title = tag("h3", f"Findings opened and closed, last {len(beats)} runs")
    return tag(
        "div",
        title,
        plots.mirrored(opened, closed, words, ("finding", "matched"), _say_last(words)),
        tag("div", tag("small", _when(beats[0].started_at)), tag("small", _when(beats[-1].started_at)), class_="ends"),
        _legend(("finding", "opened"), ("matched", "closed")),
    )


def _say_last(words: Sequence[str]) -> str:
    """For who cannot see the plot: its end says most."""
    return "Findings opened and closed per run; the last: " + words[-1]


def _classes(report: Report) -> Markup:
    if not report.standings:
        return _section("Findings by class", tag("p", "Nothing is open.", class_="quiet"))
    heads = ("class", "what it means", "open", "at risk", "oldest", "state", "put right by")
    return _section("Findings by class", _table(heads, [_class_row(report, one) for one in report.standings]))


def _class_row(report: Report, one: Standing) -> Markup:
    new = tag("small", f"{one.new:,} new") if one.new else None
    return tag(
        "tr",
        _cell("", tag("code", one.class_), " ", tag("b", name_of(one.class_)), class_="first"),
        _cell("", meaning_of(one.class_), class_="wide"),
        _cell("open", f"{one.findings:,}", new, class_="num"),
        _cell("at risk", report.money(one.at_risk_minor, one.currency), class_="num"),
        _cell("oldest", age_of(one.oldest, report.written_at), class_="num"),
        _cell("state", _state(one.state)),
        _cell("put right by", REMEDIES.get(one.remedy, one.remedy)),
    )


def _findings(report: Report) -> Markup:
    shown = report.findings[:FINDINGS_SHOWN]
    if not shown:
        return Markup("")
    hidden = len(report.findings) - len(shown) + report.left_out
    rest = f"The {len(shown):,} that matter most; {hidden:,} more with makegood reconcile findings." if hidden else None
    heads = ("order", "class", "at risk", "open for", "state", "charge")
    rows = [_finding_row(report, one) for one in shown]
    return _section("The findings", tag("p", rest, class_="quiet") if rest else None, _table(heads, rows, "findings"))


def _finding_row(report: Report, one: Finding) -> Markup:
    new = tag("small", "new", class_="new") if one.new else None
    again = tag("small", f"broke {one.reopened + 1} times") if one.reopened else None
    return tag(
        "tr",
        _cell("", one.order_id or "–", class_="name first"),
        _cell("class", tag("span", tag("code", one.class_), " ", name_of(one.class_), new)),
        _cell("at risk", report.money(one.at_risk_minor, one.currency), class_="num"),
        _cell("open for", age_of(one.first_seen_at, report.written_at), again, class_="num"),
        _cell("state", _state(one.state)),
        _cell("charge", one.charge_id or one.unit, class_="name quiet"),
    )


def _job(report: Report) -> Markup:
    lines = [
        tag("p", tag("b", PARTS.get(name, name)), ": ", _counts(counts))
        for name, counts in report.run.parts.items()
        if counts
    ]
    mode = "A dry run: nothing was put right." if report.run.dry_run else None
    if not lines and mode is None:
        return Markup("")
    return _section("What the run did", tag("p", mode) if mode else None, *lines)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in counts.items())


def _footer(report: Report) -> Markup:
    run = report.run
    up_to = f"The provider's books are complete up to {_when(run.watermark)} UTC. " if run.watermark else ""
    who = f"Started by {run.triggered_by}. " if run.triggered_by else ""
    return tag(
        "footer",
        tag("p", f"{up_to}{who}Findings as they stood at {_when(report.written_at)} UTC. Run {run.id}."),
        tag("p", "At risk is money that is not where it should be; currencies are never added together."),
    )


def _section(title: str, *children: Child) -> Markup:
    return tag("section", tag("h2", title), *children)


def _cell(label: str, *children: Child, class_: str | None = None) -> Markup:
    """The label is what a narrow screen shows beside it, where the table has no head."""
    return tag("td", *children, class_=class_, data_label=label or None)


def _table(heads: Sequence[str], rows: Sequence[Markup], kind: str = "") -> Markup:
    cells = [tag("th", one, scope="col", class_="num" if one in NUMBERS else None) for one in heads]
    head = tag("thead", tag("tr", *cells))
    return tag("div", tag("table", head, tag("tbody", *rows), class_=kind or None), class_="scroll")


def _legend(*kinds: tuple[str, str]) -> Markup:
    swatch = '<svg width="12" height="12" aria-hidden="true"><rect class="{}" width="12" height="12" rx="2"/></svg>'
    return tag("p", *(tag("span", Markup(swatch.format(kind)), words) for kind, words in kinds), class_="legend")


def _state(state: str) -> Markup:
    return tag("span", state, class_=f"state {state}" if state.isalpha() else "state")


def _when(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%d %b %Y %H:%M")
