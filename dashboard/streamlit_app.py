"""The router: which pages there are, what they are called, and where their addresses are.

A further page is a file in ``app_pages/`` and a line here; groups become headings once there are enough of them.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard import actions, door
from dashboard.live import get_parameter, page

# Files of our own: an icon by name would be fetched from outside.
HERE = Path(__file__).parent
SIDEBAR_PIXELS = 220  # who one is, and no more
st.set_page_config(
    page_title="makegood", page_icon=HERE / "icon.svg", layout="wide", initial_sidebar_state=SIDEBAR_PIXELS
)
st.html(HERE / "style.css")

order = st.Page(page("order"), title="Order", icon=":material/receipt_long:", url_path="order")
pages = [
    st.Page(page("overview"), title="Overview", icon=":material/monitoring:", default=True),
    order,
    st.Page(page("workflows"), title="Workflows", icon=":material/account_tree:", url_path="workflows"),
    st.Page(page("dead_letters"), title="Dead letters", icon=":material/inbox:", url_path="dead_letters"),
    st.Page(page("compensations"), title="Compensations", icon=":material/undo:", url_path="compensations"),
    st.Page(page("reconciliation"), title="Reconciliation", icon=":material/balance:", url_path="reconciliation"),
    st.Page(page("activity"), title="Activity", icon=":material/history:", url_path="activity"),
]
inside = door.let_in()
chosen = st.navigation(pages, position="top" if inside else "hidden")
if not inside:
    st.stop()

# Alerts link to the dashboard's own address with an order: the story is what they mean.
if chosen.url_path == "" and (asked := get_parameter("order")):
    st.switch_page(order, query_params={"order": asked})
chosen.run()
actions.show_asked()
