"""Who is told of the stages of a longer command."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told of every stage: once when it begins, once when it is over."""

    def begin(self, what: str) -> None: ...
    def done(self, what: str, outcome: str, seconds: float, *, well: bool = True) -> None: ...


class Silent:
    """Nobody watches."""

    def begin(self, what: str) -> None:
        pass

    def done(self, what: str, outcome: str, seconds: float, *, well: bool = True) -> None:
        pass
