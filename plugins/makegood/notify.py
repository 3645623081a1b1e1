"""Alerts leave through the outbox, at least once, and a storm is one message with a count.

Alerts are written in the transaction that makes them true. Here they are taken, grouped by what happened, sent,
and only then marked as published; a sender that dies in between leaves them to the next, so an alert may come
twice but never not at all. With no address to send to, the log is where they go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import structlog

from makegood.database import Database
from makegood.money import format_money
from makegood.reconciliation.classes import name_of

log = structlog.get_logger()

BATCH = 1000  # one message may speak of so many
TAKEN_SECONDS = 120.0  # longer than sending takes; a sender that died is followed up after this
POSTPONE_SECONDS = 60.0
SHOWN_MAX = 5  # orders named per group; the rest is a number
GROUPS_MAX = 10  # what went wrong in one message; the rest is a number
TEXT_LENGTH_MAX = 300  # of one error: enough to see which, the whole is with the order

TITLES = {
    "finding": ("The provider's books and ours differ", "{n} differences between the provider's books and ours"),
    "reconciliation_missed": ("Hourly reconciliations missed something", "Hourly reconciliations missed something"),
    "reconciliation_stale": ("The provider's books are not complete", "The provider's books are not complete"),
    "reconciliation_totals": ("A reconciliation does NOT add up", "{n} reconciliations do NOT add up"),
    "approval_requested": ("A second person is asked", "{n} times a second person is asked"),
    "held_compensation": ("An undo is held", "{n} undos are held"),
    "held_workflow": ("An order is held", "{n} orders are held"),
    "remedies_blocked": ("Nothing is put right", "{n} times nothing is put right"),
    "provider_down": ("A provider is down", "{n} providers are down"),
}

Send = Callable[[str, str], Awaitable[bool]]
"""Sends a title and a text; False when nobody could be reached."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message about alerts of one kind."""

    ids: tuple[int, ...]
    title: str
    body: str


async def send_alerts(
    database: Database, send: Send | None, *, dashboard_url: str, exponents: Mapping[str, int]
) -> Counter[str]:
    """Every alert that is waiting is sent, or will be tried again; ``send`` None means the log."""
    rows = await database.call("SELECT * FROM makegood.take_alerts(%s, %s)", (BATCH, TAKEN_SECONDS))
    counts: Counter[str] = Counter()
    for message in write_messages(rows, dashboard_url, exponents):
        log.warning("alert", title=message.title, alerts=len(message.ids), text=message.body)
        if send is None or await send(message.title, message.body):
            await database.call("SELECT makegood.publish_alerts(%s)", (list(message.ids),))
            counts += Counter({"alerts": len(message.ids), "messages": 1})
        else:
            await database.call("SELECT makegood.postpone_alerts(%s, %s)", (list(message.ids), POSTPONE_SECONDS))
            counts["alerts_unsent"] += len(message.ids)
    return counts


def write_messages(
    rows: Sequence[Mapping[str, Any]], dashboard_url: str, exponents: Mapping[str, int]
) -> list[Message]:
    """One message per kind of alert; pure."""
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_kind.setdefault(str(row["payload"].get("kind", "alert")), []).append(row)
    return [_write(kind, group, dashboard_url, exponents) for kind, group in by_kind.items()]


def _write(kind: str, rows: Sequence[Mapping[str, Any]], dashboard_url: str, exponents: Mapping[str, int]) -> Message:
    one, many = TITLES.get(kind, ("An alert", "{n} alerts"))
    title = one if len(rows) == 1 else many.format(n=len(rows))
    facts = [row["payload"] for row in rows]
    if kind == "provider_down":
        lines = [f"{_say(fact, 'provider')}, down since {_say(fact, 'since')}: {_say(fact, 'error')}" for fact in facts]
        return Message(tuple(row["id"] for row in rows), title, "\n".join([*lines, dashboard_url]))
    if kind.startswith("reconciliation_"):
        lines = [f"{_say(fact, 'error')}  {_report_link(fact, dashboard_url)}" for fact in facts[:SHOWN_MAX]]
        return Message(tuple(row["id"] for row in rows), title, "\n".join(lines))
    money = _total(facts, exponents)
    title += f": {money}" if money else ""
    if kind == "finding":
        lines = _describe_findings(facts, dashboard_url, exponents)
        return Message(tuple(row["id"] for row in rows), title, "\n".join(lines))
    groups = _alike(facts)
    lines = [line for group in groups[:GROUPS_MAX] for line in _describe(group, dashboard_url, exponents)]
    if len(groups) > GROUPS_MAX:
        lines.append(f"and {sum(map(len, groups[GROUPS_MAX:]))} for other reasons: makegood dlq list")
    return Message(tuple(row["id"] for row in rows), title, "\n".join(lines))


def _alike(facts: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """The most frequent trouble first."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for fact in facts:
        groups.setdefault((fact.get("workflow_type"), fact.get("step"), fact.get("error_type")), []).append(fact)
    return sorted(groups.values(), key=len, reverse=True)


def _describe(facts: Sequence[Mapping[str, Any]], dashboard_url: str, exponents: Mapping[str, int]) -> list[str]:
    first = facts[0]
    what = f"{_say(first, 'workflow_type')}, step {_say(first, 'step')}, {_say(first, 'error_type')}"
    lines = [f"{len(facts)} × {what}"]
    for fact in facts[:SHOWN_MAX]:
        amount = _amount(fact, exponents)
        link = f"{dashboard_url}/?order={quote(str(fact.get('entity_id')), safe='')}"
        lines.append(f"  {_say(fact, 'entity_id')}{', ' + amount if amount else ''}: {_say(fact, 'error')}  {link}")
    if len(facts) > SHOWN_MAX:
        lines.append(f"  and {len(facts) - SHOWN_MAX} more: makegood dlq list")
    return lines


def _describe_findings(
    facts: Sequence[Mapping[str, Any]], dashboard_url: str, exponents: Mapping[str, int]
) -> list[str]:
    """By class, the most frequent first; one link leads to them all."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for fact in facts:
        groups.setdefault(str(fact.get("class")), []).append(fact)
    lines = []
    for class_, group in sorted(groups.items(), key=lambda item: -len(item[1])):
        lines.append(f"{len(group)} × {class_} {name_of(class_)}, {_total(group, exponents) or 'no amount'}")
        lines += [f"  {_say(fact, 'entity_id')}, {_amount(fact, exponents) or '-'}" for fact in group[:SHOWN_MAX]]
        if len(group) > SHOWN_MAX:
            lines.append(f"  and {len(group) - SHOWN_MAX} more: makegood reconcile findings --class {class_}")
    return [*lines, _report_link(facts[-1], dashboard_url)]


def _report_link(fact: Mapping[str, Any], dashboard_url: str) -> str:
    return f"{dashboard_url}/reconciliation?run={quote(str(fact.get('run_id')), safe='')}"


def _say(fact: Mapping[str, Any], name: str) -> str:
    """A fact on one line: what an order or an error is called cannot look like a line of ours."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(fact.get(name) or "-"))
    return text if len(text) <= TEXT_LENGTH_MAX else text[: TEXT_LENGTH_MAX - 1] + "…"


def _amount(fact: Mapping[str, Any], exponents: Mapping[str, int]) -> str:
    amount_minor, currency = fact.get("amount_minor"), fact.get("currency")
    if amount_minor is None or currency is None:
        return ""
    return format_money(int(amount_minor), str(currency), exponents.get(str(currency), 2))


def _total(facts: Sequence[Mapping[str, Any]], exponents: Mapping[str, int]) -> str:
    totals: Counter[str] = Counter()
    for fact in facts:
        if fact.get("amount_minor") is not None:
            totals[str(fact["currency"])] += int(fact["amount_minor"])
    return ", ".join(format_money(total, code, exponents.get(code, 2)) for code, total in sorted(totals.items()))
