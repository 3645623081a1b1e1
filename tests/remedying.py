"""Findings planted for the remedies: real charges at the real shop, in our books as a run would have left them."""

# ruff: noqa: E501 - a statement is one line
from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
from checkouts import Change, NoWait, hasten
from databases import DatabaseUrls

from makegood.engine.runner import Runner, open_runner
from makegood.reconciliation.remedy_terms import make_remedy_terms
from makegood.settings import Settings
from makegood.workflows import open_workflows

AMOUNT_MINOR, CURRENCY = 1999, "EUR"


@contextlib.asynccontextmanager
async def open_remedies(
    url: str, settings: Settings, *, change: Change = hasten, **options: Any
) -> AsyncIterator[Runner]:
    """A runner that knows remedies, over the real shop, its waits over at once."""
    async with open_workflows(settings, url) as known:
        workflows = {name: change(workflow) for name, workflow in known.items()}
        async with open_runner(url, workflows, settings, chance=NoWait(), **options) as runner:
            yield runner


@dataclass(frozen=True)
class Planted:
    """A finding and the charge that a remedy of it acts on."""

    id: uuid.UUID
    charge_id: str
    order_id: str


class Plot:
    """Plants findings into one database and one shop."""

    def __init__(self, database: DatabaseUrls, shop_url: str, settings: Settings) -> None:
        self.database = database
        self.settings = settings
        self._http = httpx.Client(
            base_url=shop_url, headers={"Authorization": "Bearer sk_test_makegood"}, trust_env=False
        )
        self.run_id = self.plant_run()
        self.terms = json.dumps(make_remedy_terms(settings).to_document())

    def close(self) -> None:
        self._http.close()

    def plant_run(
        self, *, opened: int = 1, stale: str | None = None, days_ago: float = 0, kind: str = "incremental"
    ) -> uuid.UUID:
        run_id = uuid.uuid4()
        self.database.rows(
            "INSERT INTO makegood.reconciliation_runs (id, kind, state, terms, stale, opened, started_at, finished_at)"
            " SELECT %s, %s, 'matched', '{}', %s, %s, q.t, q.t FROM (SELECT clock_timestamp() - make_interval(secs => %s) AS t) q",
            (run_id, kind, stale, opened, days_ago * 86400),
        )
        return run_id

    def charge(
        self, order_id: str, amount_minor: int = AMOUNT_MINOR, *, card: str = "pm_card_visa", **books: Any
    ) -> str:
        """A real charge, and its row in the provider's books as they are here."""
        answer = self._http.post(
            "/v1/payment_intents",
            data={
                "amount": amount_minor,
                "currency": "eur",
                "payment_method": card,
                "payment_method_types[]": "card",
                "confirm": "true",
                "metadata[order_id]": order_id,
            },
            headers={"Idempotency-Key": str(uuid.uuid4())},
        )
        intent = answer.json()
        row = {"livemode": False, "order_ref": order_id, "captured_minor": amount_minor, **books}
        self.database.rows(
            "INSERT INTO makegood.provider_charges (id, provider, payment_ref, order_ref, customer_ref, status, amount_minor,"
            " captured_minor, currency, livemode, plain, created_at) VALUES (%s, 'stripe', %s, %s, 'cus-1', 'succeeded', %s,"
            " %s, 'EUR', %s, false, clock_timestamp() - interval '1 day')",
            (
                *(intent["latest_charge"], intent["id"], row["order_ref"], amount_minor),
                *(row["captured_minor"], row["livemode"]),
            ),
        )
        return str(intent["latest_charge"])

    def refund_by_hand(self, charge_id: str, amount_minor: int | None = None) -> str:
        data: dict[str, Any] = {"charge": charge_id} | ({"amount": amount_minor} if amount_minor else {})
        answer = self._http.post("/v1/refunds", data=data, headers={"Idempotency-Key": str(uuid.uuid4())})
        assert answer.is_success, answer.text
        return str(answer.json()["id"])

    def order(self, order_id: str, amount_minor: int = AMOUNT_MINOR, *, status: str = "paid") -> None:
        self.database.rows(
            "INSERT INTO makegood.orders (id, status, amount_minor, currency, customer_ref) VALUES (%s, %s, %s, 'EUR', 'cus-1')"
            " ON CONFLICT DO NOTHING",
            (order_id, status, amount_minor),
        )

    def find(
        self,
        class_: str = "D08",
        order_id: str = "order-1",
        *,
        amount_minor: int = AMOUNT_MINOR,
        remedy: str = "refund",
        charge_id: str | None = None,
        with_order: bool = True,
        hours_seen: float = 2,
        runs_seen: int = 2,
        customer: str | None = "cus-1",
    ) -> Planted:
        """A finding of this class: an order that was charged once too often, unless a charge is given."""
        if with_order:
            self.order(order_id, amount_minor)
        charge_id = charge_id or self.charge(order_id, amount_minor)
        unit = f"order:{order_id}" if with_order else f"charge:{charge_id}"
        rows = self.database.rows(
            "INSERT INTO makegood.reconciliation_findings (id, unit, class, order_id, charge_id, customer_ref,"
            " amount_at_risk_minor, currency, remedy, details, first_seen_run, last_seen_run, first_seen_at, last_seen_at,"
            " runs_seen) VALUES (gen_random_uuid(), %s, %s, %s, %s, %s, %s, 'EUR', %s, %s::jsonb, %s, %s,"
            " clock_timestamp() - make_interval(secs => %s), clock_timestamp(), %s) RETURNING id",
            (
                *(unit, class_, order_id, charge_id, customer, amount_minor, remedy),
                *(json.dumps({"act_minor": amount_minor} if remedy in {"refund", "retry_refund"} else {}),),
                *(self.run_id, self.run_id, hours_seen * 3600, runs_seen),
            ),
        )
        return Planted(rows[0]["id"], charge_id, order_id)

    def allow(self, *classes: str) -> None:
        for class_ in classes:
            self.database.rows(
                "SELECT makegood.set_remedy_policy('test', %s, false, 'ann', 'tried out')", (class_,), role="jobs"
            )

    def cap(self, **caps: int) -> None:
        self.database.rows(
            "SELECT makegood.set_remedy_caps('test', 'EUR', %s::jsonb, 'ann', 'as agreed')",
            (json.dumps(caps),),
            role="jobs",
        )

    def switch(self, stopped: bool) -> None:
        self.database.rows("SELECT makegood.switch_remedies(%s, 'ann', 'something is odd')", (stopped,), role="jobs")

    def carry_out(self, finding: Planted, run_id: uuid.UUID | None = None) -> dict[str, Any]:
        rows = self.database.rows(
            "SELECT * FROM makegood.carry_out_remedy(%s, %s, %s::jsonb, 'job')",
            (finding.id, run_id or self.run_id, self.terms),
            role="jobs",
        )
        return rows[0]

    def approve(self, finding: Planted, by: str = "ben") -> str:
        statement = "SELECT verdict FROM makegood.approve_remedy(%s, %s, 'looked at both charges')"
        return str(self.database.rows(statement, (finding.id, by), role="jobs")[0]["verdict"])

    def finding(self, finding: Planted) -> dict[str, Any]:
        return self.database.rows("SELECT * FROM makegood.reconciliation_findings WHERE id = %s", (finding.id,))[0]

    def remedies(self) -> list[dict[str, Any]]:
        return self.database.rows("SELECT * FROM makegood.reconciliation_remedies ORDER BY proposed_at")

    def history(self, finding: Planted) -> list[tuple[str, str]]:
        rows = self.database.rows(
            "SELECT from_state, to_state FROM makegood.reconciliation_history WHERE finding_id = %s ORDER BY id",
            (finding.id,),
        )
        return [(row["from_state"], row["to_state"]) for row in rows]
