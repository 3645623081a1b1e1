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
    asked = get_parameter(name)
    index = options.index(asked) if asked in options else 0
    chosen = st.selectbox(
        label,
        options,
        index=index,
        format_func=write,
        key=f"choose-{name}",
        width=WIDTH,
        label_visibility="collapsed",
    )
    _keep(name, chosen if chosen != options[0] else None)
    return chosen


def pick(label: str, name: str, options: Sequence[str], default: str, write: Callable[[str], str] = str) -> str:
    """The same as buttons side by side."""
    asked = get_parameter(name)
    chosen = st.segmented_control(
        label,
        options,
        default=asked if asked in options else default,
        format_func=write,
        key=f"pick-{name}",
        required=True,
        label_visibility="collapsed",
    )
    chosen = chosen or default
    _keep(name, chosen if chosen != default else None)
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
