"""What every page does the same: refresh itself, survive a database that is away, and keep its place in the address."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import tzinfo
from pathlib import Path

import streamlit as st

from dashboard import data, formats, identity
from dashboard.database import Away

WIDTH = 260
ICONS = {"wrong": ":material/cloud_off:", "empty": ":material/check_circle:", "read_only": ":material/lock:"}
_PAGES = Path(__file__).parent / "app_pages"


def page(name: str) -> Path:
    """A page to link or switch to."""
    return _PAGES / f"{name}.py"


def live(draw: Callable[[], None], *, every_seconds: float) -> None:
    """Draws now and every few seconds, in place. While the database is away it says so, and comes back by itself."""

    @st.fragment(run_every=every_seconds)
    def body() -> None:
        try:
            if not identity.is_still_here():
                st.rerun()  # to the door
            if data.is_read_only():
                st.warning("The database is read-only: orders stand still until it is not.", icon=ICONS["read_only"])
            draw()
        except Away as away:
            show_away(away)

    body()


def show_away(away: Away) -> None:
    """Our own words only; what the server said stays in the log."""
    st.error(f"**{away.what}** {away.todo}", icon=ICONS["wrong"])


def show_empty(what: str, todo: str) -> None:
    """Nothing to show is something to say. Our own words only: they are Markdown."""
    st.success(f"**{what}** {todo}", icon=ICONS["empty"])


def is_dark() -> bool:
    return st.context.theme.type == "dark"


def zone() -> tzinfo:
    return formats.find_zone(st.context.timezone)


def get_parameter(name: str) -> str | None:
    """From the address; empty is absent."""
    return st.query_params.get(name) or None


def choose(label: str, name: str, options: Sequence[str], write: Callable[[str], str] = str) -> str:
    """A choice that lives in the address; the first option is the default and leaves the address alone."""
    key = f"choose-{name}"
    _follow(name, key, options, options[0])
    chosen = st.selectbox(label, options, format_func=write, key=key, width=WIDTH, label_visibility="collapsed")
    return _lead(name, chosen, options[0])


def pick(label: str, name: str, options: Sequence[str], default: str, write: Callable[[str], str] = str) -> str:
    """The same as buttons side by side."""
    key = f"pick-{name}"
    _follow(name, key, options, default)
    chosen = st.segmented_control(
        label, options, format_func=write, key=key, required=True, label_visibility="collapsed"
    )
    return _lead(name, chosen or default, default)


def _follow(name: str, key: str, options: Sequence[str], default: str) -> None:
    """Before a choice is drawn: where the address was changed (a link, the browser's Back), the choice goes with it."""
    asked = get_parameter(name)
    known = st.session_state.get(f"address-{name}")  # another page may use the same name for something else
    if known != (default, asked) or st.session_state.get(key) not in options:
        st.session_state[key] = asked if asked in options else default


def _lead(name: str, chosen: str, default: str) -> str:
    """After it was drawn: where the choice was changed, the address goes with it."""
    _keep(name, chosen if chosen != default else None)
    st.session_state[f"address-{name}"] = (default, get_parameter(name))
    return chosen


def choose_type() -> str | None:
    """A workflow type, or None for all; no choice is offered where there is none."""
    types = data.find_workflow_types()
    if len(types) < 2:
        return None
    chosen = choose(
        "Workflow type", "type", ["all", *types], lambda name: "All workflow types" if name == "all" else name
    )
    return None if chosen == "all" else chosen


def turn_pages(next_place: str | None, name: str = "after") -> None:
    """On to the next page, or back to the first; where one is stands in the address."""
    here = get_parameter(name)
    if not (here or next_place):
        return
    with st.container(horizontal=True):
        for label, icon, place, wanted in (
            ("First page", ":material/first_page:", None, here),
            ("Next page", ":material/navigate_next:", next_place, next_place),
        ):
            if wanted:
                st.button(label, icon=icon, key=f"{label}-{name}", on_click=_keep, args=(name, place))


def forget(names: Iterable[str]) -> None:
    """Takes places out of the address that mean nothing any more."""
    for name in names:
        _keep(name, None)


def _keep(name: str, value: str | None) -> None:
    if value is None:
        st.query_params.pop(name, None)
    elif st.query_params.get(name) != value:
        st.query_params[name] = value
