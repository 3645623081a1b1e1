"""A table as CSV that a sheet reads and does not run. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from makegood.reconciliation.report_csv import guard

MARK = "\ufeff"  # so that a sheet reads UTF-8


def write_csv(columns: Mapping[str, Sequence[Any]]) -> bytes:
    """Every cell quoted; a text that a sheet would run begins with an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow([harmless_cell(name) for name in columns])
    writer.writerows([[harmless_cell(value) for value in row] for row in zip(*columns.values(), strict=True)])
    return (MARK + out.getvalue()).encode("utf-8", "replace")


def harmless_cell(value: Any) -> str:
    """Numbers of ours stay numbers; a text that merely looks like a formula is a text."""
    if not isinstance(value, str):
        return "" if value is None else str(value)
    return guard(value.replace("\x00", ""))
