"""Activity: what jobs did and decided, run by run, and what people did. ``?run=`` opens one run."""

from __future__ import annotations

import streamlit as st

from dashboard import data, formats, live, places, tables
from dashboard.identity import seen_text
from dashboard.theme import badge_of

EVERY_SECONDS = 10.0


def draw() -> None:
    if asked := live.get_parameter("run"):
        show_run(asked)
        return
    runs, people = st.tabs(["Jobs", "People"])
    with runs:
        show_runs()
    with people:
        show_actions()


def show_runs() -> None:
    job = live.choose("Job", "job", ["all", *data.JOBS], lambda name: "All jobs" if name == "all" else name)
    page = data.find_runs(None if job == "all" else job, live.get_parameter("before"))
    if not page.rows:
        live.show_empty("No job has run yet.", "Airflow runs them every minute; **makegood recover** runs one now.")
        return
    now = data.now()
    st.caption("Click a run to see what it decided.")
    chosen = tables.choose_row(
        {
            "job": [run["job"] for run in page.rows],
            "how": [describe(run) for run in page.rows],
            "began": [formats.ago(run["started_at"], now) for run in page.rows],
            "took": [formats.seconds(run["took_seconds"]) for run in page.rows],
            "counts": [run["error"] or formats.counts(run["counts"]) for run in page.rows],
            "by": [run["triggered_by"] for run in page.rows],
            "exactly": [formats.exact(run["started_at"], live.zone()) for run in page.rows],
        },
        [str(run["id"]) for run in page.rows],
        key="runs",
        widths={"counts": "large"},
        export="runs",
    )
    if chosen:
        st.switch_page(live.page("activity"), query_params={"run": chosen})
    live.turn_pages(page.next, "before")


def describe(run: data.Row) -> str:
    return f"{run['state']}, dry run" if run["parameters"].get("dry_run") else str(run["state"])


def show_run(run_id: str) -> None:
    st.page_link(live.page("activity"), label="All runs", icon=":material/arrow_back:")
    run = data.get_run(run_id)
    if run is None:
        st.text(f"No run {formats.short(run_id, 80)} is known.")
        st.caption("Runs are kept for 90 days, unless the setting MAKEGOOD_KEEP_DAYS says otherwise.")
        return
    now, zone = data.now(), live.zone()
    with st.container(key="name"):
        st.text(run["job"])
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(describe(run), color=badge_of(run["state"]))  # type: ignore[arg-type]
        st.text(f"began {formats.ago(run['started_at'], now)}", help=formats.exact(run["started_at"], zone))
        st.text(f"{'took' if run['finished_at'] else 'running for'} {formats.seconds(run['took_seconds'])}")
        st.text(f"by {formats.short(run['triggered_by'])}")
    if run["error"]:
        st.text(formats.short(seen_text(run["error"]), 2000))
    show_counts(run)
    show_decisions(run)


def show_counts(run: data.Row) -> None:
    """A run under way has only what its parts have told so far."""
    found: dict[str, int] = dict(run["counts"])
    for part in run["parts"].values() if not found else ():
        for name, count in part.items():
            found[name] = found.get(name, 0) + count
    if not found:
        st.caption("It found nothing to do.")
        return
    with st.container(horizontal=True):
        for name, count in found.items():
            st.metric(name.replace("_", " "), f"{count:,}", border=True, width=150)


def show_decisions(run: data.Row) -> None:
    st.subheader("What it decided", anchor=False)
    run_id = str(run["id"])
    page = data.find_decisions(run_id, live.get_parameter("after"))
    if not page.rows:
        dry = run["parameters"].get("dry_run")
        st.caption("A dry run only counts." if dry else "It took no order, so there was nothing to decide.")
        return
    st.text(formats.counts({row["decision"]: row["workflows"] for row in data.count_decisions(run_id)}))
    st.caption("Click an order to read its story.")
    chosen = tables.choose_row(
        {
            "order": [row["entity_id"] for row in page.rows],
            "decided": [row["decision"] for row in page.rows],
            "why": [row["reason"] for row in page.rows],
            "it was": [row["state"] for row in page.rows],
            "it is now": ["held" if row["held_at"] else row["current_state"] or "" for row in page.rows],
            "when": [formats.exact(row["decided_at"], live.zone()) for row in page.rows],
        },
        [row["entity_id"] for row in page.rows],
        key="decisions",
        widths={"why": "large"},
        export="decisions",
    )
    if chosen:
        st.switch_page(live.page("order"), query_params={"order": chosen})
    live.turn_pages(page.next)


def show_actions() -> None:
    page = data.find_actions(live.get_parameter("actions"))
    if not page.rows:
        live.show_empty(
            "Nobody has acted yet.",
            "Cancels, releases, settlements, approvals and granted rights show here, with who and why.",
        )
        return
    now = data.now()
    st.caption("Click a row to read the story of its order, or its finding.")
    chosen = tables.choose_row(
        {
            "who": [row["actor"] for row in page.rows],
            "did": [row["action"] for row in page.rows],
            "to": [row["subject"] for row in page.rows],
            "when": [formats.ago(row["acted_at"], now) for row in page.rows],
            "why": [row["reason"] for row in page.rows],
            "proof": [row["proof"] or "" for row in page.rows],
            "exactly": [formats.exact(row["acted_at"], live.zone()) for row in page.rows],
        },
        [places.place_of(row) for row in page.rows],
        key="actions",
        widths={"why": "large"},
        export="actions",
    )
    if chosen and chosen[0]:
        page_name, parameter, subject = chosen
        st.switch_page(live.page(page_name), query_params={parameter: subject})
    live.turn_pages(page.next, "actions")


st.title("Activity", anchor=False)
live.live(draw, every_seconds=EVERY_SECONDS)
