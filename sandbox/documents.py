"""JSON bodies, decoded strictly: no NaN, no lone surrogates, no bottomless nesting; fields checked by name."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from sandbox.answers import bad_request
from sandbox.store import Json

TEXT_LENGTH_MAX = 500


def decode_document(body: bytes) -> Json:
    """The JSON object in the body; an empty body is an empty object."""
    if not body.strip():
        return {}
    try:
        document = json.loads(body, parse_constant=_refuse_constant)
        json.dumps(document, ensure_ascii=False).encode()  # a lone surrogate has no UTF-8 form
    except RecursionError:
        raise bad_request("the body is nested too deeply") from None
    except ValueError as error:
        raise bad_request(f"the body is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise bad_request("the body must be a JSON object")
    return document


def require_string(params: Json, name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not value:
        raise bad_request(f"{name} is required: a string that is not empty")
    if len(value) > TEXT_LENGTH_MAX:
        raise bad_request(f"{name} is longer than {TEXT_LENGTH_MAX} characters")
    return value


def get_order_id(params: Json) -> str:
    """For lookups, which are by order."""
    value = params.get("order_id")
    if not isinstance(value, str) or not value:
        raise bad_request("order_id is required, for example ?order_id=order-7")
    return value


def get_whole_number(params: Json, name: str, low: int, high: int, *, default: int) -> int:
    value = params.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise bad_request(f"{name} must be a whole number from {low} to {high}")
    return value


def get_number(params: Json, name: str, low: float, high: float) -> float:
    value: Any = params.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise bad_request(f"{name} must be a number from {low:g} to {high:g}")
    return float(value)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
