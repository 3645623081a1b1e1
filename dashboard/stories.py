"""One order's story on a page: where it is, the picture of its way, every table of it, and the whole as text."""

from __future__ import annotations

import json
from typing import Any

import streamlit as st

from dashboard import actions, charts, data, formats, live, tables, trails
from dashboard.identity import person, seen_story
from dashboard.theme import badge_of
from makegood.story import ELLIPSIS, Section, find_sections, read_time, tell_story, write_story

WIDTHS = {
    "#": 40,
    "try": 50,
    "tries": 60,
    "for": 90,
    "took": 90,
    "why": "large",
    "error": "large",
    "last error": "large",
}


def show_story(document: dict[str, Any]) -> None:
    """``document`` as the timeline function returns it; what is somebody's own is hidden from who may not see it."""
    story = tell_story(seen_story(document), None)
    exponents, zone = data.get_exponents(), live.zone()
    show_headline(story)
    offer_actions(story)
    figure = charts.draw_timeline(story, zone, dark=live.is_dark())
    key = f"timeline-{story['workflow']['id']}"
    for transition in story["transitions"]:
        if transition["gap"]:
            st.text(formats.short(f"{ELLIPSIS} {transition['to_state']} for {transition['gap']}", 2000))
    way, money = st.columns([3, 1])
    with way:
        st.plotly_chart(
            figure, config=charts.CONFIG, key=key, alt="The order's way through its states, with every attempt"
        )
    with money:
        trail = show_money(story)
    for section in find_sections(story, exponents, zone):
        show_section(section, story["workflow"]["id"])
    show_letter(story)
    show_context(story)
    with st.expander("As text, for a ticket", icon=":material/content_copy:"):
        st.code(write_story(story, exponents) + trails.write_trail(trail, exponents), language=None)


def show_money(story: dict[str, Any]) -> list[trails.Entry]:
    """What was charged, given back and disputed, in both books; what they say, they say side by side."""
    exponents = data.get_exponents()
    trail = trails.find_trail(story, data.find_money(story["workflow"]["entity_id"]))
    with st.container(border=True, key=f"money-{story['workflow']['id']}"):
        st.subheader("Money", anchor=False)
        if not trail:
            st.caption("Nothing was charged.")
        for book, text in trails.sum_trail(trail, exponents).items():
            st.caption(f"By {book}")
            st.text("\n".join(text.replace("; ", ", ").split(", ")))
            own = [entry for entry in trail if entry.book == book]
            st.code("\n".join(write_entry(entry) for entry in own), language=None, wrap_lines=True)
    return trail


def write_entry(entry: trails.Entry) -> str:
    """One movement on a line of its own, its time in the viewer's zone, and the provider's name of it to copy."""
    at = entry.at.astimezone(live.zone()).strftime("%m-%d %H:%M:%S") if entry.at else "not yet"
    amount = formats.amount(entry.amount_minor, entry.currency, data.get_exponents())
    return formats.short(f"{at}  {entry.kind} {amount} {entry.status} {entry.reference}".rstrip(), 200)


def show_messages(order: str) -> None:
    """Messages about the order that failed too often; its workflow's own letter comes with its story."""
    letters = data.find_order_letters(order)
    if not letters:
        return
    st.subheader("Messages that failed", anchor=False)
    tables.show_table(
        {
            "state": [letter["state"] for letter in letters],
            "broker": [letter["broker"] or "" for letter in letters],
            "message": [letter["message_id"] for letter in letters],
            "tries": [letter["attempts"] for letter in letters],
            "failed": [formats.ago(letter["last_failed_at"], data.now()) for letter in letters],
            "exactly": [formats.exact(letter["last_failed_at"], live.zone()) for letter in letters],
            "error": [f"{letter['error_type']}: {letter['error']}" for letter in letters],
        },
        key=f"messages-{order}",
        widths=WIDTHS,
    )


def show_headline(story: dict[str, Any]) -> None:
    row = story["workflow"]
    exponents, now, zone = data.get_exponents(), read_time(story["asked_at"]), live.zone()
    word = find_condition(story)
    with st.container(key="name"):
        st.text(formats.short(row["entity_id"]))
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(word, color=badge_of(word))  # type: ignore[arg-type]
        st.text(row["workflow_type"])
        if money := formats.amount(row["amount_minor"], row["currency"], exponents):
            st.text(money)
        for name, moment in (("started", row["created_at"]), ("last progress", row["updated_at"])):
            at = read_time(moment)
            st.text(f"{name} {formats.ago(at, now)}", help=formats.exact(at, zone))
    with st.container(key="summary"):
        st.text(formats.short(story["summary"], 2000))
        if row["cancel_requested"]:
            st.text(formats.short(f"Cancel requested by {row['cancel_requested_by']}: {row['cancel_reason']}", 2000))


def offer_actions(story: dict[str, Any]) -> None:
    """What can be done about it as it stands; nothing once it has ended."""
    row = story["workflow"]
    if row["finished_at"]:
        return
    about = {"workflow_type": row["workflow_type"], "order": row["entity_id"]}
    with st.container(horizontal=True):
        label = "Let it go on…" if row["held_at"] else "Try now…"
        actions.offer("release", label, f"release-{row['id']}", ":material/play_arrow:", **about)
        if row["current_state"] != "compensating" and not row["cancel_requested"]:
            actions.offer("cancel", "Cancel…", f"cancel-{row['id']}", ":material/undo:", **about)
    actions.explain_rights()


def show_context(story: dict[str, Any]) -> None:
    """What the order was started with and has gathered since, as data and never as markup."""
    with st.expander("Context", icon=":material/data_object:"):
        if not person().may("engineer"):
            st.caption("Personal data is hidden: seeing it needs the role engineer.")
        st.code(json.dumps(story["workflow"]["context"], indent=2, ensure_ascii=False), language=None)


def find_condition(story: dict[str, Any]) -> str:
    """One word for the whole order: its end, or how it stands."""
    row, now = story["workflow"], read_time(story["asked_at"])
    if row["finished_at"]:
        return str(row["current_state"])
    if row["held_at"]:
        return "held"
    if read_time(row["deadline_at"]) < now:
        return "stuck"
    return "running" if row["lease_until"] and read_time(row["lease_until"]) > now else "waiting"


def show_section(section: Section, workflow_id: str) -> None:
    st.subheader(section.title, anchor=False)
    columns = {name: [row[index] for row in section.rows] for index, name in enumerate(section.columns)}
    tables.show_table(columns, key=f"{section.title}-{workflow_id}", widths=WIDTHS)


def show_letter(story: dict[str, Any]) -> None:
    """What was kept when it failed too often, and how to let it go on."""
    letter = story.get("dead_letter")
    if not letter:
        return
    st.subheader("Dead letter", anchor=False)
    zone, row = live.zone(), story["workflow"]
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.badge(letter["state"], color=badge_of(letter["state"]))  # type: ignore[arg-type]
            parked = read_time(letter["last_failed_at"])
            st.text(f"parked {formats.ago(parked, data.now())}", help=formats.exact(parked, zone))
            st.text(f"{formats.plural(letter['attempts'], 'attempt')} spent, released {letter['redrives']}×")
        st.text(formats.short(f"{letter['error_type']}: {letter['error']}", 2000))
        if letter["note"]:
            st.text(formats.short(f"Note: {letter['note']}", 2000))
        if letter["state"] == "parked":
            st.caption("Once the cause is gone, let it go on, here or from a command line:")
            st.code(release_command(row["workflow_type"], row["entity_id"]), language=None, wrap_lines=True)


def release_command(workflow_type: str, order: str) -> str:
    kind = () if workflow_type == "checkout" else ("--type", workflow_type)
    return formats.command("makegood", "dlq", "release", *kind, "--reason", "why it will work now", "--", order)
