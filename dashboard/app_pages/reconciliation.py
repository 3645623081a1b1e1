"""Reconciliation: its runs, and the report of one, as it is mailed. ``?run=`` opens one run."""

from __future__ import annotations

import streamlit as st

from dashboard import data, formats, live, tables
from makegood.reconciliation.report_csv import render_csv
from makegood.reconciliation.report_html import render_html

EVERY_SECONDS = 30.0
REPORT_PIXELS = 1500


def draw() -> None:
    page = data.find_reconciliations(live.get_parameter("before"))
    if not page.rows:
        live.show_empty(
            "No reconciliation has run yet.", "Airflow runs one every hour; **makegood reconcile** does now."
        )
        return
    now = data.now()
    st.caption("Click a run to read its report.")
    chosen = tables.choose_row(
        {
            "began": [formats.ago(run["started_at"], now) for run in page.rows],
            "kind": [run["kind"] for run in page.rows],
            "totals": ["add up" if run["adds_up"] else "do NOT add up" for run in page.rows],
            "opened": [run["opened"] for run in page.rows],
            "closed": [run["closed"] for run in page.rows],
            "looked at": [run["looked_at"] for run in page.rows],
            "took": [formats.seconds(run["took_seconds"]) for run in page.rows],
            "in doubt because": [run["error"] or run["stale"] or "" for run in page.rows],
            "exactly": [formats.exact(run["started_at"], live.zone()) for run in page.rows],
        },
        [str(run["id"]) for run in page.rows],
        key="reconciliations",
        widths={"in doubt because": "large"},
    )
    if chosen:
        st.switch_page(live.page("reconciliation"), query_params={"run": chosen})
    live.turn_pages(page.next, "before")


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


st.title("Reconciliation", anchor=False)
# A report is of one moment: it stays as it is while somebody reads it.
live.live(draw_report if live.get_parameter("run") else draw, every_seconds=EVERY_SECONDS)
