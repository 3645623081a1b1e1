"""Windows: half open, touching, in seconds; and which page can follow in one."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makegood.reconciliation.rate import Bucket, allowed_per_second
from makegood.reconciliation.source import Page
from makegood.reconciliation.windows import FIRST, Window, advance, cut, find_fault, plan, show_time, split, split_at

HOUR, DAY = 3600, 86_400
BERLIN = ZoneInfo("Europe/Berlin")


def seconds(*when: int, zone: ZoneInfo | None = None) -> int:
    return int(datetime(*when, tzinfo=zone or UTC).timestamp())  # type: ignore[misc, arg-type]


def plan_of(watermark: int | None, now: int, since: int | None = None) -> list[Window]:
    return plan(watermark, now, since=since, overlap_seconds=HOUR, lag_seconds=60, windows_max=8)


@given(st.integers(0, 2**33), st.integers(1, 2**31), st.integers(1, 64))
def test_windows_of_any_span_touch_and_cover_it(start: int, length: int, windows_max: int) -> None:
    found = cut(start, start + length, windows_max)
    assert (found[0].start, found[-1].end) == (start, start + length)
    assert all(a.end == b.start for a, b in pairwise(found))
    assert all(one.start < one.end for one in found)
    assert len(found) <= windows_max


@pytest.mark.parametrize(
    ("watermark", "now", "since", "start"),
    [
        (None, seconds(2026, 11, 18), None, FIRST),  # the first time: from where the provider begins
        (None, seconds(2026, 11, 18), seconds(2026, 11, 1), seconds(2026, 11, 1)),
        (seconds(2026, 11, 17), seconds(2026, 11, 18), None, seconds(2026, 11, 16, 23)),
        # Asked to begin later than what is complete: what lies between must not be left out.
        (seconds(2026, 11, 1), seconds(2026, 11, 18), seconds(2026, 11, 10), seconds(2026, 10, 31, 23)),
        (seconds(2026, 11, 17), seconds(2026, 11, 18), seconds(2026, 10, 1), seconds(2026, 10, 1)),
        # The end of a month, of a year, and of a February that has 29 days.
        (seconds(2026, 11, 30, 23, 59, 59), seconds(2026, 12, 1, 0, 5), None, seconds(2026, 11, 30, 22, 59, 59)),
        (seconds(2026, 12, 31, 23, 30), seconds(2027, 1, 1, 0, 30), None, seconds(2026, 12, 31, 22, 30)),
        (seconds(2028, 2, 28, 23, 30), seconds(2028, 3, 1, 0, 30), None, seconds(2028, 2, 28, 22, 30)),
        # The hour that a clock in Berlin shows twice, and the one that it never shows.
        (seconds(2026, 10, 25, 2, 30, zone=BERLIN), seconds(2026, 10, 25, 4, zone=BERLIN), None, 1_792_884_600),
        (seconds(2026, 3, 29, 1, 30, zone=BERLIN), seconds(2026, 3, 29, 4, zone=BERLIN), None, 1_774_740_600),
    ],
)
def test_plan_begins_at_the_overlap_and_ends_at_the_lag(watermark: int, now: int, since: int, start: int) -> None:
    found = plan_of(watermark, now, since)
    assert (found[0].start, found[-1].end) == (start, now - 60)


def test_fetches_hour_by_hour_over_a_change_of_the_clock_leave_no_gap() -> None:
    """Each fetch begins where the one before was complete, or earlier, through both changes of a year."""
    now, watermark = seconds(2026, 3, 28), None
    ends = []
    while now < seconds(2026, 10, 27):
        found = plan_of(watermark, now, seconds(2026, 3, 28) - DAY if watermark is None else None)
        assert watermark is None or found[0].start <= watermark
        watermark = found[-1].end
        ends.append(watermark)
        now += HOUR
    assert all(b - a == HOUR for a, b in pairwise(ends))


def test_plan_with_nothing_old_enough_is_empty() -> None:
    assert plan_of(None, 1000, since=950) == []


@pytest.mark.parametrize("days", [1, 5, 400])
def test_short_span_is_one_window_and_a_long_one_no_more_than_the_readers(days: int) -> None:
    assert len(cut(0, HOUR, 8)) == 1
    assert len(cut(0, days * DAY, 8)) == min(8, days * 4)


def page(*rows: tuple[str, int], more: bool = False) -> Page:
    return Page([], [name for name, _ in rows], [created for _, created in rows], more)


FRESH = Window(100, 200)
BEGUN = Window(100, 200, top_id="a", before_id="b", last_id="c", last_created=150)


@pytest.mark.parametrize(
    ("window", "answer", "fault"),
    [
        (FRESH, page(), None),
        (FRESH, page(("a", 199), ("b", 199), ("c", 100)), None),
        (FRESH, page(("a", 150), ("a", 150), ("b", 140)), None),  # a repeated row is dropped elsewhere
        (BEGUN, page(("c", 150), ("d", 150)), None),
        (BEGUN, page(("c", 150)), None),  # the end
        (FRESH, page(("a", 200)), "outside of the window"),  # half open
        (FRESH, page(("a", 99)), "outside of the window"),
        (FRESH, page(("a", 150), ("b", 151)), "not newest first"),
        (BEGUN, page(("c", 150), ("d", 151)), "not newest first"),
        (BEGUN, page(("d", 149)), "rows were skipped"),
        (BEGUN, page(), "rows were skipped"),
        (BEGUN, page(("c", 150), more=True), "shows nothing new"),
        (FRESH, page(more=True), "shows nothing new"),
        # One row so far: nothing to begin with, so nothing to expect.
        (Window(100, 200, top_id="a", last_id="a", last_created=150), page(("b", 140)), None),
    ],
)
def test_page_that_cannot_follow_is_called_so(window: Window, answer: Page, fault: str | None) -> None:
    found = find_fault(window, answer)
    assert found is None if fault is None else fault in str(found)


def test_cursor_asks_after_the_last_row_but_one_and_expects_the_last() -> None:
    first = advance(FRESH, page(("a", 180), ("b", 170), ("c", 160), ("c", 160), more=True))
    assert (first.top_id, first.after, first.expected, first.last_created) == ("a", "b", "c", 160)
    second = advance(first, page(("c", 160), ("d", 150), more=True))
    assert (second.top_id, second.after, second.expected) == ("a", "c", "d")
    alone = advance(FRESH, page(("a", 180), more=True))
    assert (alone.after, alone.expected) == ("a", None)


@given(st.integers(2, 10**6), st.integers(1, 100))
def test_cut_of_a_window_keeps_the_cursor_in_the_newer_part(rest: int, span: int) -> None:
    window = Window(1000, 10**9, top_id="a", before_id="b", last_id="c", last_created=1000 + rest)
    at = split_at(window, page(("a", 1000 + rest + span), ("c", 1000 + rest), more=True), idle=1)
    if at is None:
        assert rest / span < 4  # not worth two requests more
        return
    newer, older = split(window, at)
    assert newer.last_created is not None
    assert newer.start <= newer.last_created
    assert older.start < older.end == newer.start < newer.end
    assert (newer.last_id, older.last_id) == ("c", None)


def test_window_is_not_cut_when_everybody_is_busy() -> None:
    window = Window(0, 10**6, last_id="c", last_created=10**5)
    assert split_at(window, page(("a", 10**5 + 1), ("c", 10**5), more=True), idle=0) is None


def test_window_is_shown_in_utc() -> None:
    assert str(Window(seconds(2026, 11, 1), seconds(2026, 12, 1))) == "2026-11-01 00:00:00Z to 2026-12-01 00:00:00Z"
    assert show_time(0) == "1970-01-01 00:00:00Z"


def test_bucket_gives_no_more_turns_than_its_rate() -> None:
    now = [100.0]
    bucket = Bucket(25, clock=lambda: now[0])
    waits = [bucket.book() for _ in range(50)]
    assert waits[0] == 0
    assert waits[-1] == pytest.approx(49 / 25)
    now[0] += 3600  # an hour without a question gives a burst of a quarter of a second, not an hour's turns
    assert sum(wait == 0 for wait in (bucket.book() for _ in range(50))) == pytest.approx(7, abs=1)


def test_bucket_loses_turns_once_five_are_left_unused() -> None:
    now = [100.0]
    bucket = Bucket(25, clock=lambda: now[0])
    assert not bucket.loses_turns()  # nobody has had the time to ask
    for _ in range(50):
        now[0] += 1 / 50  # asked twice as often as allowed
        bucket.book()
        assert not bucket.loses_turns()
    now[0] = 102.15  # the fifty turns are over at 102
    assert not bucket.loses_turns()
    now[0] = 102.25
    assert bucket.loses_turns()
    for _ in range(7):
        bucket.book()
    assert not bucket.loses_turns()
    for _ in range(10):
        now[0] += 1 / 10  # one asker that takes 100 ms for each
        bucket.book()
    now[0] += 1 / 10
    assert bucket.loses_turns()


def test_bucket_that_was_told_to_pause_holds_everybody_back() -> None:
    now = [100.0]
    bucket = Bucket(25, clock=lambda: now[0])
    bucket.pause(2)
    assert not bucket.loses_turns()
    assert bucket.book() == pytest.approx(2)
    asyncio.run(Bucket(1000).turn())


@pytest.mark.parametrize(
    ("key", "rate"), [("sk_live_abc", 100), ("rk_live_abc", 100), ("sk_test_abc", 25), ("sk_test_a_live_key", 25)]
)
def test_rate_follows_the_keys_prefix(key: str, rate: float) -> None:
    assert allowed_per_second(key) == rate
