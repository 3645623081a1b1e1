"""Plans, sentences and presets: which request meets which fault."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sandbox.fault_presets
from sandbox.fault_plans import PlanError, parse_plan, show_plan
from sandbox.fault_presets import PRESETS, make_preset
from sandbox.fault_sentences import NOUNS, WHATS, parse_sentence
from sandbox.faults import FAULTS, IN_LISTS, OPERATIONS, Rule


def strikes(rule: dict[str, Any], count: int = 8) -> list[int]:
    """Which of the first ``count`` refunds the rule strikes."""
    plan = parse_plan({"seed": 3, "rules": [{"operation": "refund", "fault": "error_503", **rule}]})
    return [number for number in range(1, count + 1) if plan.draw("refund", "order-7")]


@pytest.mark.parametrize(
    ("rule", "struck"),
    [
        ({}, [1, 2, 3, 4, 5, 6, 7, 8]),
        ({"nth": 3}, [3]),
        ({"from_nth": 6}, [6, 7, 8]),
        ({"to_nth": 2}, [1, 2]),
        ({"from_nth": 3, "to_nth": 4}, [3, 4]),
        ({"times": 2}, [1, 2]),
        ({"from_nth": 4, "times": 2}, [4, 5]),
        ({"order_id": "order-7", "nth": 2}, [2]),
        ({"order_id": "order-8"}, []),
        ({"probability": 0}, []),
        ({"operation": "charge"}, []),
        ({"operation": "*", "nth": 2}, [2]),
    ],
)
def test_rule_strikes_the_requests_it_names(rule: dict[str, Any], struck: list[int]) -> None:
    assert strikes(rule) == struck


def test_first_rule_that_fires_decides_and_all_rules_count() -> None:
    plan = parse_plan(
        {
            "rules": [
                {"operation": "refund", "nth": 2, "fault": "timeout_after"},
                {"operation": "*", "nth": 2, "fault": "error_503"},
                {"operation": "refund", "nth": 3, "fault": "reset_before"},
            ]
        }
    )
    assert [plan.draw("refund", None) for _ in range(3)] == [None, "timeout_after", "reset_before"]
    assert [rule["seen"] for rule in show_plan(plan)["rules"]] == [3, 3, 3]
    assert [rule["fired"] for rule in show_plan(plan)["rules"]] == [1, 0, 1]


def test_fault_that_says_nothing_about_an_operation_skips_it() -> None:
    plan = parse_plan({"rules": [{"operation": "*", "fault": "refused"}]})
    assert [plan.draw("list", None), plan.draw("ship", None)] == [None, "refused"]
    with pytest.raises(PlanError, match="wrong_amount says nothing about release"):
        parse_plan({"rules": [{"operation": "release", "fault": "wrong_amount"}]})


@given(seed=st.integers(0, 2**32), probability=st.floats(0.05, 0.95))
def test_draws_depend_on_seed_operation_and_count_alone(seed: int, probability: float) -> None:
    document = {"seed": seed, "rules": [{"operation": "*", "fault": "error_503", "probability": probability}]}
    alone, mixed = parse_plan(document), parse_plan(document)
    expected = [alone.draw("refund", None) for _ in range(30)]
    drawn = []
    for number in range(30):
        mixed.draw("charge", f"order-{number}")
        drawn.append(mixed.draw("refund", "order-7"))
    assert drawn == expected


def test_probability_is_met_in_the_long_run() -> None:
    plan = make_preset("black-friday", seed=11)
    struck = sum(plan.draw("charge", None) is not None for _ in range(20_000)) / 20_000
    assert 0.20 < struck < 0.24


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({"rules": "all"}, "rules must be a list"),
        ({"rule": []}, "the plan has no field 'rule'"),
        ({"seed": 1.5}, "the plan: seed must be a whole number"),
        ({"hang_seconds": 4000}, "hang_seconds must be a number from 0 to 3600"),
        ({"rules": [5]}, "rule 1 must be an object"),
        ({"rules": [{"operation": "refund"}]}, "rule 1: fault must be one of timeout_before"),
        ({"rules": [{"operation": "pay", "fault": "refused"}]}, "rule 1: operation must be one of charge"),
        ({"rules": [{"operation": "ship", "fault": "refused", "often": 1}]}, "rule 1 has no field 'often'"),
        ({"rules": [{"operation": "ship", "fault": "refused", "probability": 2}]}, "probability must be a number"),
        ({"rules": [{"operation": "ship", "fault": "refused", "probability": True}]}, "probability must be a number"),
        ({"rules": [{"operation": "ship", "fault": "refused", "nth": 0}]}, "nth must be a whole number from 1"),
        ({"rules": [{"operation": "ship", "fault": "refused", "nth": 1, "to_nth": 2}]}, "not both"),
        ({"rules": [{"operation": "ship", "fault": "refused", "from_nth": 3, "to_nth": 2}]}, "from_nth is after"),
        ({"rules": [{"operation": "ship", "fault": "refused", "order_id": 7}]}, "order_id must be a string"),
    ],
)
def test_plan_that_cannot_be_is_refused_with_its_place(document: dict[str, Any], complaint: str) -> None:
    with pytest.raises(PlanError, match=re.escape(complaint)):
        parse_plan(document)


def test_plan_as_shown_can_be_set_again() -> None:
    plan = make_preset("stormy", seed=4)
    assert show_plan(parse_plan(show_plan(plan))) == show_plan(plan)


@pytest.mark.parametrize(
    ("sentence", "rule"),
    [
        ("the 3rd refund succeeds and then hangs", Rule("refund", "timeout_after", nth=3)),
        ("The first charge is rate limited.", Rule("charge", "rate_limited", nth=1)),
        ("the next shipment is refused", Rule("ship", "refused", nth=1)),
        ("the next 5 reservations are unavailable", Rule("reserve", "error_503", to_nth=5)),
        ("refunds 10 to 50 hang before anything happens", Rule("refund", "timeout_before", from_nth=10, to_nth=50)),
        ("every release is cut off", Rule("release", "reset_before")),
        ("5% of calls are rate limited", Rule("*", "rate_limited", probability=0.05)),
        ("2.5 % of all lists are unavailable", Rule("list", "error_503", probability=0.025)),
        ("the 2nd charge fails for ever", Rule("charge", "error_500_stored", nth=2)),
        ("the 2nd charge fails for ever for order-7", Rule("charge", "error_500_stored", nth=2, order_id="order-7")),
        ("every charge is refused for order Order-7", Rule("charge", "refused", order_id="Order-7")),
        ("the 1st shipment cancellation succeeds but answers 500", Rule("cancel_shipment", "error_500_after", nth=1)),
        ("every refund timeout_after", Rule("refund", "timeout_after")),
    ],
)
def test_sentence_becomes_the_rule_it_says(sentence: str, rule: Rule) -> None:
    assert parse_sentence(sentence) == rule


def test_every_fault_and_every_operation_can_be_said() -> None:
    assert set(WHATS.values()) == set(FAULTS)
    assert set(NOUNS.values()) == {*OPERATIONS, "*"}
    for what, fault in WHATS.items():
        noun = "list" if fault in IN_LISTS else "charge"
        assert parse_sentence(f"every {noun} {what}").fault == fault
    for noun, operation in NOUNS.items():
        assert parse_sentence(f"the 2nd {noun} hangs").operation == operation


@pytest.mark.parametrize(
    "sentence", ["", "be evil", "the 3rd payment hangs", "the 3rd refund explodes", "every release succeeds but says"]
)
def test_sentence_not_understood_lists_the_forms(sentence: str) -> None:
    with pytest.raises(PlanError, match=r"not understood.*Which: the 3rd refund"):
        parse_sentence(sentence)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_preset_is_what_its_table_says(name: str) -> None:
    text = Path(sandbox.fault_presets.__file__).read_text(encoding="utf-8")
    header, *rows = [
        line.strip("|").split("|") for line in text.splitlines() if line.startswith("|") and "--" not in line
    ]
    column = [cell.strip() for cell in header].index(name)
    told = {row[0].strip(): row[column].strip() for row in rows}
    said = {fault: float(cell.removesuffix(" %")) / 100 for fault, cell in told.items() if cell != "–"}
    assert said == pytest.approx(PRESETS[name])
