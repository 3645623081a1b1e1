"""Numbers, times, money and sentences of the dashboard, as tables."""

from __future__ import annotations

import dataclasses
import itertools
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dashboard import attention, charts, data, formats, places, theme
from dashboard.periods import PERIODS
from makegood import jobs, reconciling
from makegood.story import explain_gap

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
EXPONENTS = {"EUR": 2, "JPY": 0, "KWD": 3}


@pytest.mark.parametrize(
    ("moment", "text"),
    [
        (None, "–"),
        (NOON - timedelta(seconds=4), "now"),
        (NOON + timedelta(seconds=4), "now"),
        (NOON - timedelta(seconds=59), "59 s ago"),
        (NOON - timedelta(minutes=12, seconds=40), "12 min ago"),
        (NOON + timedelta(minutes=3), "in 3 min"),
        (NOON - timedelta(hours=30), "1 d ago"),
    ],
)
def test_age_is_told_as_in_conversation(moment: datetime | None, text: str) -> None:
    assert formats.ago(moment, NOON) == text


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 0, "–"), (0, 9, "0 %"), (9, 9, "100 %"), (1, 3, "33.3 %"), (1, 10_000, "< 0.1 %"), (1, 1000, "0.1 %")],
)
def test_share_has_the_decimals_that_say_something(part: int, whole: int, text: str) -> None:
    assert formats.share(part, whole) == text


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([], ""),
        ([(1999, "EUR")], "19.99 EUR"),
        ([(123456789, "EUR"), (5000, "JPY"), (1234, "KWD")], "1,234,567.89 EUR + 5,000 JPY + 1.234 KWD"),
        ([(1, "EUR"), (None, None)], "0.01 EUR"),
        ([(1, "EUR"), (1, "JPY"), (1, "KWD"), (1, "USD")], "0.01 EUR + 1 JPY + 0.001 KWD + 1 more currency"),
    ],
)
def test_money_keeps_its_exponent_and_is_never_added_across_currencies(rows: list[tuple[Any, Any]], text: str) -> None:
    found = [{"amount_minor": amount, "currency": currency} for amount, currency in rows]
    assert formats.amounts(found, EXPONENTS) == text


def test_exact_time_is_in_the_viewers_zone_and_utc_when_it_is_unknown() -> None:
    assert formats.exact(NOON, formats.find_zone("Europe/Berlin")) == "2026-01-02 13:00:00 CET"
    for name in (None, "Nowhere/Land", "../../etc/passwd"):
        assert formats.exact(NOON, formats.find_zone(name)) == "2026-01-02 12:00:00 UTC"


@pytest.mark.parametrize("name", ["order-1", "a b", "x'; rm -rf /", "$(id)", "`id`", "-rf", "a\nb"])
def test_command_keeps_an_order_one_word(name: str) -> None:
    import shlex

    words = shlex.split(formats.command("makegood", "dlq", "release", "--", name))
    assert words == ["makegood", "dlq", "release", "--", name.replace("\n", "\\n")]


def job(**changes: Any) -> dict[str, Any]:
    found = {"job": "recover_stuck_workflows", "id": "1", "state": "done", "error": None, "ago_seconds": 30.0}
    return {**found, **changes}


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (job(), None),
        (job(state="running"), None),
        (job(ago_seconds=601.0), "recover_stuck_workflows has not run for 10 min 1 s; it should every minute"),
        (job(job="reconcile_charges", ago_seconds=7200.0), None),  # an hourly one that took its time
        (
            job(job="reconcile_charges", ago_seconds=9001.0),
            "reconcile_charges has not run for 2 h 30 min; it should every hour",
        ),
        (job(state="failed", error="boom"), "recover_stuck_workflows failed 30 s ago: boom"),
        (job(state="abandoned"), "recover_stuck_workflows abandoned 30 s ago: it never said its end"),
        (job(id=None, state=None, ago_seconds=None), "recover_stuck_workflows has never run"),
    ],
)
def test_job_needs_a_person_when_it_failed_or_did_not_run(row: dict[str, Any], text: str | None) -> None:
    needs = attention.find_needs({"held": [], "breakers": [], "jobs": [row]}, EXPONENTS)
    assert [need.text.startswith(text) for need in needs if text] == ([True] if text else [])
    assert len(needs) == (text is not None)


def test_what_waits_for_a_person_is_told_once_per_kind_and_leads_to_where_it_is_decided() -> None:
    """Two currencies of one kind are one line."""
    one = {"state": "requested", "requests": 1, "oldest_seconds": 90.0}
    rows = [
        {**one, "action": "settle", "currency": "EUR", "amount_minor": 1999},
        {**one, "action": "settle", "currency": "JPY", "amount_minor": 500, "oldest_seconds": 60.0},
        {**one, "action": "release group", "state": "approved", "currency": None, "amount_minor": None},
        {**one, "action": "refund", "currency": "EUR", "amount_minor": 50_000},
    ]
    needs = attention.find_needs({"approvals": rows, "held": [], "breakers": [], "jobs": []}, EXPONENTS)
    assert [(need.text, need.page) for need in needs] == [
        ("2 settlements wait for a second person, 19.99 EUR + 500 JPY, oldest 1 min 30 s", "compensations"),
        ("1 release of a group approved, waits to be carried out, oldest 1 min 30 s", "dead_letters"),
        ("1 refund waits for a second person, 500.00 EUR, oldest 1 min 30 s", "reconciliation"),
    ]


def test_error_that_a_need_tells_has_no_address_and_no_card_in_it() -> None:
    error = f"{'x' * 105} ann@example.com and 4242 4242 4242 4242"
    breaker = {"provider": "payments", "error": error, "open_seconds": 5.0}
    found = {"held": [], "breakers": [breaker], "jobs": [job(state="failed", error=error)]}
    needs = attention.find_needs(found, EXPONENTS)
    assert len(needs) == 2
    assert not [need for need in needs if "ann" in need.text or "4242 4242" in need.text]


def test_jobs_that_are_watched_are_the_ones_there_are() -> None:
    assert set(data.JOBS) == {jobs.RECOVERY, jobs.COMPENSATION, reconciling.JOB}


def at(seconds: float) -> str:
    return (NOON + timedelta(seconds=seconds)).isoformat()


def story(**changes: Any) -> dict[str, Any]:
    row = {"finished_at": at(10), "held_at": None, "deadline_at": at(300), "lease_owner": None, "lease_until": None}
    moves = [(0, "created"), (0, "charging"), (10, "completed")]
    return {
        "asked_at": at(1000),
        "workflow": {**row, **changes},
        "transitions": [
            {"seq": n, "to_state": name, "transitioned_at": at(t), "gap": None} for n, (t, name) in enumerate(moves, 1)
        ],
        "attempts": [
            {"step": "charge", "kind": "forward", "attempt": n, "outcome": outcome, "error_type": None, "worker": "w",
             "started_at": at(t), "finished_at": at(t)}
            for n, (t, outcome) in enumerate([(1, "unknown"), (9, "success")], 1)
        ],
        "decisions": [{"decision": "resume", "reason": "<b>x</b> $y$", "decided_at": at(8)}],
    }  # fmt: skip


def test_timeline_shows_what_took_no_time_and_the_wait_between_two_tries() -> None:
    figure = charts.draw_timeline(story(), UTC, dark=False)
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert all(bar.x[0] >= 10 * charts.NARROWEST for bar in bars)
    assert [bar.y[0] for bar in bars] == ["created", "charging", "completed", "→ charge", "→ charge", "→ charge"]
    waits = [bar for bar in bars if "waited" in bar.hovertext[0]]
    assert [(bar.base[0], bar.x[0]) for bar in waits] == [(1.0, 8.0)]


def test_timeline_takes_text_for_text() -> None:
    figure = charts.draw_timeline(story(), UTC, dark=True)
    (mark,) = (trace for trace in figure.data if trace.type == "scatter")
    assert "&lt;b&gt;x&lt;/b&gt; &#36;y&#36;" in mark.hovertext[0]


def test_timeline_of_what_is_held_changes_colour_when_it_was_held() -> None:
    told = story(finished_at=None, held_at=at(500))
    told["transitions"] = told["transitions"][:2]
    figure = charts.draw_timeline(told, UTC, dark=False)
    last = [trace for trace in figure.data if trace.y[0] == "charging"]
    assert [(bar.base[0], bar.base[0] + bar.x[0]) for bar in last] == [(0, 300), (300, 500), (500, 1000)]
    assert [bar.marker.color for bar in last] == [theme.colour_of(w, dark=False) for w in ("charging", "stuck", "held")]


def held_and_released() -> dict[str, Any]:
    """Parked 100 s after it began charging, released by Ann at 700 s, and completed at once."""
    told = story(finished_at=at(710))
    told["transitions"][2]["transitioned_at"] = at(710)
    told["decisions"] = []
    told["dead_letter"] = {"last_failed_at": at(100)}
    told["actions"] = [{"actor": "ann", "action": "release", "reason": "mended", "acted_at": at(700), "details": {}}]
    return told


def test_gap_in_which_it_was_held_names_who_released_it_although_its_row_knows_no_more() -> None:
    told = held_and_released()
    why = explain_gap(told, NOON, NOON + timedelta(seconds=710))
    assert why == "11 min 50 s: it was held for a person for 10 min, released by ann; 10 s passed after that"
    assert explain_gap(told, NOON + timedelta(seconds=701), NOON + timedelta(seconds=710)) == (
        "9.0 s: no attempt was made; it waited for a worker"
    )


def test_gap_with_several_holds_tells_them_together_and_without_a_letter_its_last_try_began_it() -> None:
    told = held_and_released()
    again = {**told["actions"][0], "actor": "bob", "acted_at": at(705)}
    told.update(dead_letter=None, actions=[*told["actions"], again], decisions=[{"decision": "park", "reason": "x",
                "decided_at": at(703)}])  # fmt: skip
    assert explain_gap(told, NOON, NOON + timedelta(seconds=710)) == (
        "11 min 50 s: it was held for a person 2 times, 11 min 33 s in all, last released by bob; 5.0 s passed"
        " after that"
    )


def test_timeline_of_what_was_released_shows_when_it_was_held() -> None:
    figure = charts.draw_timeline(held_and_released(), UTC, dark=False)
    bars = [trace for trace in figure.data if trace.y[0] == "charging"]
    assert [(bar.base[0], bar.base[0] + bar.x[0]) for bar in bars] == [(0, 100), (100, 700), (700, 710)]
    words = ("charging", "held", "charging")
    assert [bar.marker.color for bar in bars] == [theme.colour_of(word, dark=False) for word in words]


@pytest.mark.parametrize(
    ("undos", "waits"),
    [
        ([], [("→ charge", 9.0, 1000.0)]),
        # An undo that was never tried has a lane; one that is done, or held, does not wait.
        ([("charge", "pending"), ("reserve", "succeeded"), ("ship", "held")], [("↩ undo charge", 500.0, 1000.0)]),
    ],
)
def test_timeline_shows_the_wait_that_lasts(undos: list[tuple[str, str]], waits: list[Any]) -> None:
    told = story(finished_at=None, next_attempt_at=at(1300))
    told["transitions"] = told["transitions"][:2]
    told["compensations"] = [{"step": step, "state": state, "created_at": at(500)} for step, state in undos]
    figure = charts.draw_timeline(told, UTC, dark=False)
    found = [trace for trace in figure.data if trace.type == "bar" and "waits for its next try" in trace.hovertext[0]]
    assert [(bar.y[0], bar.base[0], bar.base[0] + bar.x[0]) for bar in found] == waits


@pytest.mark.parametrize("span", [0.001, 0.4, 3, 59, 61, 4000, 90_000, 9_000_000])
def test_ticks_are_few_and_round(span: float) -> None:
    assert 2 <= len(charts._ticks(span)) <= 14


# What is left of linear RGB without one kind of cone, as Machado, Oliveira and Fernandes (2009) measured it.
SIGHTS = {
    "all cones": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
# Two patches side by side look alike below 2.3; a legend that is read across a chart needs several times that.
DISTANCE_MIN = 12.0


def linear(colour: str) -> list[float]:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    return [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]


def luminance(colour: str) -> float:
    red, green, blue = linear(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def seen(colour: str, sight: str) -> tuple[float, float, float]:
    """CIE L*a*b* of the colour as somebody with that sight sees it."""
    parts = linear(colour)
    rows = SIGHTS[sight]
    red, green, blue = (min(1.0, max(0.0, sum(a * b for a, b in zip(row, parts, strict=True)))) for row in rows)
    x = (0.4124564 * red + 0.3575761 * green + 0.1804375 * blue) / 0.95047
    y = 0.2126729 * red + 0.7151522 * green + 0.0721750 * blue
    z = (0.0193339 * red + 0.1191920 * green + 0.9503041 * blue) / 1.08883
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("sight", SIGHTS)
def test_any_two_meanings_are_told_apart_also_by_who_does_not_see_all_colours(sight: str, dark: bool) -> None:
    colours = {word: seen(theme.colour_of(word, dark=dark), sight) for word in theme.MEANINGS}
    near = {
        (one, other): round(distance, 1)
        for one, other in itertools.combinations(colours, 2)
        if (distance := math.dist(colours[one], colours[other])) < DISTANCE_MIN
    }
    assert near == {}


def test_what_is_stacked_in_one_bar_differs_by_its_pattern_too() -> None:
    ends = [{"slice": NOON, "completed": 3, "compensated": 2, "failed": 1}]
    attempts = [{"step": "charge", "kind": "forward", "attempts": 9, "failed": 2, "unknown": 1}]
    for figure in (charts.draw_ends(ends, [NOON], UTC, dark=False), charts.draw_failures(attempts, dark=True)):
        shapes = [trace.marker.pattern.shape for trace in figure.data if trace.type == "bar"]
        assert len(set(shapes)) == len(shapes) >= 2


@pytest.mark.parametrize("dark", [False, True])
def test_colours_are_distinct_and_stand_out_from_their_ground(dark: bool) -> None:
    ground = theme.options()[f"theme.{'dark' if dark else 'light'}.backgroundColor"]
    colours = [theme.colour_of(word, dark=dark) for word in theme.MEANINGS]
    assert len(set(colours)) == len(theme.MEANINGS)
    for colour in colours:
        high, low = sorted([luminance(colour), luminance(ground)], reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 3.0  # what WCAG asks of graphics


def test_cards_speak_only_our_own_words_where_markdown_is_read() -> None:
    """A note is Markdown; names of steps and orders belong into the sentence, which is not."""
    from dashboard import cards

    rows = [{"step": "[x](y)", "kind": "forward", "attempts": 2, "failed": 1, "unknown": 0, "failure_rate": 0.5}]
    card = cards.failure_card(rows, [], [], PERIODS["24h"], cards.Targets(60, 0.05, 0, 0.05))
    marked = dataclasses.replace(card, sentence="")
    assert "[x](y)" in card.sentence
    assert "[x](y)" not in str(marked)


@pytest.mark.parametrize(
    ("action", "of", "page"),
    [
        ("release", None, ("order", "order", "x")),
        ("cancel", None, ("order", "order", "x")),
        ("remedy: refund", None, ("order", "order", "x")),
        ("acknowledge finding", None, ("reconciliation", "finding", "x")),
        ("approve", "refund", ("reconciliation", "finding", "x")),
        ("request approval", "settle", ("order", "order", "x")),
        ("use approval", "release group", ("", "", "x")),  # many orders
        ("grant", None, ("", "", "x")),
        ("set remedy caps", None, ("", "", "x")),
    ],
)
def test_row_of_what_people_did_leads_to_what_it_was_done_to(
    action: str, of: str | None, page: tuple[str, ...]
) -> None:
    assert places.place_of({"action": action, "approval_of": of, "subject": "x"}) == page
