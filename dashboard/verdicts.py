"""What became of an act, in words a person understands. Pure; the words may carry what others wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from dashboard.formats import ago, exact, plural
from makegood.story import read_time

# tone: (the word on the badge, whose colour it has)
TONES = {
    "done": ("Done", "completed"),
    "already": ("Already taken", "waiting"),
    "asked": ("Waits for a second person", "stuck"),
    "wrong": ("Not done", "failed"),
}
_SECOND = (
    "asked",
    "A second person must approve it. It stands on this page until then, and is carried out after that.",
)
_RELEASE = {
    "released": ("done", "{order} was held and is due now. The next run of the jobs takes it, within a minute."),
    "hastened": ("done", "{order} was waiting and is due now. The next run of the jobs takes it, within a minute."),
    "due": ("already", "{order} is due, or being worked on, already."),
    "finished": ("already", "{order} is {state}: there is nothing to do."),
    "no_undo": ("wrong", "{order} owes no undo: it is {state}."),
    "unknown": ("wrong", "Nothing is known of {order}."),
}
_SETTLE = {
    "settled": ("done", "The undo is settled and never sent again."),
    "done": ("already", "The undo was done already."),
    "known": (
        "wrong",
        "The provider did it; its answer came late and is stored here. Nothing was recorded: retry the undo, which"
        " takes the answer and calls nobody. If it was done by hand too, it was done twice.",
    ),
    "busy": ("wrong", "A worker has {order} right now: its call may be under way. Try again in a minute."),
    "unknown": ("wrong", "{order} owes no such undo."),
    "needs_approval": _SECOND,
}
_MARK = {
    "acknowledged": ("done", "It is acknowledged: somebody has it, and no job touches it unasked."),
    "ignored": ("done", "It is ignored until then; after that it is open again if it still stands."),
    "busy": ("wrong", "It is being put right at this moment."),
    "closed": ("already", "It is closed already."),
    "unknown": ("wrong", "Nothing is known of this finding."),
}
_WORDS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "release": _RELEASE,
    "retry": _RELEASE,
    "settle": _SETTLE,
    "group": {"needs_approval": _SECOND},
    "carry_out": {
        **_SETTLE,
        "needs_approval": ("asked", "It is not approved any more: it was asked for anew."),
        "unknown": ("wrong", "Nothing is known of this request."),
    },
    "cancel": {
        "requested": ("done", "{order} will be undone at its next step border (it is {state} now)."),
        "already_requested": ("already", "{order} was already asked to be undone (it is {state} now)."),
        "compensating": ("already", "{order} is being undone already."),
        "too_late": ("wrong", "Too late: {order} is {state}."),
        "unknown": ("wrong", "Nothing is known of {order}."),
    },
    "approve": {
        "approved": ("done", "Approved. Whoever asked, or another operator, can carry it out now."),
        "self": ("wrong", "You asked for it yourself: somebody else must approve it."),
        "expired": ("wrong", "Its time is over: it must be asked for anew."),
        "changed": ("wrong", "It is not what you were shown: look again."),
        "taken": ("already", "Somebody has approved, refused or used it already."),
        "unknown": ("wrong", "Nothing is known of this request."),
    },
    "acknowledge": _MARK,
    "ignore": _MARK,
    "approve_refund": {
        "approved": ("done", "Approved. The next run of the reconciliation refunds it, once, exactly like this."),
        "self": ("wrong", "You asked for it yourself: somebody else must approve it."),
        "expired": ("wrong", "Its time is over: the next run asks anew, with what is true then."),
        "changed": ("wrong", "It is not what you were shown: look again."),
        "taken": ("already", "Somebody has approved it already."),
        "nothing": ("already", "No refund waits for anybody here any more."),
        "unknown": ("wrong", "Nothing is known of this finding."),
    },
    "refuse_refund": {
        "refused": ("done", "Refused, and nothing is refunded. The finding is acknowledged: it is yours now."),
        "nothing": ("already", "No refund waits for anybody here any more."),
        "unknown": ("wrong", "Nothing is known of this finding."),
    },
    "refuse": {
        "refused": ("done", "Refused. It can be asked for anew."),
        "expired": ("already", "Its time was over already."),
        "taken": ("already", "Somebody has refused or used it already."),
        "unknown": ("wrong", "Nothing is known of this request."),
    },
}
_COUNTS = {
    "released": "released",
    "hastened": "made due",
    "due": "due already",
    "finished": "finished already",
    "unknown": "unknown",
}


@dataclass(frozen=True, slots=True)
class Verdict:
    tone: str
    sentences: tuple[str, ...]


def describe(kind: str, answer: Mapping[str, Any], order: str, now: datetime, zone: tzinfo) -> Verdict:
    """One sentence of what became of it, and one of who was quicker where somebody was."""
    if answer["verdict"] == "done" and "counts" in answer:
        tone, sentence = _describe_group(answer["counts"])
    else:
        tone, words = _WORDS[kind][answer["verdict"]]
        sentence = words.format(order=order, state=answer.get("state"))
    return Verdict(tone, (sentence, *_who(answer, now, zone)))


def _describe_group(counts: Mapping[str, int]) -> tuple[str, str]:
    parts = [f"{plural(count, 'order')} {_COUNTS[name]}" for name, count in sorted(counts.items(), reverse=True)]
    moved = counts.get("released", 0) + counts.get("hastened", 0)
    rest = " The next run of the jobs takes them, within a minute." if moved else ""
    return ("done" if moved else "already"), f"{', '.join(parts)}.{rest}"


def _who(answer: Mapping[str, Any], now: datetime, zone: tzinfo) -> tuple[str, ...]:
    if not answer.get("by"):
        return ()
    at = read_time(answer["at"])
    when = f"{ago(at, now)} ({exact(at, zone)})"
    if answer.get("repeated"):
        return (f"This form was sent before, {when}: that answer stands, and nothing was done twice.",)
    return (f"{answer['by']} was quicker: {answer['did']}, {when}.",)
