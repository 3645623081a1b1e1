"""A person who found out what became of a held step says so once, and the engine goes on from there by itself."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from checkouts import check_out, drive, get_row, get_states, open_checkouts, order

from makegood.settings import Settings
from sandbox.client import ShopControl

FAILED = {"outcome": "failed", "error_type": "settled", "error": "alice: no payment at the provider"}


def settle(
    database: Any,
    response: dict[str, Any] = FAILED,
    *,
    step: str = "charge",
    key: str = "charge-order-1",
    proof: str = "looked at the provider's page",
    reason: str = "customer asks",
) -> str:
    rows = database.rows(
        "SELECT * FROM makegood.settle_step('checkout', 'order-1', %s, %s, %s::jsonb, 'alice', %s, %s)",
        (step, key, json.dumps(response), reason, proof),
        role="jobs",
    )
    return str(rows[0]["verdict"])


def go_on(database: Any, settings: Settings) -> None:
    async def run() -> None:
        async with open_checkouts(database.jobs, settings) as runner:
            await drive(runner, database)

    asyncio.run(run())


@pytest.fixture
def held(database: Any, settings: Settings, shop: ShopControl) -> Any:
    """A charge that the provider answers with the same 500 for ever, and knows nothing of."""
    shop.set_faults({"rules": [{"operation": "charge", "fault": "error_500_stored", "nth": 1}]})
    asyncio.run(check_out(database, settings, order()))
    assert get_row(database)["held_reason"].endswith("found no trace of step 'charge'")
    return database


def test_step_that_did_not_happen_is_a_definite_failure(held: Any, settings: Settings, shop: ShopControl) -> None:
    assert settle(held) == "settled"
    go_on(held, settings)
    assert get_states(held)[-1] == "failed"
    assert shop.order("order-1")["counts"] == {}
    (action,) = held.rows("SELECT * FROM makegood.operator_actions WHERE action = 'settle'")
    assert (action["actor"], action["reason"]) == ("alice", "customer asks")
    assert action["details"]["proof"] == "looked at the provider's page"
    assert action["details"]["amount_minor"] == 1999


def test_step_that_happened_goes_on_with_the_result_it_was_given(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    shop.set_faults({"rules": [{"operation": "charge", "fault": "wrong_amount", "nth": 1}]})
    asyncio.run(check_out(database, settings, order()))
    assert get_row(database)["held_at"] is not None
    (charge,) = shop.order("order-1")["charges"]
    found = {"outcome": "success", "result": {"payment_intent": charge["payment_intent"], "charge": charge["id"]}}
    assert settle(database, found) == "settled"
    go_on(database, settings)
    assert get_states(database)[-1] == "completed"
    assert shop.order("order-1")["counts"] == {"charge": 1, "reservation": 1, "shipment": 1}


def test_step_settled_twice_is_settled_once(held: Any, settings: Settings) -> None:
    assert settle(held) == "settled"
    assert settle(held) == "not_held"
    go_on(held, settings)
    assert settle(held) == "not_held"
    assert len(held.rows("SELECT id FROM makegood.operator_actions WHERE action = 'settle'")) == 1


def test_step_that_it_is_not_held_in_is_refused_and_nothing_changes(held: Any) -> None:
    before = get_row(held)
    assert settle(held, step="ship", key="ship-order-1") == "other_step"
    assert settle(held, key="charge-order-2") == "other_step"
    assert get_row(held) == before
    assert held.rows("SELECT id FROM makegood.operator_actions") == []


@pytest.mark.parametrize("missing", [{"proof": " "}, {"proof": "x" * 501}, {"reason": ""}])
def test_settlement_without_proof_or_reason_is_refused(held: Any, missing: dict[str, str]) -> None:
    with pytest.raises(Exception, match="needs"):
        settle(held, **missing)
