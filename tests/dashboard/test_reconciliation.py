"""The Reconciliation page: totals that add up, findings by class, both sides of one, and two people for a refund."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import reconciled
import shops
from browsers import CHROMIUM, FLAGS, WAIT_MS, serve
from playwright.sync_api import Page, expect, sync_playwright
from shops import HOSTILE, Place
from streamlit.testing.v1 import AppTest
from test_pages import column, said

from dashboard import acting, data, identity
from dashboard.identity import COOKIE
from makegood.local.postgres import EmbeddedPostgres


@pytest.fixture(scope="module")
def place(server: EmbeddedPostgres) -> Iterator[Place]:
    with shops.open_place(server) as place:
        reconciled.let_people_in(place)
        yield place


@pytest.fixture(scope="module")
def names(place: Place) -> dict[str, str]:
    return reconciled.write_books(place)


def find_id(place: Place, order: str) -> str:
    (row,) = place.rows("SELECT id FROM makegood.reconciliation_findings WHERE order_id = %s", (order,))
    return str(row["id"])


def everything(app: AppTest) -> str:
    return "\n".join([said(app), *(frame.value.to_csv() for frame in app.dataframe)])


def test_page_before_anything_was_fetched_says_what_to_do(look: Any, empty: Place) -> None:
    app = look(empty.read, "reconciliation")
    assert "The provider's books have not been fetched yet." in said(app)
    assert app.code[0].value == "makegood reconcile sync"


def test_totals_are_those_of_the_run_and_add_up_in_words(look: Any, place: Place, names: dict[str, str]) -> None:
    app = look(place.read, "reconciliation")
    assert not app.exception
    assert (
        "The provider has 557.00 EUR: 10.00 EUR matched, 7.00 EUR too young to judge, 540.00 EUR in findings."
        in said(app)
    )
    assert "It all adds up." in said(app)
    assert column(app, "totals") == ["add up"]


def test_totals_that_do_not_add_up_are_told_loudly(look: Any, place: Place, names: dict[str, str]) -> None:
    change = (
        "UPDATE makegood.reconciliation_totals SET amount_minor = amount_minor + %s"
        " WHERE run_id = %s AND bucket = 'matched'"
    )
    place.rows(change, (1, names["run"]))
    try:
        app = look(place.read, "reconciliation")
    finally:
        place.rows(change, (-1, names["run"]))
    assert any("EUR does not add up" in one.value for one in app.error)
    assert column(app, "totals") == ["do NOT add up"]


def test_stale_source_is_told_loudly_and_what_it_said_is_text(look: Any, place: Place, names: dict[str, str]) -> None:
    place.rows("UPDATE makegood.reconciliation_runs SET stale = %s", (HOSTILE[0],))
    try:
        app = look(place.read, "reconciliation")
    finally:
        place.rows("UPDATE makegood.reconciliation_runs SET stale = NULL")
    assert any("books are not complete" in one.value for one in app.error)
    assert HOSTILE[0] in [text.value for text in app.text]
    assert all(HOSTILE[0] not in one.value for one in app.error)


@pytest.mark.parametrize(
    ("asked", "orders"),
    [
        ({"class": "D03"}, ["undone"]),
        ({"class": "D08", "state": "open"}, ["twice"]),
        ({"class": "D08", "state": "ignored"}, []),
        ({"remedy": "record"}, ["yen"]),
        ({"order": "unpaid"}, ["unpaid"]),
        ({"class": "nonsense", "state": "x", "after": "y_z", "order": "unpaid"}, ["unpaid"]),
    ],
)
def test_filters_live_in_the_address(
    asked: dict[str, str], orders: list[str], look: Any, place: Place, names: dict[str, str]
) -> None:
    asked = {name: names.get(value, value) for name, value in asked.items()}
    app = look(place.read, "reconciliation", **asked)
    assert not app.exception
    found = [frame.value for frame in app.dataframe if "order" in frame.value.columns]
    assert [list(frame["order"]) for frame in found] == ([[names[order] for order in orders]] if orders else [])


def test_choosing_a_class_goes_into_the_address(look: Any, place: Place, names: dict[str, str]) -> None:
    app = look(place.read, "reconciliation")
    app.selectbox(key="choose-class").set_value("D08").run()
    assert app.query_params["class"] in ("D08", ["D08"])
    assert column(app, "order") == [names["twice"]]


def test_finding_shows_both_sides_and_what_would_be_done(look: Any, place: Place, names: dict[str, str]) -> None:
    app = look(place.read, "reconciliation", finding=find_id(place, names["twice"]))
    words = everything(app)
    assert "D08 Duplicate charge" in words
    assert "charged more than once" in words
    assert column(app, "amount") == ["20.00 EUR", "20.00 EUR"]
    assert "20.00 EUR" in column(app, "say")
    assert f"A run would refund: 20.00 EUR of ch-{names['twice']}-" in words
    assert "only told about in test (dry run)" in words
    app = look(place.read, "reconciliation", finding=names["refund"])
    assert "after a second person has approved it (above 100.00 EUR)" in everything(app)
    assert "awaiting_approval" in column(app, "state") + [
        state for frame in app.dataframe for state in frame.value.get("state", [])
    ]


def test_finding_that_nobody_knows_is_told_as_text(look: Any, place: Place, names: dict[str, str]) -> None:
    for asked in (str(uuid.uuid4()), HOSTILE[0]):
        app = look(place.read, "reconciliation", finding=asked)
        assert f"No finding {asked} is known." in [text.value for text in app.text]


def test_order_page_shows_its_findings(look: Any, place: Place, names: dict[str, str]) -> None:
    app = look(place.read, "order", order=names["unpaid"])
    assert column(app, "class") == ["D05 Missing charge"]


def test_overview_names_findings_above_the_limit(look: Any, place: Place, names: dict[str, str]) -> None:
    words = said(look(place.read))
    assert "1 finding D05 missing charge, 1,500.00 EUR at risk" in words
    assert "1 refund waits for a second person, 500.00 EUR" in words
    assert "D03" not in words


def test_hostile_names_stay_text(look: Any, place: Place, names: dict[str, str]) -> None:
    app = look(place.read, "reconciliation", **{"class": "D05"})
    shown = column(app, "order")
    assert len(shown) == len(HOSTILE) + 1
    for name in HOSTILE[:6]:
        assert names[name] in shown
        one = look(place.read, "reconciliation", finding=find_id(place, names[name]))
        assert not one.exception
        assert names[name] in [text.value for text in one.text]
        assert all(names[name] not in markdown.value for markdown in one.markdown)


def press(app: AppTest, label: str) -> AppTest:
    return next(button for button in app.button if button.label == label).click().run()


def test_refund_that_changed_since_it_was_shown_is_read_again_before_anything_is_sent(
    look: Any, place: Place, names: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run drops what was asked for and asks for ten times as much while the form is open."""
    monkeypatch.setenv("MAKEGOOD_DASHBOARD_LOGIN", "demo")
    monkeypatch.setenv("MAKEGOOD_DATABASE_ACT_URL", place.act)
    monkeypatch.setattr(identity, "_demo_login", lambda: "demo-approver")
    acting.actor.clear()  # type: ignore[attr-defined]
    sent: list[str] = []
    answer = lambda _, login, token, finding, digest, reason: sent.append(digest) or {"verdict": "approved"}  # noqa: E731
    monkeypatch.setattr(acting.Actor, "approve_refund", answer)
    read, other = data.get_fresh, {"digest": "1" * 64, "amount_minor": 500_000}
    app = press(look(place.read, "reconciliation", finding=names["refund"]), "Approve the refund…")
    assert "the next run refunds 500.00 EUR" in everything(app)
    app.text_input(key="reason").set_value("seen")
    monkeypatch.setattr(
        data, "get_fresh", lambda *about: [{**row, **(other if "digest" in row else {})} for row in read(*about)]
    )
    press(app, "Approve")
    assert sent == []
    assert "It is not what you were shown before" in everything(app)
    assert "the next run refunds 5,000.00 EUR" in everything(app)
    press(app, "I have read it")
    app.text_input(key="reason").set_value("seen, too")
    press(app, "Approve")
    assert sent == [other["digest"]]


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM.exists(), reason="there is no /usr/bin/chromium; on Debian: apt install chromium")
def test_refund_above_the_cap_is_approved_by_a_second_person_and_not_by_the_first(
    place: Place, names: dict[str, str], tmp_path: Any
) -> None:
    shops.grant(place, reconciled.ASKER, "approver")  # both rights, and still one person
    expect.set_options(timeout=WAIT_MS)
    given = {"DASHBOARD_LOGIN": "demo", "DATABASE_ACT_URL": place.act}
    with serve(place.read, tmp_path, **given) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)

        def come(login: str) -> Page:
            context = browser.new_context(viewport={"width": 1400, "height": 1200})
            context.add_cookies([{"name": COOKIE, "value": login, "url": address}])
            page = context.new_page()
            page.set_default_timeout(WAIT_MS)
            page.goto(f"{address}/reconciliation?finding={names['refund']}")
            return page

        first = come(reconciled.ASKER)
        expect(first.get_by_text("You asked for the refund: somebody else must approve it.")).to_be_visible()
        assert first.get_by_role("button", name="Approve the refund").count() == 0
        (waiting,) = place.rows("SELECT digest FROM makegood.reconciliation_remedies WHERE state = 'awaiting_approval'")
        statement = "SELECT makegood.act_approve_remedy(%s, gen_random_uuid(), %s, %s, 'me') AS said"
        (row,) = place.rows(statement, (reconciled.ASKER, names["refund"], waiting["digest"]), role="act")
        assert row["said"]["verdict"] == "self"
        (row,) = place.rows(statement, ("demo-approver", names["refund"], "0" * 64), role="act")
        assert row["said"]["verdict"] == "changed"

        second = come("demo-approver")
        second.get_by_role("button", name="Approve the refund").click()
        dialog = second.get_by_role("dialog")
        expect(dialog).to_contain_text("the next run refunds 500.00 EUR, once")
        dialog.get_by_label("Why").fill("seen at the provider")
        dialog.get_by_role("button", name="Approve", exact=True).dblclick()
        expect(dialog).to_contain_text("Approved.")
        dialog.get_by_role("button", name="Close", exact=True).last.click()
        expect(second.get_by_text("demo-approver has approved it: the next run begins the refund.")).to_be_visible()
        browser.close()
    expect.set_options(timeout=5_000)
    rows = place.rows("SELECT actor FROM makegood.operator_actions WHERE action = 'approve'")
    assert [row["actor"] for row in rows] == ["demo-approver"]
    (row,) = place.rows("SELECT state FROM makegood.reconciliation_remedies")
    assert row["state"] == "approved"


def test_operator_acknowledges_and_ignores_once_per_form_and_a_viewer_may_not(
    place: Place, names: dict[str, str]
) -> None:
    finding, token = find_id(place, names["twice"]), uuid.uuid4()
    statement = "SELECT makegood.act_mark_finding(%s, %s, %s, %s, 'seen') AS said"
    for repeated in (False, True):
        (row,) = place.rows(statement, ("demo-operator", token, finding, None), role="act")
        assert (row["said"]["verdict"], row["said"]["repeated"]) == ("acknowledged", repeated)
    (row,) = place.rows(statement, ("demo-operator", uuid.uuid4(), finding, 7), role="act")
    assert row["said"]["verdict"] == "ignored"
    with pytest.raises(Exception, match="has not the role operator"):
        place.rows(statement, ("demo-viewer", uuid.uuid4(), finding, None), role="act")
    (row,) = place.rows("SELECT makegood.timeline(%s) AS story", (names["twice"],), role="read")
    assert [action["action"] for action in row["story"]["actions"]] == ["acknowledge finding", "ignore finding"]
    history = place.rows(
        "SELECT to_state FROM makegood.reconciliation_history WHERE finding_id = %s ORDER BY id", (finding,)
    )
    assert [row["to_state"] for row in history] == ["acknowledged", "ignored"]
