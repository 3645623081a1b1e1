"""One finding on a page: both sides next to each other, what would be done, what was done, and what a person can do."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard import actions, books, data, finding_facts, formats, identity, live, tables
from dashboard.identity import seen_text
from dashboard.theme import badge_of
from makegood.reconciliation.classes import meaning_of, name_of


def show_finding(row: data.Row) -> None:
    show_headline(row)
    ours, theirs = books.get_sides(row["order_id"], row["charge_id"])
    left, right = st.columns(2)
    with left, st.container(border=True, height="stretch", key="ours"):
        show_ours(row, ours)
    with right, st.container(border=True, height="stretch", key="theirs"):
        show_theirs(theirs)
    history, remedies = books.get_past(str(row["id"]))
    show_remedies(row, remedies)
    show_history(history)


def show_headline(row: data.Row) -> None:
    now, zone = data.now(), live.zone()
    with st.container(key="name"):
        st.text(f"{row['class']} {name_of(row['class'])}")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.badge(row["state"], color=badge_of(row["state"]))  # type: ignore[arg-type]
        if row["amount_minor"] and row["currency"]:
            st.text(f"{formats.amount(row['amount_minor'], row['currency'], data.get_exponents())} at risk")
        for name, moment in (("first seen", row["first_seen_at"]), ("last seen", row["last_seen_at"])):
            st.text(f"{name} {formats.ago(moment, now)}", help=formats.exact(moment, zone))
        st.text(f"by {formats.plural(row['runs_seen'], 'run')}")
        if row["reopened"]:
            st.text(f"broke again {row['reopened']}×")
    with st.container(key="summary"):
        st.text(meaning_of(row["class"]))
    if also := row["details"].get("also"):
        st.text(formats.short(f"Also true of it: {also}", 300))
    if row["ignored_until"]:
        st.text(f"Ignored until {formats.exact(row['ignored_until'], zone)}.")
    if row["note"]:
        st.text(formats.short(f"Note: {seen_text(row['note'])}", 2000))


def show_ours(row: data.Row, ours: data.Rows) -> None:
    st.subheader("Our books", anchor=False)
    if not ours:
        named = f"Our books have no order {formats.short(row['order_id'], 150)}." if row["order_id"] else ""
        st.text(named or f"It is about {formats.short(row['unit'], 200)}: no order of ours belongs to it.")
        return
    exponents, zone = data.get_exponents(), live.zone()
    for one in ours:
        st.text(formats.short(one["order_id"], 150))
        facts = {
            "order says": one["status"],
            "costs": formats.amount(one["amount_minor"], one["currency"], exponents),
            "given back": formats.amount(one["refunded_minor"], one["currency"], exponents),
            "written off": formats.amount(one["written_off_minor"], one["currency"], exponents),
            "dispute known": "yes" if one["dispute_known"] else "no",
            "payment": one["payment_ref"] or formats.NONE,
            "placed": formats.exact(one["created_at"], zone),
            "workflow": _tell_workflow(one),
        }
        tables.show_table({"our books": list(facts), "say": list(facts.values())}, key=f"ours-{one['workflow_type']}")
        st.page_link(
            live.page("order"), label="The order's story", icon=":material/arrow_forward:",
            query_params={"order": one["order_id"]},
        )  # fmt: skip


def _tell_workflow(one: data.Row) -> str:
    if not one["current_state"]:
        return "none"
    how = ", held" if one["held_at"] else ", past its deadline" if one["late"] else ""
    return f"{one['workflow_type']}: {one['current_state']}{how}"


def show_theirs(theirs: data.Rows) -> None:
    st.subheader("The provider's books", anchor=False)
    if not theirs:
        st.text("The provider has no charge for it, as far as its books were fetched.")
        return
    exponents, zone = data.get_exponents(), live.zone()
    tables.show_table(
        {
            "what": [one["kind"] if one["livemode"] else f"{one['kind']} (test)" for one in theirs],
            "state": [one["status"] for one in theirs],
            "amount": [formats.amount(one["amount_minor"], one["currency"], exponents) for one in theirs],
            "id": [one["id"] for one in theirs],
            "of": [one["belongs_to"] for one in theirs],
            "when": [formats.exact(one["created_at"], zone) for one in theirs],
        },
        key="theirs-table",
    )


def show_remedies(row: data.Row, remedies: data.Rows) -> None:
    st.subheader("What is done about it", anchor=False)
    for sentence in finding_facts.tell_remedy(row):
        st.text(formats.short(sentence, 600))
    if approved := next((one for one in remedies if one["state"] == "approved"), None):
        st.text(formats.short(f"{approved['approved_by']} has approved it: the next run begins the refund.", 300))
    waiting = next((one for one in remedies if one["state"] == "awaiting_approval"), None)
    offer_actions(row, waiting)
    if not remedies:
        return
    exponents, zone = data.get_exponents(), live.zone()
    tables.show_table(
        {
            "remedy": [one["remedy"] for one in remedies],
            "state": [one["state"] for one in remedies],
            "amount": [formats.amount(one["amount_minor"] or None, one["currency"], exponents) for one in remedies],
            "asked by": [one["proposed_by"] for one in remedies],
            "second person": [_tell_second(one) for one in remedies],
            "refund": [one["refund_ref"] or "" for one in remedies],
            "why": [one["reason"] or "" for one in remedies],
            "when": [formats.exact(one["proposed_at"], zone) for one in remedies],
        },
        key="remedies",
        widths={"why": "large"},
    )


def _tell_second(one: data.Row) -> str:
    if one["approved_by"] and one["approval_state"] != "refused":
        return f"{one['approved_by']}: {one['approval_reason']}"
    if one["refused_by"]:
        return f"refused by {one['refused_by']}: {one['refusal_reason']}"
    return one["approval_state"] or ""


def offer_actions(row: data.Row, waiting: data.Row | None) -> None:
    """What can be done as it stands; the database decides again when it is done."""
    key, about = str(row["id"]), {"finding": str(row["id"])}
    if row["state"] not in finding_facts.LIVE:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        if waiting and identity.person().login and identity.person().login == waiting["requested_by"]:
            st.caption("You asked for the refund: somebody else must approve it.")
        elif waiting:
            actions.offer("approve_refund", "Approve the refund…", f"approve-{key}", ":material/check:", **about)
        if waiting:
            actions.offer("refuse_refund", "Refuse the refund…", f"refuse-{key}", ":material/close:", **about)
        if row["state"] != "acknowledged":
            actions.offer("acknowledge", "Acknowledge…", f"acknowledge-{key}", ":material/visibility:", **about)
        actions.offer("ignore", "Ignore…", f"ignore-{key}", ":material/notifications_off:", **about)
    actions.explain_rights("acknowledge")


def show_history(history: data.Rows) -> None:
    st.subheader("What became of it", anchor=False)
    if not history:
        st.caption("Nothing has changed since it was found.")
        return
    tables.show_table(
        {
            "it was": [one["from_state"] for one in history],
            "it is now": [one["to_state"] for one in history],
            "by": [one["changed_by"] for one in history],
            "why": [one["reason"] or "" for one in history],
            "class": [one["class"] for one in history],
            "when": [formats.exact(one["changed_at"], live.zone()) for one in history],
        },
        key="history",
        widths={"why": "large"},
    )


def show_of_order(order: str) -> bool:
    """On the order's page: what the reconciliation found about it, and whether it found anything."""
    rows = books.find_of_order(order)
    if not rows:
        return False
    st.subheader("Against the provider's books", anchor=False)
    if chosen := choose_finding(rows, key="order-findings"):
        st.switch_page(live.page("reconciliation"), query_params={"finding": chosen})
    return True


def choose_finding(rows: data.Rows, key: str, export: str | None = None) -> str | None:
    exponents, now = data.get_exponents(), data.now()
    st.caption("Click a finding to see both sides of it.")
    columns: dict[str, list[Any]] = {
        "class": [f"{row['class']} {name_of(row['class'])}" for row in rows],
        "state": [row["state"] for row in rows],
        "at risk": [formats.amount(row["amount_minor"], row["currency"], exponents) for row in rows],
        "remedy": [row["remedy"].replace("_", " ") for row in rows],
        "found": [formats.ago(row["first_seen_at"], now) for row in rows],
        "exactly": [formats.exact(row["first_seen_at"], live.zone()) for row in rows],
    }
    if any("unit" in row for row in rows):
        columns = {"order": [row["order_id"] or row["unit"] for row in rows], **columns}
    return tables.choose_row(columns, [str(row["id"]) for row in rows], key=key, export=export)
