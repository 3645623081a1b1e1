"""How far back the overview looks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Period:
    """How far back, in words and seconds, and in what slices that is drawn; counts are per minute, hour and day."""

    name: str
    seconds: int
    slice_seconds: int


PERIODS = {
    "15min": Period("15 minutes", 900, 60),
    "1h": Period("hour", 3600, 120),
    "6h": Period("6 hours", 21600, 900),
    "24h": Period("24 hours", 86400, 3600),
    "7d": Period("7 days", 604800, 21600),
    "30d": Period("30 days", 2592000, 86400),
    "90d": Period("90 days", 7776000, 259200),
}
