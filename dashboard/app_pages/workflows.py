"""Workflows: what is under way, the longest without progress first. What is chosen stands in the address."""

from __future__ import annotations

from datetime import datetime

import streamlit as st

from dashboard import actions, approvals, cards, data, formats, live, tables

EVERY_SECONDS = 5.0
KEY = "workflows"
SHOWN = {
    "all": "All under way",
    "moving": "Moving",
    "stuck": "Past deadline",
    "held": "Held",
    "idle": "No progress for 5 min",  # what the overview, and the published query, count as stuck
}
NONE_LIKE_IT = {
    "moving": "No order is moving.",
    "stuck": "No order is past its deadline.",
    "held": "No order is held.",
    "idle": "No order is without progress for five minutes.",
}


def draw() -> None:
    approvals.show_approvals("release group")
    show, state, workflow_type = choose()
    place = (show, state, workflow_type, live.get_parameter("after"))
    page = tables.keep_still(KEY, place, lambda: data.find_unfinished(*place))
    if not page.rows:
        show_nothing(show)
        return
    clicked, ticked = choose_orders(page.rows, place)
    if clicked and not ticked:
        st.switch_page(live.page("order"), query_params={"order": clicked[1]})
    live.turn_pages(page.next)
    offer_bulk([row for row in page.rows if target_of(row) in ticked])


def offer_bulk(rows: data.Rows) -> None:
    """What can be done with the ticked ones: let the held among them go on, and take their names along."""
    held = [row for row in rows if row["held_at"]]
    items = [{"workflow_type": row["workflow_type"], "entity_id": row["entity_id"]} for row in held]
    why_not = actions.may_not("group")
    label = f"Let the {len(items)} held ones go on…" if items else "Let the ticked go on…"
    if st.button(
        label, key="release-ticked", icon=":material/play_arrow:", disabled=bool(why_not) or not items, help=why_not
    ):
        actions.ask("group", items=items)
    actions.explain_rights("group")
    if rows:
        money = formats.amounts(cards.sum_money(rows), data.get_exponents())
        st.caption(f"{formats.plural(len(rows), 'order')} ticked" + (f", {money}" if money else "") + ". To copy:")
        st.code("\n".join(formats.short(row["entity_id"]) for row in rows), language=None)


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
    elif show in NONE_LIKE_IT:
        live.show_empty(NONE_LIKE_IT[show], "There is nothing to do here.")
    else:
        live.show_empty("No order is under way.", "All have ended, or none was started yet; the overview says which.")


def target_of(row: data.Row) -> tuple[str, str]:
    return str(row["id"]), row["entity_id"]


def choose_orders(rows: data.Rows, place: object) -> tuple[tuple[str, str] | None, list[tuple[str, str]]]:
    """The one that was clicked, and those that are ticked."""
    exponents, now = data.get_exponents(), data.now()
    st.caption("The longest without progress first. Click an order to read its story; tick several to act on them.")
    return tables.choose_rows(
        {
            "order": [row["entity_id"] for row in rows],
            "how": [row["condition"] for row in rows],
            "state": [row["current_state"] for row in rows],
            "no progress for": [formats.seconds(row["idle_seconds"]) for row in rows],
            "next try": [next_try(row, now) for row in rows],
            "exactly": ["" if row["held_at"] else formats.exact(row["next_attempt_at"], live.zone()) for row in rows],
            "tries": [row["attempts"] for row in rows],
            "amount": [formats.amount(row["amount_minor"], row["currency"], exponents) for row in rows],
            "why": [row["held_reason"] or ("cancel requested" if row["cancel_requested"] else "") for row in rows],
            "last progress": [formats.exact(row["updated_at"], live.zone()) for row in rows],
            "type": [row["workflow_type"] for row in rows],
        },
        [target_of(row) for row in rows],
        key=KEY,
        place=place,
        widths={"tries": 60, "why": "medium"},
        export="workflows",
    )


def next_try(row: data.Row, now: datetime) -> str:
    if row["held_at"]:
        return ""
    if row["condition"] == "running":
        return "under way"
    return formats.ago(row["next_attempt_at"], now) if row["next_attempt_at"] > now else "due"


st.title("Workflows", anchor=False)
live.live(draw, every_seconds=EVERY_SECONDS)
