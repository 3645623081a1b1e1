"""What was committed here survives the death of the process; what was not committed never happened.

One SQLite file, one process, one writer: a lock on the folder keeps a second shop out. With ``full`` a
commit also survives a power cut; with ``normal`` the death of the process, which is what the proofs need.

Weakness: the rows of ``calls`` that belong to no effect (reads, replays, refusals) are written with the next
commit or within ``FLUSH_SECONDS``, so a kill can lose the last of them. The log of effects loses nothing.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Literal

Json = dict[str, Any]
Durability = Literal["full", "normal"]

FLUSH_SECONDS = 0.2
FILE_NAME = "shop.sqlite3"
LOCK_NAME = "shop.lock"
SCHEMA = Path(__file__).with_name("schema.sql")
PRAGMAS = {"full": "PRAGMA synchronous = FULL", "normal": "PRAGMA synchronous = NORMAL"}


class StoreError(Exception):
    """The data folder cannot be used; the message says why."""


class Store:
    def __init__(self, folder: Path, durability: Durability = "full") -> None:
        self._path = folder / FILE_NAME
        self._durability = durability
        self._pending_calls: list[tuple[Any, ...]] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock_folder(folder)
        except OSError as error:
            raise StoreError(f"the data folder {folder} cannot be used: {error}") from error
        try:
            self._database = self._open()
        except sqlite3.Error as error:
            self._lock.close()
            raise StoreError(f"the data folder {folder} cannot be used: {self._path.name}: {error}") from error

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, isolation_level=None)
        try:
            database.row_factory = sqlite3.Row
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(PRAGMAS[self._durability])
            database.executescript(SCHEMA.read_text(encoding="utf-8"))
        except sqlite3.Error:
            database.close()
            raise
        return database

    def close(self) -> None:
        self.flush_calls()
        self._database.close()
        self._lock.close()

    def reset(self) -> None:
        """Begin again with an empty file: the log has no other way of forgetting."""
        self._pending_calls.clear()
        self._database.close()
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(FILE_NAME + suffix).unlink(missing_ok=True)
        self._database = self._open()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All of it or nothing of it; on the disk before this returns."""
        noted_before = len(self._pending_calls)
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._write_pending_calls()
            self._database.execute("COMMIT")
        except BaseException:
            del self._pending_calls[noted_before:]  # what was noted inside did not happen either
            self._database.rollback()
            raise
        self._pending_calls.clear()

    @contextlib.contextmanager
    def savepoint(self) -> Iterator[None]:
        """Undo what was written inside when it raises; the transaction around it goes on."""
        self._database.execute("SAVEPOINT attempt")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK TO attempt")
            raise
        finally:
            self._database.execute("RELEASE attempt")

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        return self._database.execute(statement, values)

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        return self._database.execute(statement, values).fetchall()

    def row(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Row | None:
        found: sqlite3.Row | None = self._database.execute(statement, values).fetchone()
        return found

    def add_object(
        self,
        body: Json,
        *,
        kind: str,
        order_id: str | None = None,
        payment_intent: str | None = None,
        parent: str | None = None,
        tag: str | None = None,
    ) -> None:
        self.execute(
            "INSERT INTO objects (id, kind, created, order_id, payment_intent, parent, tag, body)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (body["id"], kind, body["created"], order_id, payment_intent, parent, tag, to_json(body)),
        )

    def save_object(self, body: Json) -> None:
        self.execute("UPDATE objects SET body = ? WHERE id = ?", (to_json(body), body["id"]))

    def find_object(self, kind: str, object_id: str) -> Json | None:
        row = self.row("SELECT body FROM objects WHERE id = ? AND kind = ?", (object_id, kind))
        return None if row is None else json.loads(row["body"])

    def find_objects_of_order(self, kind: str, order_id: str) -> list[Json]:
        found = self.rows("SELECT body FROM objects WHERE order_id = ? AND kind = ? ORDER BY seq", (order_id, kind))
        return [json.loads(row["body"]) for row in found]

    def get_order_of(self, object_id: str) -> str | None:
        row = self.row("SELECT order_id FROM objects WHERE id = ?", (object_id,))
        return None if row is None else row["order_id"]

    def get_setting(self, name: str) -> str | None:
        row = self.row("SELECT value FROM settings WHERE name = ?", (name,))
        return None if row is None else row["value"]

    def set_setting(self, name: str, value: str) -> None:
        self.execute("INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)", (name, value))

    def note_call(self, values: tuple[Any, ...]) -> None:
        """Keep one row of ``calls`` for the next commit."""
        self._pending_calls.append(values)

    def flush_calls(self) -> None:
        if self._pending_calls:
            with self.transaction():
                pass  # a transaction writes what is pending

    def _write_pending_calls(self) -> None:
        self._database.executemany(
            "INSERT INTO calls (at, endpoint, operation, idempotency_key, order_id, fault, status, replayed,"
            " request_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            self._pending_calls,
        )


def to_json(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _lock_folder(folder: Path) -> IO[str]:
    # The kernel lets go of this lock when the process dies, so a killed shop never blocks the next one.
    lock = (folder / LOCK_NAME).open("a", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise OSError(f"another shop (not process {os.getpid()}) is using it") from None
    return lock
