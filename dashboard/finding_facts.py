"""What is so about a finding at this moment, and what its remedy would do: for the page, and for whoever acts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dashboard import data, formats
from dashboard.facts import Facts
from dashboard.identity import seen_text
from makegood.reconciliation.classes import REMEDIES, name_of

About = dict[str, Any]
LIVE = ("open", "acknowledged", "ignored")
GONE = Facts(["Nothing is known of this finding."], "Nothing to do.", possible=False)


def look_at_acknowledging(about: About) -> Facts:
    return _look(about, "It is yours from then on: it stays in the list, and no job touches it unasked.")


def look_at_ignoring(about: About) -> Facts:
    return _look(about, "Nobody hears of it until then. A refund that waits for a second person is dropped.")


def look_at_refund(about: About) -> Facts:
    """What the approver is shown is what is approved: its digest stays with the form."""
    row, waiting = _find(about)
    if row is None or waiting is None:
        return Facts(["No refund waits for anybody here any more."], "Nothing to do.", possible=False)
    money = formats.amount(waiting["amount_minor"], waiting["currency"], data.get_exponents())
    will = f"Approved, the next run refunds {money}, once, after it has asked the provider again."
    return Facts([*_lines(row), *_request_lines(waiting)], will, digest=waiting["digest"])


def look_at_refusal(about: About) -> Facts:
    found = look_at_refund(about)
    will = "Nothing is refunded, and the finding is acknowledged: a person has it."
    return replace(found, will=will) if found.possible else found


def tell_remedy(row: data.Row) -> list[str]:
    """What would be done, and what is in its way; ours but for the reason of a stop."""
    remedy = row["remedy"]
    if row["state"] == "resolved":
        return [f"Closed: {str(row['resolution']).replace('_', ' ')}."]
    if remedy == "human":
        return ["No job may put this right: a person looks at both sides and decides."]
    if remedy == "wait":
        return ["Nothing is done: the order's own workflow is under way, and may put this right itself."]
    told = [f"A run would {REMEDIES.get(remedy, remedy)}{_how_much(row)}."]
    if row["stopped"]:
        told.append(f"All remedies are stopped by {row['stopped_by']}: {seen_text(row['stopped_reason'])}")
    if row["stale"]:
        told.append("Not after its last run: the provider's books were not complete.")
    if row["dry_run"]:
        told.append(f"{row['class']} is only told about in {row['environment']} (dry run): nothing is done by itself.")
    return told


def _how_much(row: data.Row) -> str:
    if row["remedy"] not in {"refund", "retry_refund"}:
        return ""
    exponents, cap = data.get_exponents(), row["item_minor"]
    text = (
        f": {formats.amount(row['refund_minor'], row['currency'], exponents)} of {formats.short(row['charge_id'], 80)}"
    )
    if cap is None:
        return f"{text}, but no caps are set for {row['currency']}"
    if row["refund_minor"] > cap:
        return (
            f"{text}, after a second person has approved it (above {formats.amount(cap, row['currency'], exponents)})"
        )
    return text


def _look(about: About, will: str) -> Facts:
    row, _ = _find(about)
    if row is None:
        return GONE
    if row["state"] not in LIVE:
        return Facts(_lines(row), f"It is {row['state']}: there is nothing to do here.", possible=False)
    return Facts(_lines(row), will)


def _find(about: About) -> tuple[data.Row | None, data.Row | None]:
    """The finding, and its refund that waits for a second person."""
    rows = data.get_fresh("finding", {"id": about["finding"]})
    remedies = data.get_fresh("finding_remedies", {"id": about["finding"]}) if rows else []
    waiting = next((one for one in remedies if one["state"] == "awaiting_approval"), None)
    return (rows[0] if rows else None), waiting


def _lines(row: data.Row) -> list[str]:
    money = formats.amount(row["amount_minor"], row["currency"], data.get_exponents())
    first = f"{row['class']} {name_of(row['class'])}" + (f", {money} at risk" if money else "")
    return [first, formats.short(row["order_id"] or row["unit"], 150), *tell_remedy(row)]


def _request_lines(waiting: data.Row) -> list[str]:
    now = data.now()
    return [
        f"Asked for by {formats.short(waiting['requested_by'], 200)} {formats.ago(waiting['proposed_at'], now)}.",
        f"It expires {formats.ago(waiting['expires_at'], now)}.",
    ]
