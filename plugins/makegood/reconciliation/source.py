"""What a source of the provider's books offers, and what it answers; the gateway gives it, the sync asks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from makegood.errors import ConfigurationError, PermanentError, TransientError

COLLECTIONS = ("charges", "refunds", "disputes", "balance_transactions", "payouts")
PAGE_ROWS = 100  # the most that Stripe gives at once

Row = dict[str, Any]


class SourceUnavailable(TransientError):
    """The provider did not answer, or not now; ``retry_after_seconds`` is what it asked for."""

    def __init__(self, message: str, *, hint: str | None = None, retry_after_seconds: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after_seconds = retry_after_seconds


class SourceRefused(ConfigurationError):
    """The provider does not let us in (401, 403): nothing but a person helps."""


class SourceWrong(PermanentError):
    """The provider's answer cannot be: it skips, repeats or contradicts itself."""


@dataclass(frozen=True)
class Page:
    """One answer of a list, newest first. ``ids`` and ``created`` are of every object, ``rows`` of the readable."""

    rows: Sequence[Row]
    ids: Sequence[str]
    created: Sequence[int]
    has_more: bool
    refused: Sequence[tuple[str, str]] = field(default_factory=tuple)
    """Objects that make no row, with the reason."""


class Source(Protocol):
    """The provider's books, read only. Every call may raise SourceUnavailable or SourceRefused."""

    provider: str

    async def now(self) -> datetime:
        """The time by the provider's own clock."""
        ...

    def loses_turns(self) -> bool:
        """Whether the allowed rate is not used up: one more request at a time would cost the others nothing."""
        ...

    async def list_page(
        self,
        collection: str,
        *,
        start: int,
        end: int,
        after: str | None = None,
        before: str | None = None,
        limit: int = PAGE_ROWS,
    ) -> Page:
        """Objects created in [start, end), newest first, after or before one of them."""
        ...

    async def list_payout(self, payout_id: str, *, after: str | None = None) -> Page:
        """The balance transactions that a payout is made of."""
        ...

    async def list_updates(
        self, collection: str, since: int, *, after: str | None = None
    ) -> tuple[Mapping[str, int], Page]:
        """Ids of objects that changed since then, with when each was created; and the page of events."""
        ...

    async def get_one(self, collection: str, object_id: str) -> Row | None:
        """One object as it is now; None when there is none."""
        ...
