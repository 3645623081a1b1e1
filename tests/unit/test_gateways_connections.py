"""Connections are used again, found at once, and lost without harm; against a real socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from makegood.gateways import connections
from makegood.gateways.connections import Connections, open_client

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@pytest.fixture(autouse=True)
def no_proxy_around_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)


@dataclass
class Server:
    """Counts its connections and what was asked; `gate` holds answers back, `broken` resets instead."""

    url: str = ""
    opened: int = 0
    alive: int = 0
    asked: int = 0
    broken: bool = False
    polite: bool = True
    lines: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        self.alive += 1
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                self.asked += 1
                self.lines += (request.split(b"\r\n", 1)[0].decode(),)
                await self.gate.wait()
                if self.broken:
                    linger = struct.pack("ii", 1, 0)  # what is then closed is reset
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    writer.transport.abort()
                    return
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
                if not self.polite:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.alive -= 1
            writer.close()


@contextlib.asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    server = Server()
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
    try:
        yield server
    finally:
        listener.close()


def with_server(use: Callable[[Server, httpx.AsyncClient], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with serving() as server:
            async with open_client(httpx.Timeout(10)) as client:
                await use(server, client)
            await until(lambda: server.alive == 0)  # closed with the client, all of them

    asyncio.run(run())


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - what it waits for is told by nobody
            await asyncio.sleep(0.01)


async def ask(server: Server, client: httpx.AsyncClient, times: int = 1) -> None:
    """So many at once: none is answered before all have arrived."""
    server.gate.clear()
    expected = server.asked + times
    asking = [asyncio.create_task(client.get(server.url)) for _ in range(times)]
    await until(lambda: server.asked == expected)
    server.gate.set()
    assert {(await one).status_code for one in asking} == {200}


def test_connections_of_many_calls_at_once_are_used_again() -> None:
    async def use(server: Server, client: httpx.AsyncClient) -> None:
        for _ in range(3):
            await ask(server, client, times=64)
        assert (server.opened, server.asked) == (64, 192)

    with_server(use)


def test_call_after_call_needs_one_connection() -> None:
    async def use(server: Server, client: httpx.AsyncClient) -> None:
        for _ in range(5):
            await ask(server, client)
        assert server.opened == 1

    with_server(use)


def test_connection_that_the_server_closed_meanwhile_is_replaced_without_an_error() -> None:
    async def use(server: Server, client: httpx.AsyncClient) -> None:
        server.polite = False
        await ask(server, client)
        await until(lambda: server.alive == 0)
        await asyncio.sleep(0.05)  # until our side has heard of it
        await ask(server, client)
        assert server.opened == 2

    with_server(use)


def test_reset_is_an_error_of_that_call_only() -> None:
    async def use(server: Server, client: httpx.AsyncClient) -> None:
        server.broken = True
        with pytest.raises(httpx.ReadError):
            await client.get(server.url)
        server.broken = False
        await ask(server, client)
        assert server.opened == 2

    with_server(use)


def test_call_that_is_given_up_does_not_leave_its_answer_to_the_next() -> None:
    async def use(server: Server, client: httpx.AsyncClient) -> None:
        await ask(server, client)
        server.gate.clear()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.get(server.url)
        await ask(server, client)
        assert server.opened == 2  # the connection that was waiting for an answer is not used again

    with_server(use)


def test_answer_that_is_not_read_to_its_end_frees_its_connection() -> None:
    async def use(server: Server, client: httpx.AsyncClient) -> None:
        for _ in range(3):
            async with client.stream("GET", server.url) as response:
                assert response.status_code == 200
        transport = client._transport
        assert isinstance(transport, Connections)
        assert (len(transport._all), len(transport._free)) == (1, 1)

    with_server(use)


def test_connections_that_nobody_needs_any_more_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_SECONDS_MAX", 0.3)

    async def use(server: Server, client: httpx.AsyncClient) -> None:
        await ask(server, client, times=8)
        assert server.alive == 8
        await asyncio.sleep(0.4)
        await ask(server, client)
        await until(lambda: server.alive == 1)

    with_server(use)


def test_nobody_there_is_told_from_a_reset() -> None:
    async def run() -> None:
        async with open_client() as client:
            with pytest.raises(httpx.ConnectError):
                await client.get("http://127.0.0.1:1/")

    asyncio.run(run())


def test_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with serving() as proxy:
            monkeypatch.setenv("http_proxy", proxy.url)
            async with open_client(httpx.Timeout(10)) as client:
                await client.get("http://shop.invalid/things")
            assert proxy.lines == ("GET http://shop.invalid/things HTTP/1.1",)

    asyncio.run(run())
