"""Money is an integer in minor units beside its currency. Never a float."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from makegood.errors import InputError

AMOUNT_MINOR_MAX = 2**63 - 1  # what the database's bigint holds


def check_money(amount_minor: Any, currency: Any) -> None:
    """Raises InputError unless both are given and well formed, or both are absent."""
    if amount_minor is None and currency is None:
        return
    if isinstance(amount_minor, bool) or not isinstance(amount_minor, int):
        raise InputError(
            f"amount_minor is {amount_minor!r}; money is a whole number of minor units",
            hint="19.99 EUR is amount_minor 1999, currency EUR.",
        )
    if not 0 <= amount_minor <= AMOUNT_MINOR_MAX:
        raise InputError(f"amount_minor is {amount_minor}; it must be between 0 and {AMOUNT_MINOR_MAX}")
    if not isinstance(currency, str) or not re.fullmatch(r"[A-Z]{3}", currency):
        raise InputError(f"currency is {currency!r}; it must be an ISO 4217 code in capitals, for example EUR")


def format_money(amount_minor: int, currency: str, exponent: int = 2) -> str:
    """1999 EUR with exponent 2 reads ``19.99 EUR``."""
    return f"{Decimal(amount_minor).scaleb(-exponent):,.{exponent}f} {currency}"
