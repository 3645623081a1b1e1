"""Who is taken by a recovery and what becomes of each, as tables; and shares that are fair whatever is wanted."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makegood.engine.definitions import Action, Call, Request, Step, Workflow
from makegood.engine.model import Execution, Outage
from makegood.recovery.decide import (
    BATCHES_MAX,
    cut,
    decide,
    find_lane,
    find_next_provider,
    merge,
    plan,
    share,
    take_turns,
)
from makegood.recovery.model import LANES, Batch, Count, Stuck
from makegood.runs.model import Options, Verdict


def action(provider: str | None) -> Action:
    return Action(send=lambda call, request: None, provider=provider)


# The first step's undo is not harmless where nothing happened; the last one's is.
TRIP = Workflow(
    "trip",
    steps=[
        Step("fly", "flying", "flown", action("payments"), undo=action("payments"), attempts_max=3),
        Step("tell", "telling", "told", action(None), attempts_max=2),
        Step("sleep", "sleeping", None, action("hotels"), undo=action("hotels"), undo_when_unsure=True, attempts_max=3),
    ],
)
CHECKOUT = Workflow(
    "checkout",
    steps=[
        Step("charge", "charging", "charged", action("payments")),
        Step("reserve", "reserving", "reserved", action("inventory")),
        Step("ship", "shipping", None, action("shipping")),
    ],
)
WORKFLOWS = {"trip": TRIP, "checkout": CHECKOUT}
SHORT, LONG = Outage("air", 10.0, 7.0), Outage("air", 900.0, -1.0)


def execution(state: str, *, attempts: int = 0, cancel: bool = False, kind: str = "trip") -> Execution:
    created_at = datetime(2026, 1, 2, tzinfo=UTC)
    return Execution(uuid.UUID(int=1), kind, "trip-1", state, {}, None, None, attempts, 1, cancel, created_at)


@pytest.mark.parametrize(
    ("state", "attempts", "cancel", "outage", "verdict"),
    [
        # Its worker died between two steps.
        ("created", 0, False, None, Verdict("resume", "step 'fly' was never begun: it begins now")),
        ("flown", 0, False, None, Verdict("resume", "step 'tell' was never begun: it begins now")),
        # Or in the middle of one: the same call goes out again.
        (
            *("flying", 1, False, None),
            Verdict("resume", "step 'fly' was begun and has no answer: attempt 2 of 3 under the same key"),
        ),
        # A cancel does not keep it from being found out what happened.
        (
            *("flying", 1, True, None),
            Verdict("resume", "step 'fly' was begun and has no answer: attempt 2 of 3 under the same key"),
        ),
        (
            *("flying", 3, False, None),
            Verdict("resume", "the attempts of step 'fly' are spent: what became of it is looked up"),
        ),
        # Nobody can tell, and taking back what may not have happened is not harmless.
        ("flying", 8, False, None, Verdict("park", "nobody can tell what became of step 'fly'")),
        # Harmless.
        (
            *("sleeping", 8, False, None),
            Verdict("compensate", "nobody can tell what became of step 'sleep': 3 steps to undo"),
        ),
        # A cancel at a border.
        ("created", 0, True, None, Verdict("compensate", "a cancel was requested: 0 steps to undo")),
        ("flown", 0, True, None, Verdict("compensate", "a cancel was requested: 1 step to undo")),
        # Whom the next call would go to is down.
        ("created", 0, False, SHORT, Verdict("wait", "air is down; tried again in 7 s")),
        ("flying", 1, False, SHORT, Verdict("wait", "air is down; tried again in 7 s")),
        ("flown", 0, False, LONG, Verdict("compensate", "air has been down for 900 s: 1 step to undo")),
        ("flown", 0, True, LONG, Verdict("compensate", "a cancel was requested: 1 step to undo")),
        # Written by a newer worker: never guessed at.
        (
            *("teleporting", 0, False, None),
            Verdict("park", "state 'teleporting' is not known to this worker (written by a newer one?)"),
        ),
        # Whatever else the engine would do, it does.
        ("compensating", 0, False, None, Verdict("resume", "it goes on from 'compensating'")),
        ("completed", 0, False, None, Verdict("resume", "it goes on from 'completed'")),
    ],
)
def test_decide_names_what_the_engine_will_do_and_why(
    state: str, attempts: int, cancel: bool, outage: Outage | None, verdict: Verdict
) -> None:
    assert decide(Stuck(execution(state, attempts=attempts, cancel=cancel), TRIP, outage)) == verdict


def test_decide_of_a_type_that_is_not_known_parks_it() -> None:
    verdict = decide(Stuck(execution("created", kind="cruise"), None))
    assert verdict == Verdict("park", "workflow type 'cruise' is not known to this worker")


@pytest.mark.parametrize(
    ("kind", "state", "lane"),
    [
        ("checkout", "created", "payments"),  # the next call is the charge
        ("checkout", "charging", "payments"),
        ("checkout", "charged", "inventory"),  # done with the money: the next one is another provider's
        ("checkout", "reserved", "shipping"),
        ("checkout", "shipping", "shipping"),
        ("trip", "flown", "other"),  # the next call goes to nobody who has a name
        ("trip", "sleeping", "other"),  # a provider without a lane of its own
        ("checkout", "compensating", "other"),
        ("checkout", "teleporting", "other"),  # nobody is called: it is parked
        ("cruise", "created", "other"),
    ],
)
def test_lane_is_that_of_the_provider_of_the_next_call(kind: str, state: str, lane: str) -> None:
    assert find_lane(find_next_provider(WORKFLOWS.get(kind), state)) == lane


def cannot_be(call: Call) -> Request:
    return {"sku": call.context["sku"]}


def test_decide_of_data_that_the_next_call_cannot_be_made_of_parks_it() -> None:
    """In the words in which the engine then holds it."""
    step = Step("pack", "packing", None, Action(lambda call, request: None, cannot_be))
    workflow = Workflow("parcel", [step])
    for state in ("created", "packing"):
        assert decide(Stuck(execution(state, kind="parcel"), workflow)) == Verdict("park", "KeyError: 'sku'")
    down = decide(Stuck(execution("created", kind="parcel"), workflow, SHORT))
    assert down.decision == "wait"  # nothing is worked out while nobody could be called


# The plan


def count(kind: str, state: str, due: int, *, waiting: int = 0, leased: int = 0, oldest: float = 600.0) -> Count:
    return Count(kind, state, due, waiting, leased, oldest)


def planned(*counts: Count, limit: int = 100, batch_max: int = 10, **options: float) -> dict[str, list[Batch]]:
    made = plan(counts, WORKFLOWS, Options(limit, **options), batch_max=batch_max, orphaned_after_seconds=3600)
    return {lane: list(batches) for lane, batches in made.batches.items() if batches}


@pytest.mark.parametrize(
    ("counts", "batches"),
    [
        # Nothing is stuck.
        ([], {}),
        # Only waiting or leased: nothing to take.
        ([count("checkout", "charging", 0, waiting=5, leased=5)], {}),
        # One batch.
        ([count("checkout", "charging", 3)], {"payments": [Batch("checkout", ("charging",), 3)]}),
        # One more than a batch.
        (
            [count("checkout", "charging", 11)],
            {"payments": [Batch("checkout", ("charging",), 10), Batch("checkout", ("charging",), 1)]},
        ),
        # States with one provider are one lane's, others another's.
        (
            [count("checkout", "created", 2), count("checkout", "charging", 1), count("checkout", "charged", 4)],
            {
                "payments": [Batch("checkout", ("charging", "created"), 3)],
                "inventory": [Batch("checkout", ("charged",), 4)],
            },
        ),
        # What is being undone is the other job's.
        ([count("checkout", "compensating", 9)], {}),
        # A state that a newer worker wrote is taken, to be parked.
        ([count("checkout", "teleporting", 1)], {"other": [Batch("checkout", ("teleporting",), 1)]}),
        # A type that is not known here is another deployment's…
        ([count("cruise", "created", 9, oldest=3599)], {}),
        # … until nobody came for so long, and then also what it had begun to undo.
        (
            [count("cruise", "created", 2, oldest=3600), count("cruise", "compensating", 1, oldest=9999)],
            {"other": [Batch("cruise", ("compensating", "created"), 3, 3600)]},
        ),
    ],
)
def test_plan_takes_what_is_ours_to_take(counts: list[Count], batches: dict[str, list[Batch]]) -> None:
    assert planned(*counts) == batches


def test_plan_of_many_of_one_type_leaves_room_for_the_few_of_another() -> None:
    batches = planned(count("checkout", "charging", 50_000), count("trip", "telling", 3), limit=20, batch_max=100)
    assert batches == {
        "payments": [Batch("checkout", ("charging",), 17)],
        "other": [Batch("trip", ("telling",), 3)],
    }


def test_plan_of_many_for_one_provider_leaves_room_for_those_of_another() -> None:
    batches = planned(
        count("checkout", "charging", 50_000),
        count("checkout", "reserving", 2),
        count("checkout", "shipping", 50_000),
        limit=12,
    )
    assert {lane: sum(batch.limit for batch in group) for lane, group in batches.items()} == {
        **{"payments": 5, "inventory": 2, "shipping": 5},
    }


def test_plan_lets_types_and_providers_of_one_lane_take_turns_the_fewest_first() -> None:
    """Of thousands of errands that hang only one batch is before the three of another kind."""
    batches = planned(
        count("trip", "telling", 25), count("trip", "sleeping", 11), count("checkout", "teleporting", 3), limit=1000
    )
    turns = [(batch.workflow_type, batch.states, batch.limit) for batch in batches["other"]]
    assert turns == [
        ("checkout", ("teleporting",), 3),
        ("trip", ("sleeping",), 10),
        ("trip", ("telling",), 10),
        ("trip", ("sleeping",), 1),
        ("trip", ("telling",), 10),
        ("trip", ("telling",), 5),
    ]


def test_plan_of_many_for_one_provider_of_ones_own_leaves_room_for_those_of_another() -> None:
    batches = planned(count("trip", "telling", 50_000), count("trip", "sleeping", 2), limit=8)
    assert [(batch.states, batch.limit) for batch in batches["other"]] == [(("sleeping",), 2), (("telling",), 6)]


@pytest.mark.parametrize(
    ("groups", "turns"),
    [([], []), ([[]], []), ([[1, 2, 3]], [1, 2, 3]), ([[1, 2, 3], [], [4], [5, 6]], [1, 4, 5, 2, 6, 3])],
)
def test_turns_are_taken_until_all_are_used_up(groups: list[list[int]], turns: list[int]) -> None:
    assert take_turns(groups) == turns


def test_plan_asks_for_the_age_that_the_operator_asked_for() -> None:
    batches = planned(count("checkout", "charging", 1), older_than_seconds=60)
    assert batches == {"payments": [Batch("checkout", ("charging",), 1, 60)]}


@pytest.mark.parametrize(
    ("asked", "taken"),
    [
        (None, 3600),
        (60, 3600),  # a type that nobody here knows is left alone for its hour, whatever was asked
        (7200, 7200),  # and no younger one is taken than was asked for
    ],
)
def test_plan_of_orphans_asks_for_their_age_and_the_operators(asked: float | None, taken: float) -> None:
    batches = planned(count("cruise", "created", 1, oldest=9999), older_than_seconds=asked)  # type: ignore[arg-type]
    assert batches == {"other": [Batch("cruise", ("created",), 1, taken)]}


def test_plan_counts_what_it_found_and_left_alone() -> None:
    made = plan(
        [
            count("checkout", "charging", 3, waiting=2, leased=1),
            count("checkout", "compensating", 5),
            count("cruise", "created", 7, oldest=10),
            count("parade", "created", 4, oldest=9999),
        ],
        WORKFLOWS,
        Options(2),
        batch_max=10,
        orphaned_after_seconds=3600,
    )
    assert made.counts == {"due": 3, "not_due": 2, "leased": 1, "not_mine": 7, "orphaned": 4}
    assert made.size == 2  # the limit


def test_plan_of_very_many_has_few_larger_batches() -> None:
    """Airflow maps over batches, and has a bound of its own."""
    made = planned(count("checkout", "charging", 1_000_000), limit=1_000_000, batch_max=500)
    assert len(made["payments"]) == BATCHES_MAX
    assert sum(batch.limit for batch in made["payments"]) == 1_000_000


def test_plan_has_every_lane_also_when_it_is_empty() -> None:
    made = plan([], WORKFLOWS, Options(1), batch_max=1, orphaned_after_seconds=1)
    assert set(made.batches) == set(LANES)


def test_batch_survives_the_way_through_a_document() -> None:
    for batch in (Batch("trip", ("told", "flown"), 3), Batch("trip", ("told",), 3, 60.5)):
        assert Batch.from_document(batch.to_document()) == batch


# Shares


@pytest.mark.parametrize(
    ("limit", "wants", "shares"),
    [
        (0, {"a": 5}, {"a": 0}),
        (5, {}, {}),
        (5, {"a": 0}, {"a": 0}),
        (5, {"a": 9}, {"a": 5}),
        (10, {"a": 9, "b": 1}, {"a": 9, "b": 1}),  # enough for all
        (4, {"a": 9, "b": 9}, {"a": 2, "b": 2}),
        (5, {"a": 9, "b": 9}, {"a": 3, "b": 2}),  # somebody gets the odd one
        (10, {"a": 1000, "b": 3}, {"a": 7, "b": 3}),  # what the small leaves goes to the large
        (1, {"a": 9, "b": 9, "c": 9}, {"a": 1, "b": 0, "c": 0}),
    ],
)
def test_share_gives_everybody_the_same_until_they_have_what_they_want(
    limit: int, wants: dict[str, int], shares: dict[str, int]
) -> None:
    assert share(limit, wants) == shares


@given(
    st.integers(0, 10_000),
    st.dictionaries(st.integers(0, 50), st.integers(0, 20_000), max_size=20),
)
def test_share_is_within_bounds_complete_and_fair(limit: int, wants: dict[int, int]) -> None:
    shares = share(limit, wants)
    assert set(shares) == set(wants)
    assert all(0 <= shares[key] <= wants[key] for key in wants)
    assert sum(shares.values()) == min(limit, sum(wants.values()))  # none is given twice, none is left over
    unsatisfied = [shares[key] for key in wants if shares[key] < wants[key]]
    assert not unsatisfied or max(unsatisfied) - min(unsatisfied) <= 1
    # Nobody who has all they want got more than one who has not.
    satisfied = [shares[key] for key in wants if shares[key] == wants[key]]
    assert not (satisfied and unsatisfied) or max(satisfied) <= min(unsatisfied) + 1


def test_merge_makes_one_batch_of_those_that_look_for_the_same() -> None:
    one, other, older = Batch("a", ("x",), 5), Batch("a", ("x", "y"), 5), Batch("a", ("x",), 5, 60)
    assert merge([one, other, one, older]) == [Batch("a", ("x",), 10), other, older]
    assert merge([]) == []


@pytest.mark.parametrize(
    ("total", "size", "parts"),
    [(0, 5, []), (1, 5, [1]), (5, 5, [5]), (6, 5, [5, 1]), (11, 5, [5, 5, 1])],
)
def test_cut_makes_parts_of_at_most_a_size(total: int, size: int, parts: list[int]) -> None:
    assert cut(total, size) == parts


@given(st.integers(0, 10_000), st.integers(1, 500))
def test_cut_loses_nothing(total: int, size: int) -> None:
    parts = cut(total, size)
    assert sum(parts) == total
    assert all(1 <= part <= size for part in parts)
