"""HTTP clients that find a free connection at once, however many there are.

httpx keeps all connections of a client in one pool, which looks at each of them for every request that comes and goes
and asks the system about each idle one. With 32 calls under way that was about half of a worker's time, with 64 more,
and beyond 20 it closed connections that were about to be used again. Here each connection is a pool of its own
and the free ones lie on a stack. Nothing else differs: the errors, the certificates and the protocol are httpx's.

Known weakness: where the environment names a proxy, the way through it is left to httpx and its one pool.
"""

from __future__ import annotations

import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from urllib.request import getproxies

import httpx

# How long a connection may lie unused: httpx's own default. Servers close theirs after 5 seconds (uvicorn) or more.
IDLE_SECONDS_MAX = 5.0
# One connection each; it looks by itself whether the other side has closed it meanwhile.
ONE = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=IDLE_SECONDS_MAX)
PROXIED_SCHEMES = frozenset({"http", "https", "all"})


def open_client(
    timeout: httpx.Timeout | None = None, *, certificates: ssl.SSLContext | None = None
) -> httpx.AsyncClient:
    """A client without a bound on connections: how many calls are under way is bounded by whoever makes them.

    No timeout of its own unless one is given: each step has one deadline for the whole call, which a slow drip
    cannot stretch.
    """
    verify = certificates or httpx.create_ssl_context()
    if PROXIED_SCHEMES & getproxies().keys():
        return httpx.AsyncClient(timeout=timeout, verify=verify, limits=httpx.Limits(max_connections=None))
    return httpx.AsyncClient(timeout=timeout, transport=Connections(verify))


class Connections(httpx.AsyncBaseTransport):
    """Connections on a stack: the one used last is used next, and those at the bottom are closed when they grow old."""

    def __init__(self, certificates: ssl.SSLContext) -> None:
        self._certificates = certificates
        self._all: set[httpx.AsyncHTTPTransport] = set()
        self._free: deque[tuple[float, httpx.AsyncHTTPTransport]] = deque()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await self._close_old()
        connection = self._free.pop()[1] if self._free else self._open()
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            self._give_back(connection)
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        return httpx.Response(
            status_code=response.status_code,
            headers=response.headers,
            stream=Answer(response.stream, lambda: self._give_back(connection)),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        self._free.clear()
        while self._all:
            await self._all.pop().aclose()

    def _open(self) -> httpx.AsyncHTTPTransport:
        connection = httpx.AsyncHTTPTransport(verify=self._certificates, limits=ONE)
        self._all.add(connection)
        return connection

    def _give_back(self, connection: httpx.AsyncHTTPTransport) -> None:
        if connection in self._all:  # not after the end
            self._free.append((time.monotonic(), connection))

    async def _close_old(self) -> None:
        while self._free and self._free[0][0] < time.monotonic() - IDLE_SECONDS_MAX:
            connection = self._free.popleft()[1]
            self._all.discard(connection)
            await connection.aclose()


class Answer(httpx.AsyncByteStream):
    """A body whose connection is free again once it is closed, and not before."""

    def __init__(self, body: httpx.AsyncByteStream, give_back: Callable[[], None]) -> None:
        self._body = body
        self._give_back: Callable[[], None] | None = give_back

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._body:
            yield part

    async def aclose(self) -> None:
        give_back, self._give_back = self._give_back, None
        if give_back is None:
            return
        try:
            await self._body.aclose()
        finally:
            give_back()
