"""Numbers, money and times as people say them. Everything here is pure; the zone is the viewer's."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from makegood.story import harmless, lasting, write_amount

NONE = "–"
AMOUNTS_MAX = 3  # currencies named in one line; the rest is a number
LONG = 160  # characters of an error in a table; the order's page has the whole


def plural(count: int, one: str, many: str | None = None) -> str:
    """``1 order``, ``1,234 orders``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def seconds(value: float | None) -> str:
    return NONE if value is None else lasting(timedelta(seconds=value))


def share(part: int, whole: int) -> str:
    """A percentage with as many decimals as say something; a dash of nothing."""
    return NONE if not whole else percent(part / whole)


def percent(value: float) -> str:
    if 0 < value < 0.001:
        return "< 0.1 %"
    return f"{value:.0%}".replace("%", " %") if value in {0, 1} else f"{value * 100:.1f} %"


def ago(moment: datetime | None, now: datetime) -> str:
    """``12 min ago``, ``in 3 min``; the exact time belongs beside it."""
    if moment is None:
        return NONE
    span = now - moment
    if abs(span) < timedelta(seconds=5):
        return "now"
    return f"in {_roughly(-span)}" if span < timedelta() else f"{_roughly(span)} ago"


def exact(moment: datetime | None, zone: tzinfo) -> str:
    return NONE if moment is None else moment.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S %Z")


def find_zone(name: str | None) -> tzinfo:
    """The viewer's, or UTC when the browser did not say or this machine does not know it."""
    try:
        return ZoneInfo(name) if name else UTC
    except (ZoneInfoNotFoundError, ValueError):
        return UTC


def amount(amount_minor: int | None, currency: str | None, exponents: Mapping[str, int]) -> str:
    return write_amount(amount_minor, currency, exponents)


def amounts(rows: Iterable[Mapping[str, Any]], exponents: Mapping[str, int]) -> str:
    """Money of several currencies, the largest sums first; never added up across them."""
    texts = [text for row in rows if (text := amount(row["amount_minor"], row["currency"], exponents))]
    more = len(texts) - AMOUNTS_MAX
    return " + ".join(texts[:AMOUNTS_MAX]) + (
        f" + {plural(more, 'more currency', 'more currencies')}" if more > 0 else ""
    )


def short(text: str | None, length: int = LONG) -> str:
    """One line, nothing in it that turns text around, at most so long."""
    line = harmless(text or "")
    return line if len(line) <= length else line[: length - 1] + "…"


def command(*words: str) -> str:
    """A command to paste into a shell: whatever an order is called, it stays one word."""
    return " ".join(shlex.quote(harmless(word)) for word in words)


def counts(found: Mapping[str, int]) -> str:
    """``completed 12, held 3``; names as a run counted them."""
    return ", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in found.items() if n) or "nothing to do"


def _roughly(span: timedelta) -> str:
    """The largest unit only, as in conversation."""
    whole = int(span.total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if whole >= size:
            return f"{whole // size} {unit}"
    return f"{whole} s"
