"""Places orders at a rate, keeps workers alive, and kills one now and then.

A killed worker leaves its orders leased; they are taken up when the lease has run out, by the next worker or,
where they wait for ``take_over_after_seconds``, by the scheduled recovery. Nothing here helps them: that is what
makegood is for.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from makegood.database import unavailable
from makegood.errors import ConfigurationError
from sandbox.client import ShopControl, ShopError
from sandbox.fault_presets import PRESETS
from sandbox.traffic import mishaps
from sandbox.traffic.orders import SCARCE, SCARCE_STOCK, Order, make_order

# Mean seconds between two kills of a worker; calm has none.
CRASH_EVERY_SECONDS = {"calm": None, "stormy": 60.0, "black-friday": 10.0}
# Longer than the longest step (30 s), so that only a dead worker loses its orders, and not much longer.
LEASE_SECONDS = 45
RETRY_SECONDS = 2.0
TICK_SECONDS = 0.05
ALREADY_STARTED = "MG010"
# What completed orders leave in the outbox, and how often it is fetched; nobody waits for it.
TOPICS = ("send_confirmation", "update_analytics")
DELIVER_SECONDS = 5.0
END_STATES = ("completed", "failed", "compensated")


@dataclass
class Options:
    """``orders`` None means for ever."""

    orders: int | None
    rate_per_second: float
    faults: str
    seed: int = 0
    wait_seconds: float = 600.0
    take_over_after_seconds: float = 0.0
    """So long after its lease ran out the next worker takes what a killed one had; before that, recovery may."""
    api_key: str = "sk_test_makegood"
    mishaps: bool = False
    """Now and then something happens at the provider that no workflow knows of."""


@dataclass
class Progress:
    """What a person sees while it runs."""

    placed: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    crashes: int = 0


class Traffic:
    """One run; ``stop`` may be called from a signal handler."""

    def __init__(self, url: str, shop_url: str, options: Options, tell: Callable[[Progress], None]) -> None:
        self._url = url
        self._shop_url = shop_url
        self._options = options
        self._tell = tell
        self._chance = random.Random(options.seed or None)  # noqa: S311 - customers, not secrets
        self._stopped = False
        self._worker: subprocess.Popen[bytes] | None = None
        self._progress = Progress()
        self._worker_not_before = 0.0
        self._deliver_not_before = 0.0
        self._to_cancel: list[tuple[float, str]] = []
        self._placed_ids: list[str] = []
        self._to_happen: list[tuple[float, str, str]] = []

    def stop(self, *_: object) -> None:
        self._stopped = True

    def run(self) -> Progress:
        """Places the orders, waits for their ends (unless for ever), and leaves no process behind."""
        set_weather(self._shop_url, self._options.faults, self._options.seed)
        try:
            self._place_all()
            if self._options.orders is not None:
                self._wait_for_ends()
        finally:
            self._stop_worker()
        return self._progress

    def _place_all(self) -> None:
        number = self._next_number()
        due = crash_at = time.monotonic()
        crash_at += self._until_crash()
        while not self._stopped and self._progress.placed != self._options.orders:
            self._keep_worker()
            now = time.monotonic()
            if now >= crash_at:
                self._crash_worker()
                crash_at = now + self._until_crash()
            if now < due:
                time.sleep(min(TICK_SECONDS, due - now))
                continue
            if self._place(make_order(number, self._chance)):
                self._plan_mishap(number)
                number += 1
                due = max(due + self._chance.expovariate(self._options.rate_per_second), now - 1.0)
            self._cancel_due()
            self._let_happen()
            self._deliver()
            self._tell(self._progress)

    def _wait_for_ends(self) -> None:
        deadline = time.monotonic() + self._options.wait_seconds
        crash_at = time.monotonic() + self._until_crash()
        while not self._stopped and time.monotonic() < deadline:
            self._keep_worker()
            self._cancel_due()
            self._let_happen()
            self._deliver()
            self._count_ends()
            self._tell(self._progress)
            if sum(self._progress.ended.values()) >= self._progress.placed and not self._to_happen:
                return
            if time.monotonic() >= crash_at:
                self._crash_worker()
                crash_at = time.monotonic() + self._until_crash()
            time.sleep(0.5)

    def _place(self, order: Order) -> bool:
        rows = self._ask(
            "SELECT makegood.place_order(%s, %s, %s, %s, %s, 'checkout', 'shop')",
            (order.entity_id, order.amount_minor, order.currency, order.context["customer"], Jsonb(order.context)),
        )
        if rows is None:
            return False
        self._progress.placed += 1
        self._placed_ids.append(order.entity_id)
        if self._options.orders is None:
            self._placed_ids.clear()  # for ever has no summary to keep them for
        if order.cancel_after_seconds is not None:
            self._to_cancel.append((time.monotonic() + order.cancel_after_seconds, order.entity_id))
        return True

    def _cancel_due(self) -> None:
        now = time.monotonic()
        for due, entity_id in [entry for entry in self._to_cancel if entry[0] <= now]:
            self._to_cancel.remove((due, entity_id))
            self._ask("SELECT makegood.request_cancel('checkout', %s, 'customer', 'changed their mind')", (entity_id,))

    def _plan_mishap(self, number: int) -> None:
        if self._options.mishaps and (kind := mishaps.kind_of(number)):
            self._to_happen.append((time.monotonic() + mishaps.AFTER_SECONDS, kind, f"order-{number}"))

    def _let_happen(self) -> None:
        """To orders that were completed: what happens to another one is no mishap but its workflow's business."""
        now = time.monotonic()
        for entry in [entry for entry in self._to_happen if entry[0] <= now]:
            self._to_happen.remove(entry)
            _, kind, entity_id = entry
            rows = self._ask(
                "SELECT id, amount_minor, currency, payment_ref FROM makegood.orders"
                " WHERE id = %s AND status = 'fulfilled'",
                (entity_id,),
            )
            if rows:
                mishaps.happen(kind, rows[0], self._shop_url, self._options.api_key)

    def _deliver(self) -> None:
        """The shop's mail room, which stands for the services that take these topics: it reads them and is content."""
        if time.monotonic() < self._deliver_not_before:
            return
        self._deliver_not_before = time.monotonic() + DELIVER_SECONDS
        for topic in TOPICS:
            self._ask(
                "SELECT makegood.publish_messages(%s, ARRAY(SELECT id FROM makegood.take_messages(%s, 1000, 60)))",
                (topic, topic),
            )

    def _count_ends(self) -> None:
        rows = self._ask(
            "SELECT CASE WHEN held_at IS NOT NULL THEN 'held' ELSE current_state END AS state, count(*) AS n"
            " FROM makegood.workflow_executions WHERE workflow_type = 'checkout' AND entity_id = ANY(%s)"
            " GROUP BY 1",
            (self._placed_ids,),
        )
        ends = {row["state"]: row["n"] for row in rows or []}
        self._progress.ended = Counter({state: n for state, n in ends.items() if state in (*END_STATES, "held")})

    def _next_number(self) -> int:
        rows = self._ask(
            "SELECT coalesce(max(substring(entity_id FROM '^order-([0-9]{1,9})$')::int), 0) + 1 AS n"
            " FROM makegood.workflow_executions WHERE workflow_type = 'checkout'"
        )
        return int(rows[0]["n"]) if rows else 1

    def _ask(self, statement: Any, parameters: Sequence[Any] = ()) -> list[dict[str, Any]] | None:
        """None when the database is away: customers come back in a moment."""
        try:
            with psycopg.connect(self._url, autocommit=True, row_factory=dict_row, connect_timeout=5) as connection:
                return connection.execute(statement, parameters).fetchall()
        except psycopg.OperationalError as error:
            if self._progress.placed == 0:
                raise unavailable(self._url, error) from error
            time.sleep(RETRY_SECONDS)
            return None
        except psycopg.Error as error:
            if error.sqlstate != ALREADY_STARTED:
                raise
            return []  # somebody else placed this number

    # Workers

    def _keep_worker(self) -> None:
        now = time.monotonic()
        if (self._worker is None or self._worker.poll() is not None) and now >= self._worker_not_before:
            # One that cannot start says why in the log; it need not say so twenty times a second.
            self._worker_not_before = now + RETRY_SECONDS
            command = [sys.executable, "-m", "makegood.cli", "shop", "worker", "--lease-seconds", str(LEASE_SECONDS)]
            command += ["--take-over-after", str(self._options.take_over_after_seconds)]
            self._worker = subprocess.Popen(command, stdin=subprocess.PIPE)  # noqa: S603 - our own program

    def _crash_worker(self) -> None:
        if self._worker is not None:
            self._worker.send_signal(signal.SIGKILL)
            self._worker.wait()
            self._worker_not_before = 0.0
            self._progress.crashes += 1

    def _until_crash(self) -> float:
        mean = CRASH_EVERY_SECONDS[self._options.faults]
        return float("inf") if mean is None else self._chance.expovariate(1 / mean)

    def _stop_worker(self) -> None:
        if self._worker is None:
            return
        self._worker.terminate()
        try:
            self._worker.wait(timeout=LEASE_SECONDS)
        except subprocess.TimeoutExpired:
            self._worker.kill()
            self._worker.wait()


def set_weather(shop_url: str, faults: str, seed: int) -> None:
    """The shop's faults by name; a shop that does not answer is an environment that is not ready."""
    rules = [{"operation": "*", "fault": fault, "probability": p} for fault, p in PRESETS[faults].items()]
    try:
        with ShopControl(shop_url, timeout_seconds=5) as control:
            control.wait_until_healthy(5)
            control.set_faults({"seed": seed, "rules": rules})
            if control.stock(SCARCE) > SCARCE_STOCK:
                control.set_stock(SCARCE, SCARCE_STOCK)
    except ShopError as error:
        raise ConfigurationError(
            f"the shop at {shop_url} does not answer: {error}",
            hint="Start it with `make up`, or `makegood up --no-traffic`.",
        ) from error
