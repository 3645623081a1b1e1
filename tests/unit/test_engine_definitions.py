"""Definitions are data: wrong ones are refused in words, right ones make the graph and the keys."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from makegood.engine.definitions import Action, Step, Workflow, compensation_id, undo_key
from makegood.errors import ConfigurationError
from makegood.workflows.checkout import make_checkout

ACTION = Action(send=lambda call, request: None)
CHECKOUT = make_checkout(
    charge=ACTION, refund=ACTION, reserve=ACTION, release=ACTION, ship=ACTION, cancel_shipment=ACTION
)
CHARGE = CHECKOUT.steps[0]
SOME_ID = uuid.UUID("01890000-0000-7000-8000-000000000001")


def step(name: str = "pack", doing: str = "packing", done: str | None = None, **rest: Any) -> Step:
    return Step(name, doing, done, ACTION, **rest)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Workflow("w", []), "'w' has no steps"),
        (lambda: Workflow("w", [step(done="packed"), step("pack", "repacking")]), "two steps of one name"),
        (lambda: Workflow("w", [step(done="packed"), step("post", "packing")]), "uses a state twice"),
        (lambda: Workflow("w", [step(done="packing")]), "uses a state twice"),
        (lambda: Workflow("w", [step(doing="created")]), "uses a state twice"),
        (lambda: Workflow("w", [step(doing="failed")]), "a reserved state"),
        (lambda: Workflow("w", [step(done="completed"), step("post", "posting")]), "a reserved state"),
        (lambda: Workflow("w", [step(doing="compensating")]), "a reserved state"),
        (lambda: Workflow("w", [step()], initial="compensated"), "a reserved state"),
        (lambda: Workflow("w", [step(), step("post", "posting")]), "without a done state before the last"),
        (lambda: Workflow("w", [step(done="packed")]), "the last step's done is None"),
        (lambda: Workflow("Two Words", [step()]), "not a lower-case word"),
        (lambda: Workflow("", [step()]), "not a lower-case word"),
        (lambda: Workflow("w" * 64, [step()]), "not a lower-case word"),
        (lambda: Workflow("w", [step(name="Pack")]), "not a lower-case word"),
        (lambda: Workflow("w", [step(doing="in packing")]), "not a lower-case word"),
        (lambda: Workflow("w", [step()], initial="neu!"), "not a lower-case word"),
        (lambda: Workflow("w", [step(key="pack")]), "has a key without {entity_id}"),
        (lambda: Workflow("w", [step(key="{run_id}-{entity_id}")]), "a key with something else than"),
        (lambda: Workflow("w", [step(key="{entity_id}-{")]), "a key with something else than"),
        (lambda: Workflow("w", [step(key="{0}-{entity_id}")]), "a key with something else than"),
        (
            lambda: Workflow(
                "w", [step(done="packed", key="k-{entity_id}"), step("p", "posting", key="k-{entity_id}")]
            ),
            "two steps with one key",
        ),
        (lambda: Workflow("w", [step(attempts_max=0)]), "fewer than one attempt"),
        (lambda: Workflow("w", [step(undo_attempts_max=0)]), "fewer than one attempt"),
        (lambda: Workflow("w", [step(timeout_seconds=0)]), "a timeout_seconds that is not above 0"),
        (lambda: Workflow("w", [step(timeout_seconds=float("nan"))]), "a timeout_seconds that is not above 0"),
        (lambda: Workflow("w", [step(stuck_after_seconds=-1)]), "a stuck_after_seconds that is not above 0"),
        (lambda: Workflow("w", [step()], stuck_after_seconds=0), "a stuck_after_seconds that is not above 0"),
    ],
)
def test_workflow_with_a_wrong_definition_is_refused_in_words(make: Callable[[], Workflow], message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        make()
    assert message in str(refused.value)
    assert str(refused.value).startswith("workflow type '")
    assert refused.value.hint


def test_workflow_of_one_step_is_enough() -> None:
    assert Workflow("w", [step()]).done_state(0) == "completed"


def test_checkout_states_are_those_of_the_design() -> None:
    kinds = {state["state"]: (state["kind"], state["step"]) for state in CHECKOUT.to_document()["states"]}
    assert kinds == {
        "created": ("initial", None),
        "charging": ("doing", "charge"),
        "charged": ("done", "charge"),
        "reserving": ("doing", "reserve"),
        "reserved": ("done", "reserve"),
        "shipping": ("doing", "ship"),
        "compensating": ("compensating", None),
        "completed": ("terminal", None),
        "failed": ("terminal", None),
        "compensated": ("terminal", None),
    }


def test_checkout_edges_are_those_of_the_design_and_no_others() -> None:
    forward = ["created", "charging", "charged", "reserving", "reserved", "shipping", "completed"]
    edges = set(itertools.pairwise(forward))
    edges |= {(state, "compensating") for state in forward[:-1]}
    edges |= {("charging", "failed"), ("compensating", "compensated")}
    assert set(CHECKOUT.to_document()["edges"]) == edges


def test_no_edge_leaves_a_terminal_state() -> None:
    leaving = {edge[0] for edge in CHECKOUT.to_document()["edges"]}
    assert not leaving & {"completed", "failed", "compensated"}


def test_document_shows_each_step_and_its_bounds() -> None:
    assert CHECKOUT.to_document()["steps"][0] == {
        "name": "charge",
        "doing": "charging",
        "done": "charged",
        "undo": "refund",
        "provider": "checkout.charge",
        "timeout_seconds": 30,
        "attempts_max": 8,
        "undo_attempts_max": 20,
    }
    assert [s["timeout_seconds"] for s in CHECKOUT.to_document()["steps"]] == [30, 10, 15]
    assert CHECKOUT.to_document()["steps"][2]["done"] == "completed"


def test_document_takes_a_steps_own_deadline_before_the_types() -> None:
    workflow = Workflow("w", [step(done="packed", stuck_after_seconds=7), step("p", "posting")], stuck_after_seconds=60)
    stuck = {state["state"]: state["stuck_after_seconds"] for state in workflow.to_document()["states"]}
    assert (stuck["packing"], stuck["packed"], stuck["posting"], stuck["created"]) == (7, 7, 60, 60)


def test_undo_is_tried_more_patiently_than_the_way_forward() -> None:
    assert all(s.undo_attempts_max > s.attempts_max for s in CHECKOUT.steps)


def test_keys_of_a_checkout_name_the_order_and_nothing_that_changes() -> None:
    assert [s.key_for("checkout", "order-1") for s in CHECKOUT.steps] == [
        "charge-order-1",
        "reserve-order-1",
        "ship-order-1",
    ]


def test_key_of_an_entity_with_braces_is_taken_as_it_is() -> None:
    assert CHARGE.key_for("checkout", "{step}{0}%s") == "charge-{step}{0}%s"


@pytest.mark.parametrize("name", ["bestellung-ä", "注文-1", "order-1 ", "order\t1", "order-\u200b1"])
def test_key_of_a_name_that_no_header_holds_is_its_digest(name: str) -> None:
    key = CHARGE.key_for("checkout", name)
    assert key.startswith("charge-sha256-")
    assert key.isascii()
    assert key not in {CHARGE.key_for("checkout", other) for other in ("order-1", name + "x", name.strip() + "1")}


def test_default_keys_differ_by_type_step_and_entity() -> None:
    keys = {step(name).key_for(kind, entity) for name in "ab" for kind in ("x", "y") for entity in ("1", "2")}
    assert len(keys) == 8


def test_refund_key_follows_from_workflow_and_step_alone() -> None:
    assert undo_key(CHARGE, SOME_ID) == f"refund-{uuid.uuid5(SOME_ID, 'charge')}"
    assert undo_key(CHARGE, SOME_ID) == undo_key(dataclasses.replace(CHARGE, attempts_max=99), SOME_ID)
    assert compensation_id(SOME_ID, "charge") != compensation_id(SOME_ID, "reserve")
    assert compensation_id(SOME_ID, "charge") != compensation_id(uuid.UUID(int=2), "charge")


def test_refund_key_is_the_same_in_another_process() -> None:
    """Another hash seed, another pid, another time: what a recovering worker has."""
    script = (
        "import uuid; from makegood.engine.definitions import Action, Step, undo_key\n"
        "s = Step('charge', 'charging', None, Action(send=print), undo=Action(send=print), undo_name='refund',"
        " key='charge-{entity_id}')\n"
        f"print(undo_key(s, uuid.UUID('{SOME_ID}')), s.key_for('checkout', 'order-1'))"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "12345"}
    )
    assert said.stdout.split() == [undo_key(CHARGE, SOME_ID), "charge-order-1"]
