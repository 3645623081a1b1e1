"""A report's totals add up to the cent or it says loudly that they do not, whatever shows it."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest
import reports
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from makegood.cli.output import _plain
from makegood.reconciliation import classes, plots
from makegood.reconciliation.report import Line, find_problems, summarise
from makegood.reconciliation.report_csv import BREAKS, COLUMNS, FORMULA_STARTS, guard, render_csv
from makegood.reconciliation.report_document import to_document
from makegood.reconciliation.report_html import render_html
from makegood.reconciliation.report_rows import make_report, make_totals
from makegood.reconciliation.report_table import render_table

BUCKETS = st.dictionaries(
    st.sampled_from(["matched", "pending", *classes.NAMES]),
    st.tuples(st.integers(0, 10**9), st.integers(0, 10**15)),
    max_size=8,
)


def as_text(report: Any) -> str:
    console = Console(file=io.StringIO(), width=200, color_system=None)
    console.print(render_table(report))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


@given(BUCKETS)
def test_totals_that_are_the_sum_of_their_parts_add_up(buckets: dict[str, tuple[int, int]]) -> None:
    (totals,) = make_totals(reports.totals_rows("EUR", buckets), reports.EXPONENTS)

    assert totals.adds_up
    assert totals.provider == totals.matched + totals.pending + totals.findings


@given(BUCKETS, st.integers(-(10**6), 10**6), st.integers(-3, 3))
def test_totals_that_are_off_by_anything_do_not_add_up(
    buckets: dict[str, tuple[int, int]], minor: int, charges: int
) -> None:
    rows = reports.totals_rows("EUR", buckets)
    rows[0]["amount_minor"] += minor
    rows[0]["charges"] += charges
    (totals,) = make_totals(rows, reports.EXPONENTS)

    assert totals.adds_up == (minor == charges == 0)
    assert totals.unexplained == Line(charges, minor)


def test_currencies_are_never_added_together() -> None:
    report = reports.ordinary()

    assert [totals.currency for totals in report.totals] == ["EUR", "JPY", "KWD"]
    assert report.at_risk() == {"EUR": 27_996, "JPY": 9_800, "KWD": 2_500}  # what is ignored is not at risk


def test_one_missing_cent_is_said_loudly_everywhere() -> None:
    rows = reports.totals_rows("KWD", {"matched": (3, 3000), "D08": (1, 1000)})
    rows[0]["amount_minor"] += 1
    report = make_report(reports.document(totals=rows))

    assert not report.adds_up
    assert summarise(report) == "The totals do NOT add up."
    (problem,) = find_problems(report)
    assert "KWD does NOT add up: the provider has 4.001 KWD in 4 charges" in problem
    assert "Off by 0.001 KWD and 0 charges" in problem
    for shown in (as_text(report), render_html(report), json.dumps(to_document(report), default=_plain)):
        assert "NOT add up" in shown
    assert "off_by,KWD,,,0,0.001,1" in render_csv(report)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"stale": "stripe/charges is complete only up to 04:00"}, "nothing was put right: stripe/charges"),
        ({"state": "failed", "error": "the database went away"}, "The run failed: the database went away"),
        ({"state": "running", "finished_at": None}, "has not ended"),
        ({"kind": "full", "missed": 3}, "missed 3 verdicts"),
    ],
)
def test_run_that_cannot_be_trusted_says_why(run: dict[str, Any], said: str) -> None:
    report = make_report(reports.document(**run))

    assert any(said in problem for problem in find_problems(report))
    assert not report.is_good
    assert "cannot be trusted" in summarise(report)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"kind": "full", "missed": 0}, "Checked: the hourly runs missed nothing."),
        ({"kind": "full", "missed": 1234}, "The hourly runs missed 1,234 verdicts."),
        ({"kind": "full", "missed": None}, "Not checked whether the hourly runs missed anything"),
        ({"kind": "incremental", "missed": None}, None),
        ({"kind": "full", "missed": None, "state": "running", "finished_at": None}, None),
    ],
)
def test_full_run_says_whether_the_hourly_ones_missed_anything_in_every_format(
    run: dict[str, Any], said: str | None
) -> None:
    report = make_report(reports.document(**run))

    shown = (as_text(report), render_html(report), render_csv(report), json.dumps(to_document(report), default=_plain))
    assert all((said in " ".join(text.split())) if said else "hecked" not in text for text in shown)


@pytest.mark.parametrize(
    ("finding", "needed"),
    [
        ({"class_": "D10", "remedy": "human"}, 1),
        ({"class_": "D08", "remedy": "refund"}, 1),  # no job was allowed to, so somebody has to look
        ({"class_": "D04", "remedy": "wait"}, 0),  # the saga is at it
        ({"class_": "D15", "remedy": "record"}, 0),  # only written down
        ({"class_": "D30", "remedy": "record"}, 0),
        ({"class_": "D10", "state": "acknowledged"}, 0),  # somebody has
        ({"class_": "D08", "state": "remedying"}, 0),
        ({"class_": "D08", "state": "ignored"}, 0),
    ],
)
def test_finding_needs_somebody_unless_it_is_seen_to_or_only_recorded(finding: dict[str, Any], needed: int) -> None:
    report = make_report(reports.document(findings=[reports.finding_row(1, **finding)]))

    assert report.need_somebody == needed
    assert report.is_good == (needed == 0)


def test_run_with_nothing_to_tell_is_good_and_shown_everywhere() -> None:
    report = reports.empty()

    assert report.is_good
    assert "nothing is open" in as_text(report)
    assert "This run looked at no charge." in render_html(report)
    assert len(render_csv(report).splitlines()) == 1


def test_money_has_the_decimals_of_its_currency_everywhere() -> None:
    report = reports.ordinary()

    for shown in (as_text(report), render_html(report)):
        for amount in ("940,425.45", "4,151,600", "9,924.840", "2.500 KWD", "9,800 JPY"):
            assert amount in shown
    rows = [row for row in csv.DictReader(io.StringIO(render_csv(report))) if row["row"] == "provider"]
    assert [(row["amount"], row["currency"]) for row in rows] == [
        ("940425.45", "EUR"),
        ("4151600", "JPY"),
        ("9924.840", "KWD"),
    ]


def test_document_is_plain_json_with_what_programs_ask_for() -> None:
    document = json.loads(json.dumps(to_document(reports.disaster()), default=_plain))

    assert document["adds_up"] is False
    assert document["totals"][0]["unexplained"] == {"charges": 0, "amount_minor": 1, "amount": "0.01 EUR"}
    assert len(document["findings"]) == 1000
    assert document["findings_left_out"] == 2000


@given(st.text())
def test_no_cell_of_a_csv_can_become_a_formula(text: str) -> None:
    guarded = guard(text)

    assert not guarded.lstrip(" ").startswith((*FORMULA_STARTS, *BREAKS))
    assert guarded in (text, f"'{text}")


@pytest.mark.parametrize(
    "before", ["", " ", "\u00a0", "\ufeff", "\u200b", "\u3000", "\u2060 ", "\x00", "\x1f", "\u202e"]
)
@pytest.mark.parametrize("start", ["=", "+", "-", "@", "＝", "＋", "－", "＠", "|", "%"])
def test_formula_behind_what_nobody_sees_is_guarded_too(before: str, start: str) -> None:
    assert guard(f"{before}{start}1+1") == f"'{before}{start}1+1"


@pytest.mark.parametrize("text", ["", "order-1", " order=1", "\ufefforder", "ünï", "«=1»", "1+1"])
def test_text_that_no_spreadsheet_runs_stays_as_it_is(text: str) -> None:
    assert guard(text) == text


@given(st.text(min_size=1, max_size=80))
def test_csv_keeps_one_row_per_finding_whatever_an_order_is_called(name: str) -> None:
    report = make_report(reports.document(findings=[reports.finding_row(1, order_id=name, charge_id=name)]))

    rows = list(csv.reader(io.StringIO(render_csv(report), newline="")))

    assert [row[0] for row in rows] == ["row", "open", "finding"]
    assert {len(row) for row in rows} == {len(COLUMNS)}
    assert rows[2][COLUMNS.index("order")] == guard(name)


@given(st.text(min_size=1, max_size=80))
def test_html_has_the_same_elements_whatever_an_order_is_called(name: str) -> None:
    def elements(order: str) -> list[str]:
        findings = [reports.finding_row(1, order_id=order, charge_id=order)]
        made = reports.document(findings=findings, stale=order, error=order)
        made["job"]["triggered_by"] = order
        return re.findall(r"<[^>]*>", render_html(make_report(made)))

    assert elements(name) == elements("order-1")


def test_html_is_one_small_page_without_script_or_address() -> None:
    for report in (reports.empty(), reports.ordinary(), reports.disaster()):
        page = render_html(report)
        assert len(page.encode()) < 1_000_000
        assert not re.search(r"<script|<link|<iframe|<img|https?://|url\(|@import|\son\w+=", page)
        assert "default-src 'none'" in page.replace("&#x27;", "'")


@given(st.lists(st.integers(0, 10**12), max_size=6))
def test_stacked_bar_fills_its_width_and_shows_the_smallest_part(sizes: list[int]) -> None:
    widths = plots.share_out(sizes)

    assert [width > 0 for width in widths] == [size > 0 for size in sizes]
    assert sum(widths) == pytest.approx(100 if any(sizes) else 0)
    assert all(width > 0.3 for width in widths if width)


def test_every_class_has_a_name_and_a_meaning() -> None:
    assert [f"D{n:02d}" for n in range(1, 33)] == list(classes.NAMES)
    assert classes.name_of("D99") == "D99"
    assert classes.meaning_of("D99")
