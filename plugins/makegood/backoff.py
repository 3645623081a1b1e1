"""How long to wait before the next attempt: full jitter, so that a thousand failures do not return together."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits are drawn evenly from nothing to ``base · 2ⁿ``, at most ``cap``."""

    base_seconds: float
    cap_seconds: float

    def wait_seconds(self, attempt: int, chance: random.Random) -> float:
        ceiling = min(self.cap_seconds, self.base_seconds * 2 ** min(attempt - 1, 30))
        return chance.uniform(0, ceiling)
