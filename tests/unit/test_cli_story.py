"""An order's rows told in words: durations, gaps and one sentence, as tables."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from makegood.cli import output
from makegood.cli.story import show_story
from makegood.story import explain_gap, lasting, summarise, tell_story

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def at(seconds: float) -> str:
    return (NOON + timedelta(seconds=seconds)).isoformat()


def moment(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def attempt(began: float, outcome: str | None = "success", **changes: Any) -> dict[str, Any]:
    found = {
        "step": "charge",
        "kind": "forward",
        "attempt": 1,
        "outcome": outcome,
        "error_type": None if outcome in {"success", None} else "timeout",
        "error": None if outcome in {"success", None} else "no answer within 30 s",
        "started_at": at(began),
        "finished_at": None if outcome is None else at(began + 1),
        "worker": "host:1",
    }
    return {**found, **changes}


def workflow(**changes: Any) -> dict[str, Any]:
    found = {
        "entity_id": "order-1",
        "workflow_type": "checkout",
        "current_state": "charging",
        "amount_minor": 1999,
        "currency": "EUR",
        "created_at": at(0),
        "updated_at": at(10),
        "finished_at": None,
        "held_at": None,
        "held_reason": None,
        "lease_owner": None,
        "lease_until": None,
        "next_attempt_at": at(0),
        "deadline_at": at(310),
        "cancel_requested": False,
        "cancel_requested_by": None,
        "cancel_reason": None,
        "context": {},
    }
    return {**found, **changes}


def story(asked_at: float = 20, attempts: Any = (), **changes: Any) -> dict[str, Any]:
    return {
        "asked_at": at(asked_at),
        "workflow": workflow(**changes),
        "transitions": [],
        "attempts": list(attempts),
        "compensations": [],
    }


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (timedelta(), "0 ms"),
        (timedelta(milliseconds=340), "340 ms"),
        (timedelta(seconds=1), "1.0 s"),
        (timedelta(seconds=9.94), "9.9 s"),
        (timedelta(seconds=12.7), "12 s"),
        (timedelta(seconds=59.99), "59 s"),
        (timedelta(minutes=5, seconds=3), "5 min 3 s"),
        (timedelta(minutes=5), "5 min"),
        (timedelta(hours=2, minutes=10, seconds=59), "2 h 10 min"),
        (timedelta(hours=1, seconds=30), "1 h"),
        (timedelta(days=3, hours=4), "3 d 4 h"),
        (timedelta(days=400), "400 d"),
        (timedelta(seconds=-5), "0 ms"),  # clocks differ: never a negative time
    ],
)
def test_duration_is_told_as_people_say_it(span: timedelta, text: str) -> None:
    assert lasting(span) == text


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        # Finished: how, and how long it took.
        ({"current_state": "completed", "finished_at": at(3)}, "completed after 3.0 s"),
        ({"current_state": "compensated", "finished_at": at(90)}, "compensated after 1 min 30 s"),
        # Held before everything else: a person must look.
        (
            {"held_at": at(15), "held_reason": "the key was used", "lease_until": at(99), "lease_owner": "w"},
            "held for a person, charging for 10 s: the key was used",
        ),
        # Leased: somebody has it.
        ({"lease_until": at(99), "lease_owner": "host:1"}, "charging for 10 s; worker host:1 has it"),
        # The lease has run out: its worker is gone.
        ({"lease_until": at(19), "lease_owner": "host:1"}, "charging for 10 s; due now, waiting for a worker"),
        # Waiting for its next attempt.
        ({"next_attempt_at": at(50)}, "charging for 10 s; next attempt in 30 s"),
        ({"next_attempt_at": at(20)}, "charging for 10 s; due now, waiting for a worker"),
        # Past its deadline.
        ({"deadline_at": at(19)}, "STUCK, charging for 10 s; due now, waiting for a worker"),
        ({"deadline_at": at(19), "next_attempt_at": at(21)}, "STUCK, charging for 10 s; next attempt in 1.0 s"),
    ],
)
def test_summary_says_where_it_is_and_what_happens_next(changes: dict[str, Any], sentence: str) -> None:
    assert summarise(story(**changes)) == sentence


@pytest.mark.parametrize(
    ("attempts", "end", "gap"),
    [
        ([], 4.9, None),  # shorter than a call: nothing to explain
        ([], 60, "1 min: no attempt was made; it waited for a worker"),
        ([attempt(70)], 60, "1 min: no attempt was made; it waited for a worker"),  # it came after
        ([attempt(1, "unknown")], 60, "1 min: 1 attempt without a clear answer, last timeout"),
        (
            [attempt(1, "unknown"), attempt(9, "unknown", error_type="http_503")],
            60,
            "1 min: 2 attempts without a clear answer, last http_503",
        ),
        ([attempt(1, None), attempt(50)], 60, "1 min: a worker died in the call (host:1); another took over"),
        ([attempt(1, None)], 60, "1 min: one call is under way, or its worker died"),
        (
            [attempt(1, None), attempt(50, "unknown")],
            60,
            "1 min: a worker died in the call (host:1); another took over",
        ),
        ([attempt(1)], 60, "1 min: no attempt was made; it waited for a worker"),  # it answered, then nobody came
    ],
)
def test_gap_is_explained_by_the_attempts_within_it(attempts: Any, end: float, gap: str | None) -> None:
    assert explain_gap(story(attempts=attempts), moment(0), moment(end)) == gap


def test_gap_of_what_is_held_says_so() -> None:
    told = story(attempts=[attempt(1, "unknown")], held_at=at(12), held_reason="spent")
    assert explain_gap(told, moment(0), moment(60)) == "1 min: it was held for a person after 12 s"


def transitions(*moments: tuple[float, str]) -> list[dict[str, Any]]:
    return [
        {"seq": n, "to_state": state, "transitioned_at": at(seconds), "triggered_by": "host:1", "metadata": {}}
        for n, (seconds, state) in enumerate(moments, start=1)
    ]


def test_story_of_a_finished_order_gives_each_state_its_time_and_the_end_none() -> None:
    told = story(attempts=[attempt(1)], current_state="completed", finished_at=at(7))
    told["transitions"] = transitions((0, "created"), (0.25, "charging"), (7, "completed"))
    told = tell_story(told, None)
    assert [t["lasted_seconds"] for t in told["transitions"]] == [0.25, 6.75, None]
    assert [t["gap"] for t in told["transitions"]][0::2] == [None, None]
    assert told["summary"] == "completed after 7.0 s"


def test_story_of_an_unfinished_order_counts_to_now() -> None:
    told = story(asked_at=100, attempts=[attempt(2, "unknown")])
    told["transitions"] = transitions((0, "created"), (1, "charging"))
    told = tell_story(told, None)
    assert told["transitions"][-1]["lasted_seconds"] == 99
    assert told["transitions"][-1]["gap"] == "1 min 39 s: 1 attempt without a clear answer, last timeout"


HOSTILE = "[red]x[/red] \x1b[31mred\x1b]0;title\x07 \x9b31m\u202eevil"


def test_hostile_text_is_shown_as_it_is_and_moves_no_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids, reasons and errors come from outside; on a terminal they must neither style nor steer it."""
    screen = io.StringIO()
    page = Console(file=screen, force_terminal=True, color_system=None, highlight=False, width=1000)
    monkeypatch.setattr(output, "page", page)
    told = story(
        entity_id=HOSTILE,
        held_at=at(1),
        held_reason=HOSTILE,
        cancel_requested=True,
        cancel_requested_by=HOSTILE,
        cancel_reason=HOSTILE,
        attempts=[attempt(1, "unknown", error_type=HOSTILE, error=HOSTILE, step=HOSTILE)],
    )
    told["transitions"] = [
        {**t, "triggered_by": HOSTILE, "metadata": {"cancel_reason": HOSTILE, "cancel_requested_by": HOSTILE}}
        for t in transitions((0, HOSTILE))
    ]
    undo = {"step": HOSTILE, "state": "held", "attempts": 1, "amount_minor": None, "currency": None}
    told["compensations"] = [{**undo, "last_error": HOSTILE}]
    for money in (
        None,
        {"error": HOSTILE},
        {"currency": "EUR", "payment_intent": HOSTILE}
        | dict.fromkeys(("charged", "refunded", "disputed", "net"), 1999),
    ):
        show_story(tell_story(told, money), {"EUR": 2})
    shown = screen.getvalue()
    assert "[red]x[/red]" in shown
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown)
