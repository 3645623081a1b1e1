"""Remedies under the prover: a duplicate charge that a run has found, and whether it was given back exactly once."""

# ruff: noqa: E501 - a statement is one line
from __future__ import annotations

import uuid
from typing import Any

import httpx

from prover.ground import Ground
from prover.scenarios import Scenario

AMOUNT_MINOR = 1999


def plant_duplicate(ground: Ground, order_id: str) -> None:
    """The same order charged twice at the shop, in the provider's books here, with the finding of a run that saw both."""
    run_id = uuid.uuid4()
    ground.rows(
        "INSERT INTO makegood.reconciliation_runs (id, kind, state, terms, opened, finished_at)"
        " VALUES (%s, 'incremental', 'matched', '{}', 1, clock_timestamp())",
        (run_id,),
    )
    charges = [_charge(ground, order_id, key) for key in ("first", "again")]
    ground.rows("SELECT makegood.set_remedy_policy('test', 'D08', false, 'proof', 'proof')")
    caps = '{"run_count": 1000000, "run_minor": 1000000000000, "day_count": 1000000, "day_minor": 1000000000000}'
    ground.rows("SELECT makegood.set_remedy_caps('test', 'EUR', %s::jsonb, 'proof', 'proof')", (caps,))
    ground.rows(
        "INSERT INTO makegood.reconciliation_findings (id, unit, class, order_id, charge_id, amount_at_risk_minor, currency,"
        " remedy, first_seen_run, last_seen_run, first_seen_at, last_seen_at) VALUES (gen_random_uuid(), %s, 'D08', %s, %s,"
        " %s, 'EUR', 'refund', %s, %s, clock_timestamp(), clock_timestamp())",
        (f"order:{order_id}", order_id, charges[1], AMOUNT_MINOR, run_id, run_id),
    )


def find_remedy_violations(ground: Ground, scenario: Scenario, order_id: str) -> list[str]:
    """Refunds per remedy at most one, exactly one where we say remedied, never more than the charge, nothing in between."""
    shop = ground.control.order(order_id)
    refunds = [entry for entry in shop["log"] if entry["kind"] == "refund"]
    remedies = ground.rows("SELECT * FROM makegood.reconciliation_remedies WHERE order_id = %s", (order_id,))
    (finding,) = ground.rows("SELECT * FROM makegood.reconciliation_findings WHERE order_id = %s", (order_id,))
    found = [] if len(refunds) <= 1 else [f"{len(refunds)} refunds of one duplicate"]
    if shop["refunded"].get("eur", 0) > AMOUNT_MINOR:
        found.append(f"refunded {shop['refunded']} of {AMOUNT_MINOR}")
    for remedy in remedies:
        made = sum(entry["compensation_id"] == str(remedy["id"]) for entry in refunds)
        if made != (remedy["state"] == "succeeded"):
            found.append(f"remedy {remedy['entity_id']} is {remedy['state']}, the shop has {made} refunds of it")
    return found + _end(ground, scenario, order_id, finding, remedies)


def _end(
    ground: Ground, scenario: Scenario, order_id: str, finding: dict[str, Any], remedies: list[dict[str, Any]]
) -> list[str]:
    (row,) = ground.rows(
        "SELECT count(*) FILTER (WHERE held_at IS NOT NULL) AS held,"
        " count(*) FILTER (WHERE held_at IS NULL AND finished_at IS NULL) AS open"
        " FROM makegood.workflow_executions WHERE context->>'order_id' = %s",
        (order_id,),
    )
    if row["open"]:
        return [f"{row['open']} remedies neither ended nor held"]
    if row["held"]:
        return (
            []
            if scenario.held and finding["state"] == "remedying"
            else [f"held, and the finding is {finding['state']}"]
        )
    ended = [remedy["state"] for remedy in remedies]
    good = (finding["state"], finding["resolution"], ended.count("succeeded")) == ("resolved", "remedied", 1)
    return [] if good else [f"the finding is {finding['state']}, its remedies are {ended}"]


def _charge(ground: Ground, order_id: str, key: str) -> str:
    answer = httpx.post(
        f"{ground.shop_url}/v1/payment_intents",
        data={
            "amount": str(AMOUNT_MINOR),
            "currency": "eur",
            "payment_method": "pm_card_visa",
            "payment_method_types[]": "card",
            "confirm": "true",
            "metadata[order_id]": order_id,
        },
        headers={"Authorization": "Bearer sk_test_makegood", "Idempotency-Key": f"{key}-{order_id}"},
        trust_env=False,
    ).json()
    ground.rows(
        "INSERT INTO makegood.provider_charges (id, provider, payment_ref, order_ref, status, amount_minor, captured_minor,"
        " currency, livemode, plain, created_at) VALUES (%s, 'stripe', %s, %s, 'succeeded', %s, %s, 'EUR', false, false,"
        " clock_timestamp())",
        (answer["latest_charge"], answer["id"], order_id, AMOUNT_MINOR, AMOUNT_MINOR),
    )
    return str(answer["latest_charge"])
