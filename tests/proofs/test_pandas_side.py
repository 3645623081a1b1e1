"""The pandas side of the benchmark is a fair opponent: it says word for word what a full run says."""

from __future__ import annotations

import psycopg
import sqlalchemy
from databases import DatabaseUrls
from planted import open_books, run_match
from psycopg import sql

from bench import comparing, comparing_pandas
from bench.scratch import to_url
from prover.ledgers.comparing import count_differences_in_many
from prover.ledgers.many import plant_many
from prover.ledgers.planting import plant
from prover.ledgers.proof import to_terms

COLUMNS = sql.SQL(", ").join(map(sql.Identifier, comparing_pandas.FINDING))
MANY = 30_000


def test_pandas_over_planted_orders_finds_what_a_full_run_finds_to_the_remedy(database: DatabaseUrls) -> None:
    with open_books(database) as (connection, watermark):
        planted = plant_many(connection, MANY, 8, watermark)
        terms = plant([], 0, watermark).terms
        run_match(database, "full", terms)
        connection.execute("CREATE SCHEMA elsewhere")
        engine = sqlalchemy.create_engine(to_url(database.admin).replace("postgresql://", "postgresql+psycopg://", 1))
        found = comparing_pandas.compare(engine, to_terms(terms).to_document())
        comparing.write(engine, found, "elsewhere.findings")
        engine.dispose()
        connection.execute("ALTER TABLE elsewhere.findings ADD PRIMARY KEY (unit)")
        differences = count_differences_in_many(connection, "SELECT * FROM elsewhere.findings")
        assert differences == {"right": planted.broken, "wrong": 0, "absent": 0}
        assert find_not_in(connection, "elsewhere.findings", "makegood.reconciliation_findings") == []
        assert find_not_in(connection, "makegood.reconciliation_findings", "elsewhere.findings") == []


def find_not_in(connection: psycopg.Connection, one: str, other: str) -> list[tuple]:
    tables = [sql.Identifier(*name.split(".")) for name in (one, other)]
    query = sql.SQL("SELECT {columns} FROM {0} EXCEPT SELECT {columns} FROM {1} ORDER BY unit LIMIT 5")
    return connection.execute(query.format(*tables, columns=COLUMNS)).fetchall()
