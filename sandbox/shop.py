"""The shop's parts in one place, and one request to it as a value."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from sandbox.answers import Answer, Service
from sandbox.clock import Clock
from sandbox.faults import FaultPlan
from sandbox.store import Json, Store


@dataclass(frozen=True)
class Options:
    """How the shop was started; a reset goes back to this."""

    key_age_seconds: float = 86_400
    latency_ms: float = 0
    make_plan: Callable[[], FaultPlan] = FaultPlan


class Shop:
    def __init__(self, store: Store, options: Options) -> None:
        self.store = store
        self.options = options
        self.clock = Clock(store)
        self.faults = options.make_plan()
        self.latency_ms = options.latency_ms
        self.keys_in_progress: set[tuple[str, str]] = set()
        self.age = 0  # rises with each reset, so that a request from before it is dropped, not performed
        self.hung: set[asyncio.Transport] = set()  # cut when the shop stops, so that stopping never waits

    def reset(self) -> None:
        """Forget everything: data, clock, faults, latency. Requests under way lose their connection."""
        self.store.reset()
        self.clock = Clock(self.store)
        self.faults = self.options.make_plan()
        self.latency_ms = self.options.latency_ms
        self.keys_in_progress.clear()
        self.age += 1

    async def pause(self) -> None:
        if self.latency_ms > 0:
            await asyncio.sleep(self.latency_ms / 1000)


@dataclass(frozen=True)
class Call:
    """One request, decoded. ``scope`` is whose keys its idempotency key is among."""

    endpoint: str  # the method and the route's pattern: POST /v1/payment_intents/{id}/capture
    path: str  # as it was called, which is what a key is bound to
    operation: str
    service: Service
    scope: str
    request_id: str
    params: Json = field(default_factory=dict)
    object_id: str | None = None
    key: str | None = None
    order_id: str | None = None
    version: str | None = None

    def get_compensation_id(self) -> str | None:
        metadata = self.params.get("metadata")
        source = metadata if isinstance(metadata, dict) and "compensation_id" in metadata else self.params
        value = source.get("compensation_id")
        return value if isinstance(value, str) and value else None


Performer = Callable[[Shop, Call], Answer]


@dataclass(frozen=True)
class Endpoint:
    """A route, the operation that faults know it by, and what it does."""

    method: str
    path: str
    operation: str
    perform: Performer

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def service(self) -> Service:
        if self.path.startswith("/v1/"):
            return "stripe"
        return "inventory" if self.path.startswith("/inventory/") else "shipping"
