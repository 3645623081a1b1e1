"""The shop's time: the machine's, plus what the control API advanced it by; it never goes backwards."""

from __future__ import annotations

import time

from sandbox.store import Store

SETTING = "clock_offset_seconds"


class Clock:
    """The offset is durable: a restart must not make stored keys young again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._offset_seconds = float(store.get_setting(SETTING) or 0)
        self._latest = 0.0

    def now(self) -> float:
        self._latest = max(self._latest, time.time() + self._offset_seconds)
        return self._latest

    def now_seconds(self) -> int:
        return int(self.now())

    def advance(self, seconds: float) -> float:
        self._offset_seconds += seconds
        self._store.set_setting(SETTING, repr(self._offset_seconds))
        return self.now()
