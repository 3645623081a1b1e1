"""Who comes first: services in waves, each after all it needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from graphlib import TopologicalSorter
from typing import Protocol, TypeVar


class Needy(Protocol):
    """Anything with a name and the names of what it needs."""

    @property
    def name(self) -> str: ...
    @property
    def needs(self) -> tuple[str, ...]: ...


N = TypeVar("N", bound=Needy)


def in_waves_of_need(needy: Sequence[N]) -> Iterator[list[N]]:
    """Each in a later wave than all it needs; a need that is not among them is somebody else's matter."""
    names = {one.name for one in needy}
    sorter = TopologicalSorter({one.name: [need for need in one.needs if need in names] for one in needy})
    sorter.prepare()
    while sorter.is_active():
        wave = set(sorter.get_ready())
        yield [one for one in needy if one.name in wave]
        sorter.done(*wave)


def in_order_of_need(needy: Sequence[N]) -> list[N]:
    """Each after all it needs."""
    return [one for wave in in_waves_of_need(needy) for one in wave]
