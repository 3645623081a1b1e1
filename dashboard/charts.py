"""Charts as plotly figures. What goes into one is escaped: plotly reads a little HTML in its labels."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import plotly.graph_objects as go

from dashboard.formats import percent, plural, seconds, short
from dashboard.theme import colour_of, pattern_of
from makegood.story import Hold, find_holds, name_attempt, read_time

CONFIG = {"displayModeBar": False, "scrollZoom": False}
NARROWEST = 0.005  # of the whole width: what took no time is still seen
ROW_PIXELS = 34
TICKS = 6
ENDS = ("completed", "compensated", "failed")


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that lasted, in a lane; ``word`` gives its colour."""

    lane: str
    word: str
    start: datetime
    end: datetime
    text: str


def draw_ends(rows: Sequence[Mapping[str, Any]], slices: Sequence[datetime], zone: tzinfo, *, dark: bool) -> go.Figure:
    """How orders ended, slice by slice of the whole period."""
    figure = go.Figure()
    found = {row["slice"]: row for row in rows}
    moments = [moment.astimezone(zone).replace(tzinfo=None) for moment in slices]
    for end in ENDS:
        figure.add_bar(
            x=moments,
            y=[found[moment][end] if moment in found else 0 for moment in slices],
            name=end,
            marker={"color": colour_of(end, dark=dark), "pattern": pattern_of(end)},
            hovertemplate="%{x|%b %d %H:%M}: %{y:,} " + end + "<extra></extra>",
        )
    figure.update_layout(barmode="stack", bargap=0.15, **_plain(height=260))
    figure.update_layout(legend_traceorder="normal")
    figure.update_yaxes(rangemode="tozero", tickformat=",d", nticks=5, zeroline=False)
    return figure


def draw_failures(rows: Sequence[Mapping[str, Any]], *, dark: bool) -> go.Figure:
    """The share of attempts per step that failed, or had no clear answer; the weak link on top."""
    shown = list(reversed(rows[:8]))
    figure = go.Figure()
    for outcome, word, name in (("failed", "failed", "failed"), ("unknown", "stuck", "no clear answer")):
        figure.add_bar(
            orientation="h",
            y=[_escape(name_attempt(row)) for row in shown],
            x=[row[outcome] / row["attempts"] for row in shown],
            name=name,
            marker={"color": colour_of(word, dark=dark), "pattern": pattern_of(word)},
            hovertext=[f"{row[outcome]:,} of {plural(row['attempts'], 'attempt')} {name}" for row in shown],
            hoverinfo="text",
        )
    totals = [(row["failed"] + row["unknown"]) / row["attempts"] for row in shown]
    figure.add_scatter(
        x=totals, y=[_escape(name_attempt(row)) for row in shown], mode="text", text=[f" {percent(t)}" for t in totals],
        textposition="middle right", hoverinfo="skip", showlegend=False, cliponaxis=False,
    )  # fmt: skip
    figure.update_layout(barmode="stack", **_plain(height=max(260, 60 + 30 * len(shown))))
    figure.update_layout(legend_traceorder="normal")
    figure.update_xaxes(tickformat=".0%", range=[0, max([*totals, 0.01]) * 1.18], zeroline=False)
    return figure


def draw_bands(bands: Sequence[tuple[str, int, str]], *, dark: bool) -> go.Figure:
    """How many are stuck for how long, the longest at the bottom, each with its money."""
    shown = list(reversed(bands))
    names = [name for name, _, _ in shown]
    figure = go.Figure()
    figure.add_bar(
        orientation="h", y=names, x=[count for _, count, _ in shown], marker_color=colour_of("stuck", dark=dark),
        text=[f"{count:,}" + (f"<br>{_escape(money)}" if money else "") if count else "" for _, count, money in shown],
        textposition="auto", cliponaxis=False, hoverinfo="skip", insidetextanchor="start",
    )  # fmt: skip
    figure.update_layout(bargap=0.25, **_plain(height=260))
    figure.update_xaxes(visible=False, range=[0, max(count for _, count, _ in shown) * 1.5])
    figure.update_yaxes(showgrid=False)
    return figure


def draw_at_risk(
    rows: Sequence[Mapping[str, Any]], slices: Sequence[datetime], exponent: int, *, dark: bool
) -> go.Figure:
    """Money at risk at the end of each day, of one currency; a row without a day is what stood before."""
    found = {row["day"]: row for row in rows}
    standing = found[None]["amount_minor"] if None in found else 0
    heights = []
    for day in slices:
        standing += found[day]["amount_minor"] if day in found else 0
        heights.append(standing / 10**exponent)
    figure = go.Figure()
    figure.add_bar(
        x=[day.replace(tzinfo=None) for day in slices], y=heights, marker_color=colour_of("stuck", dark=dark),
        hovertemplate=f"%{{x|%b %d}} (a day in UTC): %{{y:,.{exponent}f}} at risk<extra></extra>",
    )  # fmt: skip
    figure.update_layout(bargap=0.15, **_plain(height=260))
    figure.update_yaxes(rangemode="tozero", tickformat=",", nticks=5, zeroline=False)
    return figure


def draw_classes(bars: Sequence[tuple[str, int, str]], *, dark: bool) -> go.Figure:
    """Money at risk per class, the largest on top, each with its amount."""
    shown = list(reversed(bars))
    figure = go.Figure()
    figure.add_bar(
        orientation="h", y=[_escape(name) for name, _, _ in shown], x=[amount for _, amount, _ in shown],
        marker_color=colour_of("stuck", dark=dark), text=[_escape(money) for _, _, money in shown],
        textposition="outside", cliponaxis=False, hoverinfo="skip",
    )  # fmt: skip
    figure.update_layout(bargap=0.25, **_plain(height=260))
    figure.update_xaxes(visible=False, range=[0, max((amount for _, amount, _ in shown), default=1) * 1.45])
    figure.update_yaxes(showgrid=False)
    return figure


def draw_timeline(story: Mapping[str, Any], zone: tzinfo, *, dark: bool) -> go.Figure:
    """One order from its start: a lane per state, then one per step with its attempts and the waits between them."""
    bars = [*_state_bars(story), *_attempt_bars(story)]
    marks = _marks(story)
    start = read_time(story["transitions"][0]["transitioned_at"])
    end = max([bar.end for bar in bars] + [moment for _, _, moment, _ in marks])
    span = max((end - start).total_seconds(), 0.001)
    figure = go.Figure()
    for bar in bars:
        figure.add_bar(**_bar(bar, start, span, zone, dark=dark))
    for lane, word, moment, text in marks:
        figure.add_scatter(
            x=[(moment - start).total_seconds()], y=[lane], mode="markers", hoverinfo="text",
            hovertext=[f"{_time(moment, zone)}<br>{_escape(text)}"], showlegend=False,
            marker={"symbol": "diamond", "size": 12, "color": colour_of(word, dark=dark)},
        )  # fmt: skip
    lanes = list(dict.fromkeys([*(bar.lane for bar in bars), *(mark[0] for mark in marks)]))
    figure.update_layout(barmode="overlay", bargap=0.35, **_plain(height=70 + ROW_PIXELS * len(lanes)))
    figure.update_yaxes(categoryorder="array", categoryarray=list(reversed(lanes)), showgrid=False)
    ticks = _ticks(span)
    figure.update_xaxes(
        tickvals=ticks, ticktext=[seconds(t) if t else "start" for t in ticks], range=[-span * 0.01, span * 1.03],
        zeroline=False,
    )  # fmt: skip
    return figure


def _bar(bar: Bar, start: datetime, span: float, zone: tzinfo, *, dark: bool) -> dict[str, Any]:
    lasted = (bar.end - bar.start).total_seconds()
    waits = bar.word == "waiting"
    return {
        "orientation": "h",
        "y": [bar.lane],
        "base": [(bar.start - start).total_seconds()],
        "x": [max(lasted, span * NARROWEST)],
        "marker": {"color": colour_of(bar.word, dark=dark), "cornerradius": 2, "line": {"width": 0}},
        "opacity": 0.35 if waits else 1.0,
        "width": 0.22 if waits else 0.62,
        "hovertext": [f"<b>{_escape(bar.text)}</b><br>{_time(bar.start, zone)}, {seconds(lasted)}"],
        "hoverinfo": "text",
        "showlegend": False,
    }


def _state_bars(story: Mapping[str, Any]) -> list[Bar]:
    """A bar per state; it changes its colour where the order was held, and the last one where it became stuck."""
    transitions = story["transitions"]
    moments = [read_time(transition["transitioned_at"]) for transition in transitions]
    ended = story["workflow"]["finished_at"] is not None
    ends = [*moments[1:], moments[-1] if ended else read_time(story["asked_at"])]
    bars = []
    for transition, start, end in zip(transitions, moments, ends, strict=True):
        state = transition["to_state"]
        text = f"{state}: {transition['gap']}" if transition["gap"] else state
        bars.append(Bar(_escape(state), state, start, end, text))
    holds, deadline = find_holds(story), None if ended else story["workflow"]["deadline_at"]
    last = read_time(deadline) if deadline else None
    return [part for bar in bars for part in _split(bar, holds, last if bar is bars[-1] else None)]


def _split(bar: Bar, holds: Sequence[Hold], deadline: datetime | None) -> list[Bar]:
    """Moving, stuck from its deadline on, and held while it was: as far as it came."""
    changes = [(bar.start, bar.word), *([(deadline, "stuck")] if deadline else [])]
    for hold in holds:
        until = hold.until or bar.end
        if hold.since < bar.end and until > bar.start:
            changes = [(at, word) for at, word in changes if not hold.since <= at < until]
            changes += [(max(hold.since, bar.start), "held"), (until, bar.word)]
    found = sorted((at, word) for at, word in changes if bar.start <= at < bar.end)
    if not found:  # it took no time at all
        return [bar]
    ends = [*(at for at, _ in found[1:]), bar.end]
    return [replace(bar, word=word, start=start, end=end) for (start, word), end in zip(found, ends, strict=True)]


def _attempt_bars(story: Mapping[str, Any]) -> list[Bar]:
    """Each attempt, and the wait before the next one of the same step."""
    now = read_time(story["asked_at"])
    bars: list[Bar] = []
    previous: dict[str, datetime] = {}
    for attempt in story["attempts"]:
        name = name_attempt(attempt)
        lane = f"→ {_escape(name)}" if attempt["kind"] == "forward" else f"↩ {_escape(name)}"
        start = read_time(attempt["started_at"])
        end = read_time(attempt["finished_at"]) if attempt["finished_at"] else _unanswered_until(attempt, story, now)
        if lane in previous and start > previous[lane]:
            bars.append(Bar(lane, "waiting", previous[lane], start, f"waited for the next try of {name}"))
        error = f": {attempt['error_type']}" if attempt["error_type"] else ""
        outcome = attempt["outcome"] or "no answer"
        bars.append(Bar(lane, outcome, start, end, f"{name}, try {attempt['attempt']}: {outcome}{error}"))
        previous[lane] = end
    return [*bars, *_waits_now(story, previous, now)]


def _waits_now(story: Mapping[str, Any], previous: Mapping[str, datetime], now: datetime) -> list[Bar]:
    """The waits that last: for the next try of what was tried last, and of every undo that is still owed."""
    row, undos = story["workflow"], [u for u in story.get("compensations") or [] if u["state"] == "pending"]
    if row["finished_at"] or row["held_at"]:
        return []
    bars = []
    for undo in undos:
        lane = f"↩ {_escape('undo ' + undo['step'])}"
        since = previous.get(lane) or read_time(undo["created_at"])
        bars.append(Bar(lane, "waiting", since, now, f"undo {undo['step']} waits for its next try"))
    next_try = row.get("next_attempt_at")
    if not undos and previous and next_try and read_time(next_try) > now:
        lane = max(previous, key=lambda name: previous[name])
        wait = seconds((read_time(next_try) - now).total_seconds())
        bars.append(Bar(lane, "waiting", previous[lane], now, f"waits for its next try, in {wait}"))
    return [bar for bar in bars if bar.end > bar.start]


def _unanswered_until(attempt: Mapping[str, Any], story: Mapping[str, Any], now: datetime) -> datetime:
    """A call whose worker died lasted until nobody knows; it is drawn as a point, unless it may be under way."""
    row = story["workflow"]
    under_way = row["lease_owner"] == attempt["worker"] and row["lease_until"] and read_time(row["lease_until"]) > now
    return now if under_way else read_time(attempt["started_at"])


def _marks(story: Mapping[str, Any]) -> list[tuple[str, str, datetime, str]]:
    jobs = [
        (
            "jobs",
            decision["decision"],
            read_time(decision["decided_at"]),
            f"{decision['decision']}: {decision['reason']}",
        )
        for decision in story.get("decisions") or []
    ]
    people = [
        ("people", "held", read_time(action["acted_at"]), f"{action['actor']}, {action['action']}: {action['reason']}")
        for action in story.get("actions") or []
    ]
    return jobs + people


def _ticks(span: float) -> list[float]:
    """A few round numbers of seconds, minutes, hours or days."""
    rough = span / TICKS
    steps = [k * 10.0**e for e in range(-3, 1) for k in (1, 2, 5)]
    steps += [10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200]
    step = next((step for step in steps if step >= rough), 86400.0 * (int(rough // 86400) + 1))
    return [round(k * step, 6) for k in range(int(span / step) + 1)]


def _plain(*, height: int) -> dict[str, Any]:
    return {
        "height": height,
        "margin": {"l": 0, "r": 8, "t": 8, "b": 0},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.0, "x": 0, "title": None},
        "hoverlabel": {"align": "left"},
        "dragmode": False,
    }


def _time(moment: datetime, zone: tzinfo) -> str:
    return moment.astimezone(zone).strftime("%b %d %H:%M:%S.%f")[:-3]


def _escape(text: str) -> str:
    """What plotly would take for a tag, or for mathematics, is text."""
    return html.escape(short(text)).replace("$", "&#36;")


def fill_slices(period_seconds: int, slice_seconds: int, now: datetime) -> list[datetime]:
    """The beginning of every slice of a period, as date_bin cuts it."""
    origin, width = datetime(2000, 1, 1, tzinfo=UTC), timedelta(seconds=slice_seconds)
    first = origin + ((now - timedelta(seconds=period_seconds) - origin) // width) * width
    return [first + k * width for k in range(period_seconds // slice_seconds + 1)]
