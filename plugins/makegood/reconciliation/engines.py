"""Verdicts over Parquet files on DuckDB or Spark, for books that have outgrown one PostgreSQL.

The rules are those of PostgreSQL (`stages`); so are the answers, which a test compares row by row. What is not here:
findings and their life, totals, incremental runs, payouts and fees, remedies. An engine says what is broken now, and
somebody else keeps it.

A folder has ``orders`` and ``charges``, and if there are any ``refunds``, ``disputes`` and ``workflows``: each a file
``name.parquet`` or a folder ``name`` of such files, with the columns below. A row that comes twice counts once.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from makegood.errors import ConfigurationError, InputError
from makegood.reconciliation.stages import Dialect, missing, read_stages, translate
from makegood.reconciliation.terms import Terms

ENGINES: tuple[Dialect, ...] = ("duckdb", "spark")
# Column → type, and what it is where the files do not have it; None: they must.
Columns = dict[str, tuple[str, str | None]]
TEXT, WHOLE, YES_NO, TIME = "TEXT", "BIGINT", "BOOLEAN", "TIMESTAMPTZ"
SOURCES: dict[str, Columns] = {
    "orders": {
        "order_id": (TEXT, None),
        "status": (TEXT, None),
        "amount_minor": (WHOLE, None),
        "currency": (TEXT, None),
        "payment_ref": (TEXT, None),
        "customer_ref": (TEXT, "NULL"),
        "refunded_minor": (WHOLE, "0"),
        "dispute_known": (YES_NO, "FALSE"),
        "written_off_minor": (WHOLE, "0"),
        "partial_shipment": (YES_NO, "FALSE"),
        "created_at": (TIME, None),
        "changed_at": (TIME, "NULL"),
    },
    "charges": {
        "id": (TEXT, None),
        "payment_ref": (TEXT, None),
        "order_ref": (TEXT, "NULL"),
        "customer_ref": (TEXT, "NULL"),
        "status": (TEXT, None),
        "amount_minor": (WHOLE, None),
        "captured_minor": (WHOLE, None),
        "currency": (TEXT, None),
        "livemode": (YES_NO, None),
        "capture_before": (TIME, "NULL"),
        "captures_open": (YES_NO, "FALSE"),
        "plain": (YES_NO, "FALSE"),
        "created_at": (TIME, None),
    },
    "refunds": {
        "id": (TEXT, None),
        "charge_id": (TEXT, None),
        "status": (TEXT, None),
        "amount_minor": (WHOLE, None),
        "created_at": (TIME, None),
    },
    "disputes": {
        "id": (TEXT, None),
        "charge_id": (TEXT, None),
        "status": (TEXT, None),
        "amount_minor": (WHOLE, None),
        "created_at": (TIME, None),
    },
    "workflows": {
        "order_id": (TEXT, None),
        "current_state": (TEXT, None),
        "deadline_at": (TIME, None),
        "held": (YES_NO, "FALSE"),
        "updated_at": (TIME, None),
    },
}
REQUIRED = ("orders", "charges")
ANSWER = """
SELECT v.unit, v.class, v.at_risk_minor, v.currency, v.remedy, v.order_id, v.charge_id, v.customer_ref
  FROM verdicts v WHERE v.class <> 'MATCHED'
"""
COUNTS = """
SELECT v.class, COUNT(*) AS units, SUM(v.at_risk_minor) AS at_risk_minor, v.currency
  FROM verdicts v GROUP BY v.class, v.currency ORDER BY v.class, v.currency
"""


@dataclass(frozen=True)
class Moment:
    """When it is judged: ``watermark`` is up to where the charges, refunds and disputes are all there."""

    now: datetime
    watermark: datetime


class Engine(Protocol):
    dialect: Dialect

    def read(self, name: str, path: Path) -> Sequence[str]:
        """Makes the Parquet files known under that name; their columns."""

    def name(self, name: str, query: str) -> None:
        """Gives a query in the engine's own words a name."""

    def keep(self, name: str, query: str) -> None:
        """The same, worked out once however often it is asked for."""

    def rows(self, query: str) -> list[tuple[Any, ...]]: ...

    def write(self, query: str, path: Path) -> None:
        """As Parquet, which a path that is there already is replaced by."""


def judge(engine: Engine, folder: Path, terms: Terms, moment: Moment) -> None:
    """From the files of a folder to the table ``verdicts``: one row per order and per charge without one."""
    for name, columns in SOURCES.items():
        engine.name(f"seen_{name}", translate(_source(engine, folder, name, columns), engine.dialect))
    engine.name("terms", translate(_terms(terms, moment), engine.dialect))
    for name, query in read_stages().items():
        engine.keep(name, translate(query, engine.dialect))


def find_path(folder: Path, name: str) -> Path | None:
    for path in (folder / f"{name}.parquet", folder / name):
        if path.exists():
            return path
    if name in REQUIRED:
        raise InputError(f"{folder} has neither {name}.parquet nor a folder {name}")
    return None


def _source(engine: Engine, folder: Path, name: str, columns: Columns) -> str:
    """Every column as its type, so that what follows is the same whatever wrote the files."""
    path = find_path(folder, name)
    if path is None:
        nothing = ", ".join(f"CAST(NULL AS {kind}) AS {column}" for column, (kind, _) in columns.items())
        return f"SELECT {nothing} WHERE FALSE"
    there = set(engine.read(f"file_{name}", path))
    absent = [column for column, (_, otherwise) in columns.items() if otherwise is None and column not in there]
    if absent:
        raise InputError(f"{path} has no column {absent[0]!r}", hint=f"It has {', '.join(sorted(there))}.")
    values = ", ".join(
        f"CAST({f'f.{column}' if column in there else otherwise} AS {kind}) AS {column}"
        for column, (kind, otherwise) in columns.items()
    )
    return f"SELECT DISTINCT {values} FROM file_{name} f"  # noqa: S608 - names of ours only


def _terms(terms: Terms, moment: Moment) -> str:
    def at(time: datetime) -> str:
        if time.tzinfo is None:
            raise InputError(f"{time} does not say its time zone", hint="For example 2026-11-01T00:00+01:00.")
        return f"CAST('{time.isoformat()}' AS TIMESTAMPTZ)"

    soon = moment.now + timedelta(seconds=terms.lapse_warning_seconds)
    charges = moment.watermark - timedelta(seconds=terms.charge_grace_seconds)
    refunds = moment.watermark - timedelta(seconds=terms.refund_grace_seconds)
    return (
        f"SELECT {str(terms.livemode).upper()} AS livemode,"
        f" CAST({int(terms.tolerance_minor)} AS BIGINT) AS tolerance_minor, {at(moment.now)} AS now_at,"
        f" {at(soon)} AS lapse_before, {at(charges)} AS judge_charges_before, {at(refunds)} AS judge_refunds_before"
    )


class DuckDB:
    """In this process; what does not fit into memory goes to disk."""

    dialect: Dialect = "duckdb"

    def __init__(self) -> None:
        try:
            import duckdb  # noqa: PLC0415 - only where it is wanted
        except ImportError as error:
            raise missing("duckdb") from error
        self._connection: Any = duckdb.connect()
        self._connection.execute("SET TimeZone = 'UTC'")

    def __enter__(self) -> DuckDB:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def read(self, name: str, path: Path) -> Sequence[str]:
        relation = self._connection.read_parquet(str(path / "*.parquet" if path.is_dir() else path))
        relation.create_view(name)
        columns: list[str] = relation.columns
        return columns

    def name(self, name: str, query: str) -> None:
        self._connection.execute(f"CREATE OR REPLACE VIEW {name} AS {query}")

    def keep(self, name: str, query: str) -> None:
        self._connection.execute(f"CREATE OR REPLACE TABLE {name} AS {query}")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = self._connection.execute(query).fetchall()
        return rows

    def write(self, query: str, path: Path) -> None:
        self._connection.sql(query).write_parquet(str(path))


class Spark:
    """On ``master``: this machine's cores, or a cluster that can read and write the same paths."""

    dialect: Dialect = "spark"

    def __init__(self, master: str = "local[*]", **options: str) -> None:
        try:
            from pyspark.sql import SparkSession  # noqa: PLC0415 - only where it is wanted
        except ImportError as error:
            raise missing("pyspark") from error
        if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
            raise ConfigurationError(
                "Spark needs Java, and there is none", hint="apt-get install openjdk-17-jre-headless, or set JAVA_HOME"
            )
        builder: Any = SparkSession.builder
        given = {
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            # Amounts that do not fit are an error, as they are in PostgreSQL.
            "spark.sql.ansi.enabled": "true",
        }
        for key, value in {**given, **options}.items():
            builder = builder.config(key, value)
        self._session: Any = builder.master(master).appName("makegood").getOrCreate()
        self._session.sparkContext.setLogLevel("ERROR")

    def __enter__(self) -> Spark:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.stop()

    def read(self, name: str, path: Path) -> Sequence[str]:
        frame = self._session.read.parquet(str(path))
        frame.createOrReplaceTempView(name)
        columns: list[str] = frame.columns
        return columns

    def name(self, name: str, query: str) -> None:
        self._session.sql(query).createOrReplaceTempView(name)

    def keep(self, name: str, query: str) -> None:
        self._session.sql(query).persist().createOrReplaceTempView(name)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self._session.sql(query).collect()]

    def write(self, query: str, path: Path) -> None:
        self._session.sql(query).write.mode("overwrite").parquet(str(path))
