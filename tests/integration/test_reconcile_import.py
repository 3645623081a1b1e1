"""Settlement reports: exact, streaming, resumable; a bad line is told and kept aside, and the rest goes on."""

from __future__ import annotations

import asyncio
import csv
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from databases import DatabaseUrls
from pyarrow import parquet

from makegood.database import Database
from makegood.errors import InputError
from makegood.reconciliation import files, mapping
from makegood.reconciliation.importing import Imported, import_file

BALANCE = [
    "balance_transaction_id",
    "created_utc",
    "currency",
    "gross",
    "fee",
    "net",
    "reporting_category",
    "source_id",
    "charge_id",
    "payment_intent_id",
    "payment_metadata[order_id]",
    "automatic_payout_id",
]


def movement(number: int, **facts: str) -> list[str]:
    line = {
        "balance_transaction_id": f"txn_{number}",
        "created_utc": "2026-11-01 12:00:00",
        "currency": "eur",
        "gross": "19.99",
        "fee": "0.88",
        "net": "19.11",
        "reporting_category": "charge",
        "source_id": f"ch_{number}",
        "charge_id": f"ch_{number}",
        "payment_intent_id": f"pi_{number}",
        "payment_metadata[order_id]": f"order-{number}",
        "automatic_payout_id": "po_1",
        **facts,
    }
    return [line[name] for name in BALANCE]


def write(path: Path, lines: Sequence[Sequence[str]], header: Sequence[str] = BALANCE) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *lines])
    return path


def take(database: DatabaseUrls, path: Path, **options: Any) -> Imported:
    async def run() -> Imported:
        async with Database(database.jobs) as opened:
            return await import_file(opened, path, livemode=False, **options)

    return asyncio.run(run())


def held(database: DatabaseUrls, collection: str) -> dict[str, Any]:
    return {row["id"]: row for row in database.rows(f"SELECT * FROM makegood.provider_{collection}")}


def everything(database: DatabaseUrls) -> dict[str, Any]:
    return {name: held(database, name) for name in ("charges", "refunds", "balance_transactions", "payouts")}


def kept_aside(database: DatabaseUrls) -> dict[str, str]:
    return {row["position"]: row["reason"] for row in database.rows("SELECT * FROM makegood.provider_rejects")}


def test_stripes_balance_report_becomes_movements_charges_and_refunds(database: DatabaseUrls, tmp_path: Path) -> None:
    refund = movement(
        2, reporting_category="refund", source_id="re_1", charge_id="ch_1", gross="-5.00", fee="0", net="-5"
    )
    failed = movement(
        3, reporting_category="refund_failure", source_id="re_1", charge_id="ch_1", gross="5", fee="0", net="5"
    )
    done = take(database, write(tmp_path / "balance.csv", [movement(1), refund, failed]))
    assert (done.provider, done.mapping) == ("stripe", "stripe-balance")
    assert done.counts["rejected"] == 0
    first = held(database, "balance_transactions")["txn_1"]
    assert (first["amount_minor"], first["fee_minor"], first["net_minor"], first["payout_ref"]) == (
        1999,
        88,
        1911,
        "po_1",
    )
    (charge,) = held(database, "charges").values()
    assert (charge["order_ref"], charge["payment_ref"], charge["captured_minor"]) == ("order-1", "pi_1", 1999)
    assert charge["created_at"].timestamp() == 1_793_534_400
    (given_back,) = held(database, "refunds").values()
    assert (given_back["amount_minor"], given_back["status"]) == (500, "failed")
    assert not charge["plain"]


def test_file_again_changes_nothing(database: DatabaseUrls, tmp_path: Path) -> None:
    path = write(tmp_path / "balance.csv", [movement(n) for n in range(20)] + [movement(1, gross="x")])
    first = take(database, path)
    before = everything(database)
    second = take(database, path)
    assert (first.import_id, first.counts["changed"]) == (second.import_id, 40)
    assert (second.counts["changed"], second.counts["rejected"]) == (0, 1)
    assert everything(database) == before
    assert database.rows("SELECT * FROM makegood.provider_import_ids") == []


def test_report_does_not_overwrite_what_the_provider_itself_said(database: DatabaseUrls, tmp_path: Path) -> None:
    known = {"id": "ch_1", "payment_ref": "pi_9", "order_ref": "order-9", "status": "succeeded", "amount_minor": 5000}
    more = {"captured_minor": 1999, "currency": "EUR", "livemode": False, "created_at": 1}
    put = "SELECT makegood.put_provider_rows('charges', %s::jsonb)"
    database.rows(put, (json.dumps([{**known, **more}]),), role="jobs")
    take(database, write(tmp_path / "balance.csv", [movement(1)]))
    assert held(database, "charges")["ch_1"]["amount_minor"] == 5000


def test_same_id_on_two_lines_far_apart_counts_once_and_is_told(
    database: DatabaseUrls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("makegood.reconciliation.importing.BATCH_LINES", 3)
    done = take(database, write(tmp_path / "b.csv", [movement(n % 10) for n in range(12)]))
    assert (done.counts["duplicates"], done.counts["rows"]) == (2, 22)  # the derived charges are put again, unchanged
    assert len(held(database, "balance_transactions")) == 10
    rows = database.rows("SELECT id, source FROM makegood.provider_duplicates ORDER BY id")
    assert rows == [{"id": f"txn_{n}", "source": f"import:{done.import_id}"} for n in (0, 1)]


@pytest.mark.parametrize(
    ("currency", "text", "minor"),
    [
        ("eur", "19.99", 1999),
        ("eur", "-0.01", -1),
        ("eur", "1234567890123.45", 123456789012345),  # exact where a float is not
        ("jpy", "500", 500),
        ("jpy", "500.00", 500),
        ("kwd", "1.234", 1234),
        ("eur", "0.1", 10),
    ],
)
def test_amount_in_major_units_is_converted_exactly(
    database: DatabaseUrls, tmp_path: Path, currency: str, text: str, minor: int
) -> None:
    line = movement(1, currency=currency, gross=text, fee="0", net=text, reporting_category="other")
    take(database, write(tmp_path / "b.csv", [line]))
    row = held(database, "balance_transactions")["txn_1"]
    assert (row["amount_minor"], row["currency"]) == (minor, currency.upper())


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"gross": "1.234,56"}, "not written like 1234.56"),
        ({"gross": "1,234.56"}, "not written like 1234.56"),
        ({"gross": "19.999"}, "more decimals than EUR"),
        ({"gross": "500.5", "currency": "jpy"}, "more decimals than JPY"),
        ({"gross": "1e3"}, "not written like"),
        ({"gross": "NaN"}, "not written like"),
        ({"gross": "٣"}, "not written like"),
        ({"gross": ""}, "gross is empty"),
        ({"gross": "9" * 25}, "larger than any"),
        ({"currency": "xqx"}, "does not exist"),
        ({"currency": ""}, "does not exist"),
        ({"created_utc": "01.11.2026"}, "ISO 8601"),
        ({"created_utc": "2026-02-30 00:00:00"}, "ISO 8601"),
        ({"balance_transaction_id": ""}, "balance_transaction_id is empty"),
        ({"balance_transaction_id": '=HYPERLINK("http://x","y")'}, "formula"),
        ({"balance_transaction_id": "x" * 300}, "1 to 255"),
        ({"source_id": "a\0b"}, "NUL"),
        ({"source_id": "y" * 2_000_000}, "longer than"),
    ],
)
def test_bad_line_is_told_with_its_number_and_the_rest_goes_on(
    database: DatabaseUrls, tmp_path: Path, facts: dict[str, str], reason: str
) -> None:
    done = take(database, write(tmp_path / "b.csv", [movement(1), movement(2, **facts), movement(3)]))
    assert [line for line, _ in done.faults] == [3]
    assert reason in done.faults[0][1]
    assert done.counts["rejected"] == 1
    assert reason in kept_aside(database)["line 3"]
    assert set(held(database, "balance_transactions")) == {"txn_1", "txn_3"}


def test_file_with_several_currencies_converts_each_by_its_own(database: DatabaseUrls, tmp_path: Path) -> None:
    lines = [movement(n, currency=c, gross="5", fee="0", net="5") for n, c in enumerate(("eur", "jpy", "kwd"))]
    take(database, write(tmp_path / "b.csv", lines))
    assert [row["amount_minor"] for row in held(database, "balance_transactions").values()] == [500, 5, 5000]


def test_text_that_looks_like_a_formula_is_text_and_no_formula_again_in_what_is_kept_aside(
    database: DatabaseUrls, tmp_path: Path
) -> None:
    evil = movement(1, **{"payment_metadata[order_id]": "=1+1"})
    path = write(tmp_path / "b.csv", [evil, movement(2, gross="=SUM(A1)", balance_transaction_id="-txn")])
    rejects = tmp_path / "rejects.csv"
    done = makegood(database, tmp_path, str(path), "--rejects", str(rejects), "--json")
    assert done.returncode == 1, done.stderr
    assert held(database, "charges")["ch_1"]["order_ref"] == "=1+1"
    (header, row) = list(csv.reader(rejects.read_text(encoding="utf-8").splitlines()))
    assert header == ["line", "reason", "content"]
    assert row[0] == "3"
    assert row[2].startswith("'-txn")
    document = json.loads(done.stdout)
    assert document["rejected"][0]["line"] == 3


def test_line_in_another_encoding_is_told_and_read_when_it_is_named(database: DatabaseUrls, tmp_path: Path) -> None:
    path = write(tmp_path / "b.csv", [movement(1), movement(2, **{"payment_metadata[order_id]": "Bücher"})])
    path.write_bytes(path.read_text(encoding="utf-8").encode("latin-1"))
    done = take(database, path)
    assert [(line, "not utf-8: byte 0xfc" in reason) for line, reason in done.faults] == [(3, True)]
    take(database, path, encoding="latin-1")
    assert held(database, "charges")["ch_2"]["order_ref"] == "Bücher"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"id;amount\n1;2\n", "known here"),
        (",".join(BALANCE[:-6]).encode() + b"\n", "reporting_category"),
        (codecs_utf16 := "a,b\n".encode("utf-16"), "UTF-16"),
        (b"a,a\n1,2\n", "twice"),
        (b"PAR1 and then nothing", "no whole Parquet file"),
        (b"\0\0\0\n", "NUL"),
    ],
)
def test_file_that_is_none_is_refused_with_what_is_wrong(
    database: DatabaseUrls, tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "b.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        take(database, path)
    assert database.rows("SELECT * FROM makegood.provider_imports") == []


def test_file_that_was_cut_off_has_its_last_line_kept_aside(database: DatabaseUrls, tmp_path: Path) -> None:
    """Inside of an amount the count of fields would not tell: 19.9 is money too."""
    path = write(tmp_path / "b.csv", [movement(1), movement(2)], [*BALANCE])
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b"19.99") + 4])
    done = take(database, path)
    assert [line for line, _ in done.faults] == [3]
    assert "cut off" in done.faults[0][1]
    assert set(held(database, "balance_transactions")) == {"txn_1"}


def test_quote_that_is_never_closed_costs_its_own_line_only(database: DatabaseUrls, tmp_path: Path) -> None:
    path = write(tmp_path / "b.csv", [movement(n) for n in range(1, 80)])
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[2] = '"' + lines[2]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    done = take(database, path)
    assert [(line, reason) for line, reason in done.faults] == [(3, "a quote is opened and never closed")]
    assert len(held(database, "balance_transactions")) == 78


def test_quoted_field_with_a_line_end_is_one_record(database: DatabaseUrls, tmp_path: Path) -> None:
    take(
        database, write(tmp_path / "b.csv", [movement(1, **{"payment_metadata[order_id]": "two\nlines"}), movement(2)])
    )
    assert held(database, "charges")["ch_1"]["order_ref"] == "two\nlines"
    assert len(held(database, "charges")) == 2


def test_parquet_gives_the_same_as_csv(database: DatabaseUrls, tmp_path: Path) -> None:
    lines = [dict(zip(BALANCE, movement(n), strict=True)) for n in range(1, 4)]
    columns: dict[str, Any] = {name: [line[name] for line in lines] for name in BALANCE}
    columns |= {
        name: pa.array([Decimal(v) for v in columns[name]], pa.decimal128(12, 2)) for name in ("gross", "fee", "net")
    }
    parquet.write_table(pa.table(columns), tmp_path / "b.parquet")
    done = take(database, tmp_path / "b.parquet")
    assert (done.counts["lines"], done.counts["rejected"]) == (3, 0)
    before = everything(database)
    assert take(database, write(tmp_path / "b.csv", [movement(n) for n in range(1, 4)])).counts["changed"] == 0
    assert everything(database) == before


def test_reader_tells_how_far_it_is_of_how_much_there_is_whatever_the_kind(
    database: DatabaseUrls, tmp_path: Path
) -> None:
    lines = [movement(n) for n in range(1, 2500)]
    columns = dict(zip(BALANCE, zip(*lines, strict=True), strict=True))
    parquet.write_table(pa.table(columns), tmp_path / "b.parquet")
    for path in (write(tmp_path / "b.csv", lines), tmp_path / "b.parquet"):
        told: list[float] = []
        take(database, path, tell=lambda _, position, told=told: told.append(position))
        assert told == sorted(told)
        assert told[-1] == files.count_to_read(path)


def test_parquet_with_money_in_binary_fractions_is_refused(database: DatabaseUrls, tmp_path: Path) -> None:
    columns: dict[str, Any] = {name: [cell] for name, cell in zip(BALANCE, movement(1), strict=True)}
    parquet.write_table(pa.table({**columns, "gross": [19.99]}), tmp_path / "b.parquet")
    with pytest.raises(InputError, match="gross is a binary fraction"):
        take(database, tmp_path / "b.parquet")


def test_parquet_that_was_cut_off_is_refused(database: DatabaseUrls, tmp_path: Path) -> None:
    columns: dict[str, Any] = {name: [cell] * 1000 for name, cell in zip(BALANCE, movement(1), strict=True)}
    path = tmp_path / "b.parquet"
    parquet.write_table(pa.table(columns), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="no whole Parquet file"):
        take(database, path)


ADYEN = """
provider = "adyen"
decimal = ","
thousands = "."
time = "%d.%m.%Y %H:%M"
timezone = "Europe/Berlin"
delimiter = ";"

[[rows]]
collection = "charges"
[rows.columns]
id = "Psp Reference"
order_ref = "Merchant Reference"
amount_minor = "Betrag"
currency = "Währung"
status = "Record Type"
created_at = "Gebucht"
[rows.constants]
livemode = true
[rows.words.status]
SentForSettle = "succeeded"
Refused = "failed"
"""


def test_mapping_of_ones_own_reads_another_providers_file(database: DatabaseUrls, tmp_path: Path) -> None:
    path, own = tmp_path / "report.csv", tmp_path / "adyen.toml"
    own.write_text(ADYEN, encoding="utf-8")
    header = "Psp Reference;Merchant Reference;Betrag;Währung;Record Type;Gebucht\n"
    # In the night of 25 October a clock in Berlin shows 02:30 twice; both are a time.
    lines = "A1;order-1;1.234,56;EUR;SentForSettle;25.10.2026 02:30\nA2;order-2;7,00;EUR;Refused;29.03.2026 01:59\n"
    path.write_text(header + lines + "A3;order-3;7,00;EUR;Chargeback;01.11.2026 00:00\n", encoding="utf-8")
    done = take(database, path, mapping=mapping.load(own))
    found = held(database, "charges")
    assert {key: (row["amount_minor"], row["captured_minor"], row["status"]) for key, row in found.items()} == {
        "A1": (123456, 123456, "succeeded"),
        "A2": (700, 0, "failed"),
    }
    assert found["A1"]["provider"] == "adyen"
    assert found["A2"]["created_at"].timestamp() == 1_774_745_940
    assert "no word for" in done.faults[0][1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("amount_minor =", "amount ="), "does not know 'amount'"),
        (('created_at = "Gebucht"', ""), "where these come from: created_at"),
        (('"charges"', '"invoices"'), "needs a collection"),
        (('"Europe/Berlin"', '"Europe/Atlantis"'), "no timezone"),
        (('thousands = "."', 'thousands = ","'), "two different characters"),
        (("[[rows]]", "[[lines]]"), "does not know 'lines'"),
        (('decimal = ","', "decimal = "), "cannot be read"),
    ],
)
def test_mapping_that_cannot_be_says_what_is_wrong(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    own = tmp_path / "own.toml"
    own.write_text(ADYEN.replace(*change), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        mapping.load(own)


def test_mapping_whose_column_is_missing_names_it_and_what_there_is(database: DatabaseUrls, tmp_path: Path) -> None:
    own = tmp_path / "adyen.toml"
    own.write_text(ADYEN, encoding="utf-8")
    (tmp_path / "r.csv").write_text("Psp Reference;Betrag\nA1;7\n", encoding="utf-8")
    with pytest.raises(InputError, match="Währung") as caught:
        take(database, tmp_path / "r.csv", mapping=mapping.load(own))
    assert "Psp Reference, Betrag" in str(caught.value.hint)


def test_built_in_mappings_are_whole() -> None:
    assert [one.name for one in mapping.built_in()] == ["stripe-balance", "stripe-payments", "stripe-payouts"]


# As a command


def makegood(database: DatabaseUrls, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, env=around(database, home), timeout=120, check=False
    )


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "makegood.cli", "reconcile", "import", *arguments]


def around(database: DatabaseUrls, home: Path) -> dict[str, str]:
    return {**os.environ, "MAKEGOOD_DATABASE_URL": database.jobs, "MAKEGOOD_HOME": str(home)}


def test_import_killed_at_any_moment_and_run_again_ends_the_same(database: DatabaseUrls, tmp_path: Path) -> None:
    count = 12_000
    lines = [movement(n, **({"gross": "bad"} if n % 1000 == 7 else {})) for n in range(count)]
    path = write(tmp_path / "b.csv", lines)
    kills = 0
    for _ in range(4):
        running = subprocess.Popen(
            command(str(path)), env=around(database, tmp_path), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        before = reached(database)
        deadline = time.monotonic() + 60
        while running.poll() is None and reached(database) < before + 2000 and time.monotonic() < deadline:
            time.sleep(0.01)
        kills += running.poll() is None
        running.send_signal(signal.SIGKILL)
        running.wait(30)
    assert kills >= 2
    done = makegood(database, tmp_path, str(path), "--json")
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    assert document["resumed_after_line"] > 0
    assert {name: document["counts"][name] for name in ("lines", "rejected", "duplicates")} | {
        "held": len(held(database, "balance_transactions"))
    } == {"lines": document["counts"]["lines"], "rejected": 12, "duplicates": 0, "held": count - 12}
    assert len(kept_aside(database)) == 12


def reached(database: DatabaseUrls) -> int:
    rows = database.rows("SELECT lines_done FROM makegood.provider_imports")
    return int(rows[0]["lines_done"]) if rows else 0


PEAK = """
import resource, sys
from pathlib import Path
from makegood.reconciliation import files, importing, mapping
path = Path(sys.argv[1])
exponents = {"EUR": 2}
opened = importing._open(path, None, None)
count = 0
with opened.file:
    for batch in importing._batches(opened.lines(), opened.mapping, exponents, False):
        count += batch.lines
assert files.fingerprint(path)
print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_kb(path: Path) -> tuple[int, int]:
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, timeout=120, check=True
    )
    count, peak = done.stdout.split()
    return int(count), int(peak)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_file_ten_times_as_large_takes_no_more_memory(tmp_path: Path, kind: str) -> None:
    small, large = tmp_path / f"small.{kind}", tmp_path / f"large.{kind}"
    for path, count in ((small, 4_000), (large, 40_000)):
        numbered = (movement(n, **{"payment_metadata[order_id]": f"{n}" * 250}) for n in range(count))
        write_many(path, numbered)
    assert large.stat().st_size > 9 * small.stat().st_size
    (_, little), (count, much) = peak_kb(small), peak_kb(large)
    assert count == 40_000
    assert much - little < 24_000, (little, much)


def write_many(path: Path, lines: Iterator[list[str]]) -> None:
    if path.suffix == ".csv":
        write(path, list(lines))
        return
    schema = pa.schema([(name, pa.string()) for name in BALANCE])
    with parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        while batch := list(itertools.islice(lines, 2000)):
            writer.write_table(pa.table(dict(zip(BALANCE, zip(*batch, strict=True), strict=True)), schema=schema))


def test_import_within_a_memory_smaller_than_the_file_completes(database: DatabaseUrls, tmp_path: Path) -> None:
    """The process may have 150 MB in all, of which half is gone once it has started; the file is as large as that."""
    long = "z" * 120_000
    path = tmp_path / "b.csv"
    write(path, [movement(n, **{"payment_metadata[order_id]": long}) for n in range(1300)])
    assert path.stat().st_size > 150_000_000
    done = subprocess.run(
        command(str(path), "--json"),
        env=around(database, tmp_path),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (150_000_000, 150_000_000)),
    )
    assert done.returncode == 1, done.stderr[-2000:]
    counts = json.loads(done.stdout)["counts"]
    assert (counts["lines"], counts["rejected"]) == (1300, 1300)  # the order's name is longer than any
    assert len(held(database, "balance_transactions")) == 1300


def test_long_lines_are_bounded_before_anything_is_made_of_them() -> None:
    assert files.LINE_BYTES_MAX <= 1024 * 1024


def test_charge_that_was_captured_in_parts_is_the_sum_of_its_lines(database: DatabaseUrls, tmp_path: Path) -> None:
    """In one file, on lines far apart, and in the next month's; a line that comes twice counts once."""
    parts = [movement(n, charge_id="ch_1", source_id="ch_1", payment_intent_id="pi_1") for n in (1, 2)]
    later = movement(3, charge_id="ch_1", source_id="ch_1", payment_intent_id="pi_1", gross="0.02", net="-0.86")
    between = [movement(n) for n in range(100, 1200)]

    take(database, write(tmp_path / "november.csv", [parts[0], *between, parts[1], parts[1]]))
    assert held(database, "charges")["ch_1"]["captured_minor"] == 2 * 1999
    take(database, write(tmp_path / "december.csv", [later, movement(4)]))

    charge = held(database, "charges")["ch_1"]
    assert (charge["captured_minor"], charge["amount_minor"], charge["order_ref"]) == (4000, 4000, "order-1")
    assert held(database, "charges")["ch_4"]["captured_minor"] == 1999
    assert take(database, write(tmp_path / "november.csv", [parts[0], *between, parts[1]])).counts["changed"] == 0
