"""What people do, in a real browser: release a group, settle with a second person, be revoked, come without a login."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import shops
from browsers import CHROMIUM, FLAGS, WAIT_MS, serve
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright
from shops import Place

from dashboard.identity import COOKIE, SECRET_HEADER
from makegood.local.postgres import EmbeddedPostgres
from makegood.settings import Settings
from sandbox.client import ShopControl, ShopProcess

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="there is no /usr/bin/chromium; on Debian: apt install chromium"),
]
Come = Callable[..., Page]
HOSTILE = "<img src=x onerror=alert(1)> [x](javascript:alert(2)) **b** $\\alpha$ :smile:"
LIMIT_MINOR = "1000"  # less than an order's 19.99 EUR


@pytest.fixture(scope="module")
def settings(shop_process: ShopProcess, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return shops.make_settings(shop_process.url, tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def place(server: EmbeddedPostgres, shop_process: ShopProcess, settings: Settings) -> Iterator[Place]:
    """A database that is acted on, so it is nobody else's."""
    with shops.open_place(server) as place, ShopControl(shop_process.url) as shop:
        shop.reset()
        shops.parked(place, settings, shop)
        yield place


@pytest.fixture(scope="module")
def address(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """With the two logins it may have, and no other."""
    given = {"DASHBOARD_LOGIN": "demo", "DATABASE_ACT_URL": place.act, "APPROVAL_ABOVE_MINOR": LIMIT_MINOR}
    with serve(place.read, tmp_path_factory.mktemp("acting"), **given) as address:
        yield address


@pytest.fixture(scope="module")
def browser(address: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(autouse=True)
def patient(place: Place) -> Iterator[None]:
    """Others use the machine too. And the demo's operator is one again, whatever a test did."""
    expect.set_options(timeout=WAIT_MS)
    shops.grant(place, "demo-operator", "operator")
    yield
    expect.set_options(timeout=5_000)


@pytest.fixture
def come(browser: Browser, address: str) -> Iterator[Come]:
    """A browser of one's own per person; at the end no dialog of the browser was shown."""
    dialogs: list[str] = []

    def as_person(login: str | None, path: str = "/") -> Page:
        context = browser.new_context(viewport={"width": 1400, "height": 1000})
        if login:
            context.add_cookies([{"name": COOKIE, "value": login, "url": address}])
        page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        page.goto(address + path)
        expect(page.get_by_role("heading", level=1)).to_be_visible(timeout=WAIT_MS)
        return page

    yield as_person
    for context in browser.contexts:
        context.close()
    assert dialogs == []


def fill(page: Page, button: str, **words: str) -> Locator:
    """Fills the open form in, sends it, and returns the dialog with its verdict."""
    dialog = page.get_by_role("dialog")
    for label, text in words.items():
        dialog.get_by_label(label.replace("_", " ")).fill(text)
    dialog.get_by_role("button", name=button, exact=True).click()
    return dialog


def recover(place: Place, settings: Settings) -> None:
    """As the scheduled job would; in a thread, for the browser's loop has this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(shops.recover, place, settings).result(120)


PATHS = ("/", "/order?order=parked-1", "/workflows?show=held", "/dead_letters", "/compensations", "/activity")


@pytest.mark.parametrize("path", PATHS)
def test_page_opened_without_a_login_shows_no_data(path: str, come: Come) -> None:
    page = come(None, path)
    expect(page.get_by_text("Who are you?")).to_be_visible()
    expect(page.get_by_text("This is a demo.")).to_be_visible()
    page.wait_for_timeout(500)
    assert page.get_by_test_id("stMetricValue").count() == 0
    assert page.locator("canvas").count() == 0
    assert "parked-" not in page.content()


def test_click_logs_in_a_link_opened_anew_finds_one_logged_in_and_log_out_ends_it(come: Come, address: str) -> None:
    page = come(None, "/order?order=parked-1")
    page.get_by_role("button", name="Viewer").click()
    expect(page.locator(".st-key-name")).to_have_text("parked-1")
    expect(page.get_by_test_id("stSidebar")).to_contain_text("demo-viewer")
    page.wait_for_function(f"document.cookie.includes('{COOKIE}=demo-viewer')")
    page.goto(f"{address}/dead_letters")
    expect(page.get_by_role("heading", name="Dead letters")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_text("Who are you?")).to_be_visible()
    expect(page.get_by_role("heading", name="Dead letters")).to_have_count(0)


def test_settlement_above_the_limit_takes_a_second_person(come: Come, place: Place) -> None:
    operator = come("demo-operator", "/compensations")
    operator.get_by_role("button", name="Settle by hand").first.click()
    dialog = operator.get_by_role("dialog")
    expect(dialog).to_contain_text("undo of charge, 19.99 EUR")
    expect(dialog).to_contain_text("More than 10.00 EUR takes a second person")
    fill(operator, "It was done elsewhere", What_shows_it="re_123", Why="refunded by hand")
    expect(dialog).to_contain_text("Waits for a second person")
    dialog.get_by_role("button", name="Close", exact=True).last.click()
    expect(operator.get_by_text("You asked for it: somebody else must approve it.")).to_be_visible()
    assert operator.get_by_role("button", name="Approve").count() == 0
    assert held_undos(place) == 2

    shops.grant(place, "demo-operator", "approver")  # both rights, and still one person
    (asked,) = place.rows("SELECT id, digest FROM makegood.approvals")
    statement = "SELECT makegood.act_give_approval('demo-operator', gen_random_uuid(), %s, %s, 'me') AS said"
    (row,) = place.rows(statement, (asked["id"], asked["digest"]), role="act")
    assert row["said"]["verdict"] == "self"

    approver = come("demo-approver", "/compensations")
    approver.get_by_role("button", name="Approve").click()
    expect(approver.get_by_role("dialog")).to_contain_text("re_123")
    fill(approver, "Approve", Why="seen at the provider")
    expect(approver.get_by_role("dialog")).to_contain_text("Approved.")

    operator.get_by_role("button", name="Carry out").click()
    fill(operator, "Carry it out", Why="it is approved")
    expect(operator.get_by_role("dialog")).to_contain_text("is settled and never sent again")
    assert held_undos(place) == 1
    (row,) = place.rows("SELECT actor, reason, details FROM makegood.operator_actions WHERE action = 'settle'")
    assert (row["actor"], row["reason"], row["details"]["proof"]) == ("demo-operator", "it is approved", "re_123")


def held_undos(place: Place) -> int:
    return len(place.rows("SELECT 1 FROM makegood.compensations WHERE state = 'held'"))


def test_person_who_is_revoked_in_mid_session_is_refused_at_the_next_action(come: Come, place: Place) -> None:
    page = come("demo-operator", "/order?order=parked-5")
    page.get_by_role("button", name="Let it go on…").click()
    expect(page.get_by_role("dialog")).to_contain_text("parked-5, checkout, 19.99 EUR")
    page.get_by_role("dialog").get_by_label("Why").fill("it is mended")
    page.wait_for_timeout(6_000)  # the page behind it has refreshed itself: the form is still there
    place.rows("SELECT makegood.revoke_person('demo-operator', '{operator}', 'root', 'left')", role="jobs")
    dialog = fill(page, "Let it go on")
    expect(dialog).to_contain_text("demo-operator has not the role operator")
    (row,) = place.rows("SELECT held_at FROM makegood.workflow_executions WHERE entity_id = 'parked-5'")
    assert row["held_at"] is not None
    page = come("demo-operator", "/order?order=parked-5")
    expect(page.get_by_role("button", name="Let it go on…")).to_be_disabled()


def test_group_of_parked_orders_is_released_and_recovers(come: Come, place: Place, settings: Settings) -> None:
    page = come("demo-operator", "/dead_letters")
    table = page.get_by_test_id("stDataFrame").nth(1)
    expect(table).to_be_visible()
    for row in (0, 1, 2):  # the boxes before the first three rows
        table.click(position={"x": 16, "y": 35 * (row + 1) + 17})
        expect(page.get_by_role("button", name=f"Let the {row + 1} ticked go on…")).to_be_visible(timeout=WAIT_MS)
    page.get_by_role("button", name="Let the 3 ticked go on…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("3 orders, of which 3 are held now, 59.97 EUR")
    fill(page, "Let them go on", Why=HOSTILE)
    expect(dialog).to_contain_text("3 orders released.")
    assert page.locator("[data-testid=stMain] :is(img, script, .katex)").count() == 0
    recover(place, settings)
    ends = place.rows(
        "SELECT e.current_state FROM makegood.workflow_executions e JOIN makegood.operator_actions o"
        " ON o.subject = e.entity_id WHERE o.action = 'release' AND o.reason = %s AND o.actor = 'demo-operator'",
        (HOSTILE,),
    )
    assert [row["current_state"] for row in ends] == ["completed"] * 3
    dialog.get_by_role("button", name="Close").last.click()
    expect(page.get_by_role("heading", name=re.compile("^2 orders that failed"))).to_be_visible(timeout=WAIT_MS)
    page.get_by_test_id("stTopNavLink").filter(has_text="Activity").click()
    page.get_by_role("tab", name="People").click()
    expect(page.locator("canvas table tbody tr td", has_text="onerror").first).to_be_attached()
    assert page.locator("[data-testid=stMain] :is(img, script, .katex)").count() == 0


def test_export_of_a_table_is_what_it_shows_and_no_formula(come: Come, tmp_path: Path) -> None:
    page = come("demo-viewer", "/dead_letters?order=parked-1")
    expect(page.locator(".st-key-name")).to_have_text("parked-1", timeout=WAIT_MS)
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").nth(1).click()
    text = Path(download.value.path()).read_text(encoding="utf-8-sig")
    assert download.value.suggested_filename == "makegood-dead-letters.csv"
    assert "parked-" in text
    assert "brigitte@example.com" not in text


def test_proxy_is_believed_with_its_secret_and_nobody_beside_it(browser: Browser, place: Place, tmp_path: Path) -> None:
    """Over the real socket, where headers come from whoever opens it."""
    secret = "s" * 40
    with serve(place.read, tmp_path, DASHBOARD_LOGIN="proxy", DASHBOARD_PROXY_SECRET=secret) as address:
        named = {"X-Forwarded-User": "Demo-Viewer"}
        for headers, words in (
            ({**named, SECRET_HEADER: secret}, "Activity"),
            ({**named, SECRET_HEADER: "t" * 40}, "makegood"),
            (named, "makegood"),
        ):
            page = browser.new_context(extra_http_headers=headers).new_page()
            page.goto(f"{address}/activity")
            expect(page.get_by_role("heading", level=1)).to_have_text(words)
            if words == "makegood":
                expect(page.get_by_text("You cannot come in.")).to_be_visible()
                assert page.locator("canvas").count() == 0
            page.context.close()
