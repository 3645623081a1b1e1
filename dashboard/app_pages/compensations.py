"""Compensations: what is still to be undone. Held ones wait for a person, the others for their next try."""

from __future__ import annotations

import streamlit as st

from dashboard import actions, approvals, data, formats, live, tables

EVERY_SECONDS = 10.0


def draw() -> None:
    approvals.show_approvals("settle")
    counts, exponents = data.count_compensations(), data.get_exponents()
    if not counts:
        live.show_empty("Nothing is to be undone.", "Every order that failed midway has been made good.")
        return
    for held, title in ((True, "Held for a person"), (False, "Tried by themselves")):
        rows = [row for row in counts if row["held"] is held]
        st.subheader(title, anchor=False)
        money = formats.amounts(rows, exponents)
        count = sum(row["undos"] for row in rows)
        st.text(formats.plural(count, "undo") + (f", {money} to give back" if money else ""))
        if count:
            show_undos(held=held)
        else:
            st.caption("None is held." if held else "None waits for a try.")


def show_undos(*, held: bool) -> None:
    place = "held" if held else "due"
    page = data.find_compensations(held=held, after=live.get_parameter(place))
    asked = f"{place}-chosen"
    first = str(page.rows[0]["id"]) if held and page.rows else ""
    opened = st.session_state.setdefault(asked, first)
    opened = choose_undo(page.rows, key=place, held=held, opened=opened) or opened
    st.session_state[asked] = opened
    live.turn_pages(page.next, place)
    if found := next((row for row in page.rows if str(row["id"]) == opened), None):
        show_undo(found)
    elif opened:
        st.caption("What was open here is done by now, or stands on another page.")


def choose_undo(rows: data.Rows, key: str, *, held: bool, opened: str) -> str | None:
    exponents, now = data.get_exponents(), data.now()
    st.caption("Click a row for what can be done about it.")
    columns = {
        "order": [row["entity_id"] for row in rows],
        "undo of": [row["step"] for row in rows],
        "amount": [formats.amount(row["amount_minor"], row["currency"], exponents) for row in rows],
        "tries": [f"{row['attempts']} of {row['attempts_max'] or '?'}" for row in rows],
        "owed for": [formats.seconds(row["owed_seconds"]) for row in rows],
    }
    if not held:
        columns["next try"] = [
            "under way"
            if row["leased"]
            else formats.ago(row["next_attempt_at"], now)
            if row["next_seconds"] > 0
            else "due"
            for row in rows
        ]
        columns["exactly"] = [formats.exact(row["next_attempt_at"], live.zone()) for row in rows]
    columns["last error"] = [row["held_reason"] if held else row["last_error"] or "" for row in rows]
    widths = {"tries": 80, "last error": "large"}
    return tables.choose_row(
        columns,
        [str(row["id"]) for row in rows],
        key=key,
        widths=widths,
        export=f"compensations-{key}",
        marked=opened,
    )


def show_undo(row: data.Row) -> None:
    """One undo, and what can be done about it."""
    kind = () if row["workflow_type"] == "checkout" else ("--type", row["workflow_type"])
    order = ("--", row["entity_id"])
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.text(f"{formats.short(row['entity_id'])}, undo of {formats.short(row['step'], 60)}", width="stretch")
            st.page_link(
                live.page("order"), label="Its story", icon=":material/arrow_forward:",
                query_params={"order": row["entity_id"]},
            )  # fmt: skip
        about = {"workflow_type": row["workflow_type"], "order": row["entity_id"], "step": row["step"]}
        with st.container(horizontal=True):
            actions.offer("retry", "Try now…", f"retry-{row['id']}", ":material/play_arrow:", **about)
            actions.offer("settle", "Settle by hand…", f"settle-{row['id']}", ":material/task_alt:", **about)
        actions.explain_rights("settle")
        with st.expander("From a command line", icon=":material/terminal:"):
            show_commands(row, kind, order)


def show_commands(row: data.Row, kind: tuple[str, ...], order: tuple[str, ...]) -> None:
    st.caption("Try it now:")
    reason = ("--reason", "why it will work now")
    st.code(formats.command("makegood", "compensate", "retry", *kind, *reason, *order), language=None, wrap_lines=True)
    st.caption("It was done elsewhere, for example refunded by hand; it is never sent again:")
    settle = ("--step", row["step"], "--proof", "re_…", "--reason", "refunded by hand")
    st.code(formats.command("makegood", "compensate", "settle", *kind, *settle, *order), language=None, wrap_lines=True)


st.title("Compensations", anchor=False)
live.live(draw, every_seconds=EVERY_SECONDS)
