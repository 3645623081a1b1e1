"""So many requests in a second and no more, whoever asks; those who have to wait do so in the order of asking."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

BURST_SECONDS = 0.25
"""Turns of this long are not lost when nobody asked; more would break the limit of the second that follows."""
TURNS_LOST = 5
"""So many unused at once, and nobody will take them: fewer are a matter of which answers came together."""
LIVE_PER_SECOND, TEST_PER_SECOND = 100.0, 25.0  # what Stripe allows an account, live and in a sandbox


class Bucket:
    """``turn`` returns when the next request may leave; ``pause`` holds all of them back."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._spacing = 1 / per_second
        self._clock = clock
        self._next = clock()

    def book(self) -> float:
        """Takes a turn and returns how many seconds it is away."""
        now = self._clock()
        at = max(self._next, now - BURST_SECONDS)
        self._next = at + self._spacing
        return max(0.0, at - now)

    async def turn(self) -> None:
        wait_seconds = self.book()
        if wait_seconds > 0:
            await asyncio.sleep(wait_seconds)

    def loses_turns(self) -> bool:
        """Whether turns go by unused: those who ask now do not take them all, one more asker would."""
        return self._clock() - self._next >= min(TURNS_LOST * self._spacing, BURST_SECONDS)

    def pause(self, seconds: float) -> None:
        """The provider asked for silence: no turn before it is over."""
        self._next = max(self._next, self._clock() + seconds)


def allowed_per_second(api_key: str) -> float:
    """By the key's own prefix: sk_live_…, rk_live_… are the real account."""
    return LIVE_PER_SECOND if "_live_" in api_key[:8] else TEST_PER_SECOND
