"""Plants one case: a few rows that belong together, and the verdicts that the one who planted them knows."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta

from prover.ledgers.rows import (
    BalanceTransaction,
    Charge,
    Dispute,
    Ledger,
    Order,
    Payout,
    Refund,
    Verdict,
    Workflow,
)

CURRENCIES = ("EUR", "USD", "JPY", "KWD", "GBP", "BHD")  # two, none and three decimals
ACTIVE = ("created", "charging", "charged", "reserving", "reserved", "shipping")
MICROSECOND = timedelta(microseconds=1)


@dataclass
class Plot:
    """Everything of one case carries ``name`` in its ids, so that a wrong verdict says which case it was."""

    ledger: Ledger
    name: str
    random: random.Random
    _ids: int = 0

    def __post_init__(self) -> None:
        self.terms = self.ledger.terms
        self.watermark = self.ledger.watermark
        self.currency = self.random.choice(CURRENCIES)
        # Old enough for every grace but the payouts'; a case that is about youth says so.
        self.at = self.watermark - timedelta(hours=26, seconds=self.random.randrange(86_400))
        # Ends in 1, 3, 7 or 9, so that no tenth of it is whole: nothing differs by a power of ten by chance.
        self.amount = self.random.randrange(300, 40_000) * 10 + self.random.choice((1, 3, 7, 9))

    def id(self, prefix: str) -> str:
        self._ids += 1
        return f"{prefix}_{self.name}_{self._ids}"

    def part(self, of: int) -> int:
        """More than three and less than seven tenths of it."""
        return self.random.randrange(of * 3 // 10 + 1, of * 7 // 10)

    def later(self, than: datetime) -> datetime:
        return than + timedelta(seconds=self.random.randrange(1, 600))

    def fee(self, amount: int) -> int:
        """An ordinary one: two in a hundred and thirty."""
        return amount // 50 + 30

    def young(self, grace: timedelta) -> datetime:
        """Not old enough to be judged: what happened before the watermark less the grace is."""
        return self.watermark - grace + self.random.choice((timedelta(0), MICROSECOND, grace / 2))

    def old(self, grace: timedelta) -> datetime:
        """Just old enough to be judged."""
        return self.watermark - grace - self.random.choice((MICROSECOND, timedelta(seconds=1)))

    def order(
        self,
        status: str = "paid",
        *,
        amount: int | None = None,
        workflow: str | None = None,
        payment_ref: str | None = "",
        refunded: int = 0,
        dispute_known: bool = False,
        written_off: int = 0,
        partial_shipment: bool = False,
        at: datetime | None = None,
    ) -> Order:
        """``workflow``: active, late, held, compensating, completed, failed, compensated, or None for no workflow."""
        order = Order(
            self.id("order"),
            "checkout",
            status,
            self.amount if amount is None else amount,
            self.currency,
            self.id("pi") if payment_ref == "" else payment_ref,
            self.id("cus"),
            refunded,
            dispute_known,
            written_off,
            partial_shipment,
            at or self.at,
        )
        self.ledger.orders.append(order)
        if workflow is not None:
            self.ledger.workflows.append(self._workflow(order, workflow))
        return order

    def _workflow(self, order: Order, workflow: str) -> Workflow:
        state = self.random.choice(ACTIVE) if workflow in ("active", "late", "held") else workflow
        finished = order.created_at if state in ("completed", "failed", "compensated") else None
        # Far from now on both sides: when the run looks is not for the planter to say.
        late = workflow in ("late", "held") or finished is not None
        deadline = self.watermark + (-timedelta(hours=6) if late else timedelta(days=300))
        held = deadline if workflow == "held" else None
        return Workflow(order.id, state, order.created_at, deadline, finished, held)

    def charge(
        self,
        order: Order | None,
        captured: int | None = None,
        *,
        status: str = "succeeded",
        authorised: int | None = None,
        currency: str | None = None,
        payment_ref: str | None = None,
        order_ref: str | None = "",
        livemode: bool | None = None,
        capture_before: datetime | None = None,
        captures_open: bool = False,
        at: datetime | None = None,
        id: str | None = None,
    ) -> Charge:
        """A charge of that order by both keys, unless other keys are given; captured in full unless said otherwise."""
        amount = self.amount if order is None else order.amount_minor
        taken = (amount if captured is None else captured) if status == "succeeded" else 0
        reference = payment_ref or (order.payment_ref if order else None) or self.id("pi")
        charge = Charge(
            id or self.id("ch"),
            reference,
            (order.id if order else None) if order_ref == "" else order_ref,
            order.customer_ref if order else None,
            status,
            authorised if authorised is not None else max(amount if status != "succeeded" else 0, taken),
            taken,
            currency or self.currency,
            self.terms.livemode if livemode is None else livemode,
            capture_before,
            captures_open,
            at or self.later(order.created_at if order else self.at),
        )
        self.ledger.charges.append(charge)
        return charge

    def refund(self, charge: Charge, amount: int, status: str = "", *, at: datetime | None = None) -> Refund:
        status = status or self.random.choice(("succeeded", "pending"))
        when = at or self.later(charge.created_at)
        refund = Refund(self.id("re"), charge.id, status, amount, charge.currency, when)
        self.ledger.refunds.append(refund)
        return refund

    def dispute(self, charge: Charge, amount: int, status: str, *, at: datetime | None = None) -> Dispute:
        dispute = Dispute(
            self.id("dp"), charge.id, status, amount, charge.currency, at or self.later(charge.created_at)
        )
        self.ledger.disputes.append(dispute)
        return dispute

    def payout(self, amount: int, *, at: datetime, status: str = "paid") -> Payout:
        payout = Payout(self.id("po"), status, amount, self.currency, at)
        self.ledger.payouts.append(payout)
        return payout

    def movement(
        self, amount: int, fee: int, *, kind: str = "charge", payout: Payout | None = None, source: str | None = None
    ) -> BalanceTransaction:
        at = payout.created_at - timedelta(hours=1) if payout else self.later(self.at)
        name = self.id("txn")
        movement = BalanceTransaction(
            name, kind, source or self.id("src"), payout.id if payout else None, amount, fee, amount - fee,
            self.currency, at,
        )  # fmt: skip
        self.ledger.balance_transactions.append(movement)
        return movement

    def expect(
        self,
        what: Order | Charge | Payout | BalanceTransaction,
        class_: str,
        at_risk: int | None = None,
        *,
        charges: tuple[Charge, ...] = (),
        currency: str | None = None,
        remedy: str | None = None,
        acts_on: Charge | None = None,
    ) -> None:
        """The verdict on what was planted, and that those charges are counted with it."""
        kind = {Order: "order", Charge: "charge", Payout: "payout", BalanceTransaction: "balance"}[type(what)]
        unit = f"{kind}:{what.id}"
        broken = class_.startswith("D")
        verdict = Verdict(
            unit,
            class_,
            at_risk,
            (currency or what.currency) if broken else None,
            remedy,
            acts_on.id if acts_on else None,
        )
        self.ledger.verdicts[unit] = verdict
        self.ledger.cases[unit] = self.name
        own = (what,) if isinstance(what, Charge) else ()
        for charge in (*own, *charges):
            self.ledger.buckets[charge.id] = verdict.bucket
