"""The pages in a real browser: the journeys people make, hostile names, and a database that goes and comes back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from browsers import CHROMIUM, FLAGS, WAIT_MS, serve
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright
from shops import HOSTILE, NAMES, Place

from makegood.local.postgres import EmbeddedPostgres
from makegood.migrations import sql_folder
from makegood.story import harmless

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="there is no /usr/bin/chromium; on Debian: apt install chromium"),
]
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def address(disaster: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve(disaster.read, tmp_path_factory.mktemp("pages")) as address:
        yield address


@pytest.fixture(scope="module")
def hostile_address(hostile: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serve(hostile.read, tmp_path_factory.mktemp("hostile")) as address:
        yield address


@pytest.fixture(scope="module")
def browser(address: str, hostile_address: str) -> Iterator[Browser]:
    """After the databases: while it is there, its loop is the thread's own, and nothing else may run one."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Open]:
    """Opens a page; at the end no dialog was shown and nobody outside was asked for anything."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, timezone_id="Europe/Berlin")
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    dialogs: list[str] = []
    requests: list[str] = []
    origins: set[str] = set()
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
    context.on("request", lambda request: requests.append(request.url))

    def go(address: str, path: str = "/") -> Page:
        origins.add(address)
        page.goto(address + path)
        expect(page.get_by_role("heading", level=1)).to_be_visible(timeout=WAIT_MS)
        return page

    yield go
    page.wait_for_timeout(300)
    own = (*origins, *(origin.replace("http", "ws", 1) for origin in origins), "data:", "blob:")
    assert dialogs == []
    assert [url for url in requests if not url.startswith(own)] == []
    context.close()


def cards(page: Page) -> Locator:
    return page.get_by_test_id("stMetricValue")


def cells(page: Page, column: int = 1) -> list[str]:
    """What a painted table says to a screen reader."""
    page.locator("canvas table tbody tr").first.wait_for(state="attached", timeout=WAIT_MS)
    found = page.locator(f"canvas table tbody tr td:nth-child({column})").all_text_contents()
    return [text.strip() for text in found]


def published(place: Place, name: str) -> list[dict[str, Any]]:
    return place.rows((sql_folder() / "queries" / f"{name}.sql").read_text(), role="read")


UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def read_duration(text: str) -> tuple[float, float]:
    """Seconds of a text such as 2 h 10 min, and the size of its last digit."""
    words = text.split()
    pairs = list(zip(words[::2], words[1::2], strict=True))
    last = UNITS[words[-1]] * (0.1 if "." in words[-2] else 1.0)
    return sum(float(number) * UNITS[unit] for number, unit in pairs), last


def test_overview_shows_the_numbers_of_the_published_queries(visit: Open, address: str, disaster: Place) -> None:
    page = visit(address)
    expect(cards(page)).to_have_count(4, timeout=WAIT_MS)
    shown = [text.strip() for text in cards(page).all_text_contents()]
    stuck = sum(row["stuck"] for row in published(disaster, "stuck_count"))
    rate = published(disaster, "step_failure_rate")[0]["failure_rate"]
    (undone,) = published(disaster, "compensation_rate")
    (took,) = [row for row in published(disaster, "duration") if row["current_state"] == "completed"]
    seconds, digit = read_duration(shown[0])
    assert abs(seconds - took["p50"].total_seconds()) <= 0.02 * took["p50"].total_seconds() + digit
    assert shown[1:] == [
        f"{float(rate) * 100:.1f} %",
        str(stuck),
        f"{undone['compensated'] / undone['ended'] * 100:.1f} %",
    ]


def test_person_finds_an_order_by_number_and_reads_its_story(visit: Open, address: str) -> None:
    page = visit(address)
    page.get_by_role("link", name="Order", exact=True).first.click()
    field = page.get_by_placeholder(re.compile("An order number"))
    field.fill("late-1")
    field.press("Enter")
    expect(page.get_by_text("completed after")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/order\?order=late-1$"))
    expect(page.get_by_role("heading", name="What jobs decided")).to_be_visible()
    expect(page.locator(".js-plotly-plot")).to_be_visible()
    page.get_by_text("As text, for a ticket").click()
    expect(page.get_by_test_id("stCode").last).to_contain_text("recover_stuck_workflows")


def test_links_of_alerts_and_of_airflow_lead_to_their_place(visit: Open, address: str, disaster: Place) -> None:
    page = visit(address, "/?order=parked-2")
    expect(page.locator(".st-key-name")).to_have_text("parked-2")
    (row,) = disaster.rows("SELECT run_id FROM makegood.job_decisions WHERE entity_id = 'late-1'")
    page = visit(address, f"/activity?run={row['run_id']}")
    expect(page.get_by_role("heading", name="What it decided")).to_be_visible()
    assert "late-1" in cells(page)


def test_need_on_the_overview_leads_to_its_place(visit: Open, address: str) -> None:
    page = visit(address)
    page.get_by_test_id("stPageLink-NavLink").filter(has_text="Compensations").click()
    expect(page).to_have_url(re.compile("/compensations$"))
    page.get_by_text("From a command line").first.click()
    expect(page.get_by_text("makegood compensate settle").first).to_be_visible()


def test_click_on_a_row_opens_its_order(visit: Open, address: str) -> None:
    page = visit(address, "/workflows?show=held")
    first = cells(page)[0]
    page.get_by_test_id("stDataFrame").click(position={"x": 60, "y": 52})
    expect(page).to_have_url(re.compile(rf"/order\?order={re.escape(first)}$"), timeout=WAIT_MS)
    expect(page.locator(".st-key-name")).to_have_text(first)


def test_choice_lives_in_the_address_and_a_link_brings_it_back(visit: Open, address: str) -> None:
    page = visit(address, "/?period=7d")
    chosen = page.get_by_role("radio", name="7 d")
    expect(chosen).to_have_attribute("aria-checked", "true")
    page.get_by_role("radio", name="1 h").click()
    expect(page).to_have_url(re.compile(r"\?period=1h$"))


def test_overview_at_phone_width_does_not_scroll_sideways(visit: Open, address: str) -> None:
    page = visit(address)
    page.set_viewport_size({"width": 390, "height": 844})
    for path in ("/", "/order?order=late-1"):
        page = visit(address, path)
        page.wait_for_timeout(500)
        width = page.evaluate("document.querySelector('[data-testid=stMain]').scrollWidth")
        assert width <= 390


ALIVE = "[data-testid=stMain] :is(script, img, iframe, math, style, details > b, .katex, a[href^='javascript'])"
ALIVE += ", a[href*='outside.example']"
# How far something sticks out of its page.
WIDE = "(main => main.scrollWidth - main.clientWidth)(document.querySelector('[data-testid=stMain]'))"


def check_shown(page: Page, about: str) -> None:
    """As text and nothing else, within the page."""
    assert page.get_by_test_id("stException").count() == 0, about
    assert page.locator(ALIVE).count() == 0, about
    assert page.evaluate(WIDE) <= 0, about


def test_hostile_names_are_shown_as_they_are_written(visit: Open, hostile_address: str) -> None:
    """By the search field, one after the other."""
    page = visit(hostile_address, "/order")
    field = page.get_by_placeholder(re.compile("An order number"))
    for name in NAMES.values():
        field.fill(name)
        field.press("Enter")
        expect(page.locator(".st-key-name")).to_have_text(harmless(name.strip()))
        expect(page.get_by_role("heading", name="Dead letter")).to_be_visible()
        check_shown(page, name)


def test_hostile_name_in_an_address_is_shown_as_it_is_written(visit: Open, hostile_address: str) -> None:
    name = HOSTILE[13]
    page = visit(hostile_address, f"/order?order={quote(name, safe='')}")
    expect(page.locator(".st-key-name")).to_have_text(harmless(name))
    page.get_by_text("As text, for a ticket").click()
    expect(page.get_by_test_id("stCode").last).to_contain_text("States")
    assert page.locator(ALIVE).count() == 0


def test_hostile_names_break_no_page(visit: Open, hostile_address: str) -> None:
    page = visit(hostile_address)
    for title in ("Workflows", "Dead letters", "Compensations", "Activity", "Order", "Overview"):
        page.get_by_test_id("stTopNavLink").filter(has_text=title).click()
        expect(page.get_by_role("heading", level=1, name=title, exact=True)).to_be_visible()
        page.locator("[data-testid=stMain] :is([data-testid=stDataFrame], [data-testid=stMetric])").first.wait_for(
            state="attached"
        )
        check_shown(page, title)


@pytest.mark.parametrize("width", [1400, 390])
def test_what_a_customer_typed_is_shown_as_text_within_its_page(visit: Open, hostile_address: str, width: int) -> None:
    """The context, opened; and an undo with what the provider said."""
    for name in (NAMES[HOSTILE[0]], "w" * 150, NAMES["漢" * 150]):
        page = visit(hostile_address, f"/order?order={quote(name, safe='')}")
        page.set_viewport_size({"width": width, "height": 1000})
        expect(page.locator(".st-key-name")).to_have_text(harmless(name))
        for title in ("Context", "As text, for a ticket"):  # each is waited for: the page may still be drawn
            page.locator("[data-testid=stExpander] summary").filter(has_text=title).click()
        expect(page.get_by_test_id("stCode").filter(has_text="a heading").first).to_be_visible()
        check_shown(page, name)


def test_page_survives_a_stop_of_the_database_and_comes_back(
    visit: Open, address: str, server: EmbeddedPostgres
) -> None:
    page = visit(address)
    expect(cards(page)).to_have_count(4, timeout=WAIT_MS)
    server.stop()
    try:
        expect(page.get_by_text("The database does not answer.")).to_be_visible(timeout=40_000)
        assert page.get_by_test_id("stException").count() == 0
    finally:
        server.start()
    expect(cards(page)).to_have_count(4, timeout=40_000)
    expect(page.get_by_text("The database does not answer.")).to_have_count(0)


def test_page_under_a_strangers_name_gets_no_data(address: str) -> None:
    """A name of somebody else's that leads to loopback: the socket that carries the data is refused."""
    import http.client

    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13",
               "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}  # fmt: skip
    answers = {}
    for host in ("rebound.example", "127.0.0.1"):
        connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=10)
        connection.request("GET", "/_stcore/stream", headers={**upgrade, "Host": host, "Origin": f"http://{host}"})
        answers[host] = connection.getresponse().status
        connection.close()
    assert answers == {"rebound.example": 403, "127.0.0.1": 101}


def test_page_may_be_shown_inside_airflows(visit: Open, address: str, tmp_path: Path) -> None:
    """Airflow's page is on another port of the same host."""
    import http.server
    import threading

    frame = f"<h1>Airflow</h1><iframe src='{address}/' width=1300 height=900></iframe>".encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(frame)

        def log_message(self, *_: object) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as outer:
        threading.Thread(target=outer.serve_forever, daemon=True).start()
        page = visit(address)
        page = visit(f"http://127.0.0.1:{outer.server_port}")
        inside = page.frame_locator("iframe")
        expect(inside.get_by_test_id("stMetricValue")).to_have_count(4, timeout=WAIT_MS)
        outer.shutdown()


def test_ticked_orders_stay_while_the_page_refreshes_and_can_be_copied(visit: Open, address: str) -> None:
    page = visit(address, "/workflows?show=held")
    names = cells(page, 2)[:2] if cells(page, 1)[0] == "" else cells(page)[:2]
    table = page.get_by_test_id("stDataFrame")
    for row in (0, 1):
        table.click(position={"x": 18, "y": 52 + 35 * row})
        expect(page.get_by_text(f"{row + 1} order{'s' if row else ''} ticked")).to_be_visible()
    page.wait_for_timeout(6_000)  # longer than a refresh
    expect(page.get_by_text("2 orders ticked")).to_be_visible()
    expect(page.get_by_test_id("stCode")).to_have_text(re.compile(".*".join(names), re.S))
