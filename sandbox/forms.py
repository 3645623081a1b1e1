"""Form parameters as Stripe nests them: ``metadata[order_id]=7`` becomes {"metadata": {"order_id": "7"}}.

Everything has a bound: fields, depth and size. Values stay text; ``parameters`` gives them their types.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qsl

from sandbox.answers import RefusedError, bad_parameter
from sandbox.store import Json

FIELDS_MAX = 1000
DEPTH_MAX = 5  # Stripe's own parameters nest at most this deep
NAME = re.compile(r"([^\[\]]+)((?:\[[^\[\]]*\])*)")
PART = re.compile(r"\[([^\[\]]*)\]")


def decode_form(text: str) -> Json:
    """Nested parameters, or a RefusedError that names the field at fault."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
    except UnicodeDecodeError:
        raise bad_parameter("Invalid request: the parameters are not valid UTF-8.", None) from None
    except ValueError:
        raise bad_parameter(f"Invalid request: more than {FIELDS_MAX} parameters.", None) from None
    document: Json = {}
    for name, value in pairs:
        _put(document, name, _split(name), value)
    return {name: _with_lists(value) for name, value in document.items()}


def _split(name: str) -> list[str]:
    matched = NAME.fullmatch(name)
    if matched is None:
        raise bad_parameter(f"Invalid parameter name: {name}", name)
    parts = [matched[1], *PART.findall(matched[2])]
    if len(parts) > DEPTH_MAX:
        raise bad_parameter(f"Parameter nested too deeply: {parts[0]}", parts[0])
    return parts


def _put(document: Json, name: str, parts: list[str], value: str) -> None:
    inner: Any = document
    for part in parts[:-1]:
        inner = inner.setdefault(part, {})
        if not isinstance(inner, dict):
            raise _conflict(name)
    last = parts[-1] if parts[-1] != "" else str(len(inner))  # a[] appends
    if isinstance(inner.get(last), dict):
        raise _conflict(name)
    inner[last] = value


def _conflict(name: str) -> RefusedError:
    return bad_parameter(f"Invalid parameter: {name} is given both a value and fields of its own.", name)


def _with_lists(value: Any) -> Any:
    """A dict whose keys count up from 0 was a list on the wire."""
    if not isinstance(value, dict):
        return value
    inner = {name: _with_lists(item) for name, item in value.items()}
    if list(inner) == [str(index) for index in range(len(inner))]:
        return list(inner.values())
    return inner
