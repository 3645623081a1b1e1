"""What the Reconciliation page reads: runs, totals, findings, both sides of one. Bounded and shared like all reads."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from dashboard import data
from dashboard.data import FRESH, TREND_FRESH, Page, Row, Rows
from makegood.reconciliation.report import Totals
from makegood.reconciliation.report_rows import make_totals

DAYS = 30
WAITING_MAX = 10


@dataclass(frozen=True)
class Asked:
    """The filters of the list of findings, as they stand in the address."""

    class_: str | None = None
    state: str = "standing"
    order: str | None = None
    remedy: str | None = None


@st.cache_data(ttl=FRESH, show_spinner=False)
def get_newest_run() -> Row | None:
    rows = data.reader().rows("reconciliations", {"after_time": None, "after_id": None, "limit": 1})
    return rows[0] if rows else None


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def get_totals(run_id: str) -> tuple[Totals, ...]:
    return make_totals(data.reader().rows("reconciliation_totals", {"runs": [run_id]}), data.get_exponents())


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def find_runs(after: str | None) -> tuple[Page, dict[str, bool]]:
    """One page of runs, and of each whether its totals add up."""
    page = data.read_page("reconciliations", {}, after, "started_at")
    rows = data.reader().rows("reconciliation_totals", {"runs": [str(run["id"]) for run in page.rows]})
    by_run: dict[str, Rows] = {}
    for row in rows:
        by_run.setdefault(str(row["run_id"]), []).append(row)
    exponents = data.get_exponents()
    return page, {run: all(one.adds_up for one in make_totals(own, exponents)) for run, own in by_run.items()}


@st.cache_data(ttl=FRESH, show_spinner=False)
def get_source() -> Rows:
    return data.reader().rows("source")


@st.cache_data(ttl=FRESH, show_spinner=False)
def count_findings() -> Rows:
    return data.reader().rows("finding_counts")


@st.cache_data(ttl=TREND_FRESH, show_spinner=False)
def get_trend() -> Rows:
    return data.reader().rows("findings_trend", {"days": DAYS})


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def find_findings(asked: Asked, after: str | None) -> Page:
    about = {
        "class": asked.class_,
        "state": asked.state,
        "order": data.clean(asked.order) if asked.order else None,
        "remedy": asked.remedy,
    }
    return data.read_page("findings", about, after, "first_seen_at")


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def find_of_order(order: str) -> Rows:
    return data.reader().rows("findings_of_order", {"order": data.clean(order)})


@st.cache_data(ttl=FRESH, show_spinner=False)
def find_waiting() -> Rows:
    """Refunds that wait for a second person, or to be begun; one more than is shown, to say that there is more."""
    return data.reader().rows("remedies_waiting", {"limit": WAITING_MAX + 1})


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def get_finding(finding_id: str) -> Row | None:
    """None also for what is no id at all."""
    known = data.to_uuid(finding_id)
    rows = data.reader().rows("finding", {"id": known}) if known else []
    return rows[0] if rows else None


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def get_sides(order: str | None, charge: str | None) -> tuple[Rows, Rows]:
    """Our side and the provider's."""
    ours = data.reader().rows("finding_order", {"order": order}) if order else []
    return ours, data.reader().rows("finding_money", {"order": order, "charge": charge})


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def get_past(finding_id: str) -> tuple[Rows, Rows]:
    """Its history and its remedies."""
    about = {"id": finding_id}
    return data.reader().rows("finding_history", about), data.reader().rows("finding_remedies", about)
