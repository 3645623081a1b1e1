"""What the limits on remedies need to know of the settings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from makegood.reconciliation.terms import LIVE_PREFIXES
from makegood.settings import Settings


@dataclass(frozen=True)
class RemedyTerms:
    """Which environment, how old and how many is too many, and how long a second person has."""

    livemode: bool
    approval_seconds: float
    run_age_seconds_max: float
    orphan_seconds: float
    breaker_factor: float
    breaker_min: int
    refusals_max: int

    def to_document(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def environment(self) -> str:
        return "live" if self.livemode else "test"


def make_remedy_terms(settings: Settings) -> RemedyTerms:
    return RemedyTerms(
        livemode=settings.stripe_api_key.get_secret_value().startswith(LIVE_PREFIXES),
        approval_seconds=settings.remedy_approval_seconds,
        run_age_seconds_max=settings.remedy_run_age_seconds_max,
        orphan_seconds=settings.remedy_orphan_seconds,
        breaker_factor=settings.remedy_breaker_factor,
        breaker_min=settings.remedy_breaker_min,
        refusals_max=settings.remedy_refusals_max,
    )
