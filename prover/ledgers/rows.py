"""What a ledger is made of: rows as the tables have them, and the answers that go with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

PROVIDER = "stripe"
MATCHED, PENDING = "MATCHED", "PENDING"


@dataclass(frozen=True)
class Terms:
    """What the verdicts depend on besides the rows. ``tolerance_minor`` above 0, so that rounding can be planted."""

    livemode: bool = True
    tolerance_minor: int = 2
    charge_grace: timedelta = timedelta(minutes=15)
    refund_grace: timedelta = timedelta(hours=24)
    payout_grace: timedelta = timedelta(days=3)
    lapse_soon: timedelta = timedelta(days=1)
    # A fee is from this many ten-thousandths of the amount to that many and a fixed part.
    fee_parts_min: int = 10
    fee_parts_max: int = 400
    fee_fixed_minor: int = 35


@dataclass(frozen=True, slots=True)
class Order:
    id: str
    workflow_type: str | None
    status: str
    amount_minor: int
    currency: str
    payment_ref: str | None
    customer_ref: str | None
    refunded_minor: int
    dispute_known: bool
    written_off_minor: int
    partial_shipment: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Workflow:
    """Only the facts of its state that a verdict may rest on."""

    entity_id: str
    current_state: str
    created_at: datetime
    deadline_at: datetime
    finished_at: datetime | None
    held_at: datetime | None


@dataclass(frozen=True, slots=True)
class Charge:
    id: str
    payment_ref: str
    order_ref: str | None
    customer_ref: str | None
    status: str
    amount_minor: int
    captured_minor: int
    currency: str
    livemode: bool
    capture_before: datetime | None
    captures_open: bool
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Refund:
    id: str
    charge_id: str
    status: str
    amount_minor: int
    currency: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Dispute:
    id: str
    charge_id: str
    status: str
    amount_minor: int
    currency: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class BalanceTransaction:
    id: str
    kind: str
    source_ref: str | None
    payout_ref: str | None
    amount_minor: int
    fee_minor: int
    net_minor: int
    currency: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class Payout:
    id: str
    status: str
    amount_minor: int
    currency: str
    created_at: datetime


ProviderRow = Charge | Refund | Dispute | BalanceTransaction | Payout
Row = Order | Workflow | ProviderRow


@dataclass(frozen=True, slots=True)
class Verdict:
    """What must be said of one unit. ``class_`` is MATCHED, PENDING or D01…; only a break has an amount at risk.

    ``remedy`` and ``charge_id`` are None where the case leaves them open.
    """

    unit: str
    class_: str
    amount_at_risk_minor: int | None = None
    currency: str | None = None
    remedy: str | None = None
    charge_id: str | None = None

    @property
    def bucket(self) -> str:
        return self.class_ if self.class_.startswith("D") else self.class_.lower()


@dataclass
class Ledger:
    """Rows, the verdict on every order and every lone charge among them, and the bucket of every charge."""

    watermark: datetime
    terms: Terms
    orders: list[Order] = field(default_factory=list)
    workflows: list[Workflow] = field(default_factory=list)
    charges: list[Charge] = field(default_factory=list)
    refunds: list[Refund] = field(default_factory=list)
    disputes: list[Dispute] = field(default_factory=list)
    balance_transactions: list[BalanceTransaction] = field(default_factory=list)
    payouts: list[Payout] = field(default_factory=list)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    buckets: dict[str, str] = field(default_factory=dict)
    cases: dict[str, str] = field(default_factory=dict)

    @property
    def breaks(self) -> dict[str, Verdict]:
        """Verdicts that open a finding."""
        return {unit: verdict for unit, verdict in self.verdicts.items() if verdict.class_.startswith("D")}

    def totals(self) -> dict[tuple[str, str], tuple[int, int]]:
        """(currency, bucket) → (charges, captured), with ``provider`` for all of a currency."""
        sums: dict[tuple[str, str], tuple[int, int]] = {}
        for charge in self.charges:
            for bucket in ("provider", self.buckets[charge.id]):
                count, amount = sums.get((charge.currency, bucket), (0, 0))
                sums[charge.currency, bucket] = (count + 1, amount + charge.captured_minor)
        return sums
