"""Workflows: what is under way, the longest without progress first. What is chosen stands in the address."""

from __future__ import annotations

from datetime import datetime

import streamlit as st

from dashboard import data, formats, live, tables

EVERY_SECONDS = 10.0
SHOWN = {"all": "All under way", "moving": "Moving", "stuck": "Stuck", "held": "Held"}


def draw() -> None:
    show, state, workflow_type = choose()
    page = data.find_unfinished(show, state, workflow_type, live.get_parameter("after"))
    if not page.rows:
        show_nothing(show)
        return
    if chosen := choose_order(page.rows):
        st.switch_page(live.page("order"), query_params={"order": chosen})
    live.turn_pages(page.next)


def choose() -> tuple[str, str | None, str | None]:
    before = [live.get_parameter(name) for name in ("show", "state", "type")]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        workflow_type = live.choose_type()
        counts = data.count_unfinished(workflow_type)
        totals = {name: sum(row["workflows" if name == "all" else name] for row in counts) for name in SHOWN}
        show = live.pick("Show", "show", list(SHOWN), "all", lambda name: f"{SHOWN[name]} · {totals[name]:,}")
        states = [row["current_state"] for row in counts]
        state = live.choose("State", "state", ["any", *states], lambda name: "Any state" if name == "any" else name)
    if before != [live.get_parameter(name) for name in ("show", "state", "type")]:
        live.forget(["after"])  # a place in another list
    return show, None if state == "any" else state, workflow_type


def show_nothing(show: str) -> None:
    if live.get_parameter("after"):
        st.caption("This page is empty by now: what was on it has moved.")
        live.turn_pages(None)
    elif show in {"stuck", "held"}:
        live.show_empty(f"No order is {show}.", "There is nothing to do here.")
    else:
        live.show_empty("No order is under way.", "All have ended, or none was started yet; the overview says which.")


def choose_order(rows: data.Rows) -> str | None:
    exponents, now = data.get_exponents(), data.now()
    st.caption("The longest without progress first. Click an order to read its story.")
    return tables.choose_row(
        {
            "order": [row["entity_id"] for row in rows],
            "how": [row["condition"] for row in rows],
            "state": [row["current_state"] for row in rows],
            "no progress for": [formats.seconds(row["idle_seconds"]) for row in rows],
            "next try": [next_try(row, now) for row in rows],
            "tries": [row["attempts"] for row in rows],
            "amount": [formats.amount(row["amount_minor"], row["currency"], exponents) for row in rows],
            "why": [row["held_reason"] or ("cancel requested" if row["cancel_requested"] else "") for row in rows],
            "last progress": [formats.exact(row["updated_at"], live.zone()) for row in rows],
            "type": [row["workflow_type"] for row in rows],
        },
        [row["entity_id"] for row in rows],
        key="workflows",
        widths={"tries": 60, "why": "medium"},
    )


def next_try(row: data.Row, now: datetime) -> str:
    if row["held_at"]:
        return ""
    if row["condition"] == "running":
        return "under way"
    return formats.ago(row["next_attempt_at"], now) if row["next_attempt_at"] > now else "due"


st.title("Workflows", anchor=False)
live.live(draw, every_seconds=EVERY_SECONDS)
