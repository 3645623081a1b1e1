"""A part of the crash proof, and the proof of the prover: every guard's removal is caught."""

from __future__ import annotations

import pytest

from makegood.local.postgres import EmbeddedPostgres
from prover.mutants import MUTANTS, Mutant, Strike, run_mutant, run_strike
from prover.run import run_crash_proof
from prover.scenarios import SCENARIOS
from prover.tripwire import BLOWS

# Not a divisor of the number of blows, so that every blow has its turn.
EVERY = 41


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_crash_at_points_of_every_scenario_breaks_no_promise(server: EmbeddedPostgres) -> None:
    report = run_crash_proof(server.url("postgres"), server.url(), every=EVERY)
    assert report.violations == []
    assert report.points >= 100
    assert set(report.by_scenario) == {scenario.name for scenario in SCENARIOS}
    assert set(report.by_blow) == set(BLOWS)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_crash_of_whoever_comes_after_a_crash_gives_money_back_once(server: EmbeddedPostgres) -> None:
    """A part of the pairs; `makegood prove crash --pairs` strikes them all."""
    report = run_crash_proof(server.url("postgres"), server.url(), only="undo_refund_lost", pairs=True, every=EVERY)
    assert report.violations == []
    assert report.points >= 10


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_prover_without_a_guard_finds_the_harm(server: EmbeddedPostgres, mutant: Mutant) -> None:
    report = run_mutant(mutant, server.url("postgres"), server.url())
    assert report.points == len(mutant.strikes)
    assert report.violations, f"nobody noticed that the guard {mutant.name!r} was gone"


@pytest.mark.slow
@pytest.mark.parametrize("strike", {strike: None for mutant in MUTANTS for strike in mutant.strikes}, ids=str)
def test_prover_with_every_guard_in_place_finds_nothing(server: EmbeddedPostgres, strike: Strike) -> None:
    """The same blows, so that it is the missing guard that was caught and not the blow."""
    report = run_strike(strike, server.url("postgres"), server.url())
    assert (report.points, report.violations) == (1, [])
