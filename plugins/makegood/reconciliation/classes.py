"""What each class of finding is called, and what it says to somebody who never saw one. The rules are in SQL."""

from __future__ import annotations

# Known and watched, or only written down: nobody has to do anything.
ONLY_RECORDED = frozenset({"D04", "D09", "D12", "D15", "D30"})
# Somebody is told at once, whatever the amount: an authorisation is about to be lost, amounts are wrong by a power of
# ten, money left twice, or test and real charges are mixed.
ALARMING = frozenset({"D13", "D17", "D22", "D27"})

NAMES = {
    "D01": ("Orphan charge", "The provider took money for an order that we do not have."),
    "D02": ("Charged, not completed", "Paid, and the order has stood still past its deadline."),
    "D03": ("Charged but failed", "The order failed or was cancelled, and the customer's money is still with us."),
    "D04": ("Charged, being undone", "The order is being undone; the refund is on its way."),
    "D05": ("Missing charge", "The order says paid, and the provider has no charge for it."),
    "D06": ("Status drift", "Charged and completed, but the order still says unpaid."),
    "D07": ("Falsely paid", "The charge failed, and the order says paid."),
    "D08": ("Duplicate charge", "The customer was charged more than once for one order."),
    "D09": ("Duplicate row", "The provider sent the same object twice; it counts once."),
    "D10": ("Over-capture", "More was taken than the order costs."),
    "D11": ("Under-capture", "Less was taken than the order costs."),
    "D12": ("Capture under way", "Captured in parts, and not all of them yet."),
    "D13": ("Authorised, not captured", "The authorisation lapses soon, and nothing has been taken."),
    "D14": ("Authorisation expired", "The authorisation lapsed, and the order says paid."),
    "D15": ("Rounding", "A difference within the tolerance."),
    "D16": ("Currency mismatch", "Charged in another currency than the order's."),
    "D17": ("Minor-unit error", "The amount is wrong by a power of ten: a decimal point in the wrong place."),
    "D18": ("Unrecorded refund", "Refunded at the provider, and our books do not know."),
    "D19": ("Missing refund", "Our books say refunded, and the provider has no refund."),
    "D20": ("Refund differs", "Refunded another amount than our books say."),
    "D21": ("Failed refund", "A refund failed, and the customer does not have the money."),
    "D22": ("Over-refund", "More was given back than was taken."),
    "D23": ("Refunded, still fulfilling", "All was given back, and the order goes on as if it were paid."),
    "D24": ("Open dispute", "The customer disputes the charge, and our books do not know."),
    "D25": ("Lost dispute", "A dispute was lost, and the order still counts as revenue."),
    "D26": ("Refund and dispute", "Refunded and disputed at once: the money may leave twice."),
    "D27": ("Wrong mode", "A test charge among real ones, or a real one among tests."),
    "D28": ("Late arrival", "An earlier finding that matches now; it closed by itself."),
    "D29": ("Payout differs", "A payout is not the sum of what it is made of."),
    "D30": ("Unusual fee", "The provider's fee is outside the expected band."),
    "D31": ("Ambiguous", "More than one order or payment could be meant."),
    "D32": (
        "Stale source",
        "Some of the provider's books are not here; without charges, refunds and disputes nothing is put right.",
    ),
}

REMEDIES = {
    "resume": "take the order on",
    "refund": "refund",
    "retry_refund": "try the refund again",
    "correct": "correct our books",
    "record": "record it in our books",
    "stop": "stop the order",
    "wait": "wait for its workflow",
    "human": "a person decides",
}


def name_of(class_: str) -> str:
    """``Orphan charge``; a class from a newer database is its own name."""
    return NAMES.get(class_, (class_, ""))[0]


def meaning_of(class_: str) -> str:
    return NAMES.get(class_, ("", "A class that this version does not know."))[1]
