"""Plots as plain SVG in percent of their width: sharp on a phone, on a wall and on paper; nothing to load.

A bar that is not empty is never thinner than a hair, so that one lost cent beside millions is still seen. Each bar
carries its own words, which a browser shows where it is pointed at and a screen reader says.
"""

from __future__ import annotations

from collections.abc import Sequence

from makegood.reconciliation.markup import Markup, join, tag

HAIR_PERCENT = 0.4
BAR_HEIGHT = 22
COLUMNS_HEIGHT = 90
MIRROR_HEIGHT = 110
GAP_SHARE = 0.22  # of a column's width


def stacked_bar(parts: Sequence[tuple[str, int, str]], label: str) -> Markup:
    """Parts (class, size, words) side by side; together they are the whole."""
    widths = share_out([size for _, size, _ in parts])
    rects, x = [], 0.0
    for (kind, _, words), width in zip(parts, widths, strict=True):
        if width:
            rects.append(_rect(kind, x, 0, width, BAR_HEIGHT, words))
        x += width
    return _svg(BAR_HEIGHT, label, *rects)


def bar(kind: str, size: int, largest: int, words: str) -> Markup:
    """One bar, as long as its share of the largest."""
    width = max(HAIR_PERCENT, 100 * size / largest) if largest and size else 0.0
    return _svg(BAR_HEIGHT - 8, words, _rect(kind, 0, 0, width, BAR_HEIGHT - 8, words) if width else None)


def columns(kind: str, sizes: Sequence[int], words: Sequence[str], label: str) -> Markup:
    """Columns from the ground up."""
    largest = max(sizes, default=0)
    rects = [
        _column(kind, index, len(sizes), COLUMNS_HEIGHT - height, height, told)
        for index, (size, told) in enumerate(zip(sizes, words, strict=True))
        if (height := _height(size, largest, COLUMNS_HEIGHT))
    ]
    return _svg(COLUMNS_HEIGHT, label, *rects, _ground(COLUMNS_HEIGHT - 0.5))


def mirrored(
    up: Sequence[int], down: Sequence[int], words: Sequence[str], kinds: tuple[str, str], label: str
) -> Markup:
    """Two series over the same places, one above the line and one below, on the same scale."""
    half, largest = MIRROR_HEIGHT / 2, max([*up, *down], default=0)
    rects: list[Markup] = []
    for index, told in enumerate(words):
        if above := _height(up[index], largest, half - 1):
            rects.append(_column(kinds[0], index, len(words), half - 0.5 - above, above, told))
        if below := _height(down[index], largest, half - 1):
            rects.append(_column(kinds[1], index, len(words), half + 0.5, below, told))
    return _svg(MIRROR_HEIGHT, label, *rects, _ground(half))


def share_out(sizes: Sequence[int]) -> list[float]:
    """Percent of the whole; what is there gets at least a hair, and the rest makes room for it."""
    whole = sum(sizes)
    if not whole:
        return [0.0 for _ in sizes]
    raised = [max(HAIR_PERCENT, 100 * size / whole) if size > 0 else 0.0 for size in sizes]
    return [100 * width / sum(raised) for width in raised]


def _height(size: int, largest: int, room: float) -> float:
    return max(2.0, room * size / largest) if size > 0 and largest > 0 else 0.0


def _column(kind: str, index: int, count: int, y: float, height: float, words: str) -> Markup:
    place = 100 / count
    return _rect(kind, place * (index + GAP_SHARE / 2), y, place * (1 - GAP_SHARE), height, words)


def _rect(kind: str, x: float, y: float, width: float, height: float, words: str) -> Markup:
    return tag(
        "g",
        tag("title", words),
        tag("rect", class_=kind, x=f"{x:.3f}%", y=f"{y:.1f}", width=f"{width:.3f}%", height=f"{height:.1f}"),
    )


def _ground(y: float) -> Markup:
    return tag("line", class_="ground", x1="0", x2="100%", y1=f"{y:.1f}", y2=f"{y:.1f}")


def _svg(height: float, label: str, *children: Markup | None) -> Markup:
    return tag(
        "svg", join(*children), role="img", aria_label=label, width="100%", height=f"{height:.0f}", class_="plot"
    )
