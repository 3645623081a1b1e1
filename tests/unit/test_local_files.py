"""Locks and logs on disk."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from makegood.errors import ConfigurationError
from makegood.local import logfile
from makegood.local.lock import exclusive, is_held
from makegood.local.private import make_private_folder, write_private


def test_lock_is_held_for_the_block_and_no_longer(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "lock"
    with exclusive(path):
        assert is_held(path)
    assert not is_held(path)


def test_lock_that_is_kept_past_the_bound_names_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with (
        exclusive(path),
        pytest.raises(ConfigurationError, match=f"process {os.getpid()}"),
        exclusive(path, wait_seconds=0.1),
    ):
        pytest.fail("two holders at once")


def test_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from makegood.local.lock import exclusive\n"
        "with exclusive(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "lock")], check=False)
    with exclusive(tmp_path / "lock", wait_seconds=0.1):
        pass


def test_lock_below_a_file_names_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="file/run"), exclusive(tmp_path / "file" / "run" / "lock"):
        pytest.fail("no such folder can be")


def test_rotation_keeps_one_old_log_and_the_writer_writes_on(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    with logfile.appending(log) as writer:
        os.write(writer, b"old " * 100)
        assert logfile.rotate(log, bytes_max=300) is True
        os.write(writer, b"new\n")
    assert log.read_text() == "new\n"
    assert (tmp_path / "x.log.1").read_text() == "old " * 100
    assert logfile.rotate(log, bytes_max=300) is False


def test_last_lines_are_those_since_the_start(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    assert logfile.last_lines(log) == []
    log.write_text("before\n")
    since = logfile.size_of(log)
    with log.open("ab") as file:
        file.write(b"one\ntwo \xff\nthree\n")
    assert logfile.last_lines(log, count=2, since=since) == ["two �", "three"]
    assert logfile.last_lines(log, since=10_000) == []


def test_prune_takes_files_that_are_too_old_and_no_others(tmp_path: Path) -> None:
    old, new = tmp_path / "run" / "old.log", tmp_path / "run" / "new.log"
    old.parent.mkdir()
    old.touch()
    new.touch()
    os.utime(old, (time.time() - 8 * 86400,) * 2)
    assert logfile.prune(tmp_path, days_max=7) == 1
    assert list(tmp_path.rglob("*.log")) == [new]
    assert logfile.prune(tmp_path / "not there", days_max=7) == 0


def test_private_file_is_closed_even_when_an_open_one_was_there(tmp_path: Path) -> None:
    folder = make_private_folder(tmp_path / "deep" / "down")
    (folder / "secret").write_text("old")
    (folder / "secret").chmod(0o666)
    write_private(folder / "secret", "new")
    assert (folder / "secret").read_text() == "new"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "secret")] == [0o700, 0o600]
    assert [path.name for path in folder.iterdir()] == ["secret"]
