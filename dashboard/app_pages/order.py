"""Order: where is it, and how did it come there? By number, by a part of one, by payment or by customer."""

from __future__ import annotations

import streamlit as st

from dashboard import data, findings, formats, live, stories, tables

EVERY_SECONDS = 5.0


def search() -> None:
    """The field is the address: typing changes it, and a link fills the field."""
    asked = live.get_parameter("order") or ""
    if st.session_state.get("order-asked") != asked:  # somebody came by a link
        st.session_state["order-asked"] = st.session_state["order-text"] = asked
    st.text_input(
        "Order number or a part of it, a payment, or a customer",
        key="order-text",
        max_chars=data.TEXT_MAX,
        label_visibility="collapsed",
        placeholder="An order number such as order-123 or a part of it, a payment such as pi_…, or a customer",
        icon=":material/search:",
        on_change=keep,
    )


def keep() -> None:
    text = st.session_state["order-text"].strip()
    st.session_state["order-asked"] = text
    if text:
        st.query_params["order"] = text
    else:
        st.query_params.pop("order", None)


def draw() -> None:
    asked = live.get_parameter("order") or ""
    documents = data.get_stories(asked) if asked else []
    for document in documents:
        stories.show_story(document)
    if documents:
        stories.show_messages(asked)
    found = bool(asked) and findings.show_of_order(asked)
    if not documents and not found:
        show_found(asked, data.find_orders(asked))


def show_found(asked: str, found: data.Rows) -> None:
    if not found and not asked:
        live.show_empty("There are no orders yet.", "The first one that a service starts shows up here.")
        return
    if not found:
        st.text(f"Nothing is known of {formats.short(asked)}.")
        st.caption(
            "Order numbers are case-sensitive and found by their beginning or their end; payments, charges and "
            "customers by the whole of their name. The middle of a number, and a payment that no order's row knows, "
            f"are looked for among the newest {data.NEWEST_MAX:,} orders."
        )
        return
    st.subheader("The newest orders" if not asked else formats.plural(len(found), "order") + " found", anchor=False)
    if chosen := choose_order(found):
        st.switch_page(live.page("order"), query_params={"order": chosen})
    if len(found) == data.FOUND_MAX:
        st.caption(f"These are {data.FOUND_MAX}, and there may be more; type more of the number.")


def choose_order(found: data.Rows) -> str | None:
    exponents, now = data.get_exponents(), data.now()
    st.caption("Click an order to read its story.")
    return tables.choose_row(
        {
            "order": [row["entity_id"] for row in found],
            "type": [row["workflow_type"] for row in found],
            "state": ["held" if row["held_at"] else row["current_state"] for row in found],
            "amount": [formats.amount(row["amount_minor"], row["currency"], exponents) for row in found],
            "started": [formats.ago(row["created_at"], now) for row in found],
            "exactly": [formats.exact(row["created_at"], live.zone()) for row in found],
        },
        [row["entity_id"] for row in found],
        key="found",
    )


st.title("Order", anchor=False)
search()
live.live(draw, every_seconds=EVERY_SECONDS)
