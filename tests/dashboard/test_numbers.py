"""The four numbers of the overview are those of the published queries, as somebody pastes them."""

from __future__ import annotations

from typing import Any

import pytest
from shops import Place
from streamlit.testing.v1 import AppTest

from dashboard import cards, data, formats
from dashboard.periods import PERIODS
from makegood.migrations import sql_folder

EXPONENTS = {"EUR": 2}


def published(place: Place, name: str) -> list[dict[str, Any]]:
    return place.rows((sql_folder() / "queries" / f"{name}.sql").read_text(), role="read")


def numbers(app: AppTest) -> list[str]:
    return [str(metric.value) for metric in app.metric]


@pytest.fixture(params=["normal", "disaster"])
def place(request: pytest.FixtureRequest) -> Place:
    found: Place = request.getfixturevalue(request.param)
    return found


def test_durations_are_the_published_ones_to_two_percent(look: Any, place: Place) -> None:
    (row,) = (row for row in published(place, "duration") if row["current_state"] == "completed")
    app = look(place.read)
    (found,) = (r for r in data.get_metrics("24h", None)["durations"] if r["current_state"] == "completed")
    for name in ("p50", "p95", "p99"):
        assert found[f"{name}_seconds"] == pytest.approx(row[name].total_seconds(), rel=0.02)
    p50, p95, p99 = (formats.seconds(found[f"{name}_seconds"]) for name in ("p50", "p95", "p99"))
    assert numbers(app)[0] == p50
    assert app.metric[0].delta == f"p95 {p95} · p99 {p99}"
    assert f"Half of {row['workflows']} completed orders" in app.text[0].value


def test_weak_link_is_the_first_of_the_published_query(look: Any, place: Place) -> None:
    weak = published(place, "step_failure_rate")[0]
    app = look(place.read)
    assert numbers(app)[1] == formats.percent(float(weak["failure_rate"]))
    assert app.metric[1].delta == f"{weak['failed'] + weak['unknown']:,} of {weak['attempts']:,} attempts"
    name = weak["step"] if weak["kind"] == "forward" else f"undo {weak['step']}"
    assert f"The weak link is {name}:" in app.text[1].value


def test_stuck_count_its_money_and_who_is_held_are_the_published_ones(look: Any, place: Place) -> None:
    rows = published(place, "stuck_count")
    app = look(place.read)
    stuck = sum(row["stuck"] for row in rows)
    assert numbers(app)[2] == f"{stuck:,}"
    if stuck:
        money = formats.amount(int(sum(row["amount_minor"] for row in rows)), "EUR", EXPONENTS)
        assert f"{money} at risk" in app.text[2].value
        assert f"{sum(row['held'] for row in rows)} held for a person" in app.text[2].value


def test_compensation_rate_is_the_published_one(look: Any, place: Place) -> None:
    (row,) = published(place, "compensation_rate")
    app = look(place.read)
    assert numbers(app)[3] == formats.share(row["compensated"], row["ended"])
    assert app.metric[3].delta == f"{row['compensated']:,} of {row['ended']:,} ended"
    if row["compensating"]:
        assert f"{row['compensating']} orders are being undone now, {row['held']} held" in app.text[3].value


def test_numbers_of_a_type_that_has_no_orders_are_none(look: Any, normal: Place) -> None:
    normal.rows("INSERT INTO makegood.workflow_types (name, definition) VALUES ('errand', '{}') ON CONFLICT DO NOTHING")
    assert numbers(look(normal.read, type="errand")) == ["–", "–", "0", "–"]
    assert numbers(look(normal.read, type="checkout")) == numbers(look(normal.read))


@pytest.mark.parametrize("period", ["15min", "1h", "6h", "24h", "7d", "30d", "90d"])
def test_every_period_has_its_numbers_and_a_trend(look: Any, normal: Place, period: str) -> None:
    """All orders are a few minutes old, so every period has them all, counted or not."""
    app = look(normal.read, period=period)
    assert not app.exception
    assert numbers(app) == numbers(look(normal.read))


def test_numbers_are_the_same_once_they_are_counted(look: Any, normal: Place) -> None:
    before = [said(look(normal.read, period=period)) for period in PERIODS]
    normal.rows("SELECT makegood.roll_up()", role="jobs")
    assert normal.rows("SELECT count(*) AS n FROM makegood.rollup_tail()") == [{"n": 0}]
    assert [said(look(normal.read, period=period)) for period in PERIODS] == before


def said(app: AppTest) -> list[Any]:
    return [(metric.label, metric.value, metric.delta) for metric in app.metric] + [text.value for text in app.text[:4]]


def test_look_counts_what_no_job_came_to_count(look: Any, disaster: Place) -> None:
    disaster.rows(
        "UPDATE makegood.rollup_position SET rolled_at = now() - interval '3 minutes', xact = '0', transition_id = 0"
    )
    for table in ("ends", "attempts", "stuck", "open_attempts"):
        disaster.rows(f"DELETE FROM makegood.rollup_{table}")
    before = published(disaster, "compensation_rate")
    app = look(disaster.read)
    assert disaster.rows("SELECT count(*) AS n FROM makegood.rollup_tail()") == [{"n": 0}]
    assert app.metric[3].delta == f"{before[0]['compensated']:,} of {before[0]['ended']:,} ended"


def test_stuck_orders_are_told_by_their_age_with_their_money(look: Any, disaster: Place) -> None:
    """59 stand still for two hours; whoever is held was let down just now or hours ago."""
    look(disaster.read)
    bands = cards.find_bands(data.get_standing(None)["stuck"], EXPONENTS)
    assert [name for name, _, _ in bands] == list(cards.BANDS)
    rows = published(disaster, "stuck_count")
    assert sum(count for _, count, _ in bands) == sum(row["stuck"] for row in rows)
    assert any("EUR" in money for _, count, money in bands if count)


def test_target_says_whether_it_is_met(look: Any, normal: Place, disaster: Place) -> None:
    words = [str(badge.value) for badge in look(normal.read).markdown]
    assert any("Target: none · met" in word for word in words)
    words = [str(badge.value) for badge in look(disaster.read).markdown]
    assert any("Target: none · missed" in word for word in words)
