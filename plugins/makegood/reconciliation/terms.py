"""The terms a run judges by: taken from the settings once, kept with the run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from makegood.settings import Settings

LIVE_PREFIXES = ("sk_live_", "rk_live_")


@dataclass(frozen=True)
class Terms:
    """What is too young to be judged, how far amounts may differ, and whose money it is."""

    livemode: bool
    tolerance_minor: int
    charge_grace_seconds: float
    refund_grace_seconds: float
    payout_grace_seconds: float
    stale_after_seconds: float
    lapse_warning_seconds: float
    fee_parts_min: int
    fee_parts_max: int
    fee_fixed_minor: int
    files_stale_after_seconds: float = 3 * 86400.0

    def to_document(self) -> dict[str, Any]:
        return asdict(self)


def make_terms(settings: Settings) -> Terms:
    return Terms(
        livemode=settings.stripe_api_key.get_secret_value().startswith(LIVE_PREFIXES),
        tolerance_minor=settings.reconcile_tolerance_minor,
        charge_grace_seconds=settings.reconcile_charge_grace_seconds,
        refund_grace_seconds=settings.reconcile_refund_grace_seconds,
        payout_grace_seconds=settings.reconcile_payout_grace_seconds,
        stale_after_seconds=settings.reconcile_stale_after_seconds,
        lapse_warning_seconds=settings.reconcile_lapse_warning_seconds,
        fee_parts_min=settings.reconcile_fee_parts_min,
        fee_parts_max=settings.reconcile_fee_parts_max,
        fee_fixed_minor=settings.reconcile_fee_fixed_minor,
        files_stale_after_seconds=settings.reconcile_files_stale_after_seconds,
    )
