"""How the time since the watermark is cut into windows, and what a page of one has to look like; pure.

Windows are half open, touch one another, and are whole seconds since 1970, which know neither months nor summer time.
The provider lists newest first. Each page is asked for after the last row but one, so that it has to begin with the
last row that is stored: a list that skips a page, or forgot where it was, shows at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from makegood.reconciliation.source import Page

FIRST = 1_293_840_000  # 2011-01-01: Stripe opened that year, so nothing is older
WINDOW_SECONDS_MIN = 6 * 3600
"""An hourly fetch is one window and a few requests; what turns out to be dense is cut while it is read."""
PAGES_WORTH_A_CUT = 4  # a window of its own costs two requests more, to confirm its ends


@dataclass(frozen=True)
class Window:
    """[start, end) of ``created``, and how far it was read."""

    start: int
    end: int
    top_id: str | None = None
    before_id: str | None = None
    last_id: str | None = None
    last_created: int | None = None
    done: bool = False

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Window:
        last = row["last_created_at"]
        return cls(
            int(row["from_at"].timestamp()),
            int(row["until_at"].timestamp()),
            row["top_id"],
            row["before_id"],
            row["last_id"],
            None if last is None else int(last.timestamp()),
            row["done"],
        )

    @property
    def after(self) -> str | None:
        """What the next page is asked for after."""
        return self.before_id or self.last_id

    @property
    def expected(self) -> str | None:
        """What the next page has to begin with; None where nothing can be said."""
        return self.last_id if self.before_id else None

    def cursor(self) -> dict[str, Any]:
        found = {"top_id": self.top_id, "before_id": self.before_id, "last_id": self.last_id}
        return {
            name: value for name, value in {**found, "last_created": self.last_created}.items() if value is not None
        }

    def __str__(self) -> str:
        return f"{show_time(self.start)} to {show_time(self.end)}"


def show_time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def plan(
    watermark: int | None, now: int, *, since: int | None, overlap_seconds: int, lag_seconds: int, windows_max: int
) -> list[Window]:
    """What is to be read: from the overlap before the watermark, or an earlier ``since``, until the lag before now.

    On a first fetch ``since`` is where the books begin; without it they begin with the provider.
    """
    known = None if watermark is None else watermark - overlap_seconds
    start = min(filter(lambda at: at is not None, (known, since)), default=FIRST)  # type: ignore[type-var]
    end = now - lag_seconds
    return cut(start, end, windows_max) if start is not None and start < end else []


def cut(start: int, end: int, windows_max: int) -> list[Window]:
    """At most so many windows of about the same length that touch one another and cover [start, end)."""
    count = max(1, min(windows_max, (end - start) // WINDOW_SECONDS_MIN))
    borders = [start + (end - start) * number // count for number in range(count + 1)]
    return [Window(a, b) for a, b in pairwise(borders)]


def split_at(window: Window, page: Page, idle: int) -> int | None:
    """Where a window whose rest is long is cut for a reader that has nothing to do; None when it is not."""
    if idle < 1 or window.last_created is None:
        return None
    rest = window.last_created - window.start
    pages_left = rest / max(page.created[0] - page.created[-1], 1)  # if it goes on as on this page
    if pages_left < PAGES_WORTH_A_CUT:
        return None
    # The rows of the cursor's own second stay with the cursor: the border never lies behind it.
    return window.start + (rest + 1) // 2 if rest >= 2 else None


def split(window: Window, at: int) -> tuple[Window, Window]:
    """The newer part, which keeps the cursor, and the older one, which another reader begins."""
    return replace(window, start=at), Window(window.start, at)


def find_fault(window: Window, page: Page) -> str | None:
    """Why a page cannot be what follows in this window; None when it can."""
    if window.expected is not None and (not page.ids or page.ids[0] != window.expected):
        began = page.ids[0] if page.ids else "nothing"
        return f"a page has to begin with {window.expected} and begins with {began}: rows were skipped"
    latest = window.end - 1 if window.last_created is None else window.last_created
    for object_id, created in zip(page.ids, page.created, strict=True):
        if not window.start <= created < window.end:
            return f"{object_id} was created at {show_time(created)}, outside of the window"
        if created > latest:
            return f"{object_id} is newer than the row before it: the list is not newest first"
        latest = created
    if page.has_more and not _fresh(window, page):
        return "the list says that there is more and shows nothing new"
    return None


def advance(window: Window, page: Page) -> Window:
    """The window after this page was stored."""
    if not page.ids:
        return window
    last = page.ids[-1]
    earlier = [object_id for object_id in page.ids if object_id != last]
    before = earlier[-1] if earlier else window.before_id
    return replace(
        window,
        top_id=window.top_id or page.ids[0],
        before_id=before if before != last else None,
        last_id=last,
        last_created=page.created[-1],
    )


def _fresh(window: Window, page: Page) -> Sequence[str]:
    return [object_id for object_id in page.ids if object_id != window.last_id]
