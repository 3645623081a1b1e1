"""What was read serves all who look: twenty people on live refresh ask the database hardly more than one."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import streamlit as st
from shops import Place, grant

from dashboard import data
from dashboard.database import Reader

PEOPLE = [f"person-{n}@example.com" for n in range(20)]


class CountingReader:
    """Answers like a database where nothing happened, slowly enough that others come meanwhile."""

    def __init__(self) -> None:
        self.reads: Counter[str] = Counter()

    def rows(self, name: str, parameters: Any = None) -> list[dict[str, Any]]:
        self.reads[name] += 1
        time.sleep(0.02)
        answers = {"people": [{"login": login, "roles": ["viewer"]} for login in PEOPLE]}
        return answers.get(name, [{"read_only": False, "late": False}])


@pytest.fixture
def forgotten() -> Iterator[None]:
    st.cache_data.clear()
    yield
    st.cache_data.clear()


def refresh(login: str) -> list[str]:
    """The reads of one refresh of the overview."""
    roles = data.get_roles(login)
    data.is_read_only()
    data.get_counts("24h", None)
    data.get_standing(None)
    data.get_stuck_trend("24h", None)
    data.get_attention(None)
    return roles


def test_twenty_people_who_refresh_at_the_same_moment_cause_each_read_once(
    forgotten: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each under a login of its own, and nobody waits for a cache that is filled twice."""
    reader = CountingReader()
    monkeypatch.setattr(data, "reader", lambda: reader)
    together = threading.Barrier(len(PEOPLE))

    def come(login: str) -> list[str]:
        together.wait(10)
        return refresh(login)

    with ThreadPoolExecutor(len(PEOPLE)) as pool:
        assert list(pool.map(come, PEOPLE)) == [["viewer"]] * len(PEOPLE)
    assert reader.reads["ends"] == 1
    assert {name: count for name, count in reader.reads.items() if count > 1} == {}


@pytest.mark.parametrize("people_max", [1, 2, data.PEOPLE_MAX])
def test_roles_are_each_persons_own_however_many_are_read_together(
    people_max: int, forgotten: None, peopled: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant(peopled, "gone@example.com", "viewer", "operator")
    peopled.rows("SELECT makegood.revoke_person('gone@example.com', NULL, 'root', 'left')", role="jobs")
    reader = Reader(lambda: peopled.read)
    monkeypatch.setattr(data, "reader", lambda: reader)
    monkeypatch.setattr(data, "PEOPLE_MAX", people_max)
    try:
        found = {
            login: set(data.get_roles(login)) for login in ("demo-viewer", "demo-operator", "gone@example.com", "x")
        }
    finally:
        reader.close()
    assert found == {
        "demo-viewer": {"viewer"},
        "demo-operator": {"viewer", "operator"},
        "gone@example.com": set(),
        "x": set(),
    }
