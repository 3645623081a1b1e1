"""Reconciliation: does the provider's money add up with our orders, what does not, and what is done about it.

``?finding=`` opens one finding, ``?order=`` what was found about an order, ``?run=`` the report of one run.
"""

from __future__ import annotations

import streamlit as st

from dashboard import books, charts, data, findings, formats, live, tables
from dashboard.identity import seen_text
from dashboard.theme import badge_of
from makegood.reconciliation.classes import NAMES, REMEDIES, meaning_of, name_of
from makegood.reconciliation.report import KIND_WORDS, Totals
from makegood.reconciliation.report_csv import render_csv
from makegood.reconciliation.report_html import render_html

EVERY_SECONDS = 30.0
REPORT_PIXELS = 1500
STATES = {
    "standing": "Not closed",
    "open": "Open",
    "acknowledged": "Acknowledged",
    "remedying": "Being put right",
    "ignored": "Ignored",
    "resolved": "Closed",
    "any": "In any state",
}
FILTERS = ("class", "state", "remedy", "order")


def draw() -> None:
    if asked := live.get_parameter("finding"):
        show_one(asked)
        return
    run = books.get_newest_run()
    if run is None:
        show_no_run()
        return
    show_run(run)
    show_waiting()
    counts = [row for row in books.count_findings() if row["state"] != "ignored"]
    if counts:
        show_classes(counts)
    show_findings()
    show_runs()


def show_one(finding_id: str) -> None:
    st.page_link(live.page("reconciliation"), label="All findings", icon=":material/arrow_back:")
    row = books.get_finding(finding_id)
    if row is None:
        st.text(f"No finding {formats.short(finding_id, 80)} is known.")
    else:
        findings.show_finding(row)


def draw_report() -> None:
    asked = live.get_parameter("run") or ""
    st.page_link(live.page("reconciliation"), label="All runs", icon=":material/arrow_back:")
    report = data.get_reconciliation(asked)
    if report is None:
        st.text(f"No reconciliation {formats.short(asked, 80)} is known.")
        return
    page, name = render_html(report), f"reconciliation-{report.run.started_at:%Y%m%dT%H%M}"
    with st.container(horizontal=True):
        st.download_button("Page to mail", page, f"{name}.html", "text/html", icon=":material/mail:", on_click="ignore")
        table = render_csv(report)
        st.download_button("Spreadsheet", table, f"{name}.csv", "text/csv", icon=":material/table:", on_click="ignore")
    # It forbids itself to run or load anything, whatever an order is called (makegood/reconciliation/markup.py).
    st.iframe(page, height=REPORT_PIXELS)


def show_no_run() -> None:
    """Nothing compared yet: what to do, from where one stands."""
    live.show_empty("No reconciliation has run yet.", "Airflow runs one every hour; **makegood reconcile** does now.")
    source = books.get_source()
    if not any(row["watermark"] for row in source):
        st.text("The provider's books have not been fetched yet. A run fetches them first; this only fetches:")
        st.code("makegood reconcile sync", language=None)
    for row in source:
        if row["error"]:
            st.text(formats.short(f"{row['provider']} {row['collection']}: {seen_text(row['error'])}", 400))


def show_run(run: data.Row) -> None:
    now, zone = data.now(), live.zone()
    totals = books.get_totals(str(run["id"]))
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(run["state"], color=badge_of(run["state"]))  # type: ignore[arg-type]
        st.text(f"{run['kind']} run ({KIND_WORDS.get(run['kind'], run['kind'])})")
        st.text(f"began {formats.ago(run['started_at'], now)}", help=formats.exact(run["started_at"], zone))
        st.text(
            f"provider's books complete up to {formats.ago(run['watermark'], now)}",
            help=formats.exact(run["watermark"], zone),
        )
        st.text(f"{run['looked_at']:,} judged, {run['opened']:,} opened, {run['closed']:,} closed")
        if run["missed"] == 0:
            st.text("the runs before it missed nothing")
        elif run["missed"] is None and run["kind"] == "full" and run["state"] == "matched":
            st.text("not checked whether the runs before it missed anything")
        st.page_link(
            live.page("reconciliation"), label="Its report", icon=":material/arrow_forward:",
            query_params={"run": str(run["id"])},
        )  # fmt: skip
    show_trouble(run)
    for one in totals:
        show_totals(one)
    if not totals and run["state"] == "matched":
        st.text("It looked at no charge, so there is nothing to add up.")


def show_trouble(run: data.Row) -> None:
    """Loud where a run is not to be believed. What the provider said is text beside our own words."""
    trouble = []
    if run["state"] == "failed":
        trouble.append(("**This run failed.** What stands here is of no use until one ends well.", run["error"]))
    if run["stale"]:
        trouble.append(
            ("**The provider's books are not complete.** Nothing is put right until they are.", run["stale"])
        )
    if run["missed"]:
        missed = formats.plural(run["missed"], "verdict")
        trouble.append((f"**The hourly runs missed {missed}** that this full run found. That is a bug: report it.", ""))
    for words, told in trouble:
        st.error(words, icon=":material/report:")
        if told:
            st.text(formats.short(seen_text(told), 600))


def show_totals(one: Totals) -> None:
    """One currency: what the provider took, and where each part of it went."""
    if not one.adds_up:
        gap = one.money(one.unexplained)
        st.error(f"**{one.currency} does not add up.** {gap} are unexplained: trust no number of this run.")
    with st.container(border=True, horizontal=True, key=f"totals-{one.currency}", vertical_alignment="center"):
        lines = {
            "Provider": one.provider,
            "Matched": one.matched,
            "Pending": one.pending,
            "Findings": one.findings,
        }
        for name, line in lines.items():
            charges = formats.plural(line.charges, "charge")
            st.metric(f"{name}, {one.currency}", one.money(line).removesuffix(f" {one.currency}"), charges,
                      delta_arrow="off", delta_color="off", width="stretch")  # fmt: skip
    if one.adds_up:
        st.text(
            f"The provider has {one.money(one.provider)}: {one.money(one.matched)} matched, {one.money(one.pending)} "
            f"too young to judge, {one.money(one.findings)} in findings. It all adds up."
        )


def show_waiting() -> None:
    rows = books.find_waiting()
    if not rows:
        return
    st.subheader("Waits for a second person", anchor=False)
    now, exponents = data.now(), data.get_exponents()
    for row in rows[: books.WAITING_MAX]:
        with st.container(border=True, horizontal=True, vertical_alignment="center", key=f"need-{row['finding_id']}"):
            approved = row["state"] == "approved"
            st.badge("approved" if approved else "asked for", color=badge_of("completed" if approved else "stuck"))  # type: ignore[arg-type]
            money = formats.amount(row["amount_minor"], row["currency"], exponents)
            about = formats.short(row["order_id"] or row["charge_id"], 80)
            asked = (
                f"asked for by {formats.short(row['requested_by'], 80)}, expires {formats.ago(row['expires_at'], now)}"
            )
            st.text(
                f"{money} back for {about}: {row['class']} {name_of(row['class']).lower()}; {asked}",
                help=formats.exact(row["expires_at"], live.zone()),
                width="stretch",
            )
            st.page_link(
                live.page("reconciliation"), label="Both sides", icon=":material/arrow_forward:",
                query_params={"finding": str(row["finding_id"])},
            )  # fmt: skip
    if len(rows) > books.WAITING_MAX:
        st.caption(f"These are the oldest {books.WAITING_MAX}; more wait, and show here as these are decided.")


def show_classes(counts: data.Rows) -> None:
    """Money at risk now and over time, in one currency at a time; never added up across them."""
    sums: dict[str, int] = {}
    for row in counts:
        if row["currency"]:
            sums[row["currency"]] = sums.get(row["currency"], 0) + row["amount_minor"]
    st.subheader("Money at risk", anchor=False)
    st.text(formats.amounts(_by_amount(sums), data.get_exponents()) or "None of it is about money.")
    if any(sums.values()):
        currency = live.pick("Currency", "currency", sorted(sums), max(sums, key=lambda one: sums[one]))
        show_charts(counts, currency)
    classes = sorted({row["class"] for row in counts})
    parts = [[row for row in counts if row["class"] == name] for name in classes]
    chosen = tables.choose_row(
        {
            "class": [f"{name} {name_of(name)}" for name in classes],
            "findings": [sum(row["findings"] for row in rows) for rows in parts],
            "at risk": [
                formats.amounts(_by_amount(_sum_up(rows)), data.get_exponents()) or formats.NONE for rows in parts
            ],
            "oldest": [formats.seconds(max(row["oldest_seconds"] for row in rows)) for rows in parts],
            "what it means": [meaning_of(name) for name in classes],
        },
        classes,
        key="classes",
        widths={"findings": 80, "what it means": "large"},
    )
    if chosen:
        st.switch_page(live.page("reconciliation"), query_params={"class": chosen})


def _sum_up(rows: data.Rows) -> dict[str, int]:
    sums: dict[str, int] = {}
    for row in rows:
        if row["currency"] and row["amount_minor"]:
            sums[row["currency"]] = sums.get(row["currency"], 0) + row["amount_minor"]
    return sums


def _by_amount(sums: dict[str, int]) -> data.Rows:
    found = sorted(sums.items(), key=lambda item: -item[1])
    return [{"currency": currency, "amount_minor": amount} for currency, amount in found if amount]


def show_charts(counts: data.Rows, currency: str) -> None:
    dark, exponent = live.is_dark(), data.get_exponents().get(currency, 2)
    left, right = st.columns([3, 2])
    with left, st.container(border=True, height="stretch"):
        st.subheader(f"Over {books.DAYS} days, {currency}", anchor=False)
        slices = charts.fill_slices(books.DAYS * 86400, 86400, data.now())
        rows = [row for row in books.get_trend() if row["currency"] == currency]
        figure = charts.draw_at_risk(rows, slices, exponent, dark=dark)
        st.plotly_chart(figure, config=charts.CONFIG, key="at-risk", alt="Money at risk at the end of each day")
    with right, st.container(border=True, height="stretch"):
        st.subheader(f"By class, {currency}", anchor=False)
        sums: dict[str, int] = {}
        for row in counts:
            if row["currency"] == currency and row["amount_minor"]:
                sums[row["class"]] = sums.get(row["class"], 0) + row["amount_minor"]
        shown = sorted(sums.items(), key=lambda item: -item[1])[:8]
        bars = [
            (f"{name} {name_of(name)}", amount, formats.amount(amount, currency, {currency: exponent}))
            for name, amount in shown
        ]
        figure = charts.draw_classes(bars, dark=dark)
        st.plotly_chart(figure, config=charts.CONFIG, key="by-class", alt="Money at risk per class")


def show_findings() -> None:
    st.subheader("Findings", anchor=False)
    before = [live.get_parameter(name) for name in FILTERS]
    asked = choose()
    if before != [live.get_parameter(name) for name in FILTERS]:
        live.forget(["after"])  # a place in another list
    page = books.find_findings(asked, live.get_parameter("after"))
    if not page.rows:
        show_nothing(asked)
        return
    if asked.class_:
        st.text(meaning_of(asked.class_))
    if chosen := findings.choose_finding(page.rows, key="findings", export="findings"):
        st.switch_page(live.page("reconciliation"), query_params={"finding": chosen})
    live.turn_pages(page.next)


def choose() -> books.Asked:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        class_ = live.choose(
            "Class", "class", ["any", *NAMES], lambda one: "Any class" if one == "any" else f"{one} {name_of(one)}"
        )
        state = live.choose("State", "state", list(STATES), lambda one: STATES[one])
        remedy = live.choose(
            "Remedy",
            "remedy",
            ["any", *REMEDIES],
            lambda one: "Any remedy" if one == "any" else REMEDIES[one].capitalize(),
        )
    order = live.get_parameter("order")
    if order:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.text(f"Only about {formats.short(order, 150)}")
            st.page_link(live.page("reconciliation"), label="About all orders", icon=":material/close:")
    return books.Asked(None if class_ == "any" else class_, state, order, None if remedy == "any" else remedy)


def show_nothing(asked: books.Asked) -> None:
    if live.get_parameter("after"):
        st.caption("This page is empty by now: what was on it has moved.")
        live.turn_pages(None)
    elif asked == books.Asked():
        live.show_empty(
            "Nothing differs.", "Every charge that is old enough to judge belongs to an order as it should."
        )
    else:
        st.caption("No finding is like that. Choose less, or another state.")


def show_runs() -> None:
    st.subheader("Runs", anchor=False)
    page, sums = books.find_runs(live.get_parameter("before"))
    now = data.now()
    st.caption("Click a run to read its report.")
    chosen = tables.choose_row(
        {
            "run": [run["kind"] for run in page.rows],
            "state": [run["state"] for run in page.rows],
            "began": [formats.ago(run["started_at"], now) for run in page.rows],
            "took": [formats.seconds(run["took_seconds"]) for run in page.rows],
            "totals": ["add up" if sums.get(str(run["id"]), True) else "do NOT add up" for run in page.rows],
            "judged": [run["looked_at"] for run in page.rows],
            "opened": [run["opened"] for run in page.rows],
            "closed": [run["closed"] for run in page.rows],
            "missed": [formats.NONE if run["missed"] is None else f"{run['missed']:,}" for run in page.rows],
            "exactly": [formats.exact(run["started_at"], live.zone()) for run in page.rows],
            "books complete up to": [formats.exact(run["watermark"], live.zone()) for run in page.rows],
            "in doubt because": [run["error"] or run["stale"] or "" for run in page.rows],
        },
        [str(run["id"]) for run in page.rows],
        key="reconciliations",
        widths={"in doubt because": "large"},
        export="reconciliations",
    )
    if chosen:
        st.switch_page(live.page("reconciliation"), query_params={"run": chosen})
    live.turn_pages(page.next, "before")


st.title("Reconciliation", anchor=False)
# A report is of one moment: it stays as it is while somebody reads it.
live.live(draw_report if live.get_parameter("run") else draw, every_seconds=EVERY_SECONDS)
