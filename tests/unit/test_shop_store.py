"""The store's promises: all or nothing, append-only, one writer."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox.clock import Clock
from sandbox.store import Store, StoreError

EFFECT = "INSERT INTO effects (kind, object_id, at) VALUES ('charge', ?, 1.5)"
CALL = (1.5, "POST /v1/refunds", "refund", None, None, None, 200, False, "req_1")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path, "normal")
    yield store
    store.close()


def count(store: Store, statement: str = "SELECT count(*) AS n FROM effects") -> int:
    row = store.row(statement)
    assert row is not None
    return int(row["n"])


def write_and_fail(store: Store) -> None:
    with store.transaction():
        store.execute(EFFECT, ("ch_bad",))
        store.note_call(CALL)
        store.execute("DELETE FROM effects")


def write_and_fail_inside(store: Store) -> None:
    with store.savepoint():
        store.execute(EFFECT, ("ch_bad",))
        store.execute("DELETE FROM effects")


@pytest.mark.parametrize("statement", ["UPDATE effects SET amount = 1", "DELETE FROM effects"])
def test_effects_once_written_cannot_be_changed(store: Store, statement: str) -> None:
    store.execute(EFFECT, ("ch_1",))
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        store.execute(statement)
    assert count(store) == 1


def test_transaction_that_raises_leaves_nothing_and_the_next_one_works(store: Store) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        write_and_fail(store)
    with store.transaction():
        store.execute(EFFECT, ("ch_2",))
    assert count(store) == 1
    assert count(store, "SELECT count(*) AS n FROM calls") == 0


def test_savepoint_that_raises_undoes_its_own_part_alone(store: Store) -> None:
    with store.transaction():
        store.execute(EFFECT, ("ch_1",))
        with pytest.raises(sqlite3.IntegrityError):
            write_and_fail_inside(store)
    assert [row["object_id"] for row in store.rows("SELECT object_id FROM effects")] == ["ch_1"]


def test_call_noted_before_a_commit_is_written_with_it(store: Store) -> None:
    store.note_call(CALL)
    with store.transaction():
        store.execute(EFFECT, ("ch_1",))
    assert count(store, "SELECT count(*) AS n FROM calls") == 1
    store.flush_calls()
    assert count(store, "SELECT count(*) AS n FROM calls") == 1


def test_second_store_on_one_folder_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="another shop"):
        Store(tmp_path)


def test_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shop.sqlite3").write_bytes(b"not a database" * 100)
    with pytest.raises(StoreError, match="cannot be used"):
        Store(tmp_path)


def test_reset_begins_the_sequence_again(store: Store) -> None:
    store.execute(EFFECT, ("ch_1",))
    store.reset()
    store.execute(EFFECT, ("ch_2",))
    assert [row["seq"] for row in store.rows("SELECT seq FROM effects")] == [1]


def test_clock_never_goes_backwards(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 50.0, 120.0])
    monkeypatch.setattr("time.time", lambda: next(times))
    clock = Clock(store)
    assert [clock.now() for _ in range(3)] == [100.0, 100.0, 120.0]
