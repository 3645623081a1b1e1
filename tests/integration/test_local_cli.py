"""`makegood up`, `down`, `reset`, `status` and `doctor` with a real server and a real process."""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import psycopg
import pytest

from makegood.cli import app
from makegood.local import lifecycle, ports
from makegood.local.passwords import read_passwords
from makegood.local.postgres import EmbeddedPostgres
from makegood.local.processes import wait_gone
from makegood.local.runrecord import TAG
from makegood.local.service import Service
from makegood.settings import get_settings

Command = Callable[..., tuple[int, Any]]
FAST = {"fsync": "off", "shared_buffers": "32MB"}
SHOP = (sys.executable, "-c", "import time; time.sleep(600)")


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="makegood cli "))
    folder.chmod(0o755)
    yield folder
    EmbeddedPostgres(folder / "home").wipe()
    EmbeddedPostgres(folder / "own").wipe()
    shutil.rmtree(folder)


@pytest.fixture
def makegood(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Runs a command with --json in a home of its own, and returns its exit code and document."""
    monkeypatch.setattr(app, "COMMAND_MODULES", ("local",))
    monkeypatch.setattr(lifecycle, "FIRST_ORDER_SECONDS", 0.0)
    monkeypatch.setattr(lifecycle, "EmbeddedPostgres", functools.partial(EmbeddedPostgres, server_settings=FAST))
    monkeypatch.setattr("makegood.local.supervisor.SETTLE_SECONDS", 0.3)
    monkeypatch.setattr("makegood.local.binaries.SHARED", folder / "shared")  # other clones' are not our matter
    monkeypatch.setattr(lifecycle, "find_services", lambda _, home: [Service("shop", SHOP, data=home / "shop")])
    monkeypatch.setenv("MAKEGOOD_HOME", str(folder / "home"))
    for name in ("MAKEGOOD_DATABASE_URL", "MAKEGOOD_DATABASE_ADMIN_URL"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> tuple[int, Any]:
        get_settings.cache_clear()
        capsys.readouterr()
        code = app.run([*arguments, "--json"])
        out = capsys.readouterr().out
        return code, json.loads(out)

    yield run
    run("down")
    get_settings.cache_clear()


@pytest.fixture(scope="module")
def own_server(folder: Path) -> EmbeddedPostgres:
    """Stands for a server of the user's own."""
    server = EmbeddedPostgres(folder / "own", server_settings=FAST)
    server.start()
    return server


def url_with_password(server: EmbeddedPostgres, password: str | None = None) -> str:
    password = quote(password or read_passwords(server.passfile)["postgres"])
    return f"postgresql://postgres:{password}@127.0.0.1:{server.port}/makegood"


def states(document: Any) -> dict[str, str]:
    return {service["name"]: service["state"] for service in document["services"]}


def processes_of(home: Path) -> list[psutil.Process]:
    """Every process that serves this home, the server's own included."""
    found = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        tag = (process.info["environ"] or {}).get(TAG, "")
        if tag.startswith(f"{home}:") or str(home) in (process.info["cmdline"] or []):
            found.append(process)
    return found


def test_up_runs_everything_and_down_leaves_no_process(makegood: Command, folder: Path) -> None:
    code, first = makegood("up")
    assert code == 0
    assert first["started"] == ["postgres", "shop"]
    assert first["applied"]
    assert states(first) == {"postgres": "running", "shop": "running"}
    code, second = makegood("up")
    assert (code, second["started"], second["applied"]) == (0, [], [])
    code, document = makegood("status")
    assert (code, states(document)) == (0, states(first))
    pids = [psutil.Process(service["pid"]) for service in document["services"]]
    assert makegood("down") == (0, {"stopped": ["shop", "postgres"]})
    assert wait_gone(pids, 0) == []
    assert makegood("down") == (0, {"stopped": []})
    assert set(states(makegood("status")[1]).values()) == {"stopped"}


def test_up_mends_what_was_killed(makegood: Command) -> None:
    _, before = makegood("up")
    for service in before["services"]:
        psutil.Process(service["pid"]).kill()
    wait_gone([psutil.Process(service["pid"]) for service in before["services"]], 5)
    code, document = makegood("status")
    assert code == 1
    assert all(service["crashed"] for service in document["services"])
    code, after = makegood("up")
    assert (code, after["started"]) == (0, ["postgres", "shop"])


def test_doctor_is_content_after_up_and_says_what_to_do_before(makegood: Command) -> None:
    code, document = makegood("doctor")
    assert code == 3
    (database,) = (check for check in document["checks"] if check["name"] == "database")
    assert database["verdict"] == "fail"
    assert "make up" in database["todo"]
    makegood("up")
    code, document = makegood("doctor")
    bad = [check for check in document["checks"] if check["verdict"] != "ok"]
    assert (code, bad) == (0, [])
    names = {check["name"] for check in document["checks"]}
    assert {"Python", "packages", "disk", "database", "migrations", "rights", "clock", "shop"} <= names


def test_reset_refuses_to_guess_and_wipes_when_told(makegood: Command, folder: Path) -> None:
    makegood("up")
    (folder / "home" / "shop").mkdir()
    (folder / "home" / "mine.txt").write_text("kept")
    code, document = makegood("reset")
    assert code == 2
    assert "--yes" in document["error"]["hint"]
    assert makegood("status")[1]["services"][0]["state"] == "running"
    code, _ = makegood("reset", "--yes")
    assert code == 0
    assert processes_of(folder / "home") == []
    left = {str(path.relative_to(folder / "home")) for path in (folder / "home").rglob("*") if path.is_file()}
    assert left == {"mine.txt", "run/postgres.lock", "run/supervisor.lock"}


def test_own_server_is_used_and_none_is_started(
    makegood: Command, own_server: EmbeddedPostgres, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAKEGOOD_DATABASE_URL", url_with_password(own_server))
    code, document = makegood("up")
    assert code == 0
    (server, shop) = document["services"]
    assert (server["state"], server["pid"], shop["state"]) == ("running", None, "running")
    assert not (folder / "home" / "postgres.json").exists()
    assert makegood("down")[1]["stopped"] == ["shop"]
    assert makegood("reset", "--yes")[0] == 0
    with psycopg.connect(own_server.url("postgres")) as connection:
        found = connection.execute("SELECT to_regclass('makegood.workflow_executions')::text").fetchone()
    assert found == ("makegood.workflow_executions",)


@pytest.mark.parametrize("command", ["up", "doctor"])
def test_wrong_password_is_said_without_showing_it(
    makegood: Command, own_server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("MAKEGOOD_DATABASE_URL", url_with_password(own_server, "open-sesame"))
    code, document = makegood(command)
    assert code == 3
    assert "password authentication failed" in json.dumps(document)
    assert "open-sesame" not in json.dumps(document)


def test_dead_server_is_named(makegood: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    port = ports.choose_port()
    monkeypatch.setenv("MAKEGOOD_DATABASE_URL", f"postgresql://me:secret@127.0.0.1:{port}/shop")
    code, document = makegood("up")
    assert code == 3
    assert f"127.0.0.1:{port}" in document["error"]["message"]
    assert "secret" not in json.dumps(document)
    assert makegood("status")[0] == 1


def test_home_that_cannot_be_written_ends_in_one_clear_error(
    makegood: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "file").write_text("")
    monkeypatch.setenv("MAKEGOOD_HOME", str(folder / "file" / "home"))
    code, document = makegood("up")
    assert code == 3
    assert str(folder / "file" / "home") in document["error"]["message"]
    assert makegood("doctor")[0] == 3
    assert makegood("status")[0] == 0
    assert makegood("down") == (0, {"stopped": []})


def test_password_variable_of_another_server_does_not_get_in_the_way(
    makegood: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "for another server")
    assert makegood("up")[0] == 0
    assert "PGPASSWORD" not in os.environ
