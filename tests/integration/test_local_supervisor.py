"""The supervisor with real processes: what it starts is well, what it stops is gone, strangers are left alone."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from makegood.errors import ConfigurationError
from makegood.local import ports
from makegood.local.processes import is_alive, wait_gone
from makegood.local.runrecord import TAG
from makegood.local.service import Service
from makegood.local.supervisor import State, Supervisor

# Answers 200 on every path, until a file named `sick` appears in its folder.
WEB = """
import http.server, os, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503 if os.path.exists(sys.argv[2]) else 200)
        self.end_headers()
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answer).serve_forever()
"""
SLEEP = (sys.executable, "-c", "import time; time.sleep(600)")
# A leader that ignores the polite signal, with a child in the same group.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={})
open(sys.argv[1], "w").close()
time.sleep(600)
"""


class Heard:
    """Keeps what the supervisor said of each service."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.order: list[str] = []

    def begin(self, what: str) -> None:
        self.order.append(what)

    def done(self, what: str, outcome: str, seconds: float, *, well: bool = True) -> None:
        self.outcomes[what] = outcome


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def supervisor(tmp_path: Path, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    monkeypatch.setattr("makegood.local.supervisor.SETTLE_SECONDS", 0.4)
    supervisor = Supervisor(tmp_path, progress=heard)
    yield supervisor
    supervisor.stop(wait_seconds=1)


@pytest.fixture
def web(tmp_path: Path) -> Service:
    port = ports.choose_port()
    command = (sys.executable, "-c", WEB, str(port), str(tmp_path / "sick"))
    address = f"http://127.0.0.1:{port}"
    return Service(
        "web", command, health=f"{address}/health", address=address, port=port, port_setting="MAKEGOOD_WEB_PORT"
    )


def process_of(supervisor: Supervisor, name: str) -> psutil.Process:
    record = json.loads((supervisor.home / "run" / f"{name}.json").read_text())
    return psutil.Process(record["pid"])


def test_start_waits_until_healthy_and_status_tells_where(supervisor: Supervisor, web: Service) -> None:
    assert supervisor.start([web]) == ["web"]
    (status,) = supervisor.status([web])
    assert (status.state, status.address, status.crashed) == (State.RUNNING, web.address, False)
    assert status.pid == process_of(supervisor, "web").pid
    assert status.uptime_seconds is not None
    assert status.uptime_seconds >= 0
    assert status.log is not None
    assert status.log.exists()


def test_started_process_leads_its_own_session_and_reads_nothing(supervisor: Supervisor, web: Service) -> None:
    supervisor.start([web])
    pid = process_of(supervisor, "web").pid
    assert os.getsid(pid) == os.getpgid(pid) == pid
    assert not Path("/proc").exists() or os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"


def test_start_again_leaves_a_healthy_service_alone(supervisor: Supervisor, web: Service, heard: Heard) -> None:
    supervisor.start([web])
    first = process_of(supervisor, "web")
    assert supervisor.start([web]) == []
    assert heard.outcomes["web"] == "running already"
    assert process_of(supervisor, "web") == first


def test_start_after_a_crash_starts_anew(supervisor: Supervisor, web: Service) -> None:
    supervisor.start([web])
    process_of(supervisor, "web").kill()
    wait_gone([process_of(supervisor, "web")], 5)
    (status,) = supervisor.status([web])
    assert (status.state, status.crashed) == (State.STOPPED, True)
    assert supervisor.start([web]) == ["web"]
    assert supervisor.status([web])[0].state is State.RUNNING


def test_start_with_another_command_or_setting_replaces_what_runs(
    supervisor: Supervisor, web: Service, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor.start([web])
    first = process_of(supervisor, "web")
    monkeypatch.setenv("MAKEGOOD_STUCK_AFTER_SECONDS", "7")
    assert supervisor.start([web]) == ["web"]
    assert heard.outcomes["web"] == "restarted"
    assert not is_alive(first)


def test_start_replaces_a_service_that_is_unwell(
    supervisor: Supervisor, web: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("makegood.local.supervisor.SECOND_LOOK_SECONDS", 0.1)
    supervisor.start([web])
    first = process_of(supervisor, "web")
    first.suspend()  # accepts connections and never answers
    monkeypatch.setattr("makegood.local.service.HEALTH_TIMEOUT_SECONDS", 0.3)
    assert supervisor.status([web])[0].state is State.UNHEALTHY
    monkeypatch.setattr("makegood.local.service.HEALTH_TIMEOUT_SECONDS", 2.0)
    assert supervisor.start([dataclasses.replace(web, stop_seconds=0.5)]) == ["web"]
    assert not is_alive(first)
    assert supervisor.status([web])[0].state is State.RUNNING


def test_service_that_ends_at_once_shows_its_last_words(supervisor: Supervisor) -> None:
    words = "raise SystemExit('no such thing as a free lunch')"
    broken = Service("broken", (sys.executable, "-c", words), health=lambda: False)
    with pytest.raises(ConfigurationError, match="broken ended right after its start") as caught:
        supervisor.start([broken])
    assert "no such thing as a free lunch" in str(caught.value)
    assert "broken.log" in str(caught.value.hint)
    assert supervisor.status([broken])[0].state is State.STOPPED


def test_service_that_never_gets_well_is_stopped_again(supervisor: Supervisor) -> None:
    dull = Service("dull", SLEEP, health=lambda: False, start_seconds=0.5)
    with pytest.raises(ConfigurationError, match="dull is not healthy after"):
        supervisor.start([dull])
    (status,) = supervisor.status([dull])
    assert (status.state, status.crashed) == (State.STOPPED, False)


def test_program_that_is_not_there_is_named(supervisor: Supervisor) -> None:
    with pytest.raises(ConfigurationError, match="no-such-program was not found"):
        supervisor.start([Service("ghost", ("no-such-program",))])


def test_optional_service_that_fails_takes_only_its_dependents_with_it(
    supervisor: Supervisor, web: Service, heard: Heard
) -> None:
    fancy = Service("fancy", ("no-such-program",), optional=True)
    frill = Service("frill", SLEEP, needs=("fancy",))
    assert supervisor.start([frill, fancy, web]) == ["web"]
    assert "not found" in heard.outcomes["fancy"]
    assert "skipped" in heard.outcomes["frill"]


def test_services_start_in_order_of_need_and_stop_in_reverse(
    supervisor: Supervisor, web: Service, heard: Heard
) -> None:
    last = Service("a-last", SLEEP, needs=("web",))
    supervisor.start([last, web])
    assert heard.order == ["web", "a-last"]
    assert supervisor.stop() == ["a-last", "web"]


def test_services_that_do_not_need_each_other_get_well_side_by_side(supervisor: Supervisor, tmp_path: Path) -> None:
    """Each gets well only when the other is there."""
    touch = "import pathlib, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
    pair = [
        Service(mine, (sys.executable, "-c", touch, str(tmp_path / mine)), health=(tmp_path / theirs).exists)
        for mine, theirs in (("left", "right"), ("right", "left"))
    ]
    assert supervisor.start(pair) == ["left", "right"]


def test_outdated_services_are_stopped_before_what_they_need(
    supervisor: Supervisor, web: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = Service("user", SLEEP, needs=("web",))
    supervisor.start([web, user])
    monkeypatch.setenv("MAKEGOOD_STUCK_AFTER_SECONDS", "7")
    stopped: list[str] = []
    end = supervisor._running.end
    monkeypatch.setattr(
        supervisor._running, "end", lambda names, wait: stopped.extend(found := end(names, wait)) or found
    )
    assert supervisor.start([web, user]) == ["web", "user"]
    assert stopped == ["user", "web"]


def test_services_that_do_not_need_each_other_stop_side_by_side(supervisor: Supervisor, tmp_path: Path) -> None:
    """Each takes a second over its end; what they need is stopped after both."""
    slow = "import signal, sys, time; signal.signal(15, lambda *_: (time.sleep(1), sys.exit())); time.sleep(600)"
    base, *both = (
        Service(name, (sys.executable, "-c", slow), needs=needs)
        for name, needs in (("base", ()), ("left", ("base",)), ("right", ("base",)))
    )
    supervisor.start([base, *both])
    begun = time.monotonic()
    assert supervisor.stop() == ["left", "right", "base"]
    assert time.monotonic() - begun < 2.9


def test_orphans_of_a_killed_leader_are_unwell_and_replaced(supervisor: Supervisor, tmp_path: Path) -> None:
    program = STUBBORN.replace(", env={}", "")
    command = (sys.executable, "-c", program, str(tmp_path / "ready"))
    mule = Service("mule", command, health=(tmp_path / "ready").exists, stop_seconds=1.0)
    supervisor.start([mule])
    leader = process_of(supervisor, "mule")
    (orphan,) = leader.children()
    leader.kill()
    wait_gone([leader], 5)
    assert supervisor.status([mule])[0].state is State.UNHEALTHY
    assert supervisor.start([mule]) == ["mule"]
    assert not is_alive(orphan)


def test_settings_of_another_airflow_do_not_reach_a_service(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql://another/airflow")
    monkeypatch.setenv("AIRFLOW_CONN_MAIL", "smtp://mail.example")
    supervisor.start([Service("nap", SLEEP)])
    environment = process_of(supervisor, "nap").environ()
    assert "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN" not in environment
    assert environment["AIRFLOW_CONN_MAIL"] == "smtp://mail.example"


def test_stop_leaves_no_process_even_of_the_stubborn(supervisor: Supervisor) -> None:
    mule = Service("mule", (sys.executable, "-c", STUBBORN, str(supervisor.home / "ready")))
    supervisor.start([dataclasses.replace(mule, health=(supervisor.home / "ready").exists)])
    leader = process_of(supervisor, "mule")
    family = [leader, *leader.children(recursive=True)]
    assert len(family) == 2
    assert supervisor.stop(wait_seconds=0.3) == ["mule"]
    assert wait_gone(family, 0) == []
    assert supervisor.stop() == []
    assert list((supervisor.home / "run").glob("*.json")) == []


def test_recycled_pid_is_never_signalled(supervisor: Supervisor, web: Service, tmp_path: Path) -> None:
    supervisor.start([web])
    supervisor.stop()
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        record = {"pid": stranger.pid, "create_time": 1.0, "command_hash": "x", "address": None}
        (tmp_path / "run" / "web.json").write_text(json.dumps(record))
        assert supervisor.status([web])[0].state is State.STOPPED
        assert supervisor.start([web]) == ["web"]
        assert supervisor.stop() == ["web"]
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_same_pid_and_start_without_our_tag_is_never_signalled(
    supervisor: Supervisor, web: Service, tmp_path: Path
) -> None:
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        created = psutil.Process(stranger.pid).create_time()
        record = {"pid": stranger.pid, "create_time": created, "command_hash": "x", "address": None}
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / "web.json").write_text(json.dumps(record))
        assert supervisor.stop() == []
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("record", ["", "{", "[]", '{"pid": "x"}', None])
def test_process_without_a_sound_record_is_found_and_replaced(
    supervisor: Supervisor, web: Service, tmp_path: Path, record: str | None
) -> None:
    supervisor.start([web])
    stray = process_of(supervisor, "web")
    path = tmp_path / "run" / "web.json"
    path.unlink() if record is None else path.write_text(record)
    assert supervisor.start([web]) == ["web"]  # its port is free again, or this would fail
    assert not is_alive(stray)


def test_stop_finds_strays_that_were_never_recorded(supervisor: Supervisor, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    stray = subprocess.Popen(SLEEP, env={**os.environ, TAG: f"{tmp_path}:lost"})
    assert supervisor.stop() == ["lost"]
    stray.wait(timeout=5)


def test_port_of_a_stranger_is_named_with_its_holder_and_the_variable(supervisor: Supervisor, web: Service) -> None:
    with (
        socket.create_server(("127.0.0.1", web.port or 0)),
        pytest.raises(ConfigurationError, match=f"Port {web.port}, which web needs") as caught,
    ):
        supervisor.start([web])
    assert f"process {os.getpid()}" in str(caught.value)
    assert "MAKEGOOD_WEB_PORT" in str(caught.value.hint)


def test_start_by_two_processes_at_once_starts_one(supervisor: Supervisor, tmp_path: Path) -> None:
    program = textwrap.dedent("""
        import sys; from pathlib import Path
        from makegood.local.service import Service; from makegood.local.supervisor import Supervisor
        service = Service("nap", (sys.executable, "-c", "import time; time.sleep(600)"))
        print(Supervisor(Path(sys.argv[1])).start([service]))
    """)
    command = [sys.executable, "-c", program, str(tmp_path)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = sorted(process.communicate(timeout=60)[0].strip() for process in both)
    assert answers == ["['nap']", "[]"]
    assert supervisor.stop() == ["nap"]


def test_started_service_does_not_hold_its_callers_pipe(tmp_path: Path) -> None:
    """`make up | tee log` must end when `make up` does."""
    program = textwrap.dedent("""
        import os, sys; from pathlib import Path
        from makegood.local.service import Service; from makegood.local.supervisor import Supervisor
        os.set_inheritable(os.dup(1), True)
        Supervisor(Path(sys.argv[1])).start([Service("nap", (sys.executable, "-c", "import time; time.sleep(60)"))])
    """)
    begun = time.monotonic()
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, check=True, timeout=30)
    assert time.monotonic() - begun < 30
    assert Supervisor(tmp_path).stop() == ["nap"]


def test_home_below_a_file_is_named_in_the_error(tmp_path: Path, web: Service) -> None:
    (tmp_path / "file").write_text("")
    supervisor = Supervisor(tmp_path / "file" / "home")
    assert supervisor.stop() == []
    with pytest.raises(ConfigurationError, match="file/home"):
        supervisor.start([web])


def test_service_that_hangs_is_unwell_once_it_had_its_time_to_start_and_is_replaced(
    supervisor: Supervisor, web: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("makegood.local.service.HEALTH_TIMEOUT_SECONDS", 0.5)
    patient = dataclasses.replace(web, stop_seconds=0.5)  # one that is stopped does not hear that it should end
    hasty = dataclasses.replace(patient, start_seconds=0.0)
    supervisor.start([patient])
    assert not supervisor.is_unwell(hasty)
    hanging = process_of(supervisor, "web")
    hanging.suspend()
    try:
        assert supervisor.is_unwell(hasty)
        assert not supervisor.is_unwell(patient)  # it may still be starting
        assert supervisor.start([patient]) == ["web"]
        assert not supervisor.is_unwell(hasty)
    finally:
        if is_alive(hanging):
            hanging.kill()


def test_service_that_is_gone_or_has_no_health_is_not_unwell(supervisor: Supervisor, web: Service) -> None:
    assert not supervisor.is_unwell(dataclasses.replace(web, start_seconds=0.0))
    assert not supervisor.is_unwell(Service("sleeper", SLEEP, start_seconds=0.0))
