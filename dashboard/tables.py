"""Tables whose cells are text and nothing else, and whose rows can lead somewhere.

A cell of ``st.dataframe`` is painted, not parsed: whatever an order is called, it is shown as it is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
    targets: Sequence[str],
    key: str,
    widths: Widths | None = None,
    export: str | None = None,
) -> str | None:
    """A table whose rows can be clicked; the target of the clicked one.

    The click is about what was on the screen, which the next refresh may have moved: targets are remembered.
    """
    seen = f"{key}-seen"
    before = st.session_state.get(seen, list(targets))
    st.session_state[seen] = list(targets)
    frame = _frame(columns)
    event = st.dataframe(
        _coloured(frame),
        hide_index=True,
        key=key,
        on_select="rerun",
        selection_mode="single-cell",
        column_config=_config(frame, widths),
        height=_height(frame),
    )
    offer_export(frame, key, export)
    cells = event["selection"]["cells"]
    row = cells[0][0] if cells else None
    return before[row] if row is not None and row < len(before) else None


def choose_rows(
    columns: Mapping[str, Sequence[Any]],
    targets: Sequence[str],
    key: str,
    widths: Widths | None = None,
    export: str | None = None,
) -> tuple[str | None, list[str]]:
    """The same, with rows that can be ticked as well: the target of the clicked one, and all that are ticked.

    A tick is about a place on the screen: whoever draws the table must not change its rows while any is ticked.
    """
    frame = _frame(columns)
    event = st.dataframe(
        _coloured(frame),
        hide_index=True,
        key=key,
        on_select="rerun",
        selection_mode=["multi-row", "single-cell"],
        column_config=_config(frame, widths),
        height=_height(frame),
    )
    offer_export(frame, key, export)
    chosen = event["selection"]
    clicked = [row for row, _ in chosen["cells"] if row < len(targets)]
    return targets[clicked[0]] if clicked else None, [targets[row] for row in chosen["rows"] if row < len(targets)]


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
