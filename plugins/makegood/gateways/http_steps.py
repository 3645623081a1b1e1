"""Steps that are HTTP endpoints, so that a service in any language can be recovered.

The request carries the key in ``Idempotency-Key``; the service answers the same key with the same answer.
2xx is success, a 4xx that names a reason is a definite failure, everything else is unknown.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx

from makegood.engine.definitions import Action, Call, Request
from makegood.engine.outcomes import Failed, Outcome, Success, Trouble, Unknown

# What a service says when the request itself is refused. 401, 403, 404 and the like say that we, not the
# order, are at fault: they are tried again and end with a person.
DEFINITE_STATUSES = frozenset({400, 402, 409, 410, 412, 413, 422})
# The one 409 that is no refusal: the first request under this key is still being worked on.
IN_PROGRESS_CODES = frozenset({"idempotency_key_in_use", "in_progress"})
BODY_BYTES_MAX = 64 * 1024
RETRY_AFTER_SECONDS_MAX = 3600.0

Url = str | Callable[[Call], str]
Body = Callable[[Call], Mapping[str, Any]]


@dataclass(frozen=True)
class HttpEndpoint:
    """An address and how to fill its body; ``action()`` makes a step's action of it.

    ``look_up_url`` answers GET with ``{"data": [...]}``: what the service has for this entity.
    ``provider`` is whose breaker opens when it is down; its host, if not given.
    """

    client: httpx.AsyncClient
    url: Url
    body: Body
    look_up_url: Url | None = None
    provider: str | None = None

    def action(self) -> Action:
        provider = self.provider or (urlsplit(self.url).netloc if isinstance(self.url, str) else None)
        return Action(self.send, self.request, self.look_up if self.look_up_url else None, provider)

    def request(self, call: Call) -> Request:
        return {"method": "POST", "url": _resolve(self.url, call), "body": dict(self.body(call))}

    async def send(self, call: Call, request: Request) -> Outcome:
        headers = {"Idempotency-Key": call.key, "Content-Type": "application/json"}
        content = json.dumps(request["body"], allow_nan=False)
        return await exchange(self.client, "POST", request["url"], headers=headers, content=content)

    async def look_up(self, call: Call) -> Outcome | None:
        found = await find_all(self.client, _resolve(self.look_up_url or "", call))
        if isinstance(found, Unknown):
            return found
        return Success(found[0]) if found else None


async def find_all(client: httpx.AsyncClient, url: str) -> list[Mapping[str, Any]] | Unknown:
    """The rows a service lists, or Unknown when it cannot be told now."""
    answer = await exchange(client, "GET", url)
    if isinstance(answer, Success):
        data = answer.result.get("data")
        return data if isinstance(data, list) else Unknown("malformed", "the list has no data")
    if isinstance(answer, Unknown):
        return answer
    return Unknown(answer.error_type, answer.error)


async def exchange(client: httpx.AsyncClient, method: str, url: str, **options: Any) -> Outcome:
    """One request and what it came to. A transport error is unknown: the request may have arrived."""
    try:
        async with client.stream(method, url, **options) as response:
            body = await _read(response)
    except httpx.HTTPError as error:
        return Unknown(type(error).__name__, str(error) or f"{method} {url} failed", trouble=trouble_of(error))
    if body is None:
        return Unknown("too_large", f"the answer is larger than {BODY_BYTES_MAX:,} bytes")
    return classify(response.status_code, response.headers, body)


def classify(status: int, headers: Mapping[str, str], body: bytes) -> Outcome:
    """Success, a definite failure, or unknown; pure."""
    document = _parse(body)
    if 200 <= status < 300:
        return Unknown("malformed", "the answer is not a JSON object") if document is None else Success(document)
    error = document.get("error") if document else None
    code = str(error.get("code") or f"http_{status}") if isinstance(error, dict) else f"http_{status}"
    message = str(error.get("message") or "") if isinstance(error, dict) else body[:200].decode("utf-8", "replace")
    if status in DEFINITE_STATUSES and isinstance(error, dict) and code not in IN_PROGRESS_CODES:
        return Failed(code, message)
    return Unknown(code, f"HTTP {status}: {message}", retry_after_seconds(headers), trouble_with(status))


def trouble_with(status: int) -> Trouble:
    """Whose trouble a status is that is neither success nor refusal of this very request."""
    match status:
        case 401 | 403:
            return "locked_out"
        case 429:
            return "unserved"
    return "service" if status >= 500 else "request"


def trouble_of(error: BaseException | None) -> Trouble:
    """Without a connection nothing can have happened; after one, everything can."""
    return "unserved" if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout) else "service"


def retry_after_seconds(headers: Mapping[str, str]) -> float:
    """A Retry-After in seconds, bounded; a date or nonsense counts as none."""
    try:
        seconds = float(headers.get("retry-after", "0"))
    except ValueError:
        return 0.0
    return min(max(seconds, 0.0), RETRY_AFTER_SECONDS_MAX) if math.isfinite(seconds) else 0.0


async def _read(response: httpx.Response) -> bytes | None:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > BODY_BYTES_MAX:
            return None
    return bytes(body)


def _parse(body: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(body)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _resolve(url: Url, call: Call) -> str:
    return url if isinstance(url, str) else url(call)
