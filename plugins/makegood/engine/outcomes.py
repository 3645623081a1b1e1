"""What came of one outside call. Unknown is not failed: it may have worked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Trouble = Literal["request", "service", "unserved", "locked_out"]
"""Whose trouble an unknown outcome is:

    request     of this one alone (still being processed, an unreadable answer)
    service     the service does badly (timeout, reset, 5xx); many in a row and it counts as down
    unserved    the same, and it surely never got to work on it (no connection, 429): no attempt is spent
    locked_out  it does not know us (401, 403): no other order will fare better, and no attempt is spent
"""


@dataclass(frozen=True, slots=True)
class Success:
    """It happened. ``result`` is kept in the workflow's context under the step's name."""

    result: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failed:
    """It definitely did not happen and will not, however often it is asked."""

    error_type: str
    error: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """It may have happened, or may yet: the same request goes out again under the same key."""

    error_type: str
    error: str
    retry_after_seconds: float = 0.0
    trouble: Trouble = "request"
    probed: bool = False
    """It was made to see whether a provider is up again, for all who wait: nobody's attempt."""

    @property
    def spent(self) -> bool:
        """Whether it counts as an attempt: it may have happened."""
        return self.trouble in {"request", "service"} and not self.probed


@dataclass(frozen=True, slots=True)
class Suspect:
    """The answer contradicts the request (another amount, another currency): a person must look."""

    error_type: str
    error: str


Outcome = Success | Failed | Unknown | Suspect


def to_response(outcome: Success | Failed) -> dict[str, Any]:
    """The form in which an answer is stored with its key."""
    if isinstance(outcome, Success):
        return {"outcome": "success", "result": dict(outcome.result)}
    return {"outcome": "failed", "error_type": outcome.error_type, "error": outcome.error}


def from_response(response: Mapping[str, Any]) -> Outcome:
    """The outcome that a stored answer stands for."""
    match response.get("outcome"):
        case "success":
            return Success(response.get("result") or {})
        case "failed":
            return Failed(response.get("error_type", "unknown"), response.get("error", ""))
        case other:
            return Suspect("stored_answer", f"the stored answer has outcome {other!r}")
