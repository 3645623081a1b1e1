"""The mailed page in a real browser: it runs nothing, asks nobody, fits a phone, and prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import reports
from playwright.sync_api import Browser, Page, sync_playwright

from makegood.reconciliation.report import Report
from makegood.reconciliation.report_html import render_html
from makegood.reconciliation.report_rows import make_report

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
HOSTILE = (
    "<script>alert(1)</script>",
    "</title></style><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    "<svg/onload=alert(4)>",
    '"><svg onload=alert(5)>',
    "' onmouseover='alert(6)",
    "javascript:alert(7)",
    "<a href='https://outside.example'>x</a>",
    "<style>@import 'https://outside.example/a.css'</style>",
    "<link rel=stylesheet href=https://outside.example/b.css>",
    "<meta http-equiv=refresh content='0;url=https://outside.example'>",
    "<base href=https://outside.example><form action=/x><button>pay</button></form>",
    "</main></body></html><iframe src=https://outside.example></iframe>",
    "<!-- <![CDATA[ ]]> -->",
    "a&amp;b &lt;b&gt; &#x3c;script&#x3e;",
    "\u202eевил \u200b\u202e ١٢٣ 漢字 🧨",
    "x" * 140,
    "\x00\x07\x1b[31m\r\n",
)

pytestmark = [
    pytest.mark.skipif(not CHROMIUM.exists(), reason="there is no /usr/bin/chromium; on Debian: apt install chromium"),
]
Show = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Show]:
    """Opens a report from a file, as an attachment is; at the end no dialog was shown and nobody was asked."""
    asked: list[str] = []
    dialogs: list[str] = []
    contexts = []

    def open_page(report: Report, *, width: int = 1200, scheme: str = "light") -> Page:
        file = tmp_path / "report.html"
        file.write_text(render_html(report), encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
        contexts.append(context)
        page = context.new_page()
        page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(file.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert dialogs == []
    assert {url for url in asked if not url.startswith("file:")} == set()


def hostile_report() -> Report:
    findings = [reports.finding_row(n, order_id=name, charge_id=name, unit=name) for n, name in enumerate(HOSTILE)]
    made = reports.document(findings=findings, stale=HOSTILE[1], error=HOSTILE[2])
    made["job"] |= {"triggered_by": HOSTILE[4], "parts": {HOSTILE[0]: {HOSTILE[3]: 1}}}
    return make_report(made)


def test_hostile_names_are_shown_as_text_and_nothing_else(show: Show) -> None:
    page = show(hostile_report())

    assert page.locator("script, iframe, img, a, form, button, base, link").count() == 0
    text = page.locator("body").inner_text()
    assert HOSTILE[0] in text
    assert HOSTILE[12] in text
    page.mouse.move(300, 300)
    assert page.title().startswith("Reconciliation")
    assert page.url.startswith("file:")


@pytest.mark.parametrize("make", [reports.empty, reports.ordinary, reports.disaster, hostile_report])
@pytest.mark.parametrize("width", [360, 1200])
def test_page_fits_its_window(show: Show, make: Callable[[], Report], width: int) -> None:
    page = show(make(), width=width)

    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_page_is_dark_for_who_wants_it_so(show: Show) -> None:
    grounds = {
        scheme: show(reports.ordinary(), scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    }

    assert grounds == {"light": "rgb(252, 252, 250)", "dark": "rgb(20, 24, 28)"}


def test_bars_are_as_long_as_what_they_stand_for(show: Show) -> None:
    page = show(reports.ordinary())

    bars = page.locator(".risk").first.locator("rect")
    lengths = [bar.bounding_box() for bar in bars.all()]

    assert [round(box["width"] / lengths[0]["width"], 2) for box in lengths if box and lengths[0]] == [1.0, 0.75]


def test_page_prints(show: Show) -> None:
    assert show(reports.ordinary(), scheme="dark").pdf(format="A4").startswith(b"%PDF")
