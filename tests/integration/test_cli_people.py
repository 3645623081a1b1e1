"""`makegood people` as a person runs it, and the demo's people of `make up`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from databases import DatabaseUrls
from sweeps import surroundings

from dashboard import identity
from makegood.local import lifecycle
from makegood.settings import Settings

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def people(database: DatabaseUrls, settings: Settings, tmp_path: Path) -> Run:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "makegood.cli", "people", *arguments],
            env=surroundings(database, settings, tmp_path),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_people_are_granted_listed_and_revoked_with_who_and_why(people: Run, database: DatabaseUrls) -> None:
    granted = people("grant", "Ann@Example.com", "operator", "viewer", "--reason", "on call", "--as", "kim", "--json")
    assert granted.returncode == 0, granted.stderr
    assert json.loads(granted.stdout) == {
        "login": "ann@example.com",
        "roles": ["operator", "viewer"],
        "disabled": False,
    }
    (listed,) = json.loads(people("list", "--json").stdout)["people"]
    assert (listed["login"], listed["granted_by"]) == ("ann@example.com", "kim")
    revoked = people("revoke", "ann@example.com", "--reason", "left", "--as", "kim")
    assert (revoked.returncode, revoked.stdout) == (0, "ann@example.com is shut out now.\n")
    rows = database.rows("SELECT actor, action, reason FROM makegood.operator_actions ORDER BY id")
    assert [tuple(row.values()) for row in rows] == [("kim", "grant", "on call"), ("kim", "revoke", "left")]


def test_role_that_does_not_exist_and_person_nobody_knows_are_named(people: Run) -> None:
    wrong = people("grant", "ann@example.com", "king", "--reason", "x")
    assert (wrong.returncode, "viewer, engineer, operator and approver" in wrong.stderr) == (2, True)
    unknown = people("revoke", "nobody@example.com", "--reason", "x")
    assert (unknown.returncode, "nobody is known as nobody@example.com" in unknown.stderr) == (1, True)


def test_demo_lets_its_people_in_once_and_whoever_was_shut_out_stays_out(
    database: DatabaseUrls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle.where, "database_url", lambda *_: database.jobs)
    lifecycle._let_demo_in()
    database.rows("SELECT makegood.revoke_person('demo-operator', NULL, 'root', 'no')", role="jobs")
    lifecycle._let_demo_in()
    rows: list[dict[str, Any]] = database.rows("SELECT login, disabled FROM makegood.people ORDER BY login")
    assert {row["login"] for row in rows} == set(identity.DEMO)
    assert [row["login"] for row in rows if row["disabled"]] == ["demo-operator"]
    assert len(database.rows("SELECT 1 FROM makegood.operator_actions WHERE action = 'grant'")) == len(identity.DEMO)
