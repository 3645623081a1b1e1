"""Fetches the provider's books: each collection by itself, from its watermark on, several windows at once.

A page's rows and the place of its window are one transaction, so a fetch that is killed goes on where it was, and one
that runs twice changes nothing the second time. The watermark follows what is complete: a window counts when it was
read to its end and both its ends were asked for once more. Whoever has a collection has its lease; a late writer's
fence is refused.

What changed without being new (a refund that fails, a dispute that closes, a charge that is captured) is read one by
one: whatever the provider's events of the last 30 days name since the watermark, and of what may still change a sample
of at most ``OPEN_MAX``. Both happen before the windows are read, so before the watermark moves.

Weakness: a row that a list leaves out of the middle of a page is not missed: nothing in the list tells of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import secrets
import socket
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import structlog

from makegood.backoff import Backoff
from makegood.database import Database
from makegood.errors import MakegoodError, PermanentError
from makegood.reconciliation import windows
from makegood.reconciliation.source import (
    COLLECTIONS,
    PAGE_ROWS,
    Page,
    Row,
    Source,
    SourceRefused,
    SourceUnavailable,
    SourceWrong,
)
from makegood.reconciliation.windows import Window
from makegood.settings import Settings

log = structlog.get_logger()

ATTEMPTS_MAX = 6  # of one request; with the waits below about half a minute, then the window is left to the next fetch
WAITS = Backoff(base_seconds=0.5, cap_seconds=10.0)
OPEN_MAX = 500  # five seconds of the live rate
PAYOUTS_MAX = 1000  # asked what they are made of in one fetch, newest first

Tell = Callable[[Counter[str]], None]
Answer = TypeVar("Answer")


class LeaseLost(MakegoodError):
    """Somebody else has the collection by now."""


@dataclass
class Work:
    """One collection under one fence."""

    source: Source
    database: Database
    settings: Settings
    collection: str
    fence: int
    tell: Tell
    chance: random.Random = field(default_factory=random.Random)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def key(self) -> tuple[str, str, int]:
        return self.source.provider, self.collection, self.fence

    @property
    def lease(self) -> float:
        return self.settings.lease_seconds

    async def ask(self, request: Callable[[], Awaitable[Answer]]) -> Answer:
        """The same request again while the provider is only busy; what is definite is raised at once."""
        for attempt in range(1, ATTEMPTS_MAX):
            try:
                return await request()
            except SourceUnavailable as error:
                wait = max(WAITS.wait_seconds(attempt, self.chance), error.retry_after_seconds or 0)
                log.info("sync.retried", collection=self.collection, error=str(error), wait_seconds=round(wait, 2))
                await asyncio.sleep(wait)
        return await request()

    def count(self, put: Mapping[str, Any] | None, *, pages: int = 1) -> None:
        """What one write came to; none means that it was refused."""
        if put is None:
            raise LeaseLost(f"{self.collection} was taken over by another fetch")
        found = Counter(pages=pages, rows=put["rows"], changed=put["changed"])
        found += Counter(duplicates=len(put["duplicates"]), refused=len(put["refused"]))
        self.counts += found
        self.tell(Counter({f"{self.collection}.{name}": n for name, n in found.items()}))


async def sync(
    database: Database,
    ledger: Source,
    settings: Settings,
    *,
    tell: Tell = lambda _: None,
    collections: Sequence[str] = COLLECTIONS,
    since: int | None = None,
) -> Counter[str]:
    """One fetch of the given collections, side by side. Counts are named ``charges.pages``, ``charges.rows`` and so on.

    A collection that could not be completed counts ``failed`` and says why in ``provider_sync``; the others go on. A
    key that the provider does not accept is raised, once all have been given back. A provider that is not there at all
    is raised too, and every collection says so: what was complete an hour ago is not what remedies may rest on.
    """
    try:
        now = await _now(database, ledger, settings)
    except (SourceRefused, SourceUnavailable, PermanentError) as error:
        await asyncio.gather(*(_say(database, ledger, settings, name, str(error)) for name in collections))
        raise
    fetches = [_fetch(database, ledger, settings, name, int(now.timestamp()), since, tell) for name in collections]
    ends = await asyncio.gather(*fetches, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return sum((end for end in ends if isinstance(end, Counter)), Counter())


async def _now(database: Database, ledger: Source, settings: Settings) -> datetime:
    """Taken before anything is read: what changes afterwards is the next fetch's."""
    return await Work(ledger, database, settings, "balance_transactions", 0, lambda _: None).ask(ledger.now)


async def _claim(database: Database, ledger: Source, settings: Settings, collection: str) -> dict[str, Any] | None:
    """Fence and watermark of the collection; None while somebody else has it."""
    owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(3)}"[:200]
    claimed = await database.call(
        "SELECT * FROM makegood.claim_sync(%s, %s, %s, %s)",
        (ledger.provider, collection, owner, settings.lease_seconds),
    )
    return claimed[0] if claimed else None


async def _release(database: Database, key: tuple[str, str, int], error: str | None) -> None:
    """Without its answer too: the lease runs out, and until then the collection does not count as complete."""
    with contextlib.suppress(MakegoodError):
        await database.call("SELECT makegood.release_sync(%s, %s, %s, %s)", (*key, error))


async def _say(database: Database, ledger: Source, settings: Settings, collection: str, error: str) -> None:
    """Why nothing of it could be fetched. Who has it now says for itself what becomes of it."""
    with contextlib.suppress(MakegoodError):
        claimed = await _claim(database, ledger, settings, collection)
        if claimed is not None:
            await _release(database, (ledger.provider, collection, claimed["fence"]), error)


async def _fetch(
    database: Database, ledger: Source, settings: Settings, collection: str, now: int, since: int | None, tell: Tell
) -> Counter[str]:
    claimed = await _claim(database, ledger, settings, collection)
    if claimed is None:
        return Counter({f"{collection}.busy": 1})
    work = Work(ledger, database, settings, collection, claimed["fence"], tell)
    mark = claimed["watermark"]
    error: str | None = "the fetch was interrupted"
    try:
        error = await _complete(work, None if mark is None else int(mark.timestamp()), now, since)
    except LeaseLost:
        work.counts["busy"] += 1
        return _named(work)
    except SourceRefused as refused:
        error = str(refused)
        raise
    except (SourceUnavailable, PermanentError) as problem:
        error = str(problem)
    finally:
        await _release(database, work.key, error)
    if error is not None:
        log.warning("sync.incomplete", collection=collection, error=error)
        work.counts["failed"] += 1
    return _named(work)


def _named(work: Work) -> Counter[str]:
    return Counter({f"{work.collection}.{name}": n for name, n in work.counts.items()})


async def _complete(work: Work, watermark: int | None, now: int, since: int | None) -> str | None:
    """Everything that one fetch of a collection does; returns why it is not complete, or None."""
    left = await _open_windows(work, [])
    if watermark is not None:
        # What an earlier fetch has read of its windows may have changed since, however young it is.
        await _read_updates(work, watermark - work.settings.sync_overlap_seconds, all_of_them=bool(left))
    # What a fetch before this one left is finished first, up to its own end: only from there on is the overlap known.
    faults = await Readers(work, left).run()
    if not faults:
        faults = await Readers(work, await _open_windows(work, await _plan(work, now, since))).run()
    if faults:
        return "; ".join(faults[:3]) + (f"; and {len(faults) - 3} more" if len(faults) > 3 else "")
    if work.collection == "payouts":
        await _read_payouts(work)
    return None


async def _open_windows(work: Work, planned: Sequence[Window]) -> list[Window]:
    """Those that an earlier fetch left, else the planned ones, once they are written down."""
    rows = await work.database.call(
        "SELECT * FROM makegood.plan_windows(%s, %s, %s, %s::jsonb, %s)",
        (*work.key, json.dumps([{"from": one.start, "until": one.end} for one in planned]), work.lease),
    )
    return [Window.from_row(row) for row in rows if not row["done"]]


async def _plan(work: Work, now: int, since: int | None) -> list[Window]:
    """Anew: what was left and is complete by now has moved the watermark."""
    (row,) = await work.database.call(
        "SELECT watermark FROM makegood.provider_sync WHERE provider = %s AND collection = %s", work.key[:2]
    )
    settings, mark = work.settings, row["watermark"]
    return windows.plan(
        None if mark is None else int(mark.timestamp()),
        now,
        since=since,
        overlap_seconds=settings.sync_overlap_seconds,
        lag_seconds=settings.sync_lag_seconds,
        windows_max=settings.sync_pages_at_once,
    )


class Readers:
    """Reads windows side by side, the oldest first; a reader without work gets half of what another has left.

    Only while the rate leaves turns unused, though: where each request waits for its turn, one more reader makes none
    of them come sooner, and the window that is cut off costs two more, to confirm its ends.
    """

    def __init__(self, work: Work, waiting: Sequence[Window]) -> None:
        self._work = work
        self._waiting = deque(waiting)
        self._idle = 0
        self._active = 0
        self._changed = asyncio.Condition()
        self._faults: list[str] = []
        self._stopped = False

    async def run(self) -> list[str]:
        """What was wrong with which window; the others are complete. Anything worse is raised."""
        if not self._waiting:
            return []
        readers = [asyncio.create_task(self._read_windows()) for _ in range(self._work.settings.sync_pages_at_once)]
        try:
            await asyncio.gather(*readers)
        finally:
            for reader in readers:
                reader.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
        return self._faults

    async def _read_windows(self) -> None:
        while (window := await self._take()) is not None:
            try:
                await self._read(window)
            finally:
                self._active -= 1
                async with self._changed:
                    self._changed.notify_all()

    async def _take(self) -> Window | None:
        """The next window, or None once there is none and nobody may cut one off."""
        async with self._changed:
            self._idle += 1
            await self._changed.wait_for(lambda: self._waiting or not self._active)
            self._idle -= 1
            if not self._waiting:
                return None
            self._active += 1
            return self._waiting.popleft()

    async def _read(self, window: Window) -> None:
        try:
            while not window.done:
                window = await self._read_page(window)
        except SourceWrong as error:
            what = f"{self._work.collection} of {window}: {error}"
            self._faults.append(what)
            await self._work.database.call(
                "SELECT makegood.fail_window(%s, %s, %s, %s, %s)", (*self._work.key, window.start, what)
            )

    async def _read_page(self, window: Window) -> Window:
        """One page, checked and stored. At the end of the window both ends are asked for again before it counts."""
        work = self._work
        page = await work.ask(lambda: _list(work, window, after=window.after))
        fault = windows.find_fault(window, page)
        if fault is not None:
            raise SourceWrong(fault)
        after = windows.advance(window, page)
        if not page.has_more:
            await self._confirm(after)
        cut_at = windows.split_at(after, page, self._spare()) if page.has_more else None
        await self._store(window, after, page, cut_at)
        if cut_at is not None:
            after, older = windows.split(after, cut_at)
            async with self._changed:
                self._waiting.append(older)
                self._changed.notify()
        return after if page.has_more else _ended(after)

    def _spare(self) -> int:
        """How many readers would have something to do, and a turn to do it in."""
        return self._idle - len(self._waiting) if self._work.source.loses_turns() else 0

    async def _confirm(self, window: Window) -> None:
        """Nothing follows the last row and nothing comes before the first: ``has_more`` alone is only a claim."""
        work = self._work
        questions = [work.ask(lambda: _list(work, window, after=window.last_id, limit=1))]
        if window.top_id is not None:
            questions.append(work.ask(lambda: _list(work, window, before=window.top_id, limit=1)))
        for where, page in zip(("after its last row", "before its first row"), await _all(questions), strict=False):
            if page.ids:
                raise SourceWrong(f"the list left out {page.ids[0]} {where}")

    async def _store(self, window: Window, after: Window, page: Page, cut_at: int | None) -> None:
        work = self._work
        rows = await work.database.call(
            "SELECT makegood.put_provider_page(%s, %s, %s, %s, %s, %s::jsonb, %s::jsonb, %s, %s) AS put",
            (
                *work.key,
                work.lease,
                window.start,
                to_json(page),
                json.dumps(after.cursor()),
                not page.has_more,
                cut_at,
            ),
        )
        work.count(rows[0]["put"])


def _ended(window: Window) -> Window:
    return Window(window.start, window.end, done=True)


async def _all(questions: Sequence[Awaitable[Page]]) -> list[Page]:
    return list(await asyncio.gather(*questions))


async def _list(
    work: Work, window: Window, *, after: str | None = None, before: str | None = None, limit: int = PAGE_ROWS
) -> Page:
    return await work.source.list_page(
        work.collection, start=window.start, end=window.end, after=after, before=before, limit=limit
    )


async def _read_updates(work: Work, since: int, *, all_of_them: bool) -> None:
    """What the events name, except what the windows will read anyway, and what may still change."""
    after: str | None = None
    while True:
        named, page = await work.ask(partial(work.source.list_updates, work.collection, since, after=after))
        await _read_ones(work, [one for one, created in named.items() if all_of_them or created < since])
        if not page.has_more or not page.ids or page.ids[-1] == after:
            break
        after = page.ids[-1]
    rows = await work.database.call(
        "SELECT id FROM makegood.find_open_rows(%s, %s, %s) AS id", (work.source.provider, work.collection, OPEN_MAX)
    )
    await _read_ones(work, [row["id"] for row in rows])


async def _read_ones(work: Work, ids: Sequence[str]) -> None:
    """Single objects as they are now, so many at once as there are readers."""
    step = work.settings.sync_pages_at_once
    for start in range(0, len(ids), step):
        some = ids[start : start + step]
        found = await asyncio.gather(*(_read_one(work, object_id) for object_id in some))
        page = Page([row for row in found if row is not None], (), (), False)
        if page.rows:
            await _store_beside(work, work.collection, page, None, pages=len(page.rows))


async def _read_one(work: Work, object_id: str) -> Row | None:
    try:
        return await work.ask(lambda: work.source.get_one(work.collection, object_id))
    except SourceRefused:
        raise
    except PermanentError as error:  # one bad object never stops the rest
        return {"id": object_id, "refused": str(error)}


async def _read_payouts(work: Work) -> None:
    """What each payout is made of; it counts as read with its last page."""
    rows = await work.database.call(
        "SELECT id FROM makegood.find_payouts_to_read(%s, %s) AS id", (work.source.provider, PAYOUTS_MAX)
    )
    for row in rows:
        await _read_payout(work, row["id"])


async def _read_payout(work: Work, payout_id: str) -> None:
    after: str | None = None
    while True:
        try:
            page = await work.ask(partial(work.source.list_payout, payout_id, after=after))
        except SourceWrong as error:  # one that was made by hand has no parts that could be asked for
            log.info("sync.payout_without_parts", payout=payout_id, error=str(error))
            await _store_without_parts(work, payout_id)
            return
        if page.has_more and (not page.ids or page.ids[-1] == after):
            raise SourceWrong(f"the parts of {payout_id}: the list says that there is more and shows nothing new")
        await _store_beside(work, "balance_transactions", page, None if page.has_more else payout_id)
        if not page.has_more:
            return
        after = page.ids[-1]


async def _store_without_parts(work: Work, payout_id: str) -> None:
    (row,) = await work.database.call(
        "SELECT makegood.put_payout_without_parts(%s, %s, %s, %s, %s) AS put", (*work.key, work.lease, payout_id)
    )
    if not row["put"]:
        raise LeaseLost(f"{work.collection} was taken over by another fetch")


async def _store_beside(work: Work, target: str, page: Page, payout: str | None, *, pages: int = 1) -> None:
    rows = await work.database.call(
        "SELECT makegood.put_provider_updates(%s, %s, %s, %s, %s, %s::jsonb, %s) AS put",
        (*work.key, work.lease, target, to_json(page), payout),
    )
    work.count(rows[0]["put"], pages=pages)


def to_json(page: Page) -> str:
    """The rows as the database takes them; what it cannot hold is refused there, by name, and never stops a page."""
    rows = [_storable(row) for row in page.rows]
    rows += [_storable({"id": object_id, "refused": reason}) for object_id, reason in page.refused]
    return json.dumps(rows, allow_nan=False)


def _storable(row: Row) -> Row:
    texts = [value for value in row.values() if isinstance(value, str)]
    if all(text.isprintable() or _holdable(text) for text in texts):
        return row
    return {"id": ascii(row["id"])[:200], "refused": "one of its texts has a character that no database holds"}


def _holdable(text: str) -> bool:
    return "\0" not in text and not any("\ud800" <= sign <= "\udfff" for sign in text)
