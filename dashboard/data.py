"""All that the pages read. Each read has a bound, is shared by all viewers for a few seconds, and may raise Away.

The overview's numbers come from counts (``sql/functions/rollups_read.sql``), so they cost the same however much has
ended. Weakness: attempts of what has not ended are read one by one; with a hundred thousand orders under way that
is some tenths of a second, for all viewers together.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import streamlit as st

from dashboard import rollups
from dashboard.database import Away, Reader
from dashboard.masking import mask_text
from dashboard.periods import PERIODS
from makegood.reconciliation.classes import ALARMING, ONLY_RECORDED
from makegood.reconciliation.read import report_parameters
from makegood.reconciliation.report import STALE, Report
from makegood.reconciliation.report_rows import make_report
from makegood.settings import get_settings

Row = dict[str, Any]
Rows = list[Row]

PAGE = 50
GROUPS_MAX = 100
FOUND_MAX = 50
APPROVALS_MAX = 20
PEOPLE_MAX = 500  # read together; of more, the others are read one by one
GROUP_MAX = 500  # orders in one act; the database refuses more
NEWEST_MAX = 50_000  # orders looked through for a payment or the middle of a number: well under a second
PART_MIN = 3  # characters of a number's middle; fewer are in every number
TEXT_MAX = 150  # no order's name is longer
COUNTED_AT_ONCE = 5_000  # ends that a look counts when no job came to do it: under a second
COUNT_SECONDS = 30.0

EPOCH, MICROSECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=1)
FRESH = 4.5  # seconds for which what was read serves every viewer; pages refresh every five
TREND_FRESH = 20.0


@dataclass(frozen=True)
class Job:
    """A scheduled job: how often it runs, in words, and after how long without a run somebody should look."""

    every: str
    late_seconds: float


JOBS = {
    "recover_stuck_workflows": Job("every minute", 600.0),
    "retry_compensations": Job("every minute", 600.0),
    "reconcile_charges": Job("every hour", 2.5 * 3600),
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


def get_metrics(period_key: str, workflow_type: str | None) -> dict[str, Rows]:
    """The four metrics, as the published queries define them."""
    counts, now_ = get_counts(period_key, workflow_type), get_standing(workflow_type)
    return {
        "durations": rollups.sum_ends(counts["ends"]),
        "step_failures": rollups.sum_attempts(counts["attempts"]),
        "stuck": now_["stuck"],
        "owed": now_["owed"],
    }


def get_trends(period_key: str, workflow_type: str | None) -> Trends:
    counts = get_counts(period_key, workflow_type)
    return Trends(
        rollups.slice_ends(counts["ends"]),
        rollups.slice_attempts(counts["attempts"]),
        get_stuck_trend(period_key, workflow_type),
    )


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def get_counts(period_key: str, workflow_type: str | None) -> dict[str, Rows]:
    """What ended and what was attempted in each slice of the period."""
    count_what_ended()
    about = _about(period_key, workflow_type)
    return {name: reader().rows(name, about) for name in ("ends", "attempts")}


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=16)
def get_standing(workflow_type: str | None) -> dict[str, Rows]:
    """What is stuck and what is being undone, now."""
    return {name: reader().rows(name, {"workflow_type": workflow_type}) for name in ("stuck", "owed")}


@st.cache_data(ttl=TREND_FRESH, show_spinner=False, max_entries=64)
def get_stuck_trend(period_key: str, workflow_type: str | None) -> Rows:
    return _or_nothing("stuck_trend", _about(period_key, workflow_type))


@st.cache_data(ttl=COUNT_SECONDS, show_spinner=False)
def count_what_ended() -> None:
    """The jobs count every minute; where none runs, whoever looks does, so that looking does not get slower."""
    if any(row["late"] for row in reader().rows("rollups_late")):
        reader().write("roll_up", {"batch": COUNTED_AT_ONCE})


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=16)
def get_attention(workflow_type: str | None) -> dict[str, Rows]:
    """What needs a person: what waits for a second one, held work, findings above a limit, providers, and jobs."""
    return {
        "approvals": reader().rows("approvals_attention"),
        "held": reader().rows("held", {"workflow_type": workflow_type}),
        "findings": reader().rows("findings_attention", _alarming()),
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
    return read_page("unfinished", about, after, "updated_at")


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=16)
def count_unfinished(workflow_type: str | None) -> Rows:
    return reader().rows("unfinished_counts", {"workflow_type": workflow_type})


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=256)
def find_orders(text: str) -> Rows:
    """By a number or a part of it, payment, charge or customer; the exact ones first. With no text, the newest."""
    text = clean(text.strip())
    if not text:
        return reader().rows("newest_orders", {"limit": 10})
    about = {"text": text, "begins": _like(text), "ends": _like(text[::-1]), "limit": FOUND_MAX}
    named, referred = reader().rows("orders_by_name", about), reader().rows("orders_by_reference", about)
    exact = [row for row in named if row["entity_id"] == text]
    found = [*exact, *referred, *named]
    if not (exact or referred) and len(found) < FOUND_MAX and len(text) >= PART_MIN:
        found += find_among_newest(text)
    once = {(row["workflow_type"], row["entity_id"]): row for row in found}
    return list(once.values())[:FOUND_MAX]


@st.cache_data(ttl=TREND_FRESH, show_spinner=False, max_entries=256)
def find_among_newest(text: str) -> Rows:
    """What no index knows; looked for less often than the rest."""
    about = {"text": text, "within": f"%{_like(text)}", "limit": FOUND_MAX, "newest": NEWEST_MAX}
    return reader().rows("orders_among_newest", about)


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def find_money(order: str) -> Rows:
    """The order's charges, refunds and disputes in the provider's books, as last fetched; empty without such books."""
    return reader().rows("money", {"order": clean(order)})


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def find_order_letters(order: str) -> Rows:
    return reader().rows("order_letters", {"order": clean(order)})


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def get_stories(order: str) -> Rows:
    """One document per workflow of the order; empty when nothing is known of it."""
    return [row["story"] for row in reader().rows("story", {"order": clean(order)})]


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=16)
def find_letter_groups(state: str) -> Rows:
    return reader().rows("dead_letter_groups", {"state": state, "limit": GROUPS_MAX})


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def find_letters(source: str, signature: str, state: str, after: str | None) -> Page:
    about = {"source": source, "signature": signature, "state": state}
    return read_page("dead_letters", about, after, "last_failed_at")


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def find_compensations(*, held: bool, after: str | None) -> Page:
    return read_page("compensations", {"held": held}, after, "next_attempt_at")


@st.cache_data(ttl=FRESH, show_spinner=False)
def count_compensations() -> Rows:
    return reader().rows("compensation_counts")


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def find_runs(job: str | None, before: str | None) -> Page:
    rows = reader().rows("runs", {"job": job, "before_id": to_uuid(before), "limit": PAGE + 1})
    return _cut(rows, "id")


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=64)
def get_run(run_id: str) -> Row | None:
    """None also for what is no run id at all."""
    rows = reader().rows("run", {"run_id": run_id}) if to_uuid(run_id) else []
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


def get_roles(login: str) -> list[str]:
    """What somebody may do; nothing for whom nobody knows."""
    people = get_people()
    if login in people or len(people) < PEOPLE_MAX:
        return people.get(login, [])
    return get_roles_alone(login)


@st.cache_data(ttl=FRESH, show_spinner=False)
def get_people() -> dict[str, list[str]]:
    """The roles of each person: one read for all who look, so that twenty people ask no more than one."""
    return {row["login"]: list(row["roles"]) for row in reader().rows("people", {"limit": PEOPLE_MAX})}


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=256)
def get_roles_alone(login: str) -> list[str]:
    """Of somebody who is not among the first of very many."""
    rows = reader().rows("person", {"login": login})
    return list(rows[0]["roles"]) if rows else []


@st.cache_data(ttl=FRESH, show_spinner=False, max_entries=16)
def find_approvals(kinds: tuple[str, ...]) -> Rows:
    """What waits for a second person, or for being carried out; one more than is shown, to say that there is more."""
    return reader().rows("approvals", {"kinds": list(kinds), "limit": APPROVALS_MAX + 1})


def get_fresh(name: str, about: Row) -> Rows:
    """Read at this moment and shared with nobody: for who is about to act."""
    return reader().rows(name, about)


@st.cache_data(ttl=TREND_FRESH, show_spinner=False, max_entries=16)
def get_reconciliation(run_id: str) -> Report | None:
    """The report of one run; None also for what is no run id at all. It is mailed around: errors in it are masked."""
    about = report_parameters(to_uuid(run_id))
    rows = reader().rows("../reconciliation/report", about) if to_uuid(run_id) else []  # the library's own query
    if not rows:
        return None
    report = make_report(rows[0]["document"])
    error, stale = (text and mask_text(text) for text in (report.run.error, report.run.stale))
    return replace(report, run=replace(report.run, error=error, stale=stale))


def _alarming() -> Row:
    limit = get_settings().finding_alert_above_minor
    return {"above_minor": limit, "alarming": sorted({*ALARMING, STALE}), "recorded": sorted(ONLY_RECORDED)}


def now() -> datetime:
    """The viewer's "ago" is told by this machine's clock; decisions never are."""
    return datetime.now(UTC)


def _about(period_key: str, workflow_type: str | None) -> Row:
    period = PERIODS[period_key]
    return {"period_seconds": period.seconds, "slice_seconds": period.slice_seconds, "workflow_type": workflow_type}


def _like(text: str) -> str:
    """A pattern for what begins with the text, whatever is in it."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"


def _or_nothing(name: str, about: Row) -> Rows:
    try:
        return reader().rows(name, about)
    except Away:
        return []


def read_page(name: str, about: Row, after: str | None, column: str) -> Page:
    """One page after the place ``time_id`` that the page before it named."""
    time, _, last = (after or "").partition("_")
    moment, last_id = _moment(time), to_uuid(last)
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
def to_uuid(text: str | None) -> str | None:
    try:
        return str(uuid.UUID(text)) if text else None
    except ValueError:
        return None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 18 else None


def _moment(text: str) -> datetime | None:
    number = _number(text)
    return None if number is None else EPOCH + number * MICROSECOND


def clean(text: str) -> str:
    """What PostgreSQL takes as text, and no longer than any name of an order."""
    return text.replace("\x00", "").encode("utf-8", "replace").decode()[:TEXT_MAX]
