"""What fell is started again: at once the first time, less and less often when it does not stay up, never given up.
What hangs is started anew, once that is sure."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from makegood.errors import ConfigurationError
from makegood.local.keeper import (
    HUNG_SECONDS,
    PROBE_SECONDS,
    STAYED_UP_SECONDS,
    TIDY_SECONDS,
    WAIT_SECONDS,
    WAIT_SECONDS_MAX,
    Keeper,
)


class Home:
    """Stands for an Environment: what has fallen, and what does not start."""

    def __init__(self, *fallen: str) -> None:
        self.fallen = list(fallen)
        self.broken: set[str] = set()
        self.revived: list[str] = []
        self.unwell: list[str] = []
        self.questions = self.rotations = self.drops = 0
        self.now = 1000.0

    def find_fallen(self, owed: Collection[str] = ()) -> list[str]:
        return [*self.fallen, *(name for name in owed if name not in self.fallen)]

    def find_unwell(self) -> list[str]:
        self.questions += 1
        return list(self.unwell)

    def rotate_logs(self) -> None:
        self.rotations += 1

    def drop_old(self) -> None:
        self.drops += 1

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


def look_for(home: Home, keeper: Keeper, seconds: float) -> list[str]:
    """Looks every three seconds for so long; returns what was started in that time."""
    end, started = home.now + seconds, []
    while home.now < end:
        home.now += 3
        started += keeper.look()
    return started


def test_one_that_hangs_is_started_anew_after_its_time_and_not_before() -> None:
    home = Home()
    home.unwell = ["shop"]
    keeper = keep(home)
    assert look_for(home, keeper, PROBE_SECONDS + HUNG_SECONDS - 3) == []
    assert look_for(home, keeper, 6) == ["shop"]
    home.unwell = []
    assert look_for(home, keeper, 10 * HUNG_SECONDS) == []


def test_one_that_misses_a_few_questions_is_left_alone() -> None:
    home = Home()
    keeper = keep(home)
    for _ in range(5):
        home.unwell = ["shop"]
        assert look_for(home, keeper, HUNG_SECONDS - PROBE_SECONDS) == []
        home.unwell = []
        assert look_for(home, keeper, 2 * PROBE_SECONDS) == []


def test_one_that_hangs_again_at_once_is_started_less_and_less_often() -> None:
    home = Home()
    home.unwell = ["shop"]
    keeper = keep(home)
    first, then = look_for(home, keeper, 1800), look_for(home, keeper, 1800)
    assert len(first) > len(then)
    assert 5 <= len(then) <= 6  # every five minutes or so


def test_services_are_asked_now_and_then_only() -> None:
    home = Home()
    look_for(home, keep(home), 10 * PROBE_SECONDS)
    assert 9 <= home.questions <= 10


def test_logs_are_looked_after_every_time_and_old_records_now_and_then() -> None:
    home = Home()
    keeper = keep(home)
    for _ in range(100):
        home.now += TIDY_SECONDS / 50
        keeper.tidy()
    assert (home.rotations, home.drops) == (100, 2)
