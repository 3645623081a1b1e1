"""The currencies Stripe takes, and by what each one's minor amount must be divisible.

Zero-decimal currencies are passed as they are. Three-decimal ones must end in 0. ISK and UGX have no decimals
but are passed as if they had two, so they must end in 00: Stripe kept that for the sake of old callers.
"""

from __future__ import annotations

from sandbox.words import words

CURRENCIES = frozenset(
    words(
        """
        aed afn all amd ang aoa ars aud awg azn bam bbd bdt bgn bhd bif bmd bnd bob brl bsd bwp byn bzd cad
        cdf chf clp cny cop crc cve czk djf dkk dop dzd egp etb eur fjd fkp gbp gel gip gmd gnf gtq gyd hkd
        hnl htg huf idr ils inr isk jmd jod jpy kes kgs khr kmf krw kwd kyd kzt lak lbp lkr lrd lsl mad mdl
        mga mkd mmk mnt mop mur mvr mwk mxn myr mzn nad ngn nio nok npr nzd omr pab pen pgk php pkr pln pyg
        qar ron rsd rub rwf sar sbd scr sek sgd shp sle sos srd std szl thb tjs tnd top try ttd twd tzs uah
        ugx usd uyu uzs vnd vuv wst xaf xcd xof xpf yer zar zmw
        """
    )
)
ZERO_DECIMAL = frozenset(words("bif clp djf gnf jpy kmf krw mga pyg rwf vnd vuv xaf xof xpf"))
THREE_DECIMAL = frozenset(words("bhd jod kwd omr tnd"))
WHOLE_HUNDREDS = frozenset(words("isk ugx"))
SIGNS = {"usd": "$", "eur": "€", "gbp": "£", "jpy": "¥"}


def get_exponent(currency: str) -> int:
    if currency in ZERO_DECIMAL:
        return 0
    return 3 if currency in THREE_DECIMAL else 2


def get_step(currency: str) -> int:
    """Every amount in this currency is a multiple of this."""
    if currency in THREE_DECIMAL:
        return 10
    return 100 if currency in WHOLE_HUNDREDS else 1


def show(amount_minor: int, currency: str) -> str:
    """For messages to people: $20.00, ¥500, 1.250 KWD."""
    exponent = get_exponent(currency)
    whole, rest = divmod(amount_minor, 10**exponent)
    number = str(whole) if exponent == 0 else f"{whole}.{rest:0{exponent}d}"
    return SIGNS[currency] + number if currency in SIGNS else f"{number} {currency.upper()}"
