"""Dead letters: what failed too often, by what went wrong; one with its story, and how to let them go on."""

from __future__ import annotations

import streamlit as st

from dashboard import data, formats, live, stories, tables

EVERY_SECONDS = 10.0
STATES = {"parked": "Parked", "redriving": "Let go", "resolved": "Resolved", "discarded": "Discarded"}
NOTHING = {
    "parked": ("No dead letters.", "Nothing has failed so often that a person must look."),
    "redriving": ("None is on its way.", "What was released shows here until it ends."),
    "resolved": ("None is resolved.", "What was released and has ended shows here."),
    "discarded": ("None was discarded.", "What was given up shows here."),
}


def draw() -> None:
    state = live.pick("State", "state", list(STATES), "parked", STATES.__getitem__)
    groups = data.find_letter_groups(state)
    if not groups:
        live.show_empty(*NOTHING[state])
        return
    asked = live.get_parameter("signature")
    if chosen := choose_group(groups):
        live.forget(["after", "order"])
        st.query_params["signature"] = asked = chosen
    known = next((group for group in groups if group["signature"] == asked), groups[0])
    show_group(known, state)


def choose_group(groups: data.Rows) -> str | None:
    exponents, now = data.get_exponents(), data.now()
    st.caption("By what went wrong, the most frequent first. Click a row to see its orders.")
    return tables.choose_row(
        {
            "orders": [group["letters"] for group in groups],
            "what went wrong": [group["signature"] for group in groups],
            "money": [total(group, exponents) for group in groups],
            "oldest": [formats.ago(group["oldest"], now) for group in groups],
            "newest": [formats.ago(group["newest"], now) for group in groups],
            "on the way": ["back" if group["source"] == "compensation" else "forward" for group in groups],
        },
        [group["signature"] for group in groups],
        key="groups",
        widths={"orders": 70, "what went wrong": "large"},
    )


def total(group: data.Row, exponents: dict[str, int]) -> str:
    """Never added up across currencies."""
    if group["currencies"] > 1:
        return formats.plural(group["currencies"], "currency", "currencies")
    return formats.amount(group["amount_minor"], group["currency"], exponents)


def show_group(group: data.Row, state: str) -> None:
    page = data.find_letters(group["signature"], state, live.get_parameter("after"))
    st.subheader(formats.plural(group["letters"], "order") + " that failed in the same way", anchor=False)
    st.text(formats.short(group["signature"], 300))
    chosen = choose_letter(page.rows) or live.get_parameter("order")
    live.turn_pages(page.next)
    if state == "parked":
        st.caption("Once the cause is gone, let all of them go on:")
        alike = ("--signature", group["signature"], "--reason", "why it will work now")
        st.code(formats.command("makegood", "dlq", "release", *alike), language=None, wrap_lines=True)
    if chosen:
        st.query_params["order"] = chosen
        for document in data.get_stories(chosen):
            st.divider()
            stories.show_story(document)


def choose_letter(letters: data.Rows) -> str | None:
    exponents, now = data.get_exponents(), data.now()
    st.caption("Click an order to read its story below.")
    return tables.choose_row(
        {
            "order": [letter["entity_id"] or "" for letter in letters],
            "amount": [formats.amount(letter["amount_minor"], letter["currency"], exponents) for letter in letters],
            "state": [letter["workflow_state"] or "" for letter in letters],
            "step": [letter["step"] or "" for letter in letters],
            "tries": [letter["attempts"] for letter in letters],
            "released": [f"{letter['redrives']}×" if letter["redrives"] else "" for letter in letters],
            "parked": [formats.ago(letter["last_failed_at"], now) for letter in letters],
            "exactly": [formats.exact(letter["last_failed_at"], live.zone()) for letter in letters],
            "why": [letter["error"] for letter in letters],
        },
        [letter["entity_id"] or "" for letter in letters],
        key="letters",
        widths={"tries": 60, "why": "large"},
    )


st.title("Dead letters", anchor=False)
live.live(draw, every_seconds=EVERY_SECONDS)
