"""All that the pages read. Each read has a bound, is shared by all viewers for a few seconds, and may raise Away.

Weakness: the numbers of a long period are worked out from the rows themselves; a very large house waits for them.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import streamlit as st

from dashboard.database import Away, Reader

Row = dict[str, Any]
Rows = list[Row]

PAGE = 50
GROUPS_MAX = 100
FOUND_MAX = 50
NEWEST_MAX = 50_000  # orders looked through for a payment: well under a second
TEXT_MAX = 150  # no order's name is longer
# The jobs that are scheduled every minute, and after how long without a run somebody should look.
JOBS = ("recover_stuck_workflows", "retry_compensations")
JOB_LATE_SECONDS = 600.0

EPOCH, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
FRESH = 3.0  # seconds for which what was read serves every viewer
TREND_FRESH = 20.0


@dataclass(frozen=True)
class Period:
    """How far back the overview looks, and in how many slices it draws that."""

    name: str
    seconds: int
    slice_seconds: int


PERIODS = {
    "15min": Period("15 minutes", 900, 30),
    "1h": Period("hour", 3600, 120),
    "6h": Period("6 hours", 21600, 720),
    "24h": Period("24 hours", 86400, 2700),
    "7d": Period("7 days", 604800, 21600),
    "30d": Period("30 days", 2592000, 86400),
    "90d": Period("90 days", 7776000, 259200),
}


@dataclass(frozen=True)
class Page:
    """Some rows, and the place after which the next ones come; None when these are the last."""

    rows: Rows
    next: str | None


@dataclass(frozen=True)
class Trends:
    """What the sparklines show; a part that took too long is empty, and the numbers stand without it."""

    ends: Rows
    steps: Rows
    stuck: Rows


@st.cache_resource(show_spinner=False)
def reader() -> Reader:
    return Reader()


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def get_metrics(period_key: str, workflow_type: str | None) -> dict[str, Rows]:
    """The four metrics, as the published queries define them."""
    about = {"period_seconds": PERIODS[period_key].seconds, "workflow_type": workflow_type}
    return {name: reader().rows(name, about) for name in ("durations", "step_failures", "stuck", "compensation_rate")}


@st.cache_data(ttl=TREND_FRESH, show_spinner=False, max_entries=64)
def get_trends(period_key: str, workflow_type: str | None) -> Trends:
    period = PERIODS[period_key]
    about = {"period_seconds": period.seconds, "slice_seconds": period.slice_seconds, "workflow_type": workflow_type}
    return Trends(
        *(_or_nothing(name, about) for name in ("ends_over_time", "step_failures_over_time", "stuck_over_time"))
    )


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=16)
def get_attention(workflow_type: str | None) -> dict[str, Rows]:
    """What needs a person: held work, providers that are down, jobs as they last ran."""
    return {
        "held": reader().rows("held", {"workflow_type": workflow_type}),
        "breakers": reader().rows("breakers"),
        "jobs": reader().rows("job_health", {"jobs": list(JOBS)}),
    }


@st.cache_data(ttl=FRESH, show_spinner=False)
def is_read_only() -> bool:
    return bool(reader().rows("server")[0]["read_only"])


@st.cache_data(ttl=60.0, show_spinner=False)
def find_workflow_types() -> list[str]:
    return [row["name"] for row in reader().rows("workflow_types")]


@st.cache_data(ttl=3600.0, show_spinner=False)
def get_exponents() -> dict[str, int]:
    return {row["code"]: row["exponent"] for row in reader().rows("currencies")}


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def find_unfinished(show: str, state: str | None, workflow_type: str | None, after: str | None) -> Page:
    about = {"show": show, "state": state, "workflow_type": workflow_type}
    return _page("unfinished", about, after, "updated_at")


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=16)
def count_unfinished(workflow_type: str | None) -> Rows:
    return reader().rows("unfinished_counts", {"workflow_type": workflow_type})


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=256)
def find_orders(text: str) -> Rows:
    """By number, by the beginning of one, or by payment; with no text, the newest."""
    text = _clean(text.strip())
    if not text:
        return reader().rows("newest_orders", {"limit": 10})
    plain = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    found = reader().rows("orders_by_name", {"text": text, "prefix": f"{plain}%", "limit": FOUND_MAX})
    return found or reader().rows("orders_by_payment", {"text": text, "newest": NEWEST_MAX, "limit": FOUND_MAX})


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def get_stories(order: str) -> Rows:
    """One document per workflow of the order; empty when nothing is known of it."""
    return [row["story"] for row in reader().rows("story", {"order": _clean(order)})]


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=16)
def find_letter_groups(state: str) -> Rows:
    return reader().rows("dead_letter_groups", {"state": state, "limit": GROUPS_MAX})


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def find_letters(signature: str, state: str, after: str | None) -> Page:
    return _page("dead_letters", {"signature": signature, "state": state}, after, "last_failed_at")


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def find_compensations(*, held: bool, after: str | None) -> Page:
    return _page("compensations", {"held": held}, after, "next_attempt_at")


@st.cache_data(ttl=FRESH, show_spinner=False)
def count_compensations() -> Rows:
    return reader().rows("compensation_counts")


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def find_runs(job: str | None, before: str | None) -> Page:
    rows = reader().rows("runs", {"job": job, "before_id": _uuid(before), "limit": PAGE + 1})
    return _cut(rows, "id")


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def get_run(run_id: str) -> Row | None:
    """None also for what is no run id at all."""
    rows = reader().rows("run", {"run_id": run_id}) if _uuid(run_id) else []
    return rows[0] if rows else None


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def find_decisions(run_id: str, after: str | None) -> Page:
    about = {"run_id": run_id, "after_id": _number(after), "limit": PAGE + 1}
    return _cut(reader().rows("decisions", about), "id")


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def count_decisions(run_id: str) -> Rows:
    return reader().rows("decision_counts", {"run_id": run_id})


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def find_actions(before: str | None) -> Page:
    return _cut(reader().rows("actions", {"before_id": _number(before), "limit": PAGE + 1}), "id")


def now() -> datetime:
    """The viewer's "ago" is told by this machine's clock; decisions never are."""
    return datetime.now(UTC)


def _or_nothing(name: str, about: Row) -> Rows:
    try:
        return reader().rows(name, about)
    except Away:
        return []


def _page(name: str, about: Row, after: str | None, column: str) -> Page:
    """One page after the place ``time_id`` that the page before it named."""
    time, _, last = (after or "").partition("_")
    moment, last_id = _moment(time), _uuid(last)
    keyset = (
        {"after_time": moment, "after_id": last_id} if moment and last_id else {"after_time": None, "after_id": None}
    )
    rows = reader().rows(name, {**about, **keyset, "limit": PAGE + 1})
    cut = _cut(rows, "id")
    end = cut.rows[-1] if cut.next else None
    return Page(cut.rows, f"{(end[column] - EPOCH) // MICROSECOND}_{end['id']}" if end else None)


def _cut(rows: Rows, column: str) -> Page:
    """One row more than a page was asked for: whether it came says whether there is a next page."""
    shown = rows[:PAGE]
    return Page(shown, str(shown[-1][column]) if len(rows) > PAGE else None)


# What stands in an address may be anything; what is no place at all is the beginning.
def _uuid(text: str | None) -> str | None:
    try:
        return str(uuid.UUID(text)) if text else None
    except ValueError:
        return None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 18 else None


def _moment(text: str) -> datetime | None:
    number = _number(text)
    return None if number is None else EPOCH + number * MICROSECOND


def _clean(text: str) -> str:
    """What PostgreSQL takes as text, and no longer than any name of an order."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()[:TEXT_MAX]
