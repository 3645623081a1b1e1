"""Waits: full jitter within bounds, the undo more patient than the way forward."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makegood.backoff import Backoff
from makegood.engine.definitions import Action
from makegood.engine.runner import waits_of
from makegood.settings import Settings
from makegood.workflows.checkout import make_checkout

WAITS = waits_of(Settings())
seeds = st.integers()
attempts = st.integers(min_value=1, max_value=10**6)
sizes = st.floats(min_value=0.001, max_value=10_000, allow_nan=False)


@given(seeds, attempts, sizes, sizes)
def test_wait_is_between_nothing_and_the_ceiling(seed: int, attempt: int, base: float, cap: float) -> None:
    wait = Backoff(base, cap).wait_seconds(attempt, random.Random(seed))
    assert 0 <= wait <= cap
    assert wait <= base * 2 ** min(attempt - 1, 60)


@given(attempts, sizes, sizes)
def test_ceiling_never_falls_with_the_attempt(attempt: int, base: float, cap: float) -> None:
    class Highest(random.Random):
        def uniform(self, a: float, b: float) -> float:
            return b

    sooner, later = (Backoff(base, cap).wait_seconds(n, Highest()) for n in (attempt, attempt + 1))
    assert sooner <= later <= cap


def test_waits_of_many_failures_do_not_come_back_together() -> None:
    chance = random.Random(7)
    waits = sorted(WAITS.forward.wait_seconds(6, chance) for _ in range(1000))
    assert waits[0] < 2
    assert waits[-1] > 58
    assert (
        25 < sum(waits) / len(waits) < 35
    )  # even over nothing to 60: full jitter, not a fixed wait with a little noise


@pytest.mark.parametrize(
    ("attempt", "forward", "undo"),
    [
        (1, 2, 5),
        (2, 4, 10),
        (5, 32, 80),
        (6, 60, 160),  # forward is capped: a customer waits
        (9, 60, 900),  # the undo is capped at a quarter of an hour
        (10**9, 60, 900),  # and no attempt overflows
    ],
)
def test_ceilings_of_forward_and_undo(attempt: int, forward: float, undo: float) -> None:
    class Highest(random.Random):
        def uniform(self, a: float, b: float) -> float:
            return b

    assert WAITS.forward.wait_seconds(attempt, Highest()) == forward
    assert WAITS.undo.wait_seconds(attempt, Highest()) == undo


def test_forward_attempts_span_minutes_and_undo_attempts_hours() -> None:
    action = Action(send=lambda call, request: None)
    names = ("charge", "refund", "reserve", "release", "ship", "cancel_shipment")
    charge = make_checkout(**dict.fromkeys(names, action)).steps[0]
    forward = sum(min(60, 2 * 2**n) for n in range(charge.attempts_max)) / 2
    undo = sum(min(900, 5 * 2**n) for n in range(charge.undo_attempts_max)) / 2
    assert 60 < forward < 600
    assert 3600 < undo < 20 * 3600  # and all of it within the time a key may be replayed
