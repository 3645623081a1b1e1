"""What goes over the connection when the answer is not simply sent: silence, a reset, half a body, a drip.

The effect is committed, or was never begun, before anything here runs: this decides what the caller sees.
"""

from __future__ import annotations

import asyncio
import socket
import struct

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sandbox.answers import Answer
from sandbox.shop import Shop

NO_LINGER = struct.pack("ii", 1, 0)  # close with RST, so that the caller sees a reset and not an end


def to_response(answer: Answer) -> Response:
    return Response(answer.body, answer.status, answer.headers, media_type="application/json")


class Hang(Response):
    """No answer until the caller gives up, the time is over or the shop stops; then the connection is cut."""

    def __init__(self, shop: Shop, seconds: float) -> None:
        super().__init__()
        self._shop = shop
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        transport = get_transport(scope)
        self._shop.hung.add(transport)
        try:
            async with asyncio.timeout(self._seconds):
                await wait_for_disconnect(receive)
        except TimeoutError:
            await cut(scope, receive)
        finally:
            self._shop.hung.discard(transport)


class Reset(Response):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await cut(scope, receive)


class Truncated(Response):
    """All headers, half of the body, then the end of the connection."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        half = self.body[: len(self.body) // 2]
        await send({"type": "http.response.body", "body": half, "more_body": True})
        get_transport(scope).close()  # sends what is buffered first
        await wait_for_disconnect(receive)


class SlowDrip(Response):
    """A byte at a time over ``seconds``: every single read is quick, only a total deadline notices."""

    def __init__(self, shop: Shop, answer: Answer, seconds: float) -> None:
        super().__init__(answer.body, answer.status, answer.headers, media_type="application/json")
        self._shop = shop
        self._pause_seconds = seconds / max(len(self.body), 1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        transport = get_transport(scope)
        self._shop.hung.add(transport)
        try:
            await self._drip(transport, send)
        finally:
            self._shop.hung.discard(transport)

    async def _drip(self, transport: asyncio.Transport, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for position in range(len(self.body)):
            if transport.is_closing():
                return
            await send({"type": "http.response.body", "body": self.body[position : position + 1], "more_body": True})
            await asyncio.sleep(self._pause_seconds)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def get_transport(scope: Scope) -> asyncio.Transport:
    transport: asyncio.Transport = scope["state"]["transport"]
    return transport


async def cut(scope: Scope, receive: Receive) -> None:
    """Reset the connection. Waits until the server has noticed, so that it does not answer 500 by itself."""
    transport = get_transport(scope)
    connection = transport.get_extra_info("socket")
    if connection is not None and not transport.is_closing():
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    transport.abort()
    await wait_for_disconnect(receive)


async def wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
