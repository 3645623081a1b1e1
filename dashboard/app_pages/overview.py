"""Overview: how it goes, in four numbers, and what needs a person now."""

from __future__ import annotations

import re
from datetime import datetime

import streamlit as st

from dashboard import attention, cards, charts, data, formats, live
from dashboard.periods import PERIODS, Period
from dashboard.theme import badge_of
from makegood.settings import get_settings

EVERY_SECONDS = 5.0


def draw() -> None:
    period_key, workflow_type = choose()
    period = PERIODS[period_key]
    metrics, trends = data.get_metrics(period_key, workflow_type), data.get_trends(period_key, workflow_type)
    exponents = data.get_exponents()
    slices = charts.fill_slices(period.seconds, period.slice_seconds, data.now())
    columns = st.columns(4)
    found = cards.make_cards(metrics, trends, slices, period, exponents, get_targets())
    for column, card in zip(columns, found, strict=True):
        with column:
            show_card(card)
    show_needs(attention.find_needs(data.get_attention(workflow_type), exponents))
    st.space("small")
    show_charts(metrics, trends, period, slices)


def get_targets() -> cards.Targets:
    settings = get_settings()
    return cards.Targets(
        settings.target_p95_seconds,
        settings.target_failure_rate,
        settings.target_stuck,
        settings.target_compensation_rate,
    )


def choose() -> tuple[str, str | None]:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        period = live.pick("Period", "period", list(PERIODS), "24h", lambda key: re.sub(r"(\d+)", r"\1 ", key))
        return period, live.choose_type()


def show_card(card: cards.Card) -> None:
    with st.container(border=True, height="stretch", key=f"card-{card.name}"):
        st.metric(
            card.label,
            card.value,
            card.note or None,
            help=card.help,
            delta_arrow="off",
            chart_data=card.trend or None,
            chart_type="area",
            delta_color=badge_of(card.word),  # type: ignore[arg-type]
        )
        st.text(card.sentence)
        show_target(card)


def show_target(card: cards.Card) -> None:
    """Whether it is as it should be, told apart by its icon too, not by colour alone."""
    icon, word = {
        True: (":material/check_circle:", "completed"),
        False: (":material/error:", "failed"),
        None: (":material/radio_button_unchecked:", "waiting"),
    }[card.met]
    state = {True: "met", False: "missed", None: "nothing yet"}[card.met]
    st.badge(f"Target: {card.target} · {state}", icon=icon, color=badge_of(word))  # type: ignore[arg-type]


def show_needs(needs: list[attention.Need]) -> None:
    st.subheader("Needs a person now", anchor=False)
    if not needs:
        live.show_empty("Nothing needs a person.", "No order is held, no provider is down, and the jobs have run.")
    for index, need in enumerate(needs):
        with st.container(border=True, horizontal=True, vertical_alignment="center", key=f"need-{index}"):
            st.badge(need.kind, color=badge_of(need.word))  # type: ignore[arg-type]
            st.text(need.text, width="stretch")
            st.page_link(
                live.page(need.page), label=need.link, icon=":material/arrow_forward:", query_params=need.where
            )


def show_charts(metrics: dict[str, data.Rows], trends: data.Trends, period: Period, slices: list[datetime]) -> None:
    dark = live.is_dark()
    left, middle, right = st.columns([4, 3, 3])
    with left, st.container(border=True, height="stretch"):
        st.subheader("How orders ended", anchor=False)
        if trends.ends:
            figure = charts.draw_ends(trends.ends, slices, live.zone(), dark=dark)
            st.plotly_chart(
                figure, config=charts.CONFIG, key="ends", alt="Orders completed, undone and failed over time"
            )
        else:
            st.caption(f"No order ended in the last {period.name}. A longer period shows more.")
    with middle, st.container(border=True, height="stretch"):
        st.subheader("Where attempts fail", anchor=False)
        if metrics["step_failures"]:
            figure = charts.draw_failures(metrics["step_failures"], dark=dark)
            st.plotly_chart(figure, config=charts.CONFIG, key="failures", alt="Failure rate per step")
        else:
            st.caption(f"No step was attempted in the last {period.name}.")
    with right, st.container(border=True, height="stretch"):
        show_ages(metrics["stuck"], dark=dark)


def show_ages(stuck: data.Rows, *, dark: bool) -> None:
    st.subheader("How long orders are stuck", anchor=False)
    if not stuck:
        st.caption("No order is stuck.")
        return
    bands = cards.find_bands(stuck, data.get_exponents())
    figure = charts.draw_bands(bands, dark=dark)
    told = ", ".join(f"{name}: {formats.plural(count, 'order')}" for name, count, _ in bands)
    st.plotly_chart(figure, config=charts.CONFIG, key="ages", alt=told)
    st.page_link(
        live.page("workflows"), label="Stuck orders", icon=":material/arrow_forward:", query_params={"show": "idle"}
    )


st.title("Overview", anchor=False)
live.live(draw, every_seconds=EVERY_SECONDS)
