"""Tables whose cells are text and nothing else, and whose rows can lead somewhere.

A cell of ``st.dataframe`` is painted, not parsed: whatever an order is called, it is shown as it is written.

Streamlit keeps a selection as numbers of rows, whatever rows there are by now. So what was clicked or ticked is looked
up in what the table showed when that was done, and the marks are moved to where those rows are now. A table of
something else (another group, another page) is another widget, on which nothing is marked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import pandas as pd
import streamlit as st

from dashboard import exports, formats, identity, live
from dashboard.theme import colour_of

Widths = Mapping[str, Any]
COLOURED = ("state", "how", "outcome", "decided", "it was", "it is now")  # columns whose words have a meaning
# Who did it and to which order is no customer's secret; everything else may carry one.
PLAIN = ("order", "who", "to", "by", "type")
ROW_PIXELS = 35
ROWS_SHOWN_MAX = 20
ACTED = "acted"  # counts acts: what was ticked for one is not ticked for the next

Cell = tuple[int, str]
Page = TypeVar("Page")
Target = TypeVar("Target", bound=Hashable)


@dataclass(frozen=True)
class _Shown:
    """What a table showed when it was drawn last, and the cell that was marked."""

    widget: str
    targets: list[Any]
    cell: Cell | None


def show_table(
    columns: Mapping[str, Sequence[Any]], key: str, widths: Widths | None = None, export: str | None = None
) -> None:
    """A table to read."""
    frame = _frame(columns)
    shown = _coloured(frame)
    st.dataframe(shown, hide_index=True, key=key, column_config=_config(frame, widths), height=_height(frame))
    offer_export(frame, key, export)


def choose_row(
    columns: Mapping[str, Sequence[Any]],
    targets: Sequence[Target],
    key: str,
    widths: Widths | None = None,
    export: str | None = None,
    marked: Target | Literal[""] | None = None,
) -> Target | None:
    """A table whose rows can be clicked; the target of a row that was clicked just now.

    ``marked``: what is open on this page stays marked, wherever its row moves; empty where nothing is open yet. None
    where a click leads elsewhere: then nothing stays marked, and a second click leads there again.
    """
    clicked, _ = _move_marks(key, key, list(targets), next(iter(columns)), marked)
    _draw(columns, key, key, widths, export, "single-cell")
    return clicked


def choose_rows(
    columns: Mapping[str, Sequence[Any]],
    targets: Sequence[Target],
    key: str,
    place: object,
    widths: Widths | None = None,
    export: str | None = None,
    marked: Target | Literal[""] | None = None,
) -> tuple[Target | None, list[Target]]:
    """The same, with rows that can be ticked as well: what was clicked just now, and all that is ticked.

    A tick is about one ``place`` (the filters, the page) and holds until something was done with it.
    """
    own = _name(key, place)
    clicked, ticked = _move_marks(key, own, list(targets), next(iter(columns)), marked)
    _draw(columns, key, own, widths, export, ["multi-row", "single-cell"])
    return clicked, ticked


def keep_still(key: str, place: object, read: Callable[[], Page]) -> Page:
    """What :func:`choose_rows` of this key is about to show: while rows are ticked the list stands still."""
    own, (before, seen) = _name(key, place), st.session_state.get(f"{key}-still", ("", None))
    page: Page = seen if before == own and _selection(own)[0] else read()
    st.session_state[f"{key}-still"] = (own, page)
    return page


def forget_ticks() -> None:
    """What was ticked has been acted on."""
    st.session_state[ACTED] = st.session_state.get(ACTED, 0) + 1


def _name(key: str, place: object) -> str:
    """The widget of this place; its name has nothing in it that somebody else wrote."""
    about = repr((place, st.session_state.get(ACTED, 0)))
    return f"{key}-{hashlib.sha256(about.encode()).hexdigest()[:12]}"


def _selection(widget: str) -> tuple[list[int], Cell | None]:
    """Rows that are ticked and the cell that was clicked, as the browser counts them."""
    selection = st.session_state.get(widget, {}).get("selection", {})
    cells = [(int(row), str(name)) for row, name in selection.get("cells", [])]
    return list(selection.get("rows", [])), cells[0] if cells else None


def _move_marks(
    key: str, widget: str, targets: list[Target], first: str, marked: Target | Literal[""] | None
) -> tuple[Target | None, list[Target]]:
    """What was clicked since the table was drawn last, and what is ticked; their marks move to their rows of now."""
    nothing = _Shown(widget, [], None)
    shown: _Shown = st.session_state.get(f"{key}-shown", nothing)
    shown = shown if shown.widget == widget else nothing
    rows, cell = _selection(widget)
    ticked = [shown.targets[row] for row in rows if row < len(shown.targets)]
    clicked = shown.targets[cell[0]] if cell and cell != shown.cell and cell[0] < len(shown.targets) else None
    mark = None if marked is None else clicked or marked
    at = {target: row for row, target in enumerate(targets)}
    wanted_cell = (at[mark], cell[1] if cell else first) if mark in at else None
    wanted_rows = [at[target] for target in ticked if target in at]
    if (wanted_rows, wanted_cell) != (rows, cell):
        cells = [wanted_cell] if wanted_cell else []
        st.session_state[widget] = {"selection": {"rows": wanted_rows, "columns": [], "cells": cells}}
    st.session_state[f"{key}-shown"] = _Shown(widget, targets, wanted_cell)
    return clicked, [target for target in ticked if target in at]


def _draw(
    columns: Mapping[str, Sequence[Any]], key: str, widget: str, widths: Widths | None, export: str | None, mode: Any
) -> None:
    frame = _frame(columns)
    st.dataframe(
        _coloured(frame),
        hide_index=True,
        key=widget,
        on_select="rerun",
        selection_mode=mode,
        column_config=_config(frame, widths),
        height=_height(frame),
    )
    offer_export(frame, key, export)


def offer_export(frame: pd.DataFrame, key: str, name: str | None) -> None:
    """What the table shows as CSV, hidden like on the page; written when it is asked for."""
    if name and len(frame):
        columns = {column: list(frame[column]) for column in frame.columns}
        st.download_button(
            "CSV",
            lambda: exports.write_csv(columns),
            file_name=f"makegood-{name}.csv",
            mime="text/csv",
            key=f"export-{key}",
            on_click="ignore",
            type="tertiary",
            icon=":material/download:",
            help="These rows, as they are shown here.",
        )


def _frame(columns: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    return pd.DataFrame(
        {name: [_cell(value, plain=name in PLAIN) for value in values] for name, values in columns.items()}
    )


def _coloured(frame: pd.DataFrame) -> Any:
    dark = live.is_dark()
    names = [name for name in COLOURED if name in frame.columns]
    return frame.style.map(lambda word: f"color: {colour_of(_first(word), dark=dark)}" if word else "", subset=names)


def _first(words: Any) -> str:
    """``done, dry run`` is done."""
    return str(words).partition(",")[0]


def _cell(value: Any, *, plain: bool) -> Any:
    if not isinstance(value, str):
        return value
    return formats.short(value if plain else identity.seen_text(value), 500)


def _config(frame: pd.DataFrame, widths: Widths | None) -> dict[str, Any]:
    return {
        name: st.column_config.NumberColumn(format="localized", width=(widths or {}).get(name))
        if pd.api.types.is_numeric_dtype(frame[name])
        else st.column_config.TextColumn(width=(widths or {}).get(name))
        for name in frame.columns
    }


def _height(frame: pd.DataFrame) -> int:
    """As high as its rows, up to a bound; 2 more for the border."""
    return (min(len(frame), ROWS_SHOWN_MAX) + 1) * ROW_PIXELS + 2
