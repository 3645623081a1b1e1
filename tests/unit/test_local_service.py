"""A service as a value: its health, its fingerprint, its place in the order."""

from __future__ import annotations

import dataclasses
import socket
import threading
from collections.abc import Iterator
from graphlib import CycleError
from pathlib import Path

import pytest

from makegood.local.order import in_order_of_need, in_waves_of_need
from makegood.local.service import Service, code_stamp
from makegood.local.services import find_services
from makegood.settings import Settings


@pytest.fixture
def answer() -> Iterator[list[bytes]]:
    """A loopback server that answers each connection with the next of these bytes; [0] is its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    answers = [b"http://127.0.0.1:%d/health" % listener.getsockname()[1]]

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(1000)
                connection.sendall(answers[1])

    thread = threading.Thread(target=serve)
    thread.start()
    yield answers
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.mark.parametrize(
    ("said", "well"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 302 Found\r\nLocation: /login\r\n\r\n", False),  # something else lives there
        (b"HTTP/1.1 503 Sick\r\nContent-Length: 0\r\n\r\n", False),
        (b"SSH-2.0-OpenSSH\r\n", False),  # not even HTTP
        (b"", False),  # hangs up
    ],
)
def test_address_is_healthy_only_when_it_answers_2xx(
    answer: list[bytes], said: bytes, well: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # loopback is asked directly
    answer.append(said)
    assert Service("x", ("x",), health=answer[0].decode()).is_healthy() is well


def test_refused_connection_is_unhealthy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert Service("x", ("x",), health=f"http://127.0.0.1:{port}/").is_healthy() is False


def test_health_may_be_a_function_or_nothing() -> None:
    assert Service("x", ("x",), health=lambda: False).is_healthy() is False
    assert Service("x", ("x",)).is_healthy() is True


def test_fingerprint_changes_with_command_facts_environment_and_settings() -> None:
    service = Service("x", ("run", "--fast"))
    others = [
        dataclasses.replace(service, command=("run",)).fingerprint({}),
        dataclasses.replace(service, facts=("new code",)).fingerprint({}),
        dataclasses.replace(service, env={"A": "1"}).fingerprint({}),
        service.fingerprint({"MAKEGOOD_LOG_LEVEL": "DEBUG"}),
        service.fingerprint({}),
    ]
    assert len(set(others)) == 5
    assert service.fingerprint({}) == Service("y", ("run", "--fast")).fingerprint({})


def test_order_follows_need_and_ignores_needs_that_are_elsewhere() -> None:
    web, worker, page = (
        Service("web", ("x",), needs=("worker", "database")),
        Service("worker", ("x",)),
        Service("page", ("x",), needs=("web",)),
    )
    names = [service.name for service in in_order_of_need([page, web, worker])]
    assert names == ["worker", "web", "page"]


def test_those_that_do_not_need_each_other_share_a_wave() -> None:
    services = [Service("page", ("x",), needs=("web",)), Service("web", ("x",)), Service("worker", ("x",))]
    names = [[service.name for service in wave] for wave in in_waves_of_need(services)]
    assert names == [["web", "worker"], ["page"]]


def test_circular_need_is_refused() -> None:
    with pytest.raises(CycleError):
        in_order_of_need([Service("a", ("x",), needs=("b",)), Service("b", ("x",), needs=("a",))])


def test_services_of_today_use_the_port_that_is_set(tmp_path: Path) -> None:
    shop, traffic, *_ = find_services(Settings(shop_port=9911), tmp_path)
    assert (shop.name, shop.port, shop.address) == ("shop", 9911, "http://127.0.0.1:9911")
    assert "9911" in shop.command
    assert (traffic.name, traffic.needs) == ("traffic", ("shop",))


def test_code_stamp_is_steady_and_not_blank() -> None:
    assert code_stamp("makegood") == code_stamp("makegood") != "0:0"
    assert code_stamp("no_such_package") == "0:0"
