"""Compares what the tables say with what the shop's own log says. Every difference is a violation."""

from __future__ import annotations

from collections import Counter
from typing import Any

from prover.ground import Ground
from prover.scenarios import Scenario
from prover.worker import AMOUNT_MINOR, CURRENCY

TOPICS = {"send_confirmation", "update_analytics"}


def find_violations(ground: Ground, scenario: Scenario, order_id: str, heard: str = "") -> list[str]:
    """Everything wrong with one order, in words; an empty list is what a proof wants.

    ``heard`` is what people were told.
    """
    rows = ground.rows("SELECT * FROM makegood.workflow_executions WHERE entity_id = %s", (order_id,))
    shop = ground.control.order(order_id)
    if not rows:
        return [f"the shop has {kind} for an order that was never started" for kind in shop["counts"]]
    if len(rows) > 1:
        return [f"{len(rows)} workflows for one order"]
    row = rows[0]
    return [
        *_end(row, scenario),
        *_chain(ground, row),
        *_money(ground, row, shop),
        *_goods(row, shop),
        *_accounts(ground, row, shop),
        *_told(ground, scenario, row, heard),
    ]


def _end(row: dict[str, Any], scenario: Scenario) -> list[str]:
    if row["held_at"] is not None:
        return [] if scenario.held else [f"held: {row['held_reason']}"]
    expected = scenario.ends
    if scenario.cancels:
        # A worker killed early enough never came to ask; but what was asked for is honoured.
        expected = ["compensated"] if row["cancel_requested"] else ["completed"]
    if row["current_state"] not in expected:
        return [f"ended {row['current_state']}, expected {' or '.join(expected)}"]
    return []


def _chain(ground: Ground, row: dict[str, Any]) -> list[str]:
    found = []
    transitions = ground.rows(
        "SELECT * FROM makegood.workflow_transitions WHERE workflow_id = %s ORDER BY seq", (row["id"],)
    )
    edges = {
        (edge["from_state"], edge["to_state"])
        for edge in ground.rows(
            "SELECT * FROM makegood.workflow_edges WHERE workflow_type = %s", (row["workflow_type"],)
        )
    }
    previous = None
    for number, transition in enumerate(transitions, start=1):
        pair = (transition["from_state"], transition["to_state"])
        if transition["seq"] != number:
            found.append(f"transition {number} is missing")
        if pair[0] != previous or (number > 1 and pair not in edges):
            found.append(f"transition {number} {pair[0]} → {pair[1]} is not legal after {previous}")
        previous = pair[1]
    if previous != row["current_state"] or len(transitions) != row["last_seq"]:
        found.append(f"state {row['current_state']} is not that of the last transition ({previous})")
    return found


def _money(ground: Ground, row: dict[str, Any], shop: dict[str, Any]) -> list[str]:
    found = []
    counts = Counter(shop["counts"])
    currency = CURRENCY.lower()
    charged, refunded = shop["charged"].get(currency, 0), shop["refunded"].get(currency, 0)
    if counts["charge"] > 1:
        found.append(f"charged {counts['charge']} times")
    if refunded > charged:
        found.append(f"refunded {refunded} of {charged}")
    per_compensation = Counter(entry["compensation_id"] for entry in shop["log"] if entry["kind"] == "refund")
    found += [f"{count} refunds of compensation {name}" for name, count in per_compensation.items() if count > 1]
    for undo in ground.rows("SELECT * FROM makegood.compensations WHERE workflow_id = %s", (row["id"],)):
        if undo["step"] == "charge" and undo["state"] == "succeeded" and per_compensation[str(undo["id"])] != 1:
            found.append(f"we say refunded, the shop has {per_compensation[str(undo['id'])]} refunds")
    expected = {"completed": (AMOUNT_MINOR, 0), "failed": (0, 0)}.get(row["current_state"])
    if expected and (charged, refunded) != expected:
        found.append(f"{row['current_state']} with {charged} charged and {refunded} refunded")
    if row["current_state"] == "compensated" and charged != refunded:
        found.append(f"compensated with {charged} charged and {refunded} refunded")
    return found


def _goods(row: dict[str, Any], shop: dict[str, Any]) -> list[str]:
    held = sum(item["status"] == "reserved" for item in shop["reservations"])
    shipped = sum(item["status"] == "created" for item in shop["shipments"])
    expected = {"completed": (1, 1), "failed": (0, 0), "compensated": (0, 0)}.get(row["current_state"])
    if expected and (held, shipped) != expected:
        return [f"{row['current_state']} with {held} reservations and {shipped} shipments standing"]
    return []


def _accounts(ground: Ground, row: dict[str, Any], shop: dict[str, Any]) -> list[str]:
    """Every effect has its stored key, every completed order its messages, nothing is neither done nor due."""
    keys = {entry["idempotency_key"] for entry in shop["log"]}
    stored = ground.rows("SELECT key FROM makegood.idempotency_keys WHERE key = ANY(%s)", (list(filter(None, keys)),))
    found = [
        f"the shop has an effect under key {key}, which we never stored" for key in keys - {k["key"] for k in stored}
    ]
    messages = Counter(
        message["topic"]
        for message in ground.rows(
            "SELECT topic FROM makegood.outbox WHERE payload->>'entity_id' = %s AND topic <> 'alert'",
            (row["entity_id"],),
        )
    )
    expected = Counter(TOPICS) if row["current_state"] == "completed" else Counter()
    if messages != expected:
        found.append(f"{row['current_state']} with messages {dict(messages)}")
    unfinished = row["finished_at"] is None and row["held_at"] is None
    if unfinished and row["lease_until"] is None and row["next_attempt_at"] is None:
        found.append("neither finished, held, leased nor scheduled")
    return found


def _told(ground: Ground, scenario: Scenario, row: dict[str, Any], heard: str) -> list[str]:
    """Nothing is held without its dead letter and its alert, and the alert was heard where a job ran."""
    letters = ground.rows("SELECT * FROM makegood.dead_letters WHERE workflow_id = %s", (row["id"],))
    alerts = ground.rows(
        "SELECT published_at FROM makegood.outbox WHERE topic = 'alert' AND payload->>'entity_id' = %s",
        (row["entity_id"],),
    )
    if row["held_at"] is None:
        return ["an alert for an order that was never held"] if alerts and not letters else []
    found = []
    if [letter["state"] for letter in letters] != ["parked"]:
        found.append(f"held with {len(letters)} dead letters")
    if len(alerts) != 1:
        found.append(f"held with {len(alerts)} alerts")
    if scenario.job != "checkout" and row["entity_id"] not in heard:
        found.append("held, and nobody was told")
    return found
