"""Tables whose cells are text and nothing else, and whose rows can lead somewhere.

A cell of ``st.dataframe`` is painted, not parsed: whatever an order is called, it is shown as it is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from dashboard import formats, live
from dashboard.theme import colour_of

Widths = Mapping[str, Any]
COLOURED = ("state", "how", "outcome", "decided", "it was", "it is now")  # columns whose words have a meaning
ROW_PIXELS = 35
ROWS_SHOWN_MAX = 20


def show_table(columns: Mapping[str, Sequence[Any]], key: str, widths: Widths | None = None) -> None:
    """A table to read."""
    frame = _frame(columns)
    shown = _coloured(frame)
    st.dataframe(shown, hide_index=True, key=key, column_config=_config(frame, widths), height=_height(frame))


def choose_row(
    columns: Mapping[str, Sequence[Any]], targets: Sequence[str], key: str, widths: Widths | None = None
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
    cells = event["selection"]["cells"]
    row = cells[0][0] if cells else None
    return before[row] if row is not None and row < len(before) else None


def _frame(columns: Mapping[str, Sequence[Any]]) -> pd.DataFrame:
    return pd.DataFrame({name: [_cell(value) for value in values] for name, values in columns.items()})


def _coloured(frame: pd.DataFrame) -> Any:
    dark = live.is_dark()
    names = [name for name in COLOURED if name in frame.columns]
    return frame.style.map(lambda word: f"color: {colour_of(_first(word), dark=dark)}" if word else "", subset=names)


def _first(words: Any) -> str:
    """``done, dry run`` is done."""
    return str(words).partition(",")[0]


def _cell(value: Any) -> Any:
    return formats.short(value, 500) if isinstance(value, str) else value


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
