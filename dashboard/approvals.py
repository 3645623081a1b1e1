"""What waits for a second person, on the page where it was asked for."""

from __future__ import annotations

import streamlit as st

from dashboard import actions, data, facts, formats, identity, live
from dashboard.identity import seen_text
from dashboard.theme import badge_of


def show_approvals(*kinds: str) -> None:
    """Requests of these kinds, each with what can be done about it; nothing where there is none."""
    rows = data.find_approvals(kinds)
    if not rows:
        return
    st.subheader("Waits for a second person", anchor=False)
    for row in rows[: data.APPROVALS_MAX]:
        with st.container(border=True, key=f"approval-{row['id']}"):
            show_request(row)
    if len(rows) > data.APPROVALS_MAX:
        st.caption(f"These are the oldest {data.APPROVALS_MAX}; more wait, and show here as these are decided.")


def show_request(row: data.Row) -> None:
    approved, me, about = row["state"] == "approved", identity.person(), {"id": str(row["id"])}
    with st.container(horizontal=True, vertical_alignment="center"):
        word = "approved" if approved else "asked for"
        st.badge(word, color=badge_of("completed" if approved else "stuck"))  # type: ignore[arg-type]
        for line in facts.request_lines(row)[:1]:
            st.text(line, width="stretch")
    st.text(formats.short(f"{row['requested_by']}: {seen_text(row['reason'])}", 400))
    if approved:
        st.text(formats.short(f"{row['approved_by']}: {seen_text(row['approval_reason'])}", 400))
    with st.container(horizontal=True, vertical_alignment="center"):
        if approved:
            actions.offer("carry_out", "Carry out…", f"carry-{row['id']}", ":material/play_arrow:", **about)
        elif me.login == row["requested_by"]:
            st.caption("You asked for it: somebody else must approve it.")
        else:
            actions.offer("approve", "Approve…", f"approve-{row['id']}", ":material/check:", **about)
        actions.offer("refuse", "Refuse…", f"refuse-{row['id']}", ":material/close:", **about)
        expires = formats.ago(row["expires_at"], data.now())
        st.caption(f"expires {expires}", help=formats.exact(row["expires_at"], live.zone()))
