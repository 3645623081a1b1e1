"""What falls is started again by itself: a service, its server, and nothing that a person stopped."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from makegood.local import airflow, ports
from makegood.local.lifecycle import SERVER, Environment
from makegood.local.progress import Silent
from makegood.local.runrecord import TAG
from makegood.settings import get_settings

WITHOUT = ("traffic", "dashboard", *airflow.NAMES)


@pytest.fixture
def environment() -> Iterator[Environment]:
    folder = Path(tempfile.mkdtemp(prefix="makegood-keeper-"))
    folder.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAKEGOOD_HOME", str(folder / "home"))
        patch.setenv("MAKEGOOD_SHOP_PORT", str(ports.choose_port()))
        get_settings.cache_clear()
        environment = Environment(get_settings(), Silent(), lambda _: None)
        yield environment
        environment.wipe()
        get_settings.cache_clear()
    shutil.rmtree(folder, ignore_errors=True)


def pid_of(environment: Environment, name: str) -> int | None:
    return next(status.pid for status in environment.status() if status.name == name)


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.3)


def is_well(environment: Environment, name: str, other_than: int) -> bool:
    """Another process, and the keeper is done with it: a server that is still recovering runs, too."""
    status = next(status for status in environment.status() if status.name == name)
    said = [json.loads(line) for line in environment.supervisor.log_of("keeper").read_text().splitlines()]
    started = {"service": name, "event": "service.started"}.items()
    return status.state == "running" and status.pid != other_than and any(started <= one.items() for one in said)


def count_processes(home: Path) -> int:
    tags = ((process.info["environ"] or {}).get(TAG, "") for process in psutil.process_iter(["environ"]))
    return sum(tag.startswith(f"{home}:") for tag in tags)


@pytest.mark.slow
def test_service_and_server_that_were_killed_are_up_again_by_themselves(environment: Environment) -> None:
    environment.up(without=WITHOUT)
    for name in ("shop", SERVER):
        before = pid_of(environment, name)
        assert before is not None
        psutil.Process(before).kill()
        wait_until(lambda name=name, before=before: is_well(environment, name, before))  # type: ignore[misc]

    # What was started again is its own service, not a part of the keeper: it outlives it.
    shop, keeper = pid_of(environment, "shop"), pid_of(environment, "keeper")
    assert shop is not None
    assert keeper is not None
    environment.supervisor.stop("keeper")
    assert pid_of(environment, "shop") == shop

    assert set(environment.down()) == {"shop", SERVER}
    assert count_processes(environment.home) == 0


@pytest.mark.slow
def test_service_that_a_person_stopped_stays_stopped(environment: Environment) -> None:
    environment.up(without=WITHOUT)
    environment.supervisor.stop("shop")
    time.sleep(8)  # more than two looks
    assert pid_of(environment, "shop") is None
    assert pid_of(environment, "keeper") is not None
