"""One finding for a terminal: what is wrong, our side beside the provider's, and its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from makegood.money import format_money
from makegood.reconciliation.classes import REMEDIES, meaning_of, name_of
from makegood.story import harmless

Facts = Mapping[str, Any]


def render_finding(document: Facts) -> RenderableType:
    finding, exponents = document["finding"], document["exponents"]
    parts: list[RenderableType] = [*_head(finding, exponents)]
    sides = [
        Panel(_ours(document, exponents), title="our books", width=46),
        Panel(_theirs(document, exponents), title="the provider's", width=60),
    ]
    parts.append(Columns(sides))
    if document["history"]:
        parts.append(_history(document["history"]))
    return Group(*parts, Text(""))


def _head(finding: Facts, exponents: Mapping[str, int]) -> list[RenderableType]:
    class_ = finding["class"]
    subject = harmless(finding["order_id"] or finding["charge_id"] or finding["unit"])
    remedy = REMEDIES.get(finding["remedy"], finding["remedy"])
    lines: list[RenderableType] = [
        Text.assemble(
            (subject, "bold"), f"  {class_} {name_of(class_)}  ", (finding["state"], "bold"), f"  {finding['id']}"
        ),
        Text(meaning_of(class_)),
        Text(
            f"at risk {_money(finding['amount_at_risk_minor'], finding['currency'], exponents)};"
            f" put right by: {remedy}; seen {finding['runs_seen']} times since {_time(finding['first_seen_at'])}"
        ),
    ]
    also = str(finding["details"].get("also") or "")
    if also:
        lines.append(Text(f"besides: {', '.join(f'{one} {name_of(one)}' for one in also.split())}"))
    if finding["resolution"]:
        lines.append(Text(f"closed {_time(finding['resolved_at'])}: {harmless(finding['resolution'])}"))
    if finding["note"]:
        lines.append(Text(f"note: {harmless(finding['note'])}"))
    return lines


def _ours(document: Facts, exponents: Mapping[str, int]) -> RenderableType:
    order, workflow = document["order"], document["workflow"]
    if order is None:
        return Text("there is no such order")
    currency = order["currency"]
    facts = {
        "order": order["order_id"],
        "status": order["status"],
        "costs": _money(order["amount_minor"], currency, exponents),
        "given back": _money(order["refunded_minor"], currency, exponents),
        "payment": order["payment_ref"] or "–",
        "placed": _time(order["created_at"]),
        "workflow": "none" if workflow is None else workflow["state"] + (", held" if workflow["held"] else ""),
    }
    return _facts(facts)


def _theirs(document: Facts, exponents: Mapping[str, int]) -> RenderableType:
    if not document["charges"]:
        return Text("no charge")
    return Group(*(_charge(charge, exponents) for charge in document["charges"]))


def _charge(charge: Facts, exponents: Mapping[str, int]) -> RenderableType:
    currency = charge["currency"]
    facts = {
        "charge": charge["id"],
        "status": charge["status"] + ("" if charge["livemode"] else ", test mode"),
        "captured": _money(charge["captured_minor"], currency, exponents),
        "names order": charge["order_ref"] or "–",
        "payment": charge["payment_ref"],
        "made": _time(charge["created_at"]),
    }
    for refund in charge["refunds"]:
        facts[f"refund {refund['id']}"] = f"{_money(refund['amount_minor'], currency, exponents)} {refund['status']}"
    for dispute in charge["disputes"]:
        facts[f"dispute {dispute['id']}"] = (
            f"{_money(dispute['amount_minor'], currency, exponents)} {dispute['status']}"
        )
    return _facts(facts)


def _facts(facts: Mapping[str, str]) -> Table:
    table = Table("", "", box=None, pad_edge=False, show_header=False)
    for name, value in facts.items():
        table.add_row(Text(harmless(name), style="dim"), Text(harmless(value)))
    return table


def _history(rows: Sequence[Facts]) -> Table:
    table = Table("when (UTC)", "from", "to", "by", "why", box=None, pad_edge=False)
    for row in rows:
        words = (row["from_state"], row["to_state"], row["changed_by"], row["reason"] or "")
        table.add_row(_time(row["changed_at"]), *(Text(harmless(word)) for word in words))
    return table


def _money(amount_minor: int, currency: str | None, exponents: Mapping[str, int]) -> str:
    return "–" if currency is None else format_money(amount_minor, currency, exponents.get(currency, 2))


def _time(text: str) -> str:
    return f"{datetime.fromisoformat(text):%m-%d %H:%M:%S}"
