"""Providers that are down are left alone: a storm of stuck orders does not become a storm of calls.

The truth is one row per provider in the database; this is one worker's view of it, at most a second old, and
its own count of calls that were not answered. What a call meets is recorded here; whether the next one may go
is asked here twice: when it is decided about, and again (``admission``) when its turn has come, which may be much
later. While a breaker is open nobody calls but one probe, and no attempt is spent, on waiting or on the probe.

Known weakness: calls that are already under way when a breaker opens are not called back; a count does not
outlive its process, so fewer orders than ``failures`` in one process never open it (nor are they a storm).
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import defaultdict
from dataclasses import dataclass

import structlog

from makegood.database import Database
from makegood.engine.model import Outage
from makegood.engine.outcomes import Outcome, Unknown
from makegood.errors import TransientError

log = structlog.get_logger()

LOOK_AGAIN_SECONDS = 1.0
PROBE_SECONDS_MIN = 60.0
PROBE_QUEUED_SECONDS = 30.0  # it may wait for a free slot before it calls; one that said nothing by then died


@dataclass(frozen=True, slots=True)
class Limits:
    """When a provider counts as down, and how long it is then left alone."""

    failures: int = 5
    wait_seconds: float = 5.0
    wait_seconds_max: float = 120.0


class Breakers:
    """One worker's view of which providers are down."""

    def __init__(self, database: Database, worker: str, limits: Limits) -> None:
        self._database = database
        self._worker = worker
        self._limits = limits
        self._outages: dict[str, Outage] = {}
        self._failing: dict[str, set[uuid.UUID]] = defaultdict(set)
        self._probing: dict[str, uuid.UUID] = {}
        """Whose call is the probe of a provider."""
        self._looked_at: float | None = None
        self._looking = asyncio.Lock()

    async def look(self) -> None:
        """Reads who is down, unless that was done within the last second."""
        if self._is_fresh():
            return
        async with self._looking:
            if self._is_fresh():
                return
            now = asyncio.get_running_loop().time()
            rows = await self._database.call("SELECT * FROM makegood.open_breakers()")
            self._looked_at = now
            self._outages = {
                row["provider"]: Outage(row["provider"], row["open_seconds"], row["retry_in_seconds"]) for row in rows
            }

    def _is_fresh(self) -> bool:
        looked_at = self._looked_at
        return looked_at is not None and asyncio.get_running_loop().time() - looked_at < LOOK_AGAIN_SECONDS

    def known_outage(self, provider: str | None) -> Outage | None:
        """As far as is known without asking, and without becoming the probe."""
        return self._outages.get(provider) if provider else None

    async def ask(self, provider: str | None) -> Outage | None:
        """None when a call may be tried: the provider is up, or it is time for a probe."""
        if provider is None:
            return None
        await self.look()
        outage = self._outages.get(provider)
        return None if outage is None or outage.retry_in_seconds <= 0 else outage

    def admission(self, provider: str | None, workflow_id: uuid.UUID, call_seconds_max: float) -> Admission:
        """Whether a call, which may take so long, may go now. Of many that wait for a provider that is down one is let
        through as the probe; a probe that comes to no call after all is given back at once."""
        return Admission(self, provider, workflow_id, call_seconds_max)

    async def admit(self, provider: str | None, workflow_id: uuid.UUID, call_seconds_max: float) -> bool:
        admitted = await self.ask(provider) is None
        if admitted and provider is not None and provider in self._outages:
            admitted = await self._take_probe(provider, workflow_id, call_seconds_max)
        return admitted

    async def leave(self, provider: str | None, workflow_id: uuid.UUID) -> None:
        if provider is not None and self.is_probe(provider, workflow_id):
            await self._return_probe(provider)

    def is_probe(self, provider: str | None, workflow_id: uuid.UUID) -> bool:
        """Whether this workflow's next call, or the one it has just made, is the probe of a provider."""
        return provider is not None and self._probing.get(provider) == workflow_id

    async def record(self, provider: str | None, workflow_id: uuid.UUID, outcome: Outcome | None) -> None:
        """What a call or a look-up met. Any answer shows that somebody is there."""
        if provider is None:
            return
        if isinstance(outcome, Unknown) and outcome.trouble != "request":
            self._failing[provider].add(workflow_id)
            at_once = outcome.trouble == "locked_out" or self.is_probe(provider, workflow_id)
            if at_once or len(self._failing[provider]) >= self._limits.failures:
                await self._trip(provider, f"{outcome.error_type}: {outcome.error}")
        else:
            self._failing[provider].clear()
            if self.is_probe(provider, workflow_id):
                await self._close(provider)

    async def _take_probe(self, provider: str, workflow_id: uuid.UUID, call_seconds_max: float) -> bool:
        seconds = max(PROBE_SECONDS_MIN, call_seconds_max + PROBE_QUEUED_SECONDS)
        rows = await self._database.call(
            "SELECT makegood.take_probe(%s, %s, %s) AS taken", (provider, self._worker, seconds)
        )
        if rows[0]["taken"]:
            self._probing[provider] = workflow_id
        self._looked_at = None
        return bool(rows[0]["taken"])

    async def _return_probe(self, provider: str) -> None:
        del self._probing[provider]
        self._looked_at = None
        with contextlib.suppress(TransientError):  # then it is given up when its time is over
            await self._database.call("SELECT makegood.return_probe(%s, %s)", (provider, self._worker))

    async def _trip(self, provider: str, error: str) -> None:
        self._failing[provider].clear()
        self._probing.pop(provider, None)
        limits = self._limits
        if provider not in self._outages:
            log.warning("provider.down", provider=provider, error=error)
        self._outages.setdefault(provider, Outage(provider, 0.0, limits.wait_seconds))
        await self._database.call(
            "SELECT makegood.trip_breaker(%s, %s, %s, %s, %s)",
            (provider, self._worker, error, limits.wait_seconds, limits.wait_seconds_max),
        )
        self._looked_at = None

    async def _close(self, provider: str) -> None:
        self._probing.pop(provider, None)
        self._outages.pop(provider, None)
        await self._database.call("SELECT makegood.close_breaker(%s, %s)", (provider, self._worker))
        log.info("provider.up", provider=provider)
        self._looked_at = None


class Admission:
    """``async with`` this: True, and a call may go. A class, because it is entered for every step of every order."""

    __slots__ = ("_breakers", "_call_seconds_max", "_provider", "_workflow_id")

    def __init__(
        self, breakers: Breakers, provider: str | None, workflow_id: uuid.UUID, call_seconds_max: float
    ) -> None:
        self._breakers = breakers
        self._provider = provider
        self._workflow_id = workflow_id
        self._call_seconds_max = call_seconds_max

    async def __aenter__(self) -> bool:
        return await self._breakers.admit(self._provider, self._workflow_id, self._call_seconds_max)

    async def __aexit__(self, *_: object) -> None:
        await self._breakers.leave(self._provider, self._workflow_id)
