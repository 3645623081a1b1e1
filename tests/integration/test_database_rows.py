"""Rows that contradict themselves are refused, whoever writes them: one bad value at a time in a good row."""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from database_worker import Row, Worker, digest, open_database, refused
from psycopg import sql

from makegood.local.postgres import EmbeddedPostgres

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CHECK_VIOLATION, NOT_NULL_VIOLATION, UNIQUE_VIOLATION, FOREIGN_KEY_VIOLATION = "23514", "23502", "23505", "23503"


@pytest.fixture(scope="module")
def admin(server: EmbeddedPostgres) -> Iterator[Worker]:
    with open_database(server) as name, Worker(server.url("postgres", name)) as worker:
        worker.register()
        yield worker


@pytest.fixture(scope="module")
def workflow_id(admin: Worker) -> uuid.UUID:
    order = admin.started("order-1")
    admin.compensate(order, [])
    return order.id


def insert(admin: Worker, table: str, row: Row) -> None:
    names = sql.SQL(", ").join(map(sql.Identifier, row))
    values = sql.SQL(", ").join(sql.Placeholder() for _ in row)
    statement = sql.SQL("INSERT INTO makegood.{} ({}) VALUES ({})").format(sql.Identifier(table), names, values)
    admin.rows(statement, *row.values())


def good_row(table: str, workflow_id: uuid.UUID) -> Row:
    """What the table takes; also the proof that each bad row is bad for one reason only."""
    rows: dict[str, Row] = {
        "workflow_executions": {
            "id": uuid.uuid4(),
            "workflow_type": "checkout",
            "entity_id": f"order-{uuid.uuid4()}",
            "current_state": "created",
            "created_at": NOW,
            "updated_at": NOW,
            "next_attempt_at": NOW,
            "deadline_at": NOW,
            "last_seq": 1,
            "start_hash": b"",
        },
        "workflow_transitions": {
            "workflow_id": workflow_id,
            "entity_id": "order-1",
            "seq": 3,
            "from_state": "compensating",
            "to_state": "compensated",
            "triggered_by": "by hand",
        },
        "step_attempts": {
            "workflow_id": workflow_id,
            "step": secrets.token_hex(4),
            "kind": "forward",
            "attempt": 1,
            "started_at": NOW,
            "worker": "worker-1",
        },
        "idempotency_keys": {
            "key": secrets.token_hex(8),
            "operation": "charge",
            "request_hash": digest("request"),
            "status": "intent",
            "created_at": NOW,
            "expires_at": NOW + timedelta(days=1),
        },
        "compensations": {
            "id": uuid.uuid4(),
            "workflow_id": workflow_id,
            "step": secrets.token_hex(4),
            "position": secrets.randbelow(1_000_000) + 10,
            "next_attempt_at": NOW,
            "idempotency_key": secrets.token_hex(8),
            "created_at": NOW,
        },
        "outbox": {"topic": "send_confirmation", "key": secrets.token_hex(8), "payload": "{}"},
        "operator_actions": {"actor": "ann", "action": "cancel", "subject": "order-1", "reason": "changed her mind"},
        "workflow_types": {"name": f"type_{secrets.token_hex(4)}", "definition": "{}"},
        "workflow_states": {
            "workflow_type": "checkout",
            "state": f"state_{secrets.token_hex(4)}",
            "kind": "doing",
            "step": "charge",
            "stuck_after": timedelta(minutes=5),
        },
        "workflow_edges": {"workflow_type": "checkout", "from_state": "charged", "to_state": "shipping"},
        "currencies": {"code": "ZZZ", "exponent": 2},
    }
    return rows[table]


LARGE = json.dumps({"text": "x" * 70_000})  # compresses well, but what counts is what it is
LARGE_RANDOM = json.dumps({"text": "".join(digest(str(number)).hex() for number in range(1100))})

BAD_EXECUTIONS: list[Row] = [
    {"current_state": "completed"},  # terminal, yet not finished
    {"current_state": "failed"},
    {"current_state": "compensated"},
    {"finished_at": NOW},  # finished, yet not terminal
    {"current_state": "completed", "finished_at": NOW, "lease_owner": "worker-1", "lease_until": NOW},
    {"current_state": "completed", "finished_at": NOW, "held_at": NOW, "held_reason": "why"},
    {"held_at": NOW},  # parked without a reason
    {"held_reason": "why"},
    {"lease_owner": "worker-1"},  # a lease without an end
    {"lease_until": NOW},
    {"cancel_requested": True},  # nobody asked
    {"cancel_requested": True, "cancel_requested_by": "ann"},
    {"cancel_requested": True, "cancel_reason": "why"},
    {"cancel_requested_by": "ann"},
    {"cancel_requested_by": "ann", "cancel_reason": "why"},
    {"amount_minor": 1000},  # an amount of what?
    {"currency": "EUR"},
    {"amount_minor": -1, "currency": "EUR"},
    {"fence": -1},
    {"attempts": -1},
    {"last_seq": 0},
    {"entity_id": ""},
    {"entity_id": "x" * 151},
    {"context": "[]"},
    {"context": "null"},
    {"context": LARGE},
    {"context": LARGE_RANDOM},
    {"updated_at": NOW - timedelta(seconds=1)},  # progress before the start
    {"traceparent": "not a trace"},
    {"traceparent": "00-4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7-01"},  # lower case only, says W3C
]
BAD_TRANSITIONS: list[Row] = [
    {"seq": 0},
    {"seq": 1},  # the first comes from nowhere
    {"from_state": None},  # and only the first
    {"to_state": "compensating"},  # goes nowhere
    {"triggered_by": ""},
    {"triggered_by": "x" * 201},
    {"metadata": "[]"},
    {"metadata": json.dumps({"text": "x" * 17_000})},
]
BAD_ATTEMPTS: list[Row] = [
    {"attempt": 0},
    {"kind": "sideways"},
    {"outcome": "perhaps", "finished_at": NOW},
    {"outcome": "success"},  # ended at no time
    {"finished_at": NOW},  # ended without an outcome
    {"outcome": "success", "finished_at": NOW, "error_type": "timeout"},
    {"outcome": "failed", "finished_at": NOW},  # failed of what?
    {"outcome": "unknown", "finished_at": NOW},
    {"error": "x" * 2001},
]
BAD_KEYS: list[Row] = [
    {"key": ""},
    {"key": "x" * 256},  # longer than the provider takes
    {"request_hash": b"short"},
    {"status": "done"},
    {"first_sent_at": NOW},  # sent, yet only intended
    {"status": "sent"},  # sent at no time
    {"status": "sent", "first_sent_at": NOW, "response": "{}"},  # an answer that is not known
    {"status": "known", "first_sent_at": NOW},
    {"status": "recorded", "first_sent_at": NOW},
    {"status": "known", "first_sent_at": NOW, "response": LARGE},
    {"caller": "worker-1"},
    {"caller_until": NOW},
    {"expires_at": NOW},
]
BAD_COMPENSATIONS: list[Row] = [
    {"position": 0},
    {"state": "done"},
    {"state": "succeeded"},  # at no time
    {"succeeded_at": NOW},
    {"attempts": -1},
    {"amount_minor": 1000},
    {"currency": "EUR"},
    {"amount_minor": -1, "currency": "EUR"},
    {"last_error": "x" * 2001},
    {"result": LARGE},
]
BAD_OTHERS: list[tuple[str, Row]] = [
    ("outbox", {"topic": ""}),
    ("outbox", {"key": ""}),
    ("outbox", {"key": "x" * 256}),
    ("outbox", {"payload": LARGE}),
    ("operator_actions", {"actor": ""}),
    ("operator_actions", {"reason": "  "}),
    ("operator_actions", {"reason": "x" * 2001}),
    ("workflow_types", {"name": "Checkout"}),
    ("workflow_types", {"name": "check-out"}),
    ("workflow_types", {"name": "x" * 64}),
    ("workflow_types", {"name": ""}),
    ("workflow_states", {"state": "Charging"}),
    ("workflow_states", {"kind": "sleeping"}),
    ("workflow_states", {"step": None}),  # doing what?
    ("workflow_states", {"kind": "initial"}),  # an initial state does nothing
    ("workflow_states", {"kind": "terminal", "step": None}),  # people's queries know three, not four
    ("workflow_states", {"kind": "compensating", "step": None}),  # by another name
    ("workflow_states", {"stuck_after": timedelta(0)}),
    ("workflow_edges", {"to_state": "charged"}),
    ("workflow_edges", {"from_state": "completed"}),  # the end is the end
    ("currencies", {"code": "eur"}),
    ("currencies", {"exponent": 5}),
]
BAD_ROWS = [
    *(("workflow_executions", change) for change in BAD_EXECUTIONS),
    *(("workflow_transitions", change) for change in BAD_TRANSITIONS),
    *(("step_attempts", change) for change in BAD_ATTEMPTS),
    *(("idempotency_keys", change) for change in BAD_KEYS),
    *(("compensations", change) for change in BAD_COMPENSATIONS),
    *BAD_OTHERS,
]


def name_case(value: Any) -> str:
    return value if isinstance(value, str) else ",".join(f"{name}={str(bad)[:20]}" for name, bad in value.items())


@pytest.mark.parametrize(("table", "change"), BAD_ROWS, ids=name_case)
def test_row_that_contradicts_itself_is_refused(admin: Worker, workflow_id: uuid.UUID, table: str, change: Row) -> None:
    with refused(CHECK_VIOLATION):
        insert(admin, table, good_row(table, workflow_id) | change)


@pytest.mark.parametrize("table", sorted({table for table, _ in BAD_ROWS}))
def test_row_without_the_contradiction_is_accepted(admin: Worker, workflow_id: uuid.UUID, table: str) -> None:
    """Up to the guards that need more than one row: those are what the chain's tests are about."""
    with admin.connection.transaction(force_rollback=True):
        admin.rows("SET CONSTRAINTS ALL DEFERRED")
        if table == "workflow_transitions":
            admin.rows(
                "UPDATE makegood.workflow_executions SET current_state = 'compensated', last_seq = 3,"
                " finished_at = now(), lease_owner = NULL, lease_until = NULL WHERE id = %s",
                workflow_id,
            )
        insert(admin, table, good_row(table, workflow_id))


@pytest.mark.parametrize("currency", ["XXX", "eur", "EURO", ""])
def test_workflow_in_a_currency_that_does_not_exist_is_refused(
    admin: Worker, workflow_id: uuid.UUID, currency: str
) -> None:
    row = good_row("workflow_executions", workflow_id) | {"amount_minor": 1000, "currency": currency}
    with refused("MG005", "ISO 4217"):
        insert(admin, "workflow_executions", row)


def test_workflow_started_twice_for_one_entity_is_refused(admin: Worker, workflow_id: uuid.UUID) -> None:
    with refused(UNIQUE_VIOLATION):
        insert(admin, "workflow_executions", good_row("workflow_executions", workflow_id) | {"entity_id": "order-1"})


def test_message_written_twice_is_refused(admin: Worker, workflow_id: uuid.UUID) -> None:
    row = good_row("outbox", workflow_id)
    insert(admin, "outbox", row)
    with refused(UNIQUE_VIOLATION):
        insert(admin, "outbox", row)


def test_edge_to_an_unknown_state_is_refused(admin: Worker, workflow_id: uuid.UUID) -> None:
    with refused(FOREIGN_KEY_VIOLATION):
        insert(admin, "workflow_edges", good_row("workflow_edges", workflow_id) | {"to_state": "nowhere"})


def test_currencies_once_migrated_have_the_decimals_of_iso_4217(admin: Worker) -> None:
    rows = admin.rows("SELECT code, exponent FROM makegood.currencies")
    found = {row["code"]: row["exponent"] for row in rows}
    assert len(found) > 150
    assert {code: found[code] for code in ("EUR", "USD", "JPY", "KRW", "KWD", "BHD", "CLF", "ISK")} == {
        **{"EUR": 2, "USD": 2, "JPY": 0, "KRW": 0},
        **{"KWD": 3, "BHD": 3, "CLF": 4, "ISK": 0},
    }
