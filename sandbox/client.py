"""Starts the shop as a real process and talks to its control API: for tests, proofs and commands.

with ShopProcess() as shop:
    control = ShopControl(shop.url)
    control.say("the 3rd refund succeeds and then hangs")
    ...
    assert control.order("order-7")["counts"] == {"charge": 1, "refund": 1}
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

Json = dict[str, Any]
START_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 5.0
PAGE = 10_000
ROOT = Path(__file__).resolve().parent.parent


class ShopError(Exception):
    """The shop did not start, or its control API said no; the message says why."""


class ShopProcess:
    """The shop in a process of its own, on a free port; it ends with this block, or with this process."""

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        port: int = 0,
        faults: str = "calm",
        seed: int = 0,
        key_age_seconds: float = 86_400,
        latency_ms: float = 0,
        sync: str = "normal",
    ) -> None:
        """Without ``data`` the log is in a temporary folder that goes with the block."""
        self._temporary = None if data else tempfile.TemporaryDirectory(prefix="shop-")
        self.data = Path(data or self._temporary_name())
        self._port = port
        self._options = ["--faults", faults, "--seed", str(seed), "--sync", sync]
        self._options += ["--key-age-seconds", str(key_age_seconds), "--latency-ms", str(latency_ms)]
        self._process: subprocess.Popen[str] | None = None
        self.errors = ""  # what the last run wrote to stderr; a healthy shop writes nothing

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._tidy()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._tidy()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise ShopError("the shop is not running")
        return self._process.pid

    def start(self) -> None:
        """Returns once the shop answers. After ``kill`` or ``stop``: on the same port and data."""
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - a file, since a full pipe would stop the shop
        command = [sys.executable, "-m", "sandbox", "--port", str(self._port), "--data", str(self.data)]
        self._process = subprocess.Popen(  # noqa: S603 - our own module, no shell
            [*command, "--exit-with-stdin", *self._options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=_environment(),
        )
        self._port = int(self._read_address().rpartition(":")[2])

    def kill(self) -> None:
        """SIGKILL: nothing gets a chance to be written that was not."""
        if self._process is not None:
            self._process.kill()
            self._end()

    def stop(self) -> int | None:
        """SIGTERM, and SIGKILL if that was not enough. The exit code, or None if it was not running."""
        if self._process is None:
            return None
        self._process.terminate()
        return self._end()

    def restart(self) -> None:
        """Killed and started again on the same port and data."""
        self.kill()
        self.start()

    def _end(self) -> int:
        process = self._process
        assert process is not None
        self._process = None
        try:
            process.communicate(timeout=STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        self._errors.seek(0)
        self.errors = self._errors.read().strip()
        self._errors.close()
        return process.returncode

    def _read_address(self) -> str:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], START_SECONDS_MAX)
        line = process.stdout.readline() if ready else ""
        if not line.startswith("listening on "):
            self.kill()
            raise ShopError(f"the shop did not start: {self.errors or 'it said nothing'}")
        return line.strip()

    def _temporary_name(self) -> str:
        assert self._temporary is not None
        return self._temporary.name

    def _tidy(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()


class ShopControl:
    """One method per control endpoint; a refusal raises ShopError with what the shop said."""

    def __init__(self, url: str, *, timeout_seconds: float = 30) -> None:
        self._http = httpx.Client(base_url=url, timeout=timeout_seconds, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def log(self, after: int = 0) -> list[Json]:
        """Every effect after a sequence number, in the order in which they happened."""
        return list(self._page("/control/log", after, {}))

    def order(self, order_id: str) -> Json:
        """Counts by kind; charged, refunded and net by currency; every object; the order's part of the log."""
        return self._ask("GET", "/control/orders/" + quote(order_id, safe=""))

    def totals(self) -> Json:
        return self._ask("GET", "/control/totals")

    def calls(self) -> Json:
        """How often each operation and endpoint was called, with statuses and faults."""
        return self._ask("GET", "/control/calls")

    def list_calls(self, *, order_id: str | None = None, operation: str | None = None) -> list[Json]:
        chosen = {"order_id": order_id, "operation": operation}
        filters = {name: value for name, value in chosen.items() if value is not None}
        return list(self._page("/control/calls/list", 0, filters))

    def set_faults(self, plan: Mapping[str, Any]) -> Json:
        return self._ask("PUT", "/control/faults", plan)

    def faults(self) -> Json:
        """The plan, with how often each rule was met and fired."""
        return self._ask("GET", "/control/faults")

    def clear_faults(self) -> None:
        self._ask("DELETE", "/control/faults")

    def say(self, text: str) -> Json:
        """One more fault, in words."""
        return self._ask("POST", "/control/faults/say", {"text": text})

    def reset(self) -> None:
        """An empty shop: no data, the faults and latency it was started with, the machine's time."""
        self._ask("POST", "/control/reset")

    def advance_clock(self, seconds: float) -> Json:
        return self._ask("POST", "/control/clock", {"advance_seconds": seconds})

    def set_latency(self, ms: float) -> None:
        self._ask("PUT", "/control/latency", {"ms": ms})

    def set_stock(self, sku: str, available: int) -> None:
        """The sku ``*`` stands for every sku that was never stocked."""
        self._ask("PUT", f"/inventory/stock/{sku}", {"available": available})

    def stock(self, sku: str) -> int:
        available: int = self._ask("GET", f"/inventory/stock/{sku}")["available"]
        return available

    def open_dispute(self, charge: str, **given: Any) -> Json:
        """``status``, ``amount`` and ``reason`` may be given."""
        return self._ask("POST", "/control/disputes", {"charge": charge, **given})

    def close_dispute(self, dispute: str, status: str) -> Json:
        return self._ask("POST", f"/control/disputes/{dispute}/close", {"status": status})

    def settle_refund(self, refund: str, status: str) -> Json:
        return self._ask("POST", f"/control/refunds/{refund}/settle", {"status": status})

    def pay_out(self, currency: str = "usd", status: str = "paid") -> Json:
        """One payout of everything in that currency that was not paid out yet."""
        return self._ask("POST", "/control/payouts", {"currency": currency, "status": status})

    def settle_payout(self, payout: str, status: str) -> Json:
        return self._ask("POST", f"/control/payouts/{payout}/settle", {"status": status})

    def wait_until_healthy(self, seconds: float = START_SECONDS_MAX) -> None:
        """For a shop that something else started."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self._ask("GET", "/health")
            except (httpx.TransportError, ShopError) as error:
                if time.monotonic() > deadline:
                    raise ShopError(f"no shop answers at {self._http.base_url}: {error}") from error
                time.sleep(0.02)
            else:
                return

    def _page(self, path: str, after: int, filters: Mapping[str, str]) -> Iterator[Json]:
        while True:
            page = self._ask("GET", path, query={"after": str(after), "limit": str(PAGE), **filters})
            yield from page["data"]
            if not page["has_more"]:
                return
            after = page["data"][-1]["seq"]

    def _ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Json:
        answer = self._http.request(method, path, json=body, params=query)
        document: Json = answer.json()
        if answer.is_error:
            raise ShopError(document["error"]["message"])
        return document


def _environment() -> dict[str, str]:
    """The shop finds this package wherever it is started from."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path}
