"""Typed parameters out of a form, or Stripe's own complaint about the one at fault.

Everything refused here is refused before work begins, so it is never stored under an idempotency key.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from sandbox.answers import bad_parameter
from sandbox.currencies import CURRENCIES, get_step, show
from sandbox.store import Json

INTEGER = re.compile(r"-?[0-9]{1,18}")
AMOUNT_MAX = 99_999_999
METADATA_KEYS_MAX = 50
METADATA_KEY_LENGTH_MAX = 40
METADATA_VALUE_LENGTH_MAX = 500


def refuse_unknown(params: Json, known: Collection[str]) -> None:
    for name in params:
        if name not in known:
            raise bad_parameter(f"Received unknown parameter: {name}", name, "parameter_unknown")


def get_text(params: Json, name: str) -> str | None:
    value = params.get(name)
    if value is None or isinstance(value, str):
        return value or None
    raise bad_parameter(f"Invalid string: {value}", name)


def require_text(params: Json, name: str) -> str:
    value = get_text(params, name)
    if value is None:
        raise bad_parameter(f"Missing required param: {name}.", name, "parameter_missing")
    return value


def get_choice(params: Json, name: str, choices: Collection[str], default: str | None) -> str | None:
    value = get_text(params, name)
    if value is None:
        return default
    if value not in choices:
        raise bad_parameter(f"Invalid {name}: must be one of {', '.join(sorted(choices))}", name)
    return value


def get_flag(params: Json, name: str) -> bool:
    value = get_text(params, name)
    if value not in (None, "true", "false"):
        raise bad_parameter(f"Invalid boolean: {value}", name)
    return value == "true"


def get_integer(params: Json, name: str) -> int | None:
    value = params.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or INTEGER.fullmatch(value) is None:
        raise bad_parameter(f"Invalid integer: {value}", name, "parameter_invalid_integer")
    return int(value)


def require_currency(params: Json) -> str:
    currency = require_text(params, "currency").lower()
    if currency not in CURRENCIES:
        known = ", ".join(sorted(CURRENCIES))
        raise bad_parameter(
            f"Invalid currency: {currency}. Stripe currently supports these currencies: {known}", "currency"
        )
    return currency


def get_amount(params: Json, name: str, currency: str) -> int | None:
    """A positive integer of minor units that the currency can express."""
    amount = get_integer(params, name)
    if amount is None:
        return None
    if amount < 1:
        raise bad_parameter("This value must be greater than or equal to 1.", name, "parameter_invalid_integer")
    if amount > AMOUNT_MAX:
        raise bad_parameter(f"Amount must be no more than {show(AMOUNT_MAX, currency)}", name, "amount_too_large")
    if amount % get_step(currency):
        message = (
            f"Invalid integer: {amount}. Amounts in {currency.upper()} must be a multiple of {get_step(currency)}."
        )
        raise bad_parameter(message, name, "parameter_invalid_integer")
    return amount


def require_amount(params: Json, name: str, currency: str) -> int:
    amount = get_amount(params, name, currency)
    if amount is None:
        raise bad_parameter(f"Missing required param: {name}.", name, "parameter_missing")
    return amount


def get_metadata(params: Json) -> dict[str, str]:
    metadata = params.get("metadata") or {}
    if isinstance(metadata, list):  # {"0": …, "1": …} looks like a list on the wire
        metadata = {str(index): value for index, value in enumerate(metadata)}
    if not isinstance(metadata, dict):
        raise bad_parameter("Invalid metadata: must be a hash of keys and values.", "metadata")
    if len(metadata) > METADATA_KEYS_MAX:
        raise bad_parameter(f"Metadata can have up to {METADATA_KEYS_MAX} keys.", "metadata")
    for name, value in metadata.items():
        _check_metadata(name, value)
    return {name: value for name, value in metadata.items() if value != ""}


def _check_metadata(name: str, value: object) -> None:
    param = f"metadata[{name}]"
    if not isinstance(value, str):
        raise bad_parameter(
            f"Metadata values must be strings, but for key {name} you passed a value of another type.", param
        )
    if len(name) > METADATA_KEY_LENGTH_MAX:
        raise bad_parameter(f"Metadata keys must be under {METADATA_KEY_LENGTH_MAX} characters.", param)
    if len(value) > METADATA_VALUE_LENGTH_MAX:
        raise bad_parameter(f"Metadata values must be under {METADATA_VALUE_LENGTH_MAX} characters.", param)


def get_expand(params: Json) -> list[str]:
    expand = params.get("expand") or []
    if not isinstance(expand, list) or not all(isinstance(path, str) for path in expand):
        raise bad_parameter("Invalid array: expand must be a list of names.", "expand")
    return expand
