"""An answer can be stored and replayed byte for byte; a refusal is an answer that was raised.

A refusal says whether it is ``kept``. Stripe stores what an endpoint answered once it began to work, errors
included; what was turned away before (bad parameters, no key, too many requests) is not stored, so that the
corrected request may use the same idempotency key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from sandbox.store import Json, to_json

Service = Literal["stripe", "inventory", "shipping"]


@dataclass(frozen=True)
class Answer:
    status: int
    body: str
    headers: dict[str, str] = field(default_factory=dict)
    replayed: bool = False


class RefusedError(Exception):
    def __init__(self, answer: Answer, *, kept: bool) -> None:
        super().__init__(answer.body)
        self.answer = answer
        self.kept = kept


def answer_with(document: Any, status: int = 200) -> Answer:
    return Answer(status, to_json(document))


def stripe_error(status: int, error_type: str, message: str, **more: Any) -> Answer:
    """Stripe's error shape; fields that are None are left out, as Stripe leaves them out."""
    error: Json = {name: value for name, value in more.items() if value is not None}
    if "code" in error:
        error["doc_url"] = "https://stripe.com/docs/error-codes/" + error["code"].replace("_", "-")
    return answer_with({"error": {**error, "message": message, "type": error_type}}, status)


def service_error(status: int, code: str, message: str) -> Answer:
    """The error shape of inventory, shipping and the control API."""
    return answer_with({"error": {"code": code, "message": message}}, status)


def error_for(
    service: Service, status: int, code: str | None, message: str, *, error_type: str = "api_error"
) -> Answer:
    if service == "stripe":
        return stripe_error(status, error_type, message, code=code)
    return service_error(status, code or error_type, message)


def bad_parameter(message: str, param: str | None, code: str | None = None) -> RefusedError:
    """Turned away before any work began, so not stored under the key."""
    return RefusedError(stripe_error(400, "invalid_request_error", message, code=code, param=param), kept=False)


def cannot(message: str, *, code: str | None = None, param: str | None = None, **more: Any) -> RefusedError:
    """A definite no from an endpoint that did look: stored, and replayed for the same key."""
    answer = stripe_error(400, "invalid_request_error", message, code=code, param=param, **more)
    return RefusedError(answer, kept=True)


def no_such(kind: str, object_id: str, param: str, status: int = 404) -> RefusedError:
    message = f"No such {kind}: '{object_id}'"
    answer = stripe_error(status, "invalid_request_error", message, code="resource_missing", param=param)
    return RefusedError(answer, kept=True)


def bad_request(message: str, code: str = "invalid_request") -> RefusedError:
    """The JSON services' counterpart of ``bad_parameter``."""
    return RefusedError(service_error(400, code, message), kept=False)


def not_found(message: str) -> RefusedError:
    return RefusedError(service_error(404, "not_found", message), kept=True)
