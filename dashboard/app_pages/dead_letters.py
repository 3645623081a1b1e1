"""Dead letters: what failed too often, by what went wrong; one with its story, and how to let them go on."""

from __future__ import annotations

import streamlit as st

from dashboard import actions, approvals, data, facts, formats, live, stories, tables
from dashboard.identity import seen_text

EVERY_SECONDS = 10.0
KEY = "letters"
Letter = tuple[str, str, str]  # its id, the order's workflow type and name
WAYS = {"workflow": "forward", "compensation": "back", "message": "message"}
STATES = {"parked": "Parked", "redriving": "Let go", "resolved": "Resolved", "discarded": "Discarded"}
NOTHING = {
    "parked": ("No dead letters.", "Nothing has failed so often that a person must look."),
    "redriving": ("None is on its way.", "What was released shows here until it ends."),
    "resolved": ("None is resolved.", "What was released and has ended shows here."),
    "discarded": ("None was discarded.", "What was given up shows here."),
}


def draw() -> None:
    approvals.show_approvals("release group")
    state = live.pick("State", "state", list(STATES), "parked", STATES.__getitem__)
    groups = data.find_letter_groups(state)
    if not groups:
        live.show_empty(*NOTHING[state])
        return
    known = find_group(groups, live.get_parameter("signature"), live.get_parameter("source"))
    if chosen := choose_group(groups, known):
        live.forget(["after", "order"])
        st.query_params["source"], st.query_params["signature"] = chosen
        known = find_group(groups, chosen[1], chosen[0])
    show_group(known, state)


def find_group(groups: data.Rows, signature: str | None, source: str | None) -> data.Row:
    """The one that is asked for; without a source the most frequent that failed like this; else the most frequent."""
    alike = [group for group in groups if group["signature"] == signature]
    return next((group for group in alike if group["source"] == source), (alike or groups)[0])


def target_of(group: data.Row) -> tuple[str, str]:
    return group["source"], group["signature"]


def choose_group(groups: data.Rows, known: data.Row) -> tuple[str, str] | None:
    exponents, now = data.get_exponents(), data.now()
    st.caption("By what went wrong, the most frequent first. Click a row to see its orders.")
    return tables.choose_row(
        {
            "orders": [group["letters"] for group in groups],
            "what went wrong": [group["signature"] for group in groups],
            "money": [total(group, exponents) for group in groups],
            "oldest": [formats.ago(group["oldest"], now) for group in groups],
            "newest": [formats.ago(group["newest"], now) for group in groups],
            "on the way": [WAYS[group["source"]] for group in groups],
            "oldest, exactly": [formats.exact(group["oldest"], live.zone()) for group in groups],
            "newest, exactly": [formats.exact(group["newest"], live.zone()) for group in groups],
        },
        [target_of(group) for group in groups],
        key="groups",
        marked=target_of(known),
        widths={"orders": 70, "what went wrong": "large"},
        export="dead-letter-groups",
    )


def total(group: data.Row, exponents: dict[str, int]) -> str:
    """Never added up across currencies."""
    if group["currencies"] > 1:
        return formats.plural(group["currencies"], "currency", "currencies")
    return formats.amount(group["amount_minor"], group["currency"], exponents)


def show_group(group: data.Row, state: str) -> None:
    place = (*target_of(group), state, live.get_parameter("after"))
    page = tables.keep_still(KEY, place, lambda: data.find_letters(*place))
    noun = "message" if group["source"] == "message" else "order"
    st.subheader(formats.plural(group["letters"], noun) + " that failed in the same way", anchor=False)
    st.text(formats.short(seen_text(group["signature"]), 300))
    clicked, ticked = choose_letter(page.rows, place)
    if clicked and clicked[2]:
        st.query_params["order"] = clicked[2]
    live.turn_pages(page.next)
    if state == "parked" and group["source"] == "message":
        st.caption("Messages are kept here to be read. Letting them go on is up to whoever sent them.")
    elif state == "parked":
        offer_release(group, [{"workflow_type": name, "entity_id": order} for _, name, order in ticked])
    if chosen := live.get_parameter("order"):
        for document in data.get_stories(chosen):
            st.divider()
            stories.show_story(document)


def offer_release(group: data.Row, items: list[dict[str, str]]) -> None:
    why_not = actions.may_not("group")
    with st.container(horizontal=True, vertical_alignment="center"):
        some = f"Let the {len(items)} ticked go on…" if items else "Let the ticked go on…"
        icon = ":material/play_arrow:"
        if st.button(some, key="release-ticked", icon=icon, disabled=bool(why_not) or not items, help=why_not):
            actions.ask("group", items=items)
        every = f"Let all {group['letters']:,} go on…"
        if st.button(every, key="release-all", icon=":material/fast_forward:", disabled=bool(why_not), help=why_not):
            alike = facts.find_alike(*target_of(group))
            more = len(alike) > data.GROUP_MAX
            actions.ask("group", items=alike[: data.GROUP_MAX], more=more, signature=group["signature"])
    actions.explain_rights("group")
    with st.expander("From a command line", icon=":material/terminal:"):
        alike_by = ("--signature", group["signature"], "--reason", "why it will work now")
        st.code(formats.command("makegood", "dlq", "release", *alike_by), language=None, wrap_lines=True)


def choose_letter(letters: data.Rows, place: object) -> tuple[Letter | None, list[Letter]]:
    exponents, now = data.get_exponents(), data.now()
    st.caption("Click an order to read its story below; tick several to let them go on together.")
    targets = [(str(letter["id"]), letter["message_key"] or "", letter["entity_id"] or "") for letter in letters]
    opened = live.get_parameter("order")
    return tables.choose_rows(
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
        targets,
        key=KEY,
        place=place,
        marked=next((target for target in targets if target[2] == opened), ""),
        widths={"tries": 60, "why": "large"},
        export="dead-letters",
    )


st.title("Dead letters", anchor=False)
live.live(draw, every_seconds=EVERY_SECONDS)
