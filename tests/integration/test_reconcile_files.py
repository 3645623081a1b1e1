"""Books that come as files only: judged up to where somebody says that they are complete, and never over a hole."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from books import NOW, Books, Charge, Order
from databases import DatabaseUrls
from sweeps import surroundings

from makegood.database import Database
from makegood.errors import InputError
from makegood.reconciliation import mapping
from makegood.reconciliation.importing import Complete, import_file
from makegood.settings import Settings

HEADER = "reference;order;amount;currency;status;time;kind"
MAPPING = """
provider = "adyen"
delimiter = ";"

[[rows]]
collection = "charges"
when = { kind = ["payment"] }
[rows.columns]
id = "reference"
order_ref = "order"
amount_minor = "amount"
currency = "currency"
status = "status"
created_at = "time"
[rows.constants]
livemode = false

[[rows]]
collection = "refunds"
when = { kind = ["refund"] }
[rows.columns]
id = "reference"
charge_id = "order"
amount_minor = "amount"
currency = "currency"
status = "status"
created_at = "time"
"""
BEGINNING = NOW - timedelta(days=9)


@pytest.fixture
def books(database: DatabaseUrls) -> Iterator[Books]:
    books = Books(database)
    books.rows("DELETE FROM makegood.provider_sync")
    yield books
    books.close()


@pytest.fixture
def how(tmp_path: Path) -> Path:
    (tmp_path / "adyen.toml").write_text(MAPPING, encoding="utf-8")
    return tmp_path / "adyen.toml"


def payment(name: str, amount: str = "10.00", *, days_ago: float = 3, kind: str = "payment", order: str = "") -> str:
    time = (NOW - timedelta(days=days_ago)).isoformat()
    return f"psp-{name};{order or name};{amount};EUR;succeeded;{time};{kind}"


def take(database: DatabaseUrls, how: Path, *lines: str, **complete: datetime) -> dict[str, Complete]:
    path = how.with_name("settlement.csv")
    path.write_text("\n".join((HEADER, *lines, "")), encoding="utf-8")

    async def run() -> Any:
        async with Database(database.jobs) as opened:
            return await import_file(opened, path, mapping=mapping.load(how), livemode=False, **complete)

    return {one.collection: one for one in asyncio.run(run()).collections}


def marks(books: Books) -> dict[str, datetime | None]:
    return {row["collection"]: row["watermark"] for row in books.rows("SELECT * FROM makegood.provider_sync")}


def test_file_that_is_imported_and_reconciled_by_commands_is_judged(
    database: DatabaseUrls, books: Books, settings: Settings, how: Path, tmp_path: Path
) -> None:
    """From the file to the finding, as a person does it; nothing is ever fetched."""
    for name in ("good", "double", "missing", "late"):
        books.write_order(name, Order(payment=f"psp-{name}", age=timedelta(days=0 if name == "late" else 3)))
    lines = [payment("good"), payment("double"), payment("again", order="double"), payment("nobody")]
    (tmp_path / "november.csv").write_text("\n".join((HEADER, *lines, "")), encoding="utf-8")
    around = surroundings(database, settings, tmp_path) | {"MAKEGOOD_SYNC_ENABLED": "false"}

    def makegood(*arguments: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "makegood.cli", "reconcile", *arguments, "--json"]
        done = subprocess.run(
            command, env=around, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stdout, done.stderr
        return dict(json.loads(done.stdout))

    until = (NOW - timedelta(days=1)).isoformat()
    told = makegood("import", "november.csv", "--mapping", str(how), "--complete-until", until)
    assert {one["collection"]: one["reason"] for one in told["complete"]} == {"charges": None, "refunds": None}
    makegood()

    (run,) = books.rows("SELECT * FROM makegood.reconciliation_runs")
    assert (run["state"], run["stale"], run["watermark"]) == ("matched", None, NOW - timedelta(days=1))
    assert books.open_by_unit() == {
        "order:double": ("D08", 1000),
        "order:missing": ("D05", 1000),
        "charge:psp-nobody": ("D01", 1000),
    }  # and what is younger than the books is only pending


def test_command_says_how_far_the_books_are_complete_and_why_they_are_not(
    database: DatabaseUrls, books: Books, settings: Settings, how: Path, tmp_path: Path
) -> None:
    (tmp_path / "f.csv").write_text("\n".join((HEADER, payment("a"), "")), encoding="utf-8")
    around = surroundings(database, settings, tmp_path)

    def said(*arguments: str) -> tuple[int, str]:
        command = [
            sys.executable,
            "-m",
            "makegood.cli",
            "reconcile",
            "import",
            "f.csv",
            "--mapping",
            str(how),
            *arguments,
        ]
        done = subprocess.run(
            command, env=around, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        return done.returncode, " ".join((done.stdout + done.stderr).split())

    code, words = said()
    assert (code, "charges of adyen: complete never. Nothing is judged by it" in words) == (0, True), words
    code, words = said("--complete-until", "2026-01-02")
    assert (code, "charges of adyen: complete until 2026-01-02 00:00:00Z" in words) == (0, True), words
    code, words = said("--complete-from", "2026-01-03", "--complete-until", "2026-01-04")
    assert (code, "this file did not move it: what came between" in words) == (1, True), words
    assert said("--complete-from", "2026-01-03")[0] == said("--complete-until", "soon")[0] == 2


def test_file_of_which_nobody_says_how_far_it_is_complete_lets_nothing_be_judged(
    database: DatabaseUrls, books: Books, how: Path
) -> None:
    """Also beside a provider that is fetched: an order that was paid at the other one would be missing its charge."""
    books.trust(NOW)
    books.write_order("elsewhere", Order(payment="psp-elsewhere"))

    take(database, how, payment("other"))

    run = books.run()
    assert "adyen/charges comes as files" in run["stale"]
    assert {class_ for class_, _ in books.open_by_unit().values()} == {"D32"}


def test_books_of_two_providers_are_judged_up_to_where_both_are_complete(
    database: DatabaseUrls, books: Books, how: Path
) -> None:
    books.trust(NOW)
    books.write_order("elsewhere", Order(payment="psp-elsewhere", age=timedelta(days=2)))
    take(database, how, payment("other", days_ago=4), complete_until=NOW - timedelta(days=2, hours=1))
    books.run(files_stale_after_seconds=5 * 86400)
    assert books.open_by_unit() == {"charge:psp-other": ("D01", 1000)}

    take(database, how, payment("elsewhere", days_ago=2), complete_until=NOW - timedelta(days=1))

    books.run("incremental", files_stale_after_seconds=5 * 86400)
    assert books.open_by_unit() == {"charge:psp-other": ("D01", 1000)}


def test_files_may_be_older_than_what_is_fetched(database: DatabaseUrls, books: Books, how: Path) -> None:
    take(database, how, payment("one", days_ago=4), complete_until=NOW - timedelta(days=2))

    assert books.run(files_stale_after_seconds=3 * 86400)["stale"] is None
    assert "is complete only up to" in books.run(files_stale_after_seconds=86400)["stale"]


def test_watermark_of_files_never_goes_back_nor_over_a_hole_nor_past_lines_kept_aside(
    database: DatabaseUrls, books: Books, how: Path
) -> None:
    day = [BEGINNING + timedelta(days=n) for n in range(8)]
    take(database, how, payment("a"), complete_from=day[0], complete_until=day[1])
    assert marks(books) == {"charges": day[1], "refunds": day[1]}

    hole = take(database, how, payment("c"), complete_from=day[2], complete_until=day[3])
    assert "is not here" in (hole["charges"].reason or "")
    assert marks(books)["charges"] == day[1]

    take(database, how, payment("b"), complete_from=day[1], complete_until=day[2])
    take(database, how, payment("c"), complete_from=day[2], complete_until=day[3])
    assert marks(books)["charges"] == day[3]

    take(database, how, payment("a"), complete_until=day[1])
    bad = take(database, how, payment("d"), payment("e", "ten"), complete_until=day[4])
    assert bad["charges"].reason == "1 lines were kept aside"
    take(database, how, payment("f"))  # says nothing, and takes nothing back
    assert marks(books) == {"charges": day[3], "refunds": day[3]}


def test_collection_that_is_fetched_follows_its_fetch_only(database: DatabaseUrls, books: Books, how: Path) -> None:
    (claim,) = books.rows("SELECT * FROM makegood.claim_sync('adyen', 'charges', 'me', 60)")
    books.rows("SELECT makegood.release_sync('adyen', 'charges', %s, NULL)", claim["fence"])

    told = take(database, how, payment("a"), complete_until=NOW - timedelta(days=1))

    assert "it is fetched" in (told["charges"].reason or "")
    assert marks(books) == {"charges": None, "refunds": NOW - timedelta(days=1)}


def test_books_cannot_be_complete_until_a_time_that_is_still_to_come(
    database: DatabaseUrls, books: Books, how: Path
) -> None:
    with pytest.raises(InputError, match="still to come"):
        take(database, how, payment("a"), complete_until=datetime.now(UTC) + timedelta(minutes=5))


def test_provider_that_could_never_be_fetched_has_no_say_where_nothing_is_fetched(
    database: DatabaseUrls, books: Books, how: Path
) -> None:
    """An hourly job asked for it before somebody switched that off."""
    (claim,) = books.rows("SELECT * FROM makegood.claim_sync('stripe', 'charges', 'me', 60)")
    books.rows("SELECT makegood.release_sync('stripe', 'charges', %s, 'no such key')", claim["fence"])
    take(database, how, payment("a"), complete_until=NOW - timedelta(hours=1))
    assert "no such key" in books.run()["stale"]

    books.rows("SELECT makegood.forget_sync('stripe')")

    assert books.run()["stale"] is None
    assert marks(books).keys() == {"charges", "refunds"}


def test_money_that_a_provider_has_given_back_is_not_looked_for_before_refunds_are_complete(
    database: DatabaseUrls, books: Books, how: Path
) -> None:
    books.write_order("undone", Order(status="cancelled", workflow="compensated", refunded=1000, payment="psp-undone"))
    books.write_charge("x", 1, Charge(1))
    take(database, how, payment("undone"))
    books.rows("UPDATE makegood.provider_sync SET watermark = %s WHERE collection = 'charges'", NOW)

    books.run()

    assert "order:undone" not in books.open_by_unit()
