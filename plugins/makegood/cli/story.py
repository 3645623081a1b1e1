"""An order's rows told as a story: what happened when, how long each state lasted, and what gaps mean."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.table import Table
from rich.text import Text

from makegood.cli import output
from makegood.money import format_money

GAP = timedelta(seconds=5)  # shorter is a call; longer is a wait that wants an explanation
STYLES = {
    "completed": "green",
    "success": "green",
    "succeeded": "green",
    "failed": "red",
    "held": "bold red",
    "compensating": "yellow",
    "compensated": "yellow",
    "unknown": "magenta",
    "running": "cyan",
}


def tell_story(story: dict[str, Any], money: Mapping[str, Any] | None) -> dict[str, Any]:
    """The same facts, with each state's duration and the reason of each gap worked out."""
    now = _time(story["asked_at"])
    transitions = story["transitions"]
    for index, transition in enumerate(transitions):
        start = _time(transition["transitioned_at"])
        last = index + 1 == len(transitions)
        end = now if last else _time(transitions[index + 1]["transitioned_at"])
        finished = last and story["workflow"]["finished_at"] is not None
        transition["lasted_seconds"] = None if finished else round((end - start).total_seconds(), 3)
        transition["gap"] = None if finished else explain_gap(story, start, end)
    return {**story, "money": money, "summary": summarise(story)}


def summarise(story: Mapping[str, Any]) -> str:
    """One sentence: where it is and what happens next."""
    row, now = story["workflow"], _time(story["asked_at"])
    if row["finished_at"]:
        took = _time(row["finished_at"]) - _time(row["created_at"])
        return f"{row['current_state']} after {lasting(took)}"
    since = lasting(now - _time(row["updated_at"]))
    if row["held_at"]:
        return f"held for a person, {row['current_state']} for {since}: {row['held_reason']}"
    if row["lease_until"] and _time(row["lease_until"]) > now:
        return f"{row['current_state']} for {since}; worker {row['lease_owner']} has it"
    wait = _time(row["next_attempt_at"]) - now
    stuck = "STUCK, " if _time(row["deadline_at"]) < now else ""
    due = f"next attempt in {lasting(wait)}" if wait > timedelta() else "due now, waiting for a worker"
    return f"{stuck}{row['current_state']} for {since}; {due}"


def explain_gap(story: Mapping[str, Any], start: datetime, end: datetime) -> str | None:
    """Why nothing moved between two transitions, as far as the attempts tell."""
    if end - start < GAP:
        return None
    within = [a for a in story["attempts"] if start <= _time(a["started_at"]) <= end]
    unanswered = [a for a in within if a["outcome"] is None]
    unknown = [a for a in within if a["outcome"] == "unknown"]
    total = lasting(end - start)
    if unanswered and len(within) > len(unanswered):
        return f"{total}: a worker died in the call ({unanswered[0]['worker']}); another took over"
    if unknown:
        tries = "1 attempt" if len(unknown) == 1 else f"{len(unknown)} attempts"
        return f"{total}: {tries} without a clear answer, last {unknown[-1]['error_type']}"
    if unanswered:
        return f"{total}: one call is under way, or its worker died"
    return f"{total}: no attempt was made; it waited for a worker"


def show_story(story: Mapping[str, Any], exponents: Mapping[str, int]) -> None:
    """Tables a person reads at 3 in the morning."""
    row = story["workflow"]
    amount = _amount(row["amount_minor"], row["currency"], exponents)
    output.page.print()
    output.page.print(Text.assemble((output.harmless(row["entity_id"]), "bold"), f"  {row['workflow_type']}  {amount}"))
    style = (
        "bold red" if row["held_at"] or story["summary"].startswith("STUCK") else STYLES.get(row["current_state"], "")
    )
    output.page.print(_text(story["summary"], style=style))
    if row["cancel_requested"]:
        output.page.print(
            _text(f"cancel requested by {row['cancel_requested_by']}: {row['cancel_reason']}", style="yellow")
        )
    output.page.print()
    output.page.print(_states(story))
    if story["attempts"]:
        output.page.print(_attempts(story))
    if story["compensations"]:
        output.page.print(_compensations(story, exponents))
    _show_money(story, exponents)
    output.page.print()


def lasting(span: timedelta) -> str:
    """A duration as people say it: 340 ms, 12 s, 5 min 3 s, 2 h 10 min, 3 d 4 h."""
    seconds = max(span.total_seconds(), 0)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    whole = int(seconds)
    for size, unit, smaller, smaller_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {smaller_unit}" if rest else "")
    return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"


def _states(story: Mapping[str, Any]) -> Table:
    table = Table(
        "#", "when (UTC)", "state", "for", "by", "why", title="States", title_justify="left", box=None, pad_edge=False
    )
    for transition in story["transitions"]:
        seconds = transition["lasted_seconds"]
        state = transition["to_state"]
        table.add_row(
            str(transition["seq"]),
            _clock(transition["transitioned_at"]),
            _text(state, style=STYLES.get(state, "")),
            "" if seconds is None else lasting(timedelta(seconds=seconds)),
            _text(transition["triggered_by"]),
            _text(_why(transition)),
        )
        if transition["gap"]:
            table.add_row("", "", _text("⋯", style="dim"), "", "", _text(transition["gap"], style="magenta"))
    return table


def _attempts(story: Mapping[str, Any]) -> Table:
    table = Table(
        "step",
        "try",
        "began (UTC)",
        "took",
        "outcome",
        "error",
        title="\nAttempts",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    for attempt in story["attempts"]:
        name = attempt["step"] if attempt["kind"] == "forward" else f"undo {attempt['step']}"
        took = (
            ""
            if attempt["finished_at"] is None
            else lasting(_time(attempt["finished_at"]) - _time(attempt["started_at"]))
        )
        outcome = attempt["outcome"] or "no answer"
        error = ": ".join(filter(None, [attempt["error_type"], attempt["error"]]))
        table.add_row(
            _text(name), str(attempt["attempt"]), _clock(attempt["started_at"]), took,
            _text(outcome, style=STYLES.get(outcome, "magenta")), _text(error),
        )  # fmt: skip
    return table


def _compensations(story: Mapping[str, Any], exponents: Mapping[str, int]) -> Table:
    table = Table(
        "undo of",
        "state",
        "tries",
        "amount",
        "last error",
        title="\nCompensations",
        title_justify="left",
        box=None,
        pad_edge=False,
    )
    for undo in story["compensations"]:
        amount = _amount(undo["amount_minor"], undo["currency"], exponents)
        state = _text(undo["state"], style=STYLES.get(undo["state"], ""))
        table.add_row(_text(undo["step"]), state, str(undo["attempts"]), amount, _text(undo["last_error"] or ""))
    return table


def _show_money(story: Mapping[str, Any], exponents: Mapping[str, int]) -> None:
    money = story["money"]
    if money is None:
        output.page.print("\nMoney at the provider: no payment is known for this order.")
    elif "error" in money:
        output.page.print()
        output.page.print(_text(f"Money at the provider: it cannot be told now ({money['error']}).", style="magenta"))
    else:
        currency = money["currency"]
        amounts = {
            name: _amount(money[name], currency, exponents) for name in ("charged", "refunded", "disputed", "net")
        }
        output.page.print("\nMoney at the provider", style="italic")
        output.page.print(
            _text("  ".join(f"{name} {amount}" for name, amount in amounts.items()) + f"   ({money['payment_intent']})")
        )


def _why(transition: Mapping[str, Any]) -> str:
    facts = transition["metadata"]
    if "cancel_reason" in facts:
        return f"cancelled by {facts['cancel_requested_by']}: {facts['cancel_reason']}"
    if "error_type" in facts:
        return f"{facts.get('failed_step', 'step')} failed: {facts['error_type']}: {facts.get('error', '')}"
    return ""


def _amount(amount_minor: int | None, currency: str | None, exponents: Mapping[str, int]) -> str:
    if amount_minor is None or currency is None:
        return ""
    return format_money(amount_minor, currency, exponents.get(currency, 2))


def _text(text: str, style: str = "") -> Text:
    """What others wrote, never as markup and never as a command to the terminal."""
    return Text(output.harmless(text), style=style)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _clock(text: str) -> str:
    return _time(text).astimezone(UTC).strftime("%m-%d %H:%M:%S.%f")[:-3]
