"""Colours that mean the same on every page, light and dark, told apart also by people who do not see all of them.

The hues are Okabe and Ito's, with lightnesses that keep any two apart also without red, green or blue cones; what is
stacked on each other has a pattern besides. Streamlit's own colour names (green, red …) are set to them, so that a
metric and a chart that speak of the same thing look the same.
"""

from __future__ import annotations

from collections.abc import Mapping

MEANINGS = ("completed", "compensated", "failed", "stuck", "held", "waiting", "running")

# meaning: (light, dark)
_COLOURS = {
    "completed": ("#077752", "#28BB90"),  # bluish green
    "compensated": ("#1579BF", "#79C9FD"),  # blue
    "failed": ("#AF4000", "#EF7F3C"),  # vermillion
    "stuck": ("#B27900", "#ECB840"),  # amber
    "held": ("#A74882", "#E594C4"),  # reddish purple
    "waiting": ("#8C939C", "#87909A"),  # grey
    "running": ("#1153B8", "#84ACFF"),  # periwinkle
}
_GROUND: tuple[dict[str, str], ...] = (
    {
        "backgroundColor": "#FCFCFA",
        "secondaryBackgroundColor": "#F1F2EE",
        "textColor": "#1D2327",
        "borderColor": "#DDDFD9",
    },
    {
        "backgroundColor": "#14181C",
        "secondaryBackgroundColor": "#1E2429",
        "textColor": "#E8EAE6",
        "borderColor": "#323A41",
    },
)
# Laid over what lies beside another colour in one bar.
PATTERNS = {"compensated": "/", "failed": "x", "stuck": "\\"}
# Words of the tables and what they mean.
_MEANS = {
    "success": "completed",
    "succeeded": "completed",
    "done": "completed",
    "resolved": "completed",
    "compensating": "compensated",
    "unknown": "stuck",
    "no answer": "stuck",
    "abandoned": "failed",
    "pending": "waiting",
    "created": "waiting",
    "moving": "running",
    "redriving": "running",
    "parked": "held",
    "open": "stuck",
    "acknowledged": "running",
    "remedying": "running",
    "ignored": "waiting",
    "matched": "completed",
    "awaiting_approval": "held",
    "approved": "completed",
    "refused": "waiting",
    "proposed": "waiting",
    "authorized": "waiting",
    "lost": "failed",
    "resume": "running",
    "wait": "waiting",
    "compensate": "compensated",
    "park": "held",
}
# Streamlit's colour names for the same meanings, for its metrics and badges.
BADGES = {
    "completed": "green",
    "compensated": "blue",
    "failed": "red",
    "stuck": "orange",
    "held": "violet",
    "waiting": "gray",
    "running": "primary",
}


def meaning_of(word: str) -> str:
    """One of MEANINGS; a state between two others is running."""
    return word if word in _COLOURS else _MEANS.get(word, "running")


def colour_of(word: str, *, dark: bool) -> str:
    return _COLOURS[meaning_of(word)][dark]


def pattern_of(word: str) -> dict[str, object]:
    """As plotly's marker.pattern: drawn over the colour, so that both tell the same."""
    return {"shape": PATTERNS.get(meaning_of(word), ""), "fillmode": "overlay", "size": 6, "solidity": 0.2}


def badge_of(word: str) -> str:
    return BADGES[meaning_of(word)]


def options() -> dict[str, str]:
    """The theme as Streamlit's options; fonts are the ones it brings along, nothing is fetched."""
    both: Mapping[str, str] = {
        "theme.baseRadius": "0.6rem",
        "theme.metricValueFontSize": "2.6rem",
        "theme.metricValueFontWeight": "650",
        "theme.headingFontWeights": "[650, 650, 600]",
        "theme.headingFontSizes": '["1.9rem", "1.45rem", "1.15rem"]',
        "theme.showWidgetBorder": "true",
    }
    return {**both, **_shades("light", 0), **_shades("dark", 1)}


def _shades(base: str, index: int) -> dict[str, str]:
    ground = _GROUND[index]
    named = {f"{name}Color": _COLOURS[meaning][index] for meaning, name in BADGES.items()}
    return {f"theme.{base}.{name}": value for name, value in {**ground, **named}.items()}
