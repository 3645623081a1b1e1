"""Both sides of the books, written down by hand: small cases for the reconciliation, as values."""

# ruff: noqa: E501 - a case, and a statement, is one line
from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from databases import DatabaseUrls
from psycopg.types.json import Jsonb

TERMS = {
    "livemode": False,
    "tolerance_minor": 0,
    "charge_grace_seconds": 900,
    "refund_grace_seconds": 86400,
    "payout_grace_seconds": 3 * 86400,
    "stale_after_seconds": 6 * 3600,
    "lapse_warning_seconds": 86400,
    "fee_parts_min": 0,
    "fee_parts_max": 600,
    "fee_fixed_minor": 100,
}
NOW = datetime.now(UTC)
OLD, YOUNG = timedelta(days=3), timedelta(minutes=5)
STATES = {"active": "charged", "late": "charged", "held": "charged"}


@dataclass(frozen=True)
class Refund:
    amount: int
    status: str = "succeeded"
    age: timedelta = OLD


@dataclass(frozen=True)
class Dispute:
    amount: int
    status: str = "open"
    age: timedelta = OLD


@dataclass(frozen=True)
class Charge:
    """``pays`` and ``names``: which order's payment it is and which one its metadata names; True is the case's own."""

    captured: int
    status: str = "succeeded"
    amount: int | None = None
    currency: str = "EUR"
    pays: bool | str = True
    names: bool | str | None = True
    live: bool = False
    age: timedelta = OLD
    captures_open: bool = False
    lapses_in: timedelta | None = None
    refunds: tuple[Refund, ...] = ()
    disputes: tuple[Dispute, ...] = ()


@dataclass(frozen=True)
class Order:
    amount: int = 1000
    status: str = "fulfilled"
    currency: str = "EUR"
    workflow: str | None = "completed"
    refunded: int = 0
    dispute_known: bool = False
    written_off: int = 0
    partial: bool = False
    age: timedelta = OLD
    payment: bool | str = True


@dataclass(frozen=True)
class Case:
    name: str
    order: Order | None
    charges: tuple[Charge, ...] = ()
    verdicts: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Of each unit: its class and the amount at risk. ``order`` and ``charge1``, ``charge2`` … stand for the ids."""


class Books:
    """Writes cases into a database and reads what a run made of them."""

    def __init__(self, database: DatabaseUrls) -> None:
        self.connection = psycopg.connect(database.admin, autocommit=True, row_factory=psycopg.rows.dict_row)
        self.numbers = itertools.count(1)
        # A state out of nowhere has no transitions; here only where a workflow stands matters.
        self.rows("ALTER TABLE makegood.workflow_executions DISABLE TRIGGER ALL")
        self.trust()

    def close(self) -> None:
        self.connection.close()

    def rows(self, statement: str, *parameters: Any) -> list[dict[str, Any]]:
        cursor = self.connection.execute(statement, parameters)  # type: ignore[call-overload]
        return cursor.fetchall() if cursor.description else []

    def trust(self, watermark: datetime | None = NOW, error: str | None = None) -> None:
        """The provider's books are complete up to then."""
        for collection in ("charges", "refunds", "disputes"):
            self.rows(
                "INSERT INTO makegood.provider_sync (provider, collection, watermark, error) VALUES ('stripe', %s, %s, %s)"
                " ON CONFLICT (provider, collection) DO UPDATE SET watermark = excluded.watermark, error = excluded.error",
                collection,
                watermark,
                error,
            )

    def write(self, case: Case) -> str:
        """The name that the case's order and charges carry."""
        name = f"{case.name}-{next(self.numbers)}"
        if case.order is not None:
            self.write_order(name, case.order)
        for place, charge in enumerate(case.charges, 1):
            self.write_charge(name, place, charge)
        return name

    def write_order(self, name: str, order: Order) -> None:
        payment = f"pi-{name}-1" if order.payment is True else order.payment or None
        self.rows(
            "INSERT INTO makegood.orders (id, status, amount_minor, currency, payment_ref, customer_ref, refunded_minor,"
            " dispute_known, written_off_minor, partial_shipment, created_at) VALUES (%s, %s, %s, %s, %s, 'cus-1', %s, %s, %s, %s, %s)",
            name,
            order.status,
            order.amount,
            order.currency,
            payment,
            order.refunded,
            order.dispute_known,
            order.written_off,
            order.partial,
            NOW - order.age,
        )
        if order.workflow:
            self.write_workflow(name, order)

    def write_workflow(self, name: str, order: Order) -> None:
        state = STATES.get(order.workflow or "", order.workflow)
        late = order.workflow in {"late", "held"}
        self.rows(
            "INSERT INTO makegood.workflow_executions (id, workflow_type, entity_id, current_state, created_at, updated_at,"
            " next_attempt_at, deadline_at, held_at, held_reason, finished_at, last_seq, start_hash) VALUES"
            " (gen_random_uuid(), 'checkout', %s, %s, %s, %s, %s, %s, %s, %s, %s, 1, '')",
            name,
            state,
            NOW - order.age,
            NOW - order.age,
            NOW,
            NOW + (-YOUNG if late else timedelta(days=30)),
            NOW if order.workflow == "held" else None,
            "held" if order.workflow == "held" else None,
            NOW - order.age if state in {"completed", "failed", "compensated"} else None,
        )

    def write_charge(self, name: str, place: int, charge: Charge) -> str:
        charge_id = f"ch-{name}-{place}"
        payment = f"pi-{name}-{place}" if charge.pays is True else charge.pays or f"pi-none-{name}-{place}"
        names = name if charge.names is True else charge.names or None
        alone = charge.status == "succeeded" and not (charge.captures_open or charge.disputes)
        plain = alone and not charge.refunds
        lives = all(refund.status in {"succeeded", "pending"} for refund in charge.refunds)
        given_back = alone and lives and sum(refund.amount for refund in charge.refunds) == charge.captured
        self.rows(
            "INSERT INTO makegood.provider_charges (id, provider, payment_ref, order_ref, customer_ref, status, amount_minor,"
            " captured_minor, currency, livemode, capture_before, captures_open, plain, given_back, created_at)"
            " VALUES (%s, 'stripe', %s, %s, 'cus-1', %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
            charge_id,
            payment,
            names,
            charge.status,
            charge.amount or charge.captured,
            charge.captured,
            charge.currency,
            charge.live,
            None if charge.lapses_in is None else NOW + charge.lapses_in,
            charge.captures_open,
            plain,
            given_back and charge.captured > 0 and not plain,
            NOW - charge.age,
        )
        for number, refund in enumerate(charge.refunds):
            self.rows(
                "INSERT INTO makegood.provider_refunds (id, provider, charge_id, status, amount_minor, currency, created_at)"
                " VALUES (%s, 'stripe', %s, %s, %s, %s, %s)",
                f"re-{charge_id}-{number}",
                charge_id,
                refund.status,
                refund.amount,
                charge.currency,
                NOW - refund.age,
            )
        for number, dispute in enumerate(charge.disputes):
            self.rows(
                "INSERT INTO makegood.provider_disputes (id, provider, charge_id, status, amount_minor, currency, created_at)"
                " VALUES (%s, 'stripe', %s, %s, %s, %s, %s)",
                f"du-{charge_id}-{number}",
                charge_id,
                dispute.status,
                dispute.amount,
                charge.currency,
                NOW - dispute.age,
            )
        return charge_id

    def run(self, kind: str = "full", **terms: Any) -> dict[str, Any]:
        (opened,) = self.rows(
            "SELECT (makegood.begin_reconciliation(makegood.new_id(), %s, %s)).id", kind, Jsonb(TERMS | terms)
        )
        with self.connection.transaction():
            self.rows("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            (run,) = self.rows("SELECT * FROM makegood.match_charges(%s)", opened["id"])
        return run

    def findings(self) -> list[dict[str, Any]]:
        return self.rows("SELECT * FROM makegood.reconciliation_findings ORDER BY unit, class")

    def open_by_unit(self) -> dict[str, tuple[str, int]]:
        return {
            row["unit"]: (row["class"], row["amount_at_risk_minor"])
            for row in self.findings()
            if row["state"] != "resolved"
        }

    def totals(self, run: dict[str, Any]) -> dict[tuple[str, str], int]:
        rows = self.rows("SELECT * FROM makegood.reconciliation_totals WHERE run_id = %s", run["id"])
        return {(row["currency"], row["bucket"]): int(row["amount_minor"]) for row in rows}

    def check_totals(self, run: dict[str, Any]) -> None:
        totals = self.totals(run)
        for currency in {currency for currency, _ in totals}:
            parts = sum(amount for (of, bucket), amount in totals.items() if of == currency and bucket != "provider")
            assert totals.get((currency, "provider"), 0) == parts, (currency, totals)
