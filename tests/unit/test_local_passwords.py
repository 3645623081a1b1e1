"""The password file: libpq's format, for its owner only, whole or not there."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from makegood.local.passwords import ROLES, new_passwords, read_passwords, write_passwords


def test_passwords_survive_the_file_in_libpq_form(tmp_path: Path) -> None:
    passwords = new_passwords()
    write_passwords(tmp_path / "pass", 23456, passwords)
    assert read_passwords(tmp_path / "pass") == passwords
    first = (tmp_path / "pass").read_text().splitlines()[0]
    assert first == f"127.0.0.1:23456:*:postgres:{passwords['postgres']}"


def test_file_is_closed_to_others_even_when_an_open_one_was_there(tmp_path: Path) -> None:
    (tmp_path / "pass").write_text("")
    (tmp_path / "pass").chmod(0o666)
    write_passwords(tmp_path / "pass", 23456, new_passwords())
    assert stat.S_IMODE((tmp_path / "pass").stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["pass"]


def test_passwords_are_long_differ_and_need_no_escape() -> None:
    made = [password for _ in range(20) for password in new_passwords().values()]
    assert len(set(made)) == 20 * len(ROLES)
    assert all(len(password) >= 40 and not set(":\\' ").intersection(password) for password in made)


@pytest.mark.parametrize("text", ["", "garbage", "127.0.0.1:1:*:makegood_jobs:x\n"])
def test_file_without_the_superuser_counts_as_lost(tmp_path: Path, text: str) -> None:
    (tmp_path / "pass").write_text(text)
    assert read_passwords(tmp_path / "pass") == {}
