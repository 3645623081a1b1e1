"""The same rules on PostgreSQL, DuckDB and Spark say the same of every unit."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from databases import DatabaseUrls
from parquet import write_ledger
from planted import open_books, run_match

from makegood.cli import app as cli
from makegood.errors import InputError
from makegood.reconciliation.engines import ANSWER, DuckDB, Engine, Moment, Spark, judge
from makegood.reconciliation.stages import read_stages, translate
from prover.ledgers.loading import all_rows, load
from prover.ledgers.planting import plant_all
from prover.ledgers.proof import to_terms
from prover.ledgers.rows import Ledger, Terms

pytest.importorskip("sqlglot", reason="pip install 'makegood[engines]'")
pytest.importorskip("duckdb", reason="pip install 'makegood[engines]'")
pytest.importorskip("pyspark", reason="pip install 'makegood[engines]'")
needs_java = pytest.mark.skipif(
    not (os.environ.get("JAVA_HOME") or shutil.which("java")), reason="apt-get install openjdk-17-jre-headless"
)
Answers = dict[str, tuple[Any, ...]]


# A few thousand rows: planning and compiling would take longer than all the rest.
SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


@pytest.fixture(scope="module")
def spark() -> Iterator[Spark]:
    with Spark("local[2]", **SMALL) as engine:
        yield engine


@pytest.fixture
def duck() -> Iterator[DuckDB]:
    with DuckDB() as engine:
        yield engine


def answers_of(engine: Engine, ledger: Ledger, folder: Path) -> Answers:
    moment = Moment(datetime.now(UTC), ledger.watermark)
    judge(engine, folder, to_terms(ledger.terms), moment)
    rows = engine.rows(translate(ANSWER, engine.dialect))
    return {row[0]: (row[1], int(row[2]), *row[3:5], *row[5:]) for row in rows}


def planted_answers(ledger: Ledger) -> dict[str, str]:
    """What is neither matched nor a payout or a fee, which these engines do not look at."""
    units = {unit: verdict.class_ for unit, verdict in ledger.verdicts.items() if verdict.class_ != "MATCHED"}
    return {unit: class_ for unit, class_ in units.items() if unit.split(":")[0] in ("order", "charge")}


@needs_java
def test_three_engines_say_the_same_of_the_same_books(
    database: DatabaseUrls, duck: DuckDB, spark: Spark, tmp_path: Path
) -> None:
    with open_books(database) as (connection, watermark):
        ledger = plant_all(11, watermark, of_each=30)
        load(connection, all_rows(ledger))
        run_match(database, "full", ledger.terms)
        found = connection.execute(
            "SELECT unit, class, amount_at_risk_minor, currency, remedy, order_id, charge_id, customer_ref"
            " FROM makegood.reconciliation_findings WHERE unit LIKE 'order:%' OR unit LIKE 'charge:%'"
        ).fetchall()
    write_ledger(ledger, tmp_path)
    on_duckdb, on_spark = (answers_of(engine, ledger, tmp_path) for engine in (duck, spark))
    assert on_duckdb == on_spark
    assert {unit: answer[0] for unit, answer in on_duckdb.items()} == planted_answers(ledger)
    broken = {unit: answer for unit, answer in on_duckdb.items() if answer[0] != "PENDING"}
    assert broken == {row[0]: tuple(row[1:]) for row in found}


def test_files_without_a_needed_column_are_refused_by_name(duck: DuckDB, tmp_path: Path) -> None:
    ledger = plant_all(1, datetime.now(UTC))
    write_ledger(ledger, tmp_path)
    duck.write("SELECT order_id, status FROM read_parquet('" + str(tmp_path / "orders.parquet") + "')", tmp_path / "o")
    (tmp_path / "o").rename(tmp_path / "orders.parquet")
    with pytest.raises(InputError, match="'amount_minor'"):
        answers_of(duck, ledger, tmp_path)


def test_folder_without_charges_is_refused(duck: DuckDB, tmp_path: Path) -> None:
    ledger = plant_all(1, datetime.now(UTC))
    write_ledger(ledger, tmp_path)
    (tmp_path / "charges.parquet").unlink()
    with pytest.raises(InputError, match="neither charges"):
        answers_of(duck, ledger, tmp_path)


def test_books_without_refunds_disputes_and_workflows_are_judged(duck: DuckDB, tmp_path: Path) -> None:
    ledger = plant_all(1, datetime.now(UTC))
    write_ledger(ledger, tmp_path)
    for name in ("refunds", "disputes", "workflows"):
        (tmp_path / f"{name}.parquet").unlink()
    answers = answers_of(duck, ledger, tmp_path)
    assert {answer[0] for answer in answers.values()} >= {"D01", "D05", "D08", "D10"}


@pytest.mark.parametrize("dialect", ["duckdb", "spark"])
def test_every_stage_translates(dialect: Any) -> None:
    assert [bool(translate(query, dialect)) for query in read_stages().values()] == [True] * len(read_stages())


def test_command_writes_what_is_not_matched_and_exits_1(
    duck: DuckDB, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without charges in the environment's own mode every paid order lacks one: the test key's mode is test."""
    monkeypatch.setenv("MAKEGOOD_HOME", str(tmp_path / "home"))
    ledger = plant_all(5, datetime.now(UTC), terms=replace(Terms(), livemode=False))
    write_ledger(ledger, tmp_path)
    to = tmp_path / "verdicts.parquet"
    assert cli.run(["reconcile", "verdicts", "--from", str(tmp_path), "--to", str(to), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    written = duck.rows(f"SELECT unit, class FROM read_parquet('{to}')")
    assert document["broken"] == sum(class_.startswith("D") for _, class_ in written)
    # The command's terms are the settings', whose tolerance is none: what rounds is more or less than it should be.
    expected = {unit for unit, class_ in planted_answers(ledger).items() if class_ != "D15"}
    assert expected <= {unit for unit, _ in written}
