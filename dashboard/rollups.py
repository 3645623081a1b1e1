"""Counts of the rollups as the numbers that the cards and charts show. Pure.

A percentile is read from cells of durations (``makegood.duration_cell``): each order in a cell counts as its middle,
which is at most 1.98 % away; below a millisecond at most half of one. Between two orders it goes as
``percentile_cont`` does, so that the whole is no further away either.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

Row = Mapping[str, Any]
RATIO = 1.04
SHORTEST_SECONDS = 0.001


def find_percentile(cells: Mapping[int, int], share: float) -> float | None:
    """Seconds that this share did not exceed; None of nothing."""
    total = sum(cells.values())
    if not total:
        return None
    rank = share * (total - 1)
    low, high = _middle(_find_cell(cells, math.floor(rank))), _middle(_find_cell(cells, math.ceil(rank)))
    return low + (high - low) * (rank - math.floor(rank))


def sum_ends(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Metric 1: how many came to each end in all, and how long they took."""
    cells: dict[str, Counter[int]] = {}
    for row in rows:
        cells.setdefault(row["state"], Counter()).update(_cells(row))
    return [
        {
            "current_state": state,
            "workflows": found.total(),
            "p50_seconds": find_percentile(found, 0.50),
            "p95_seconds": find_percentile(found, 0.95),
            "p99_seconds": find_percentile(found, 0.99),
        }
        for state, found in sorted(cells.items())
    ]


def slice_ends(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The trend of metrics 1 and 4: a row per slice in which something ended."""
    slices: dict[Any, dict[str, Any]] = {}
    for row in rows:
        nothing = {"slice": row["slice"], "completed": 0, "compensated": 0, "failed": 0, "p95_seconds": None}
        found = slices.setdefault(row["slice"], nothing)
        found[row["state"]] = row["ended"]
        if row["state"] == "completed":
            found["p95_seconds"] = find_percentile(_cells(row), 0.95)
    return [slices[moment] for moment in sorted(slices)]


def sum_attempts(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Metric 2: each step with what became of its attempts, the weak link first."""
    steps: dict[tuple[str, str], Counter[str]] = {}
    for row in rows:
        counts = {name: row[name] for name in ("attempts", "failed", "unknown")}
        steps.setdefault((row["step"], row["kind"]), Counter()).update(counts)
    found = [
        {
            "step": step,
            "kind": kind,
            **counts,
            "failure_rate": (counts["failed"] + counts["unknown"]) / counts["attempts"],
        }
        for (step, kind), counts in steps.items()
    ]
    # As the published query: rates to four places, then by name.
    return sorted(found, key=lambda row: (-round(row["failure_rate"], 4), row["step"], row["kind"]))


def slice_attempts(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """The trend of metric 2."""
    return [
        {
            "slice": row["slice"],
            "step": row["step"],
            "kind": row["kind"],
            "attempts": row["attempts"],
            "failures": row["failed"] + row["unknown"],
        }
        for row in rows
    ]


def _cells(row: Row) -> dict[int, int]:
    return dict(zip(row["cells"], row["counts"], strict=True))


def _find_cell(cells: Mapping[int, int], rank: int) -> int:
    """The cell of the order with so many before it."""
    before = 0
    for cell in sorted(cells):
        before += cells[cell]
        if before > rank:
            return cell
    raise ValueError(f"there is no order {rank} among {before}")


def _middle(cell: int) -> float:
    return SHORTEST_SECONDS / 2 if cell == 0 else SHORTEST_SECONDS * RATIO ** (cell - 0.5)
