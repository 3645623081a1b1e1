"""JSON that PostgreSQL and every reader can hold: no NaN, no NUL, no lone surrogate, bounded size and depth."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from makegood.errors import InputError

DEPTH_MAX = 32  # deeper than any real order, shallow enough for every parser's stack
DIGITS_MAX = 308  # what a reader that knows only floats can still read


def _as_dict(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} has no place in JSON")


# Made once: json.dumps() makes an encoder for each text that is not in its default form.
_encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_encode_any = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_as_dict
).encode


def check_payload(value: Any, *, name: str, bytes_max: int) -> None:
    """Raises InputError naming the exact place of what cannot be stored."""
    if _bytes_at_most(value, 0) <= bytes_max:  # almost all are small and plain
        return
    _check(value, name, 0)
    size = len(canonical(value).encode())
    if size > bytes_max:
        raise InputError(f"{name} is {size:,} bytes; at most {bytes_max:,} are kept", hint="Store a reference instead.")


def canonical(value: Any) -> str:
    """One text per meaning: sorted keys, no spaces, never NaN."""
    return _encode(value)


def request_hash(request: Mapping[str, Any]) -> str:
    """SHA-256 of a request, in hex: the same request always has the same one, also after a stay in the database."""
    text = _encode_any(request)
    if ".0" in text or "e+" in text:  # perhaps a whole number written as a float; without one it is settled as it is
        text = canonical(_settled(request))
    return hashlib.sha256(text.encode()).hexdigest()


def clean(text: str, length_max: int) -> str:
    """The text as far as it can be stored: no NUL, no lone surrogate, bounded."""
    return text[:length_max].encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def _settled(value: Any) -> Any:
    """Numbers as they come back from ``jsonb``, where 1e22 is a whole number and -0.0 has no sign."""
    if value is None or isinstance(value, str | int):  # most are, and asking about Mapping is slow
        return value
    if isinstance(value, Mapping):
        return {key: _settled(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_settled(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(Decimal(float.__repr__(value)))  # by its digits, as jsonb reads it: 1e23 is not int(1e23)
    return value


def _bytes_at_most(value: Any, depth: int) -> float:
    """As many bytes as its JSON can have at most; infinite for what has to be looked at closely."""
    kind = type(value)
    if kind is dict and depth < DEPTH_MAX and all(type(key) is str for key in value):
        return 2 + sum(2 + _scalar_at_most(key) + _bytes_at_most(item, depth + 1) for key, item in value.items())
    if (kind is list or kind is tuple) and depth < DEPTH_MAX:
        return 2 + sum(1 + _bytes_at_most(item, depth + 1) for item in value)
    return _scalar_at_most(value)


def _scalar_at_most(value: Any) -> float:
    kind = type(value)
    if kind is str:
        return 6 * len(value) + 2 if value.isascii() and "\0" not in value else math.inf
    if kind is int or kind is float:
        return 25 if -(10**18) < value < 10**18 else math.inf
    return 5 if value is None or kind is bool else math.inf


def _check(value: Any, path: str, depth: int) -> None:
    if depth > DEPTH_MAX:
        raise InputError(f"{path} is nested deeper than {DEPTH_MAX}")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InputError(f"{path} has the key {key!r}; keys are text")
            _check_text(key, f"a key of {path}")
            _check(item, f"{path}.{key}", depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check(item, f"{path}[{index}]", depth + 1)
    else:
        _check_scalar(value, path)


def _check_scalar(value: Any, path: str) -> None:
    if isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{path} is {value}; JSON has no such number")
    elif isinstance(value, int) and abs(value) > 10**DIGITS_MAX:
        raise InputError(f"{path} is a number of more than {DIGITS_MAX} digits")
    elif value is not None and not isinstance(value, bool | int | float):
        raise InputError(f"{path} is a {type(value).__name__}, which JSON cannot hold")


def _check_text(value: str, path: str) -> None:
    if "\0" in value:
        raise InputError(f"{path} contains a NUL character")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{path} contains half a character (a lone surrogate)") from None
