"""Money is whole minor units and a currency, or absent; and it reads as people write it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from makegood.errors import InputError
from makegood.money import AMOUNT_MINOR_MAX, check_money, format_money


@pytest.mark.parametrize(
    ("amount_minor", "currency", "message"),
    [
        (19.99, "EUR", "amount_minor is 19.99; money is a whole number of minor units"),
        (1999.0, "EUR", "amount_minor is 1999.0"),  # a float, however whole
        (float("nan"), "EUR", "amount_minor is nan"),
        (True, "EUR", "amount_minor is True"),  # Python counts it among the integers
        ("1999", "EUR", "amount_minor is '1999'"),
        (Decimal(1999), "EUR", "amount_minor is Decimal('1999')"),
        (None, "EUR", "amount_minor is None"),  # a currency of nothing
        (-1, "EUR", "amount_minor is -1; it must be between 0 and"),
        (AMOUNT_MINOR_MAX + 1, "EUR", "it must be between 0 and 9223372036854775807"),
        (1999, None, "currency is None"),
        (1999, "eur", "currency is 'eur'; it must be an ISO 4217 code in capitals"),
        (1999, "EURO", "currency is 'EURO'"),
        (1999, "EU", "currency is 'EU'"),
        (1999, "", "currency is ''"),
        (1999, "EUR\n", "currency is 'EUR\\n'"),
        (1999, "ÉUR", "currency is 'ÉUR'"),
        (1999, 978, "currency is 978"),
    ],
)
def test_money_that_is_not_money_is_refused_and_named(amount_minor: Any, currency: Any, message: str) -> None:
    with pytest.raises(InputError) as refused:
        check_money(amount_minor, currency)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("amount_minor", "currency"),
    [(None, None), (0, "EUR"), (1999, "JPY"), (AMOUNT_MINOR_MAX, "KWD")],
)
def test_money_that_is_money_or_absent_is_accepted(amount_minor: int | None, currency: str | None) -> None:
    check_money(amount_minor, currency)


@pytest.mark.parametrize(
    ("amount_minor", "currency", "exponent", "text"),
    [
        (1999, "EUR", 2, "19.99 EUR"),
        (5, "EUR", 2, "0.05 EUR"),
        (0, "EUR", 2, "0.00 EUR"),
        (1999, "JPY", 0, "1,999 JPY"),  # no decimals
        (1990, "KWD", 3, "1.990 KWD"),  # three
        (1, "CLF", 4, "0.0001 CLF"),
        (123456789012, "USD", 2, "1,234,567,890.12 USD"),
        (-1999, "EUR", 2, "-19.99 EUR"),  # a net can be negative
        (AMOUNT_MINOR_MAX, "EUR", 2, "92,233,720,368,547,758.07 EUR"),  # no digit lost
    ],
)
def test_money_is_shown_with_its_currencys_decimals(amount_minor: int, currency: str, exponent: int, text: str) -> None:
    assert format_money(amount_minor, currency, exponent) == text


@given(st.integers(min_value=0, max_value=AMOUNT_MINOR_MAX), st.integers(min_value=0, max_value=4))
def test_money_shown_loses_nothing(amount_minor: int, exponent: int) -> None:
    shown = format_money(amount_minor, "XXX", exponent).removesuffix(" XXX").replace(",", "")
    assert int(shown.replace(".", "")) == amount_minor
    assert len(shown.partition(".")[2]) == exponent
