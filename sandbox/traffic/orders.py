"""What customers order: mostly ordinary, some declined, some to nowhere, some cancelled."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

# Share of orders, so that every path of the saga is seen within minutes.
DECLINED, TO_NOWHERE, CANCELLED = 0.04, 0.02, 0.03
# Minor units per currency, in steps that Stripe takes (no third decimal of a dinar).
PRICES: dict[str, tuple[int, int, int]] = {
    "EUR": (500, 25_000, 1),
    "USD": (500, 25_000, 1),
    "SEK": (5_000, 250_000, 1),
    "JPY": (500, 30_000, 1),
    "KWD": (1_500, 90_000, 10),
}
WEIGHTS = (60, 20, 12, 5, 3)
SKUS = ("lamp-brass", "chair-oak", "rug-wool", "vase-blue", "desk-walnut")
SCARCE = "poster-signed"
SCARCE_SHARE, SCARCE_STOCK = 0.02, 25
COUNTRIES = ("SE", "DE", "FR", "NL", "US", "JP", "KW")


@dataclass(frozen=True)
class Order:
    """One customer's order; ``cancel_after_seconds`` is when they change their mind, if they do."""

    entity_id: str
    context: dict[str, Any]
    amount_minor: int
    currency: str
    cancel_after_seconds: float | None


def make_order(number: int, chance: random.Random) -> Order:
    """The same number and chance make the same order."""
    currency = chance.choices(list(PRICES), WEIGHTS)[0]
    low, high, step = PRICES[currency]
    declined, nowhere = chance.random() < DECLINED, chance.random() < TO_NOWHERE
    context = {
        "customer": f"cus_{chance.randrange(1, 5000):05d}",
        "payment_method": "pm_card_chargeDeclined" if declined else "pm_card_visa",
        "sku": SCARCE if chance.random() < SCARCE_SHARE else chance.choice(SKUS),
        "quantity": 1,
        "address": {"country": "XX" if nowhere else chance.choice(COUNTRIES)},
    }
    cancel = chance.uniform(0, 0.4) if chance.random() < CANCELLED else None
    return Order(f"order-{number}", context, chance.randrange(low, high, step), currency, cancel)
