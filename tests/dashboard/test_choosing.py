"""What was clicked, ticked or chosen stays about what it was chosen for, whatever the page shows by now."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import reconciled
import shops
from shops import Place
from streamlit.testing.v1 import AppTest
from test_pages import column, said

from dashboard import acting, data, identity
from makegood.local.postgres import EmbeddedPostgres
from sandbox.client import ShopControl, ShopProcess

Enter = Callable[..., AppTest]


@pytest.fixture(scope="module")
def place(
    server: EmbeddedPostgres, shop_process: ShopProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """Five orders are parked and two undos are held; acted on here, so nobody else's."""
    settings = shops.make_settings(shop_process.url, tmp_path_factory.mktemp("home"))
    with shops.open_place(server) as place, ShopControl(shop_process.url) as shop:
        shop.reset()
        shops.parked(place, settings, shop)
        yield place


@pytest.fixture
def enter(look: Any, place: Place, monkeypatch: pytest.MonkeyPatch) -> Enter:
    """As somebody who may act."""

    def open_page(page: str, **parameters: str) -> AppTest:
        monkeypatch.setenv("MAKEGOOD_DASHBOARD_LOGIN", "demo")
        monkeypatch.setenv("MAKEGOOD_DATABASE_ACT_URL", place.act)
        monkeypatch.setattr(identity, "_demo_login", lambda: "demo-operator")
        acting.actor.clear()  # type: ignore[attr-defined]
        return look(place.read, page, **parameters)  # type: ignore[no-any-return]

    return open_page


def mark(app: AppTest, table: str, rows: tuple[int, ...] = (), cell: tuple[int, str] | None = None) -> AppTest:
    """As the browser says it: numbers of rows, and nothing of what is in them."""
    (widget,) = [frame.key for frame in app.dataframe if (frame.key or "").startswith(table)]
    selection = {"rows": list(rows), "columns": [], "cells": [cell] if cell else []}
    app.session_state[widget] = {"selection": selection}
    return again(app)


def again(app: AppTest) -> AppTest:
    """The next refresh, with what is so by then."""
    data.st.cache_data.clear()
    return app.run()


def press(app: AppTest, label: str) -> AppTest:
    return next(button for button in app.button if button.label == label).click().run()


def labels(app: AppTest) -> list[str]:
    return [button.label for button in app.button]


def address(app: AppTest, name: str) -> str | None:
    found = app.query_params.get(name)
    return found[0] if isinstance(found, list) else found


def group_of(app: AppTest) -> str:
    """What the orders below the groups failed with, as it is written above them."""
    return next(text.value for text in app.text if text.value in column(app, "what went wrong"))


def test_filter_follows_the_address_and_the_address_the_filter(enter: Enter) -> None:
    """A link on the same page, and the browser's Back, change the address of a session that is under way."""
    app = enter("workflows", show="held")
    assert len(column(app, "order")) == 7
    app.query_params["show"] = "moving"
    app.run()
    assert address(app, "show") == "moving"
    assert not app.dataframe
    del app.query_params["show"]
    app.run()
    assert address(app, "show") is None
    app.selectbox(key="choose-state").set_value("compensating").run()
    assert address(app, "state") == "compensating"
    assert len(column(app, "order")) == 2
    app.query_params["state"] = "charging"
    app.run()
    assert address(app, "state") == "charging"
    assert len(column(app, "order")) == 5


def test_filter_of_one_page_is_not_another_ones_of_the_same_name(enter: Enter) -> None:
    app = enter("workflows", state="compensating")
    app.switch_page("app_pages/dead_letters.py")
    del app.query_params["state"]
    app.run()
    assert "that failed in the same way" in said(app)
    assert address(app, "state") is None


def test_class_that_is_clicked_is_chosen_once_and_can_be_left_again(
    look: Any, server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    with shops.open_place(server) as place:
        reconciled.let_people_in(place)
        names = reconciled.write_books(place)
        app = look(place.read, "reconciliation")
        row = column(app, "class").index("D08 Duplicate charge")
        for _ in range(2):  # the same row again, after it was left
            mark(app, "classes", cell=(row, "class"))
            assert address(app, "class") == "D08"
            assert column(app, "order") == [names["twice"]]
            app.selectbox(key="choose-class").set_value("D03").run()
            again(app)
            assert address(app, "class") == "D03"
            assert column(app, "order") == [names["undone"]]


def test_ticks_are_about_their_group_and_never_about_another(enter: Enter) -> None:
    app = enter("dead_letters")
    first, second = (0, 1) if column(app, "orders")[0] == 5 else (1, 0)
    mark(app, "groups", cell=(first, "orders"))
    ticked = column(app, "order")[:2]
    mark(app, "letters", rows=(0, 1))
    assert "Let the 2 ticked go on…" in labels(app)
    mark(app, "groups", cell=(second, "orders"))
    assert group_of(app) == column(app, "what went wrong")[second]
    assert "Let the ticked go on…" in labels(app)
    assert not set(ticked) & set(column(app, "order"))


def test_ticks_follow_their_orders_and_leave_with_them(enter: Enter, place: Place) -> None:
    app = enter("workflows", show="held")
    names = column(app, "order")
    mark(app, "workflows", rows=(0, 1))
    assert f"{names[0]}\n{names[1]}" in [code.value for code in app.code]
    app.query_params["state"] = "compensating"
    again(app)
    assert "Let the ticked go on…" in labels(app)


def test_what_was_ticked_is_not_ticked_any_more_once_it_was_acted_on(enter: Enter, place: Place) -> None:
    app = enter("workflows", show="held", state="charging")
    before = column(app, "order")
    press(mark(app, "workflows", rows=(0, 1)), "Let the 2 held ones go on…")
    assert "2 orders, of which 2 are held now" in said(app)
    app.text_input(key="reason").set_value("mended")
    press(app, "Let them go on")
    app.run()  # a browser's rerun is of the form alone, which a test has not
    assert "2 orders released." in said(app)
    press(app, "Close")
    again(app)
    assert column(app, "order") == before[2:]
    assert "Let the ticked go on…" in labels(app)


def test_undo_that_is_open_stays_open_when_its_row_moves(enter: Enter, place: Place) -> None:
    app = enter("compensations")
    first, second = column(app, "order")
    mark(app, "held", cell=(1, "order"))
    assert f"{second}, undo of charge" in said(app)
    place.rows(
        "UPDATE makegood.compensations SET next_attempt_at = clock_timestamp() - interval '1 hour' WHERE workflow_id ="
        " (SELECT id FROM makegood.workflow_executions WHERE entity_id = %s)", (second,),
    )  # fmt: skip
    for _ in range(2):
        again(app)
        assert column(app, "order") == [second, first]
        assert f"{second}, undo of charge" in said(app)
        assert f"{first}, undo of charge" not in said(app)
    (widget,) = [frame.key for frame in app.dataframe]
    assert app.session_state[widget]["selection"]["cells"] == [(0, "order")]


def test_dead_letters_of_a_group_that_was_clicked_can_be_paged(
    enter: Enter, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "PAGE", 1)
    app = enter("dead_letters")
    mark(app, "groups", cell=(1, "orders"))
    first = column(app, "order")
    press(app, "Next page")
    assert address(app, "after")
    second = column(app, "order")
    assert first != second
    again(app)
    assert column(app, "order") == second


def test_letters_that_failed_alike_on_different_ways_are_different_groups(enter: Enter, place: Place) -> None:
    """The same words: orders on their way forward, an undo, and a message of somebody else's."""
    (alike, *_) = place.rows(
        "SELECT signature, entity_id FROM makegood.dead_letters WHERE source = 'workflow' AND state = 'parked'"
    )
    place.rows("UPDATE makegood.dead_letters SET signature = %s WHERE entity_id = 'undo-1'", (alike["signature"],))
    place.rows(
        "INSERT INTO makegood.dead_letters (id, source, broker, message_id, message_key, entity_id, payload,"
        " error_type, error, signature, attempts, state, first_failed_at, last_failed_at) SELECT makegood.new_id(),"
        " 'message', 'sqs', 'm-1', 'order', 'order-of-a-message', 'x', 'E', 'e', %s, 3, 'parked', now(), now()",
        (alike["signature"],),
    )
    app = enter("dead_letters", signature=alike["signature"])
    sources, counts = column(app, "on the way"), column(app, "orders")
    orders = {}
    for row, source in enumerate(sources):
        if column(app, "what went wrong")[row] == alike["signature"]:
            mark(app, "groups", cell=(row, "orders"))
            orders[source] = column(app, "order")
            assert len(orders[source]) == counts[row]
            letting_go = [label for label in labels(app) if label.startswith("Let all")]
            assert letting_go == ([] if source == "message" else [f"Let all {counts[row]} go on…"])
    assert orders["back"] == ["undo-1"]
    assert orders["message"] == ["order-of-a-message"]
    assert alike["entity_id"] in orders["forward"]
    alike_rows = list(zip(sources, column(app, "what went wrong"), strict=True))
    mark(app, "groups", cell=(alike_rows.index(("back", alike["signature"])), "orders"))
    press(app, "Let all 1 go on…")
    assert "1 order, of which 1 are held now" in said(app)
    assert f"All that failed like this: {alike['signature']}" in said(app)


def test_requests_stand_where_the_form_said_and_more_than_are_shown_are_told(
    enter: Enter, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked for from Workflows, a group waits on Workflows, too."""
    items = json.dumps([{"workflow_type": "checkout", "entity_id": name} for name in ("parked-4", "parked-5")])
    statement = "SELECT makegood.act_release_group('demo-operator', gen_random_uuid(), %s::jsonb, 'mended', %s, 600)"
    place.rows(statement, (items, 1), role="act")
    place.rows(statement, (json.dumps(json.loads(items)[:1]), 0), role="act")
    monkeypatch.setattr(data, "APPROVALS_MAX", 1)
    for page in ("workflows", "dead_letters"):
        words = said(enter(page))
        assert words.count("somebody else must approve it") == 1
        assert "These are the oldest 1; more wait" in words
    assert "2 releases of groups wait for a second person" in said(enter("overview"))
