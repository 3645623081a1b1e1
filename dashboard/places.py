"""Where a row of what people did leads to. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ON_ORDERS = ("release", "retry now", "settle", "cancel")  # acts whose subject is an order


def place_of(row: Mapping[str, Any]) -> tuple[str, str, str]:
    """Page, parameter and subject of what was acted on; no page for a person's rights, a policy, or many orders."""
    did = row["approval_of"] or row["action"]
    if did.endswith(" finding") or did == "refund":
        return "reconciliation", "finding", row["subject"]
    if did in ON_ORDERS or did.startswith("remedy: "):
        return "order", "order", row["subject"]
    return "", "", row["subject"]
