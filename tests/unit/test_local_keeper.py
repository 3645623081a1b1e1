"""What fell is started again: at once the first time, less and less often when it does not stay up, never given up."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from makegood.errors import ConfigurationError
from makegood.local.keeper import STAYED_UP_SECONDS, WAIT_SECONDS, WAIT_SECONDS_MAX, Keeper


class Home:
    """Stands for an Environment: what has fallen, and what does not start."""

    def __init__(self, *fallen: str) -> None:
        self.fallen = list(fallen)
        self.broken: set[str] = set()
        self.revived: list[str] = []
        self.now = 1000.0

    def find_fallen(self, owed: Collection[str] = ()) -> list[str]:
        return [*self.fallen, *(name for name in owed if name not in self.fallen)]

    def revive(self, name: str) -> None:
        self.revived.append(name)
        if name in self.fallen:
            self.fallen.remove(name)
        if name in self.broken:
            raise ConfigurationError(f"{name} ended right after its start")


def keep(home: Home) -> Keeper:
    environment: Any = home
    return Keeper(environment, lambda: home.now)


def test_nothing_has_fallen_and_nothing_is_started() -> None:
    home = Home()
    assert keep(home).look() == []
    assert home.revived == []


def test_everything_that_fell_is_started_again_at_once_in_its_order() -> None:
    home = Home("postgres", "shop")
    assert keep(home).look() == ["postgres", "shop"]
    assert home.revived == ["postgres", "shop"]


def test_one_that_does_not_start_keeps_no_other_from_starting_and_is_tried_again() -> None:
    home = Home("shop", "traffic")
    home.broken = {"shop"}
    keeper = keep(home)
    assert keeper.look() == ["traffic"]
    assert keeper.look() == []  # not at once
    home.broken.clear()
    home.now += 2 * WAIT_SECONDS
    assert keeper.look() == ["shop"]
    home.now += WAIT_SECONDS_MAX
    assert keeper.look() == []  # it is up: nothing is owed


@pytest.mark.parametrize(
    ("falls", "wait_seconds"), [(1, 2 * WAIT_SECONDS), (3, 8 * WAIT_SECONDS), (40, WAIT_SECONDS_MAX)]
)
def test_one_that_falls_again_and_again_is_started_less_and_less_often(falls: int, wait_seconds: float) -> None:
    home = Home("shop")
    keeper = keep(home)
    for _ in range(falls):
        assert keeper.look() == ["shop"]
        home.fallen.append("shop")
        last, home.now = home.now, home.now + WAIT_SECONDS_MAX
    home.now = last + wait_seconds - 0.1
    assert keeper.look() == []
    home.now = last + wait_seconds
    assert keeper.look() == ["shop"]


def test_fall_after_a_long_time_up_is_a_new_one() -> None:
    home = Home("shop")
    keeper = keep(home)
    for _ in range(5):
        keeper.look()
        home.fallen.append("shop")
        home.now += WAIT_SECONDS_MAX
    home.now += STAYED_UP_SECONDS + 1
    assert keeper.look() == ["shop"]
    home.fallen.append("shop")
    home.now += 2 * WAIT_SECONDS
    assert keeper.look() == ["shop"]
