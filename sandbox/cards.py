"""Stripe's test payment methods, by name: what happens when each is charged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Decline:
    code: str
    decline_code: str | None
    message: str


@dataclass(frozen=True)
class Card:
    brand: str = "visa"
    last4: str = "4242"
    decline: Decline | None = None
    dispute_status: str | None = None
    dispute_reason: str = "fraudulent"
    refund_status: str = "succeeded"


def _declined(last4: str, decline_code: str, message: str = "Your card was declined.") -> Card:
    return Card(last4=last4, decline=Decline("card_declined", decline_code, message))


def _faulty(last4: str, code: str, message: str) -> Card:
    return Card(last4=last4, decline=Decline(code, None, message))


NO_FUNDS = "Your card has insufficient funds."
CARDS = {
    "pm_card_visa": Card(),
    "pm_card_visa_debit": Card(last4="5556"),
    "pm_card_mastercard": Card("mastercard", "4444"),
    "pm_card_amex": Card("amex", "8431"),
    "pm_card_discover": Card("discover", "9424"),
    "pm_card_jcb": Card("jcb", "0505"),
    "pm_card_chargeDeclined": _declined("0002", "generic_decline"),
    "pm_card_visa_chargeDeclined": _declined("0002", "generic_decline"),
    "pm_card_chargeDeclinedInsufficientFunds": _declined("9995", "insufficient_funds", NO_FUNDS),
    "pm_card_visa_chargeDeclinedInsufficientFunds": _declined("9995", "insufficient_funds", NO_FUNDS),
    "pm_card_visa_chargeDeclinedLostCard": _declined("9987", "lost_card"),
    "pm_card_visa_chargeDeclinedStolenCard": _declined("9979", "stolen_card"),
    "pm_card_chargeDeclinedExpiredCard": _faulty("0069", "expired_card", "Your card has expired."),
    "pm_card_chargeDeclinedIncorrectCvc": _faulty("0127", "incorrect_cvc", "Your card's security code is incorrect."),
    "pm_card_chargeDeclinedProcessingError": _faulty(
        "0119", "processing_error", "An error occurred while processing your card. Try again in a little bit."
    ),
    "pm_card_createDispute": Card(last4="0259", dispute_status="needs_response"),
    "pm_card_createDisputeProductNotReceived": Card(
        last4="2685", dispute_status="needs_response", dispute_reason="product_not_received"
    ),
    "pm_card_createDisputeInquiry": Card(last4="1976", dispute_status="warning_needs_response"),
    "pm_card_pendingRefund": Card(last4="7726", refund_status="pending"),
}
REFUSING_CARD = "pm_card_chargeDeclined"  # what the fault `refused` charges instead
