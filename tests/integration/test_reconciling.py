"""A whole reconciliation as a person runs it and as its tasks do: one run, its report, its alerts, what is open."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from books import Books, Case, Charge, Dispute, Order, Refund
from databases import DatabaseUrls
from psycopg.types.json import Jsonb
from remedying import Plot
from rich.console import Console
from sweeps import surroundings

from makegood import reconciling
from makegood.cli import app, output
from makegood.errors import InputError, TransientError, UnknownOrder
from makegood.reconciliation.report import find_problems
from makegood.settings import Settings, get_settings
from sandbox.client import ShopControl

Run = Callable[..., subprocess.CompletedProcess[str]]
DOUBLE = Case("double", Order(), (Charge(1000), Charge(1000)))
LARGE = Case("large", Order(amount=900_000), (Charge(900_000, refunds=(Refund(900_000), Refund(900_000))),))


@pytest.fixture
def books(database: DatabaseUrls) -> Iterator[Books]:
    books = Books(database)
    yield books
    books.close()


@pytest.fixture
def here(database: DatabaseUrls, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """This process is set up for the test's database; returns where reports go."""
    for name, value in surroundings(database, settings, tmp_path).items():
        if name.startswith("MAKEGOOD_"):
            monkeypatch.setenv(name, value)
    monkeypatch.setenv("COLUMNS", "200")
    get_settings.cache_clear()
    yield tmp_path / "home" / "reports"
    get_settings.cache_clear()


@pytest.fixture
def makegood(database: Any, settings: Settings, tmp_path: Path) -> Run:
    environment = surroundings(database, settings, tmp_path)

    def run(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "makegood.cli", "reconcile", *arguments]
        return subprocess.run(
            command, env=environment | changes, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )

    return run


@pytest.fixture
def ask(here: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """The same without a process of its own, for commands that only read."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        code = app.run(["reconcile", *arguments])
        shown = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, shown.out, shown.err)

    return run


def begin(**options: Any) -> str:
    return str(reconciling.begin_reconciliation(triggered_by="test", **options)["run_id"])


def alerts(books: Books) -> list[dict[str, Any]]:
    return [
        row["payload"] for row in books.rows("SELECT payload FROM makegood.outbox WHERE topic = 'alert' ORDER BY id")
    ]


# As a person runs it


def test_reconcile_with_nothing_wrong_says_so_and_exits_0(makegood: Run, books: Books) -> None:
    books.write(Case("plain", Order(), (Charge(1000),)))

    done = makegood("--no-sync", "--json")

    document = json.loads(done.stdout)
    assert (done.returncode, document["summary"]) == (0, "The totals add up, and nothing is open."), done.stderr
    assert document["run"]["kind"] == "full"  # the first run ever looks at everything
    assert document["totals"][0]["matched"] == {"charges": 1, "amount_minor": 1000, "amount": "10.00 EUR"}


def test_reconcile_with_a_finding_names_it_and_exits_1(makegood: Run, books: Books, tmp_path: Path) -> None:
    order = books.write(DOUBLE)

    done = makegood("--no-sync")

    assert done.returncode == 1
    assert "1 finding needs somebody" in done.stdout
    assert order in done.stdout
    (page,) = (tmp_path / "home" / "reports").glob("*.html")
    assert order in page.read_text()
    assert oct(page.stat().st_mode)[-3:] == "600"


def test_second_run_of_the_day_is_incremental_and_full_on_demand(here: Path, books: Books) -> None:
    kinds = []
    for asked in ("auto", "auto", "full"):
        run_id = begin(kind=asked)
        reconciling.match_run(run_id)
        kinds.append(reconciling.get_report(run_id).run.kind)

    assert kinds == ["full", "incremental", "full"]


def test_reconcile_of_a_window_looks_at_that_only(makegood: Run, books: Books) -> None:
    books.write(DOUBLE)

    done = makegood("--no-sync", "--json", "--since", "2020-01-01", "--until", "2020-02-01")

    document = json.loads(done.stdout)
    assert (done.returncode, document["run"]["kind"], document["totals"]) == (0, "window", [])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--since", "yesterday", "--until", "2026-01-01"], "since is 'yesterday'"),
        (["--since", "2026-01-01"], "both since and until"),
        (["--since", "2026-01-02", "--until", "2026-01-01"], "must last between"),
        (["--class", "D99"], "the class is 'D99'"),
        (["--full", "--since", "2026-01-01", "--until", "2026-01-02"], "leave out the window"),
        (["report", "no-run"], "the run is 'no-run'"),
        (["report", "--format", "pdf"], "--format is 'pdf'"),
        (["findings", "--state", "shut"], "--state is 'shut'"),
    ],
)
def test_what_makes_no_sense_is_named_and_exits_2(ask: Run, arguments: list[str], said: str) -> None:
    done = ask(*arguments)

    assert done.returncode == 2
    assert said in done.stderr


def test_report_of_no_run_says_what_to_do(ask: Run, books: Books) -> None:
    done = ask("report")

    assert done.returncode == 1
    assert "no reconciliation has run yet" in done.stderr
    assert "makegood reconcile" in done.stderr


def test_report_is_written_in_every_format(ask: Run, books: Books, tmp_path: Path) -> None:
    order = books.write(DOUBLE)
    reconciling.match_run(begin())

    for form in ("table", "json", "csv", "html"):
        done = ask("report", "--format", form, "--to", str(tmp_path / f"out.{form}"))
        assert done.returncode == 1, done.stderr
        assert order in (tmp_path / f"out.{form}").read_text()
    rows = list(csv.DictReader(io.StringIO(ask("report", "--format", "csv").stdout)))
    assert {row["row"] for row in rows} == {
        *("missed", "provider", "matched", "pending", "class", "off_by", "open", "finding")
    }


def test_report_that_cannot_be_written_says_so(ask: Run, books: Books) -> None:
    reconciling.match_run(begin())

    done = ask("report", "--format", "html", "--to", "nowhere/out.html")

    assert done.returncode == 3
    assert "nowhere/out.html cannot be written" in done.stderr


def test_findings_are_listed_filtered_and_bounded(ask: Run, books: Books) -> None:
    names = [books.write(DOUBLE) for _ in range(3)] + [books.write(Case("orphan", None, (Charge(500),)))]
    reconciling.match_run(begin())

    def listed(*arguments: str) -> list[str]:
        return [row["class"] for row in json.loads(ask("findings", "--json", *arguments).stdout)["findings"]]

    assert listed() == ["D08"] * 3 + ["D01"]  # by money
    assert listed("--class", "d1") == ["D01"]
    assert listed("--order", names[0]) == ["D08"]
    assert listed("--state", "resolved") == []
    assert json.loads(ask("findings", "--json", "--limit", "1").stdout)["left_out"] == 3
    assert "and 3 more" in ask("findings", "--limit", "1").stdout


def test_show_puts_both_sides_next_to_each_other(ask: Run, books: Books) -> None:
    case = Case("disputed", Order(), (Charge(1000, disputes=(Dispute(400),)),))
    order = books.write(case)
    reconciling.match_run(begin())
    (finding,) = books.findings()

    shown = ask("show", order).stdout
    by_id = json.loads(ask("show", str(finding["id"]), "--json").stdout)["findings"]

    for words in ("our books", "the provider's", "D24 Open dispute", "10.00 EUR", "4.00 EUR open", "fulfilled"):
        assert words in shown
    assert by_id[0]["order"]["order_id"] == order
    assert by_id[0]["charges"][0]["disputes"][0]["amount_minor"] == 400


def test_show_of_nothing_says_where_to_look(ask: Run, books: Books) -> None:
    done = ask("show", "order-404")

    assert done.returncode == 1
    assert "there is no finding order-404" in done.stderr


def test_hostile_name_steers_no_terminal(ask: Run, books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "page", Console(highlight=False, width=300))  # wide, so that no name is cut in two
    books.rows("UPDATE makegood.orders SET id = id")
    books.write(Case("\x1b[2J[red]\u202ex", Order(), (Charge(1000), Charge(1000))))
    reconciling.match_run(begin())

    for arguments in (["report"], ["findings"], ["show", "\x1b[2J[red]\u202ex-1"]):
        shown = ask(*arguments).stdout
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "\\x1b[2J[red]\\u202ex-1" in shown or arguments[0] == "report"


def test_row_that_became_visible_too_late_for_the_hourly_fetches_is_found_at_night(
    here: Path, books: Books, shop: ShopControl, database: DatabaseUrls, settings: Settings
) -> None:
    plot = Plot(database, str(settings.stripe_api_base), settings)
    charge = plot.charge("order-1")
    plot.close()
    books.rows("DELETE FROM makegood.provider_sync")
    shop.advance_clock(3 * 3600)
    reconciling.sync_charges(begin(kind="incremental"))
    books.rows("DELETE FROM makegood.provider_charges")  # it was not in any list yet
    shop.advance_clock(60)

    def fetched(kind: str) -> list[str]:
        reconciling.sync_charges(begin(kind=kind))
        return [row["id"] for row in books.rows("SELECT id FROM makegood.provider_charges")]

    assert (fetched("incremental"), fetched("full")) == ([], [charge])


# As its tasks run


def test_begin_with_the_same_key_is_the_same_run_with_what_it_was_first_asked(here: Path, books: Books) -> None:
    first = reconciling.begin_reconciliation(kind="full", key="k", triggered_by="test")
    second = reconciling.begin_reconciliation(kind="incremental", dry_run=True, key="k", triggered_by="test")

    assert first == second
    assert (second["kind"], second["dry_run"]) == ("full", False)


def test_stages_run_twice_are_one_run(here: Path, books: Books) -> None:
    books.write(DOUBLE)
    run_id = begin()

    twice = [(reconciling.match_run(run_id), reconciling.report_run(run_id)) for _ in range(2)]

    assert twice[0][0]["opened"] == twice[1][0]["opened"] == 1
    assert (twice[0][0]["alerts_written"], twice[1][0]["alerts_written"]) == (0, 0)
    assert twice[0][1] == twice[1][1]
    assert len(list(here.glob("*.html"))) == 1
    (run,) = books.rows("SELECT * FROM makegood.reconciliation_runs")
    assert str(run["id"]) == run_id
    assert [str(row["id"]) for row in books.rows("SELECT id FROM makegood.job_runs")] == [run_id]


def test_report_names_where_it_is_and_nothing_large(here: Path, books: Books) -> None:
    run_id = begin()
    reconciling.match_run(run_id)

    told = reconciling.report_run(run_id)

    assert told["link"] == f"{get_settings().dashboard_url}/reconciliation?run={run_id}"
    assert Path(told["file"]).read_text().startswith("<!doctype html>")
    assert len(json.dumps(told)) < 1000


def test_reports_go_where_the_setting_says_and_its_rights_stay(
    here: Path, books: Books, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    monkeypatch.setenv("MAKEGOOD_REPORTS", str(shared))
    get_settings.cache_clear()
    run_id = begin()
    reconciling.match_run(run_id)

    file = Path(reconciling.report_run(run_id)["file"])

    assert file.parent == shared
    assert oct(shared.stat().st_mode)[-3:] == "755"


def test_reports_are_pruned_and_the_newest_stay(here: Path, books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciling, "REPORTS_KEPT", 2)
    for _ in range(4):
        run_id = begin()
        reconciling.match_run(run_id)
        last = reconciling.report_run(run_id)["file"]

    kept = list(here.glob("*.html"))
    assert len(kept) <= 2
    assert Path(last) in kept


def test_report_before_the_match_names_the_run(here: Path, books: Books) -> None:
    run_id = begin()

    with pytest.raises(UnknownOrder, match=run_id):
        reconciling.report_run(run_id)


def test_match_that_fails_is_a_failed_run_that_says_why_and_can_be_repeated(here: Path, books: Books) -> None:
    books.write(DOUBLE)
    run_id = begin()
    books.rows("ALTER TABLE makegood.reconciliation_totals RENAME TO hidden")
    with pytest.raises(Exception, match="reconciliation_totals"):
        reconciling.match_run(run_id)
    books.rows("ALTER TABLE makegood.hidden RENAME TO reconciliation_totals")

    report = reconciling.get_report(run_id)
    assert report.run.state == "failed"
    assert "reconciliation_totals" in find_problems(report)[0]

    assert reconciling.match_run(run_id)["opened"] == 1
    assert reconciling.get_report(run_id).run.state == "matched"


def test_window_without_an_end_is_refused_before_a_run_is_opened(here: Path, books: Books) -> None:
    with pytest.raises(InputError, match="both since and until"):
        begin(since="2026-01-01")

    assert books.rows("SELECT 1 FROM makegood.job_runs") == []


# A source that cannot be relied upon


def test_provider_that_refuses_the_key_makes_the_run_stale_however_good_the_fetch_before_was(
    makegood: Run, books: Books
) -> None:
    books.write(DOUBLE)

    done = makegood("--json", MAKEGOOD_STRIPE_API_KEY="sk_live_wrong")

    (run,) = books.rows("SELECT * FROM makegood.reconciliation_runs")
    assert "does not accept the key" in run["stale"], done.stderr
    assert {row["class"] for row in books.findings()} >= {"D32"}


@pytest.mark.parametrize("until", ["60 seconds", "-60 seconds"])
def test_collection_that_another_has_or_died_over_is_not_complete(here: Path, books: Books, until: str) -> None:
    books.rows("SELECT * FROM makegood.claim_sync('stripe', 'refunds', 'another', 60)")
    books.rows(
        "UPDATE makegood.provider_sync SET lease_until = clock_timestamp() + %s::interval WHERE lease_owner <> ''",
        until,
    )
    run_id = begin()

    reconciling.match_run(run_id)

    assert "stripe/refunds is being fetched" in (reconciling.get_report(run_id).run.stale or "")


def test_fetch_that_finds_another_at_it_is_no_complete_one(here: Path, books: Books, shop: ShopControl) -> None:
    books.rows("SELECT * FROM makegood.claim_sync('stripe', 'refunds', 'another', 60)")

    with pytest.raises(TransientError, match="refunds could not be fetched to the end"):
        reconciling.sync_charges(begin())


# Alerts


def test_alarming_and_large_findings_are_told_once_and_small_ones_not(here: Path, books: Books) -> None:
    small, large = books.write(DOUBLE), books.write(LARGE)
    wrong_unit = books.write(Case("unit", Order(amount=1000), (Charge(100_000),)))
    wrong_mode = books.write(Case("mode", None, (Charge(1000, live=True, names=None),)))
    authorised = Charge(0, "authorized", 1000, lapses_in=timedelta(hours=5))
    lapsing = books.write(Case("lapsing", Order(status="pending", workflow="active"), (authorised,)))

    for _ in range(3):
        reconciling.match_run(begin(kind="full"))

    told = {one["entity_id"]: one["class"] for one in alerts(books)}
    assert told == {large: "D22", wrong_unit: "D17", f"ch-{wrong_mode}-1": "D27", lapsing: "D13"}
    assert len(alerts(books)) == 4
    assert small not in told


def test_finding_that_breaks_again_is_told_again(here: Path, books: Books) -> None:
    order = books.write(LARGE)
    reconciling.match_run(begin(kind="full"))
    books.rows("UPDATE makegood.reconciliation_findings SET reopened = reopened + 1")
    reconciling.match_run(begin(kind="full"))

    assert [one["entity_id"] for one in alerts(books)] == [order, order]


def test_limit_means_the_same_in_every_currency(here: Path, books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAKEGOOD_FINDING_ALERT_ABOVE_MINOR", "10000")  # a hundred of the unit
    get_settings.cache_clear()
    for currency, below, from_there_on in (("EUR", 9_999, 10_000), ("JPY", 99, 100), ("KWD", 99_999, 100_000)):
        for amount in (below, from_there_on):
            books.write(Case(f"{currency}-{amount}", None, (Charge(amount, currency=currency),)))

    reconciling.match_run(begin(kind="full"))

    amounts = {(one["currency"], one["amount_minor"]) for one in alerts(books)}
    assert amounts == {("EUR", 10_000), ("JPY", 100), ("KWD", 100_000)}


def test_stale_source_is_told_once_a_day(here: Path, books: Books) -> None:
    books.trust(error="401 Unauthorized")

    for _ in range(2):
        reconciling.match_run(begin(kind="full"))

    (alert,) = alerts(books)
    assert alert["kind"] == "reconciliation_stale"
    assert "401 Unauthorized" in alert["error"]


def test_totals_that_do_not_add_up_are_told_and_reported(here: Path, books: Books) -> None:
    books.write(DOUBLE)
    run_id = begin(kind="full")
    reconciling.match_run(run_id)
    books.rows("UPDATE makegood.reconciliation_totals SET amount_minor = amount_minor - 1 WHERE bucket = 'D08'")

    reconciling.match_run(run_id)

    (alert,) = alerts(books)
    assert (alert["kind"], alert["run_id"]) == ("reconciliation_totals", run_id)
    assert "EUR is off by 1" in alert["error"]
    assert not reconciling.get_report(run_id).adds_up


def test_totals_of_a_million_charges_are_exact(here: Path, books: Books) -> None:
    """Beyond what a float or a bigint sum of cents could hold."""
    run_id = begin(kind="full")
    reconciling.match_run(run_id)
    huge = 2**62
    for bucket, amount in (("provider", 4 * huge + 1), ("matched", 4 * huge), ("D08", 1)):
        books.rows(
            "INSERT INTO makegood.reconciliation_totals VALUES (%s, 'EUR', %s, %s, %s)",
            uuid.UUID(run_id), bucket, 1 if bucket != "provider" else 2, amount,
        )  # fmt: skip

    report = reconciling.get_report(run_id)

    assert report.adds_up
    assert report.totals[0].provider.amount_minor == 4 * huge + 1


def test_report_of_an_older_run_has_its_own_totals(here: Path, books: Books) -> None:
    books.write(DOUBLE)
    first = begin(kind="full")
    reconciling.match_run(first)
    books.write(Case("plain", Order(), (Charge(700),)))
    reconciling.match_run(begin(kind="full"))

    assert reconciling.get_report(first).totals[0].provider.amount_minor == 2000
    assert reconciling.get_report(None).totals[0].provider.amount_minor == 2700


def test_ignored_finding_is_no_longer_at_risk(here: Path, books: Books) -> None:
    books.write(DOUBLE)
    reconciling.match_run(begin(kind="full"))
    books.rows(
        "UPDATE makegood.reconciliation_findings SET state = 'ignored', ignored_until = 'infinity', details = %s",
        Jsonb({}),
    )

    report = reconciling.get_report(None)

    assert (report.open_findings, report.need_somebody, report.at_risk()) == (0, 0, {})
    assert report.is_good
