"""An order's rows told as a story: what happened when, how long each state lasted, and what gaps mean.

Facts go in as ``makegood.timeline`` returns them. Tables come out as plain text, for whatever shows them: a
terminal, a page, a ticket. Nothing here knows of any of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

from makegood.money import format_money

GAP = timedelta(seconds=5)  # shorter is a call; longer is a wait that wants an explanation
ELLIPSIS = "⋯"


@dataclass(frozen=True, slots=True)
class Section:
    """One table of a story; ``rows`` as long as ``columns``, all text."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


class Clock:
    """Writes times in one zone, to the millisecond; the year goes without saying."""

    def __init__(self, zone: tzinfo, now: datetime) -> None:
        self._zone = zone
        self.name = now.astimezone(zone).strftime("%Z")

    def write(self, text: str) -> str:
        return read_time(text).astimezone(self._zone).strftime("%m-%d %H:%M:%S.%f")[:-3]


@dataclass(frozen=True, slots=True)
class Hold:
    """A time in which it waited for a person; ``until`` and ``by`` are None while it lasts."""

    since: datetime
    until: datetime | None = None
    by: str | None = None


def find_holds(story: Mapping[str, Any]) -> list[Hold]:
    """When it was held, from what parked it to who let it go on; a release leaves no trace in the order's own row."""
    row, letter = story["workflow"], story.get("dead_letter")
    parked = [d["decided_at"] for d in story.get("decisions") or [] if d["decision"] == "park"]
    parks = [read_time(moment) for moment in [*parked, *([letter["last_failed_at"]] if letter else [])]]
    ended = [read_time(a["finished_at"]) for a in story["attempts"] if a["finished_at"]]
    holds: list[Hold] = []
    last = datetime.min.replace(tzinfo=UTC)
    for action in story.get("actions") or []:
        until = read_time(action["acted_at"])
        if action["action"] not in {"release", "settle"}:
            continue
        within = [moment for moment in parks if last <= moment <= until]
        if not within and action["action"] == "release":  # only what is held is released; a settled undo need not be
            within = [moment for moment in ended if last <= moment <= until]
        if within:
            holds.append(Hold(max(within), until, action["actor"]))
            last = until
    return [*holds, Hold(read_time(row["held_at"]))] if row["held_at"] else holds


def tell_story(story: dict[str, Any], money: Mapping[str, Any] | None) -> dict[str, Any]:
    """The same facts, with each state's duration and the reason of each gap worked out."""
    now = read_time(story["asked_at"])
    transitions = story["transitions"]
    for index, transition in enumerate(transitions):
        start = read_time(transition["transitioned_at"])
        last = index + 1 == len(transitions)
        end = now if last else read_time(transitions[index + 1]["transitioned_at"])
        finished = last and story["workflow"]["finished_at"] is not None
        transition["lasted_seconds"] = None if finished else round((end - start).total_seconds(), 3)
        transition["gap"] = None if finished else explain_gap(story, start, end)
    return {**story, "money": money, "summary": summarise(story)}


def summarise(story: Mapping[str, Any]) -> str:
    """One sentence: where it is and what happens next."""
    row, now = story["workflow"], read_time(story["asked_at"])
    if row["finished_at"]:
        took = read_time(row["finished_at"]) - read_time(row["created_at"])
        return f"{row['current_state']} after {lasting(took)}"
    since = lasting(now - read_time(row["updated_at"]))
    if row["held_at"]:
        return f"held for a person, {row['current_state']} for {since}: {row['held_reason']}"
    if row["lease_until"] and read_time(row["lease_until"]) > now:
        return f"{row['current_state']} for {since}; worker {row['lease_owner']} has it"
    wait = read_time(row["next_attempt_at"]) - now
    stuck = "STUCK, " if read_time(row["deadline_at"]) < now else ""
    due = f"next attempt in {lasting(wait)}" if wait > timedelta() else "due now, waiting for a worker"
    return f"{stuck}{row['current_state']} for {since}; {due}"


def explain_gap(story: Mapping[str, Any], start: datetime, end: datetime) -> str | None:
    """Why nothing moved between two transitions, as far as attempts and jobs tell."""
    if end - start < GAP:
        return None
    released = [hold for hold in find_holds(story) if hold.until and hold.since < end and hold.until > start]
    if released:
        rest = end - (released[-1].until or end)
        more = f"; {lasting(rest)} passed after that" if rest >= GAP else ""
        return f"{lasting(end - start)}: {_explain_holds(released)}{more}"
    found = next((d for d in story.get("decisions") or [] if start <= read_time(d["decided_at"]) <= end), None)
    if found is not None:
        waited = lasting(read_time(found["decided_at"]) - start)
        return f"{lasting(end - start)}: it waited {waited} for {found['job'] or 'a job'}; {found['reason']}"
    held_at = story["workflow"]["held_at"]
    if held_at and start <= read_time(held_at) <= end:
        return f"{lasting(end - start)}: it was held for a person after {lasting(read_time(held_at) - start)}"
    return f"{lasting(end - start)}: {_explain_by_attempts(story, start, end)}"


def _explain_holds(holds: Sequence[Hold]) -> str:
    spans = [hold.until - hold.since for hold in holds if hold.until]
    lasted, by = lasting(sum(spans, timedelta())), holds[-1].by
    if len(spans) == 1:
        return f"it was held for a person for {lasted}, released by {by}"
    return f"it was held for a person {len(spans)} times, {lasted} in all, last released by {by}"


def _explain_by_attempts(story: Mapping[str, Any], start: datetime, end: datetime) -> str:
    within = [a for a in story["attempts"] if start <= read_time(a["started_at"]) <= end]
    unanswered = [a for a in within if a["outcome"] is None]
    unknown = [a for a in within if a["outcome"] == "unknown"]
    if unanswered and len(within) > len(unanswered):
        return f"a worker died in the call ({unanswered[0]['worker']}); another took over"
    if unknown:
        tries = "1 attempt" if len(unknown) == 1 else f"{len(unknown)} attempts"
        return f"{tries} without a clear answer, last {unknown[-1]['error_type']}"
    if unanswered:
        return "one call is under way, or its worker died"
    return "no attempt was made; it waited for a worker"


def find_sections(story: Mapping[str, Any], exponents: Mapping[str, int], zone: tzinfo = UTC) -> list[Section]:
    """The tables of a story that :func:`tell_story` has told, times in the zone; empty ones are left out."""
    clock = Clock(zone, read_time(story["asked_at"]))
    when = f"when ({clock.name})"
    sections = [
        Section("States", ("#", when, "state", "for", "by", "why"), list(_states(story, clock))),
        Section(
            "Attempts", ("step", "try", f"began ({clock.name})", "took", "outcome", "error"), _attempts(story, clock)
        ),
        Section("Compensations", ("undo of", "state", "tries", "amount", "last error"), _undos(story, exponents)),
        Section("What jobs decided", ("job", when, "decided", "why"), list(_decisions(story, clock))),
        Section("What people did", ("who", "did", when, "why"), list(_actions(story, clock))),
    ]
    return [section for section in sections if section.rows]


def find_headline(story: Mapping[str, Any], exponents: Mapping[str, int]) -> list[str]:
    """What it is, how it is, and whether somebody wants it cancelled: one line each."""
    row = story["workflow"]
    amount = write_amount(row["amount_minor"], row["currency"], exponents)
    lines = [f"{row['entity_id']}  {row['workflow_type']}  {amount}".rstrip(), str(story["summary"])]
    if row["cancel_requested"]:
        lines.append(f"cancel requested by {row['cancel_requested_by']}: {row['cancel_reason']}")
    return lines


def write_story(story: Mapping[str, Any], exponents: Mapping[str, int]) -> str:
    """The whole story as plain text that can be pasted into a ticket."""
    lines = [harmless(line) for line in find_headline(story, exponents)]
    for section in find_sections(story, exponents):
        lines += ["", section.title, *_align([section.columns, *section.rows])]
    return "\n".join(lines)


def harmless(text: str) -> str:
    """Text from outside on one line, with what would steer a terminal or turn a line around shown and not obeyed."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


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


def explain_transition(transition: Mapping[str, Any]) -> str:
    """Why the state changed, where somebody or something said so."""
    facts = transition["metadata"]
    if "cancel_reason" in facts:
        return f"cancelled by {facts['cancel_requested_by']}: {facts['cancel_reason']}"
    if "reason" in facts:
        return str(facts["reason"])
    if "error_type" in facts:
        return f"{facts.get('failed_step', 'step')} failed: {facts['error_type']}: {facts.get('error', '')}"
    return ""


def name_attempt(attempt: Mapping[str, Any]) -> str:
    return str(attempt["step"] if attempt["kind"] == "forward" else f"undo {attempt['step']}")


def write_amount(amount_minor: int | None, currency: str | None, exponents: Mapping[str, int]) -> str:
    """Empty where there is no money in it."""
    if amount_minor is None or currency is None:
        return ""
    return format_money(amount_minor, currency, exponents.get(currency, 2))


def read_time(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _states(story: Mapping[str, Any], clock: Clock) -> Iterator[tuple[str, ...]]:
    """A row per state, and one more after it where there is a gap to explain."""
    for transition in story["transitions"]:
        seconds = transition["lasted_seconds"]
        yield (
            str(transition["seq"]),
            clock.write(transition["transitioned_at"]),
            transition["to_state"],
            "" if seconds is None else lasting(timedelta(seconds=seconds)),
            transition["triggered_by"],
            explain_transition(transition),
        )
        if transition["gap"]:
            yield ("", "", ELLIPSIS, "", "", transition["gap"])


def _attempts(story: Mapping[str, Any], clock: Clock) -> list[tuple[str, ...]]:
    return [
        (
            name_attempt(attempt),
            str(attempt["attempt"]),
            clock.write(attempt["started_at"]),
            _took(attempt["started_at"], attempt["finished_at"]),
            attempt["outcome"] or "no answer",
            ": ".join(filter(None, [attempt["error_type"], attempt["error"]])),
        )
        for attempt in story["attempts"]
    ]


def _took(start: str, end: str | None) -> str:
    return "" if end is None else lasting(read_time(end) - read_time(start))


def _undos(story: Mapping[str, Any], exponents: Mapping[str, int]) -> list[tuple[str, ...]]:
    return [
        (
            undo["step"],
            undo["state"],
            str(undo["attempts"]),
            write_amount(undo["amount_minor"], undo["currency"], exponents),
            undo["last_error"] or "",
        )
        for undo in story["compensations"]
    ]


def _decisions(story: Mapping[str, Any], clock: Clock) -> Iterator[tuple[str, ...]]:
    for decision in story.get("decisions") or []:
        yield decision["job"] or "a job", clock.write(decision["decided_at"]), decision["decision"], decision["reason"]


def _actions(story: Mapping[str, Any], clock: Clock) -> Iterator[tuple[str, ...]]:
    for action in story.get("actions") or []:
        proof = action["details"].get("proof")
        why = f"{action['reason']} (proof: {proof})" if proof else action["reason"]
        yield action["actor"], action["action"], clock.write(action["acted_at"]), why


def _align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    shown = [[harmless(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in shown) for column in range(len(shown[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown]
