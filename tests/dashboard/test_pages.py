"""Every page, on an empty database, on an ordinary day and in a disaster: what it says, and that it never breaks."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from psycopg.types.json import Jsonb
from shops import HOSTILE, Place, open_place
from streamlit.testing.v1 import AppTest

from dashboard import database
from makegood.cli import app as cli
from makegood.errors import EXIT_NOT_READY
from makegood.local.postgres import EmbeddedPostgres

PAGES = ("overview", "order", "workflows", "dead_letters", "compensations", "reconciliation", "activity")


def said(app: AppTest) -> str:
    """All that is told in words."""
    kinds: list[Any] = [
        app.text,
        app.markdown,
        app.caption,
        app.subheader,
        app.success,
        app.error,
        app.warning,
        app.title,
    ]
    return "\n".join(str(element.value) for kind in kinds for element in kind)


def column(app: AppTest, name: str) -> list[str]:
    return next(list(frame.value[name]) for frame in app.dataframe if name in frame.value.columns)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("day", ["empty", "normal", "disaster", "hostile"])
def test_page_on_any_day_draws_without_an_error(page: str, day: str, look: Any, request: pytest.FixtureRequest) -> None:
    place: Place = request.getfixturevalue(day)
    app = look(place.read, page)
    assert not app.exception
    assert not app.error
    assert len(app.title) == 1


@pytest.mark.parametrize("page", PAGES)
def test_table_that_says_how_long_ago_says_when_exactly(page: str, look: Any, disaster: Place) -> None:
    frames = [frame.value for frame in look(disaster.read, page).dataframe]
    for frame in frames:
        text = frame.to_csv()
        exact = len(re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", text))
        assert exact >= len(re.findall(r"\b(?:\d+ (?:s|min|h|d) ago|in \d+ (?:s|min|h|d))\b", text)), list(
            frame.columns
        )


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("overview", "No order was completed in the last 24 hours."),
        ("overview", "recover_stuck_workflows has never run"),
        ("order", "There are no orders yet."),
        ("workflows", "No order is under way."),
        ("dead_letters", "No dead letters."),
        ("compensations", "Nothing is to be undone."),
        ("reconciliation", "No reconciliation has run yet."),
        ("activity", "No job has run yet."),
        ("activity", "Nobody has acted yet."),
    ],
)
def test_empty_page_says_what_that_means(page: str, sentence: str, look: Any, empty: Place) -> None:
    assert sentence in said(look(empty.read, page))


def test_overview_in_a_disaster_names_everything_that_needs_a_person(look: Any, disaster: Place) -> None:
    words = said(look(disaster.read))
    assert "3 undos held for a person, 59.97 EUR" in words
    assert "5 orders held for a person, 99.95 EUR" in words
    assert "payments is down for" in words
    assert "connection refused" in words
    assert "retry_compensations failed" in words
    assert "it was away" in words


def test_overview_with_an_order_in_its_address_opens_the_order(look: Any, normal: Place) -> None:
    app = look(normal.read, order="order-3")
    assert "order-3" in [text.value for text in app.text]
    assert [title.value for title in app.title] == ["Order"]


def test_order_page_tells_the_whole_story(look: Any, normal: Place) -> None:
    app = look(normal.read, "order", order="order-3")
    assert column(app, "state") == ["created", "charging", "charged", "reserving", "reserved", "shipping", "completed"]
    tries = next(frame.value for frame in app.dataframe if "outcome" in frame.value.columns)
    assert list(tries["outcome"]).count("unknown") == 2
    assert "19.99 EUR" in said(app)
    (ticket,) = (code.value for code in app.code if "States" in code.value)
    assert "completed after" in ticket
    assert "reserving" in ticket


def test_order_that_was_recovered_shows_the_decision_of_the_job(look: Any, disaster: Place) -> None:
    app = look(disaster.read, "order", order="late-1")
    assert "recover_stuck_workflows" in column(app, "job")
    assert column(app, "decided") == ["resume"]


def test_search_finds_by_beginning_and_by_payment_and_says_when_nothing_is_known(look: Any, normal: Place) -> None:
    app = look(normal.read, "order", order="order-5")
    assert "completed after" in said(app)
    app = look(normal.read, "order", order="order-")
    assert len(column(app, "order")) == 50
    (row,) = normal.rows("SELECT context FROM makegood.workflow_executions WHERE entity_id = 'order-2'")
    app = look(normal.read, "order", order=row["context"]["charge"]["payment_intent"])
    assert column(app, "order") == ["order-2"]
    app = look(normal.read, "order", order="rder-1")
    assert {"order-1", "order-10"} <= set(column(app, "order"))
    app = look(normal.read, "order", order="order_%\\\x00")
    assert "Nothing is known of" in said(app)


def test_search_finds_a_customer_although_orders_end_with_the_same(look: Any, normal: Place) -> None:
    """What is exactly this stands before parts of a number."""
    normal.rows(
        "INSERT INTO makegood.orders (id, status, amount_minor, currency, customer_ref) VALUES ('order-30', 'paid', 1,"
        " 'EUR', '5') ON CONFLICT (id) DO UPDATE SET customer_ref = excluded.customer_ref"
    )
    found = column(look(normal.read, "order", order="5"), "order")
    assert found[0] == "order-30"
    assert {"order-5", "order-15", "order-25"} <= set(found)


def test_typing_an_order_opens_it_and_keeps_it_in_the_address(look: Any, normal: Place) -> None:
    app = look(normal.read, "order")
    app.text_input[0].set_value("order-8").run()
    assert "compensated after" in said(app)
    assert app.query_params["order"] == "order-8"


def test_stuck_orders_of_the_overview_are_those_its_link_leads_to(look: Any, disaster: Place) -> None:
    """Held ones among them, as in the published query."""
    published = database.sql_folder() / "queries" / "stuck_count.sql"
    overview = look(disaster.read)
    app = look(disaster.read, "workflows", show="idle")
    (shown,) = (group for group in app.get("button_group") if group.key == "pick-show")
    (told,) = (option for option in shown.options if "No progress" in str(option))
    assert overview.metric[2].value in str(told)
    assert overview.metric[2].value == str(
        sum(row["stuck"] for row in disaster.rows(published.read_text(), role="read"))
    )


@pytest.mark.parametrize(("show", "orders"), [("held", 8), ("stuck", 50), ("moving", 0), ("idle", 50), ("all", 50)])
def test_workflows_are_filtered_by_the_address(look: Any, disaster: Place, show: str, orders: int) -> None:
    app = look(disaster.read, "workflows", show=show)
    assert len(app.dataframe[0].value if app.dataframe else []) == orders


def test_workflows_in_pages_come_once_each(look: Any, disaster: Place) -> None:
    """67 are under way: one page, and the rest on the next."""
    app = look(disaster.read, "workflows")
    first = column(app, "order")
    next(button for button in app.button if button.label == "Next page").click().run()
    second = column(app, "order")
    assert (len(first), len(second), len({*first, *second})) == (50, 17, 67)
    assert "Next page" not in [button.label for button in app.button]


@pytest.mark.parametrize("place", ["x", "1_x", "9" * 40, "-1", "1_00000000-0000-0000-0000-000000000000", "\x00"])
def test_place_that_means_nothing_is_the_beginning(look: Any, disaster: Place, place: str) -> None:
    for page in PAGES:
        app = look(disaster.read, page, after=place, before=place, actions=place, held=place, due=place, period=place,
                   type=place, show=place, state=place, signature=place, job=place)  # fmt: skip
        assert not app.exception
        assert not app.error


def test_dead_letters_are_grouped_and_say_how_to_release(look: Any, disaster: Place) -> None:
    app = look(disaster.read, "dead_letters")
    assert sorted(column(app, "orders")) == [3, 5]
    (command,) = (code.value for code in app.code if code.value.startswith("makegood dlq release --signature"))
    assert "--reason" in command
    app = look(disaster.read, "dead_letters", order="parked-2")
    assert "makegood dlq release --reason 'why it will work now' -- parked-2" in [code.value for code in app.code]


def test_compensations_show_what_is_held_and_how_to_settle_it(look: Any, disaster: Place) -> None:
    app = look(disaster.read, "compensations")
    assert sorted(column(app, "order")) == ["undo-1", "undo-2", "undo-3"]
    assert any(code.value.startswith("makegood compensate settle --step charge --proof") for code in app.code)
    assert "3 undos, 59.97 EUR to give back" in said(app)


def test_activity_of_a_run_shows_its_counts_and_every_decision(look: Any, disaster: Place) -> None:
    (row,) = disaster.rows("SELECT run_id FROM makegood.job_decisions WHERE entity_id = 'late-1'")
    app = look(disaster.read, "activity", run=str(row["run_id"]))
    assert ("completed", "1") in [(metric.label, metric.value) for metric in app.metric]
    assert column(app, "order") == ["late-1"]
    assert column(app, "it is now") == ["completed"]
    assert "No run" in said(look(disaster.read, "activity", run="run-1"))


def test_activity_shows_what_people_did(look: Any, disaster: Place) -> None:
    assert column(look(disaster.read, "activity"), "who") == ["support"]


def test_commands_on_the_pages_are_commands(look: Any, disaster: Place) -> None:
    """Each is understood; as somebody who may only read, each is refused."""
    pages = look(disaster.read, "dead_letters", order="parked-2"), look(disaster.read, "compensations")
    shown = [code.value for page in pages for code in page.code if code.value.startswith("makegood ")]
    assert len(shown) == 4
    for command in shown:
        assert cli.run(shlex.split(command)[1:]) == EXIT_NOT_READY, command


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_order_is_text_and_its_command_one_word(look: Any, hostile: Place, name: str) -> None:
    """Nothing of it goes through an element that reads Markdown."""
    app = look(hostile.read, "order", order=name)
    assert not app.exception
    parsed: list[Any] = [app.markdown, app.caption, app.subheader, app.title, app.success, app.warning, app.metric]
    shown = "\n".join(f"{getattr(e, 'label', '')} {e.value}" for kind in parsed for e in kind)
    assert name not in shown
    assert next(text.value for text in app.text) == "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in name
    )


def reconcile(place: Place, kind: str = "full") -> str:
    """One run of the matcher over what is there; returns its id."""
    terms = {
        "livemode": False, "tolerance_minor": 0, "charge_grace_seconds": 0, "refund_grace_seconds": 0,
        "payout_grace_seconds": 0, "stale_after_seconds": 86400, "lapse_warning_seconds": 0, "fee_parts_min": 0,
        "fee_parts_max": 600, "fee_fixed_minor": 100,
    }  # fmt: skip
    begun = place.rows("SELECT (makegood.begin_reconciliation(makegood.new_id(), %s, %s)).id", (kind, Jsonb(terms)))
    place.rows("SELECT makegood.match_charges(%s)", (begun[0]["id"],))
    return str(begun[0]["id"])


def test_reconciliation_lists_its_runs_and_opens_the_report_of_one(look: Any, server: EmbeddedPostgres) -> None:
    with open_place(server) as place:
        run_id = reconcile(place)
        runs = look(place.read, "reconciliation")
        report = look(place.read, "reconciliation", run=run_id)

    assert column(runs, "totals") == ["add up"]
    assert "nothing was ever fetched" in column(runs, "in doubt because")[0]
    assert not report.exception
    (frame,) = report.get("iframe")
    assert "This run cannot be trusted." in frame.proto.srcdoc
    assert [button.proto.label for button in report.get("download_button")] == ["Page to mail", "Spreadsheet"]


@pytest.mark.parametrize("asked", ["no-run", "019a0000-0000-7000-8000-000000000001", "<script>alert(1)</script>"])
def test_reconciliation_that_is_not_known_says_so(asked: str, look: Any, empty: Place) -> None:
    app = look(empty.read, "reconciliation", run=asked)

    assert not app.exception
    assert f"No reconciliation {asked} is known." in said(app)
