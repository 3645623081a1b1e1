"""One process, on loopback as a rule: says where it listens once it does; stops cleanly, however many callers hang."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Iterator

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from sandbox.app import make_app
from sandbox.shop import Shop
from sandbox.store import FLUSH_SECONDS

HOST = "127.0.0.1"
BACKLOG = 2048
KEEP_ALIVE_SECONDS = 600  # longer than any test: the shop never closes an idle connection under a caller's request


class ShopProtocol(H11Protocol):
    """Puts the connection's transport within reach of the faults that must cut it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.app_state = {**self.app_state, "transport": transport}
        super().connection_made(transport)


class ShopServer(uvicorn.Server):
    def __init__(self, shop: Shop) -> None:
        config = uvicorn.Config(
            make_app(shop),
            http=ShopProtocol,
            lifespan="off",
            log_level="error",
            access_log=False,
            server_header=False,
            date_header=False,  # an answer has the shop's own time
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=2,
            backlog=BACKLOG,
        )
        super().__init__(config)
        self._shop = shop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        address, port = sockets[0].getsockname()[:2] if sockets else (HOST, 0)
        print(f"listening on http://{address}:{port}", flush=True)
        self._flusher = asyncio.create_task(_flush_calls(self._shop))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._flusher.cancel()
        for transport in list(self._shop.hung):
            transport.abort()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGTERM and SIGINT end the shop with exit code 0: being stopped is not a failure."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        yield

    def stop_with_stdin(self) -> None:
        """Stop when whoever started the shop is gone: its end of the pipe closes, however it died."""
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read_stdin)

    def _read_stdin(self) -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._stop()

    def _stop(self) -> None:
        self.should_exit = True


def bind(port: int, address: str = HOST) -> socket.socket:
    """A socket, on loopback unless told otherwise; OSError when the port is taken."""
    # Named TCP, because asyncio switches Nagle's delay off (40 ms an answer) only where the protocol says so.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


async def run(shop: Shop, listener: socket.socket, *, exit_with_stdin: bool) -> None:
    server = ShopServer(shop)
    if exit_with_stdin:
        server.stop_with_stdin()
    await server.serve([listener])


async def _flush_calls(shop: Shop) -> None:
    while True:
        await asyncio.sleep(FLUSH_SECONDS)
        shop.store.flush_calls()
