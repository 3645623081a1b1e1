"""The doctor's judgement, check by check."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from makegood.cli.local import _duration, _judge
from makegood.errors import ConfigurationError
from makegood.local import machine_checks
from makegood.local.check import Check, Verdict, carry_on, fail, ok, warn
from makegood.local.database_checks import check_version
from makegood.local.machine_checks import check_disk, check_home, check_memory, check_packages, check_python
from makegood.local.service import Service
from makegood.local.service_checks import check_left_out, check_service
from makegood.local.supervisor import ServiceStatus, State
from makegood.local.tuning import GB
from makegood.settings import Settings


@pytest.mark.parametrize(
    ("checks", "exit_code"),
    [
        ([], 0),
        ([ok("a", "")], 0),
        ([ok("a", ""), warn("b", "", "")], 0),  # worth reading, no reason to stop a script
        ([fail("a", "", "", blocks=False), warn("b", "", "")], 1),
        ([fail("a", "", "", blocks=False), fail("b", "", "")], 3),  # not ready outweighs wrong
    ],
)
def test_exit_code_is_that_of_the_worst_finding(checks: list[Check], exit_code: int) -> None:
    assert _judge(checks) == exit_code


def test_check_that_cannot_be_made_is_a_finding() -> None:
    def checks() -> Iterator[Check]:
        yield ok("a", "")
        raise ConfigurationError("closed", hint="open it")

    assert list(carry_on("b", checks())) == [ok("a", ""), fail("b", "closed", "open it")]


def test_old_python_is_refused() -> None:
    assert check_python((3, 10, 14)).verdict is Verdict.FAIL
    assert check_python((3, 11, 0)).verdict is Verdict.OK


def test_packages_are_compared_with_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "requirements.txt"
    lock.write_text(
        "pytest==0.0.1 \\\n    --hash=sha256:00\n    # via us\n"
        "no-such-package==1.0 \\\n    --hash=sha256:00\n"
        "colorama==0.0.1 ; sys_platform == 'no-such-system' \\\n    --hash=sha256:00\n"
    )
    check = check_packages(lock)
    assert check.verdict is Verdict.FAIL
    assert "pytest==0.0.1 is wanted" in check.detail
    assert "no-such-package is missing" in check.detail
    assert "colorama" not in check.detail


def test_packages_of_this_environment_are_as_locked() -> None:
    assert check_packages(machine_checks.PROJECT / "requirements.txt").verdict is Verdict.OK


def test_home_that_cannot_be_written_is_named() -> None:
    check = check_home(Path("/proc/makegood"))
    assert check.verdict is Verdict.FAIL
    assert "/proc cannot be written" in check.detail


@pytest.mark.parametrize(("free", "verdict"), [(GB - 1, Verdict.FAIL), (GB, Verdict.WARN), (5 * GB, Verdict.OK)])
def test_disk_is_judged_by_what_is_free(
    free: int, verdict: Verdict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": free}))
    assert check_disk(tmp_path).verdict is verdict


def test_little_memory_is_a_warning_only() -> None:
    assert check_memory(GB).verdict is Verdict.WARN
    assert check_memory(2 * GB).verdict is Verdict.OK


@pytest.mark.parametrize(
    ("major", "verdict"),
    [(13, Verdict.FAIL), (14, Verdict.OK), (18, Verdict.OK), (19, Verdict.FAIL)],
)
def test_server_version_is_one_we_know(major: int, verdict: Verdict) -> None:
    assert check_version(major, "here").verdict is verdict


@pytest.mark.parametrize(
    ("state", "verdict", "words"),
    [
        (State.RUNNING, Verdict.OK, "running"),
        (State.UNHEALTHY, Verdict.FAIL, "not well"),
        (State.STOPPED, Verdict.WARN, "stopped"),  # it may be meant
    ],
)
def test_service_is_judged_by_its_state(state: State, verdict: Verdict, words: str) -> None:
    status = ServiceStatus("x", state, 1, 1.0, None, Path("x.log"))
    check = check_service(Service("x", ("x",)), status)
    assert (check.verdict, check.blocks) == (verdict, False)
    assert words in check.detail


def test_airflow_that_is_left_out_is_a_warning_with_what_to_set() -> None:
    (check,) = check_left_out(Settings(database_url="postgresql://db.example/shop"))
    assert (check.verdict, check.blocks) == (Verdict.WARN, False)
    assert "MAKEGOOD_AIRFLOW_DATABASE_URL" in check.detail


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(None, ""), (0.4, "0 s"), (59, "59 s"), (61, "1 min"), (7200, "2 h"), (200_000, "2 d")],
)
def test_duration_is_short(seconds: float | None, words: str) -> None:
    assert _duration(seconds) == words
