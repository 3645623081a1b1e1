"""The four numbers of the overview are those of the published queries, as somebody pastes them."""

from __future__ import annotations

from typing import Any

import pytest
from shops import Place
from streamlit.testing.v1 import AppTest

from dashboard import formats
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


def test_durations_are_the_published_ones(look: Any, place: Place) -> None:
    (row,) = (row for row in published(place, "duration") if row["current_state"] == "completed")
    app = look(place.read)
    p50, p95, p99 = (formats.seconds(row[name].total_seconds()) for name in ("p50", "p95", "p99"))
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
    """All orders are a few minutes old, so every period has them all."""
    app = look(normal.read, period=period)
    assert not app.exception
    assert numbers(app) == numbers(look(normal.read))
