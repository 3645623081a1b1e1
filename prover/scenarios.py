"""The kinds of order a proof is made with: each takes another way through the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STOCKED, SOLD_OUT = "sku-stocked", "sku-sold-out"
GOOD: Mapping[str, Any] = {
    "payment_method": "pm_card_visa",
    "sku": STOCKED,
    "quantity": 1,
    "address": {"country": "SE"},
}
NOWHERE: Mapping[str, Any] = {"address": {"country": "XX"}}


@dataclass(frozen=True)
class Scenario:
    """``ends`` are the states it may end in; ``held`` means that it may wait for a person instead."""

    name: str
    ends: Sequence[str]
    context: Mapping[str, Any] = field(default_factory=dict)
    faults: Sequence[Mapping[str, Any]] = ()
    cancel_before_start: bool = False
    cancel_after_call: str | None = None
    cancel_when_stopped: bool = False
    held: bool = False
    job: str = "checkout"
    abandoned_at: str | None = None
    """Before the proof a worker has died right after this: the job finds what it left."""
    breaker_failures: int | None = None
    """So many failures and the provider counts as down, instead of what is set."""

    @property
    def cancels(self) -> bool:
        return self.cancel_before_start or self.cancel_when_stopped or self.cancel_after_call is not None

    def full_context(self) -> dict[str, Any]:
        return {**GOOD, **self.context}

    def faults_for(self, order_id: str) -> list[dict[str, Any]]:
        return [{**fault, "order_id": order_id} for fault in self.faults]


CHECKOUTS: Sequence[Scenario] = (
    Scenario("completes", ends=["completed"]),
    Scenario("declined", ends=["failed"], context={"payment_method": "pm_card_chargeDeclined"}),
    Scenario("sold_out", ends=["compensated"], context={"sku": SOLD_OUT}),
    Scenario("undeliverable", ends=["compensated"], context=NOWHERE),
    Scenario("cancelled_at_once", ends=["compensated"], cancel_before_start=True),
    Scenario("cancelled_while_charging", ends=["compensated"], cancel_after_call="charge"),
    Scenario("cancelled_while_reserving", ends=["compensated"], cancel_after_call="reserve"),
    Scenario("cancelled_while_shipping", ends=["compensated"], cancel_after_call="ship"),
    # The cancel comes while the worker is stopped, so another one honours it.
    Scenario("cancelled_behind_its_back", ends=["completed"], cancel_when_stopped=True),
    Scenario(
        "charge_answer_lost", ends=["completed"], faults=[{"operation": "charge", "fault": "reset_after", "times": 1}]
    ),
    Scenario(
        "refund_answer_lost",
        ends=["compensated"],
        context=NOWHERE,
        faults=[{"operation": "refund", "fault": "reset_after", "times": 1}],
    ),
    # A stored 500 is replayed for ever: only a look-up can tell.
    Scenario(
        "charge_500_kept", ends=["completed"], faults=[{"operation": "charge", "fault": "error_500_after", "times": 1}]
    ),
    Scenario(
        "refund_500_kept",
        ends=["compensated"],
        context=NOWHERE,
        faults=[{"operation": "refund", "fault": "error_500_after", "times": 1}],
    ),
    Scenario(
        "refund_never_answers",
        ends=["compensated"],
        context=NOWHERE,
        faults=[{"operation": "refund", "fault": "error_500_stored", "times": 1}],
        held=True,
    ),
    Scenario(
        "shipping_down", ends=["compensated"], faults=[{"operation": "ship", "fault": "error_503", "times": 1000}]
    ),
)
FIRST_CHARGE, FIRST_UNDO = "call charge", "statement compensate_workflows"
REFUND_LOST = {"operation": "refund", "fault": "reset_after", "times": 1}
REFUND_500_KEPT = {"operation": "refund", "fault": "error_500_after", "times": 1}
REFUND_500 = {"operation": "refund", "fault": "error_500_stored", "times": 1}

# What the scheduled jobs find: a worker died somewhere, and nobody came.
RECOVERIES: Sequence[Scenario] = (
    Scenario("recover_charged", ends=["completed"], job="recover", abandoned_at=FIRST_CHARGE),
    Scenario("recover_started", ends=["completed"], job="recover", abandoned_at="statement start_workflows"),
    Scenario("recover_shipped", ends=["completed"], job="recover", abandoned_at="call ship"),
    Scenario(
        "recover_declined",
        ends=["failed"],
        job="recover",
        abandoned_at=FIRST_CHARGE,
        context={"payment_method": "pm_card_chargeDeclined"},
    ),
    Scenario("recover_undeliverable", ends=["compensated"], job="recover", abandoned_at=FIRST_CHARGE, context=NOWHERE),
    Scenario(
        "recover_cancelled",
        ends=["compensated"],
        job="recover",
        abandoned_at=FIRST_CHARGE,
        cancel_after_call="charge",
    ),
    # The provider counts as down at once, is probed, and is up again.
    Scenario(
        "recover_while_down",
        ends=["completed"],
        job="recover",
        abandoned_at="call reserve",
        faults=[{"operation": "ship", "fault": "error_503", "times": 1}],
        breaker_failures=1,
    ),
    # A stored 500 for a charge that never was: nobody can tell, so it is held with its dead letter and alert.
    Scenario(
        "recover_to_hold",
        ends=["completed"],
        job="recover",
        abandoned_at="statement start_workflows",
        faults=[{"operation": "charge", "fault": "error_500_stored", "times": 1}],
        held=True,
    ),
)
COMPENSATIONS: Sequence[Scenario] = (
    Scenario("undo_all", ends=["compensated"], job="compensate", abandoned_at=FIRST_UNDO, context=NOWHERE),
    Scenario(
        "undo_refund_lost",
        ends=["compensated"],
        job="compensate",
        abandoned_at=FIRST_UNDO,
        context=NOWHERE,
        faults=[REFUND_LOST],
    ),
    Scenario(
        "undo_refund_500_kept",
        ends=["compensated"],
        job="compensate",
        abandoned_at=FIRST_UNDO,
        context=NOWHERE,
        faults=[REFUND_500_KEPT],
    ),
    Scenario(
        "undo_to_hold",
        ends=["compensated"],
        job="compensate",
        abandoned_at=FIRST_UNDO,
        context=NOWHERE,
        faults=[REFUND_500],
        held=True,
    ),
)
# A customer was charged twice, and a run has found it: the later charge goes back, once.
REMEDIES: Sequence[Scenario] = (
    Scenario("remedy_duplicate", ends=["completed"], job="remedy"),
    Scenario("remedy_refund_lost", ends=["completed"], job="remedy", faults=[REFUND_LOST]),
    Scenario("remedy_refund_500_kept", ends=["completed"], job="remedy", faults=[REFUND_500_KEPT]),
    Scenario("remedy_to_hold", ends=["completed"], job="remedy", faults=[REFUND_500], held=True),
)
SCENARIOS: Sequence[Scenario] = (*CHECKOUTS, *RECOVERIES, *COMPENSATIONS, *REMEDIES)
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}
