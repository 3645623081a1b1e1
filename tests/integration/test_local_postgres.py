"""The embedded PostgreSQL, real processes: it starts once, keeps its data, and comes back from a crash."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from makegood.errors import ConfigurationError
from makegood.local import binaries as binaries_module
from makegood.local import cluster as cluster_module
from makegood.local import placement
from makegood.local.binaries import find_binaries
from makegood.local.passwords import ROLES
from makegood.local.postgres import EmbeddedPostgres
from makegood.local.processes import signal_if_there, wait_gone

FAST = {"fsync": "off", "shared_buffers": "32MB"}


@pytest.fixture(scope="module")
def open_folder() -> Iterator[Path]:
    """A folder any account can pass through, unlike pytest's own, which only root may enter."""
    folder = Path(tempfile.mkdtemp(prefix="makegood test "))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def kept(open_folder: Path) -> Iterator[EmbeddedPostgres]:
    """One server for the module, with something in it that must never be lost."""
    server = EmbeddedPostgres(open_folder / "kept", server_settings=FAST)
    server.start()
    ask(server, "CREATE TABLE kept AS SELECT 42 AS answer")
    yield server
    server.wipe()


@pytest.fixture
def server(kept: EmbeddedPostgres) -> Iterator[EmbeddedPostgres]:
    """Running before each test; whatever the test does to it, it comes back with its data."""
    kept.start()
    yield kept
    kept.start()
    assert ask(kept, "SELECT answer FROM kept") == [(42,)]


@pytest.fixture
def fresh(open_folder: Path) -> Iterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(open_folder / "fresh", server_settings=FAST)
    yield server
    server.wipe()


def ask(server: EmbeddedPostgres, statement: str, role: str = "postgres") -> list[tuple[object, ...]]:
    with psycopg.connect(server.url(role), autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def postmaster(server: EmbeddedPostgres) -> psutil.Process:
    return psutil.Process(int((server.data / "postmaster.pid").read_text().splitlines()[0]))


def test_start_again_keeps_data_and_port(server: EmbeddedPostgres) -> None:
    port = server.port
    assert server.start() is False
    assert server.stop() is True
    assert (server.stop(), server.is_running()) == (False, False)
    assert server.start() is True
    assert server.port == port
    assert ask(server, "SELECT answer FROM kept") == [(42,)]


def test_every_role_logs_in_through_the_password_file(server: EmbeddedPostgres) -> None:
    for role in ROLES:
        assert ask(server, "SELECT current_user", role) == [(role,)]


def test_url_holds_no_secret(server: EmbeddedPostgres) -> None:
    secrets = [line.split(":")[4] for line in server.passfile.read_text().splitlines()]
    assert len(secrets) == len(ROLES)
    assert not any(secret in server.url() for secret in secrets)


def test_password_file_is_for_its_owner_only(server: EmbeddedPostgres) -> None:
    assert stat.S_IMODE(server.passfile.stat().st_mode) == 0o600
    assert server.passfile.stat().st_uid == os.geteuid()


@pytest.mark.parametrize("password", ["wrong", ""])
def test_wrong_or_no_password_is_refused(server: EmbeddedPostgres, password: str) -> None:
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(host="127.0.0.1", port=server.port, user="postgres", password=password, passfile="/dev/null")


def test_passwords_are_stored_as_scram_and_nothing_is_trusted(server: EmbeddedPostgres) -> None:
    stored = ask(server, "SELECT rolpassword FROM pg_authid WHERE rolpassword IS NOT NULL")
    assert len(stored) == len(ROLES)
    assert all(str(row[0]).startswith("SCRAM-SHA-256$") for row in stored)
    assert ask(server, "SELECT DISTINCT auth_method FROM pg_hba_file_rules") == [("scram-sha-256",)]


def test_listens_on_loopback_only(server: EmbeddedPostgres) -> None:
    listening = {
        connection.laddr.ip
        for connection in psutil.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == server.port
    }
    assert listening == {"127.0.0.1"}
    assert ask(server, "SHOW unix_socket_directories") == [("",)]


def test_database_is_utf8_with_checksums(server: EmbeddedPostgres) -> None:
    assert ask(server, "SHOW server_encoding") == [("UTF8",)]
    assert ask(server, "SHOW data_checksums") == [("on",)]
    assert ask(server, "SELECT datname FROM pg_database WHERE datname = 'makegood'") == [("makegood",)]


def test_start_by_two_processes_at_once_starts_one(fresh: EmbeddedPostgres) -> None:
    program = textwrap.dedent("""
        import sys; from pathlib import Path; from makegood.local.postgres import EmbeddedPostgres
        print(EmbeddedPostgres(Path(sys.argv[1]), server_settings={"fsync": "off"}).start())
    """)
    command = [sys.executable, "-c", program, str(fresh.home)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = sorted(process.communicate(timeout=60)[0].strip() for process in both)
    assert answers == ["False", "True"]
    assert ask(fresh, "SELECT 1") == [(1,)]


def test_start_after_kill_recovers_committed_data(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.url("postgres")) as connection:  # a backend that outlives its postmaster
        dead = postmaster(server)
        dead.kill()
        wait_gone([dead], 10)
        assert (server.is_running(), server.has_crashed()) == (False, True)
        assert server.start() is True
        connection.close()
    assert ask(server, "SELECT answer FROM kept") == [(42,)]


def test_orphans_of_a_killed_server_are_ended_before_the_next_start(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "ORPHANS_LEAVE_SECONDS", 0.5)
    orphans = [process for process in postmaster(server).children() if process.is_running()]
    for orphan in orphans:
        signal_if_there(orphan, signal.SIGSTOP)  # cannot notice that its postmaster died
    postmaster(server).kill()
    assert server.start() is True
    assert wait_gone(orphans, 1) == []


def test_lock_file_naming_a_stranger_is_not_believed(server: EmbeddedPostgres) -> None:
    account = server.data.stat()
    server.stop()
    as_server = {"user": account.st_uid, "group": account.st_gid} if os.geteuid() == 0 else {}
    stranger = subprocess.Popen(["sleep", "60"], **as_server)
    try:
        pid_file = server.data / "postmaster.pid"
        pid_file.write_text(f"{stranger.pid}\n{server.data}\n1\n{server.port}\n\n127.0.0.1\n  1 1\nready   \n")
        os.chown(pid_file, account.st_uid, account.st_gid)
        assert server.is_running() is False
        assert server.stop() is False
        assert server.start() is True
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_start_after_a_kill_within_initdb_makes_the_database_whole(fresh: EmbeddedPostgres) -> None:
    fresh.home.mkdir(exist_ok=True)
    placed = placement.place(fresh.home, made_anew=True)
    staging = placed.cluster(fresh.home).folder / "staging" / "data"
    staging.mkdir(parents=True)  # what the kill left
    (staging / "PG_VERSION").write_text("18\n")
    assert fresh.start() is True
    assert not staging.parent.exists()


def test_kept_port_taken_by_a_stranger_moves_and_says_so(server: EmbeddedPostgres) -> None:
    server.stop()
    said: list[str] = []
    with socket.create_server(("127.0.0.1", server.port)) as stranger:
        taken = stranger.getsockname()[1]
        again = EmbeddedPostgres(server.home, server_settings=FAST, say=said.append)
        assert again.start() is True
        assert again.port != taken
        assert len(said) == 1
        assert f"Port {taken} is taken by process {os.getpid()}" in said[0]
    assert ask(again, "SELECT current_user", "makegood_jobs") == [("makegood_jobs",)]


def test_lost_password_file_gets_new_passwords_and_keeps_data(server: EmbeddedPostgres) -> None:
    server.passfile.unlink()
    assert EmbeddedPostgres(server.home, server_settings=FAST, say=lambda _: None).start() is True
    assert ask(server, "SELECT answer FROM kept") == [(42,)]
    assert ask(server, "SELECT current_user", "makegood_jobs") == [("makegood_jobs",)]


def test_role_that_a_newer_version_brings_is_added_to_a_running_server(server: EmbeddedPostgres) -> None:
    before = server.passfile.read_text()
    kept = [line for line in before.splitlines() if ":makegood_airflow:" not in line]
    server.passfile.write_text("\n".join(kept) + "\n")
    process = postmaster(server)
    assert server.start() is False
    assert server.passfile.read_text().splitlines()[: len(kept)] == kept
    assert ask(server, "SELECT current_user", "makegood_airflow") == [("makegood_airflow",)]
    assert postmaster(server) == process


def test_first_start_logs_nothing_that_looks_like_trouble(fresh: EmbeddedPostgres) -> None:
    fresh.start()
    assert not [line for line in fresh.log.read_text().splitlines() if "FATAL" in line or "ERROR" in line]


def test_further_database_is_made_once_with_its_owner(server: EmbeddedPostgres) -> None:
    assert server.create_database("further", "makegood_airflow") is True
    assert server.create_database("further", "makegood_airflow") is False
    owners = ask(server, "SELECT pg_get_userbyid(datdba) FROM pg_database WHERE datname = 'further'")
    assert owners == [("makegood_airflow",)]


def test_damaged_placement_finds_the_data_again(server: EmbeddedPostgres) -> None:
    (server.home / "postgres.json").write_text("{")
    assert server.start() is True
    assert ask(server, "SELECT answer FROM kept") == [(42,)]


def test_data_of_another_major_version_are_refused(server: EmbeddedPostgres) -> None:
    server.stop()
    (server.data / "PG_VERSION").write_text("16\n")
    try:
        with pytest.raises(ConfigurationError, match=r"made by PostgreSQL 16, and this is 18"):
            server.start()
    finally:
        (server.data / "PG_VERSION").write_text("18\n")


def test_broken_setting_shows_the_servers_own_words(fresh: EmbeddedPostgres) -> None:
    broken = EmbeddedPostgres(fresh.home, server_settings={"shared_buffers": "lots"})
    with pytest.raises(ConfigurationError, match='invalid value for parameter "shared_buffers": "lots"'):
        broken.start()
    assert broken.is_running() is False


def test_other_binaries_serve_as_well(fresh: EmbeddedPostgres) -> None:
    older = find_binaries().prefix.with_name("pginstall")
    other = EmbeddedPostgres(fresh.home, binaries=older, server_settings=FAST)
    assert other.start() is True
    assert str(ask(other, "SHOW server_version")[0][0]).startswith("16.")


def test_home_below_a_file_is_named_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"file/\.makegood") as caught:
        EmbeddedPostgres(tmp_path / "file" / ".makegood").start()
    assert "MAKEGOOD_HOME" in str(caught.value.hint)


def test_before_the_first_start_nothing_runs_and_the_url_says_what_to_do(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path)
    assert (server.is_running(), server.stop()) == (False, False)
    server.wipe()
    with pytest.raises(ConfigurationError, match="no embedded PostgreSQL") as caught:
        server.url()
    assert "make up" in str(caught.value.hint)


def test_wipe_deletes_data_and_passwords_and_nothing_else(fresh: EmbeddedPostgres) -> None:
    fresh.start()
    data, process = fresh.data, postmaster(fresh)
    (fresh.home / "mine.txt").write_text("kept")
    fresh.wipe()
    assert wait_gone([process], 0) == []
    assert not data.exists()
    assert not fresh.passfile.exists()
    assert (fresh.home / "mine.txt").read_text() == "kept"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root lends the server an account")
class TestAsRoot:
    """Root's folders are often closed to others; the server must run all the same, and open none of them."""

    @pytest.fixture
    def shared(self, open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(binaries_module, "SHARED", open_folder / "shared")
        return open_folder / "shared"

    @pytest.fixture
    def closed(self, tmp_path: Path, shared: Path) -> Iterator[EmbeddedPostgres]:
        tmp_path.chmod(0o700)
        server = EmbeddedPostgres(tmp_path / ".makegood", server_settings=FAST)
        yield server
        server.wipe()

    def test_server_process_is_not_root(self, server: EmbeddedPostgres) -> None:
        assert postmaster(server).uids().real != 0
        assert server.data.stat().st_uid == postmaster(server).uids().real
        assert stat.S_IMODE(server.data.stat().st_mode) == 0o700

    def test_closed_home_keeps_its_mode_and_data_go_outside(
        self, closed: EmbeddedPostgres, shared: Path, tmp_path: Path
    ) -> None:
        assert closed.start() is True
        assert closed.data.is_relative_to(shared)
        assert stat.S_IMODE(closed.data.parent.stat().st_mode) == 0o700
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700
        assert ask(closed, "SELECT current_user", "makegood_jobs") == [("makegood_jobs",)]
        closed.wipe()
        assert list(shared.glob("*/data")) == []

    def test_data_outside_are_found_again_unless_the_home_was_made_anew(self, closed: EmbeddedPostgres) -> None:
        closed.start()
        ask(closed, "CREATE TABLE kept AS SELECT 42 AS answer")
        (closed.home / "postgres.json").unlink()
        assert closed.start() is True
        assert ask(closed, "SELECT answer FROM kept") == [(42,)]
        old = postmaster(closed)
        shutil.rmtree(closed.home)
        assert closed.start() is True
        assert wait_gone([old], 0) == []
        assert ask(closed, "SELECT to_regclass('kept')") == [(None,)]

    def test_closed_binaries_are_copied_once(self, closed: EmbeddedPostgres, shared: Path, tmp_path: Path) -> None:
        package = find_binaries().prefix.parent
        hidden = tmp_path / package.name / "pginstall18"
        shutil.copytree(package / "pginstall18", hidden, symlinks=True)
        if (libraries := package.with_name(f"{package.name}.libs")).exists():
            shutil.copytree(libraries, tmp_path / libraries.name)
        server = EmbeddedPostgres(closed.home, binaries=hidden, server_settings=FAST)
        assert server.start() is True
        (copy,) = shared.glob("postgresql-*")
        made = copy.stat().st_ctime_ns
        server.stop()
        assert server.start() is True
        assert copy.stat().st_ctime_ns == made
