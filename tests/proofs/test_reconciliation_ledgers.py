"""What is planted is found, and nothing else, to the cent, in whatever order the rows arrive."""

from __future__ import annotations

import uuid

import psycopg
import pytest
from databases import DatabaseUrls
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planted import open_books, run_match
from psycopg.types.json import Jsonb

from prover.ledgers.comparing import (
    count_differences_in_many,
    find_differences,
    find_differences_in_totals,
    planted_totals,
)
from prover.ledgers.loading import all_rows, load
from prover.ledgers.many import plant_many
from prover.ledgers.planting import NAMES, deal, plant, plant_all
from prover.ledgers.proof import to_terms
from prover.ledgers.rows import Ledger

MANY = 100_000  # the million is `makegood prove reconcile`
mixes = st.tuples(st.lists(st.sampled_from(NAMES), min_size=1, max_size=30), st.integers(0, 2**32))


def test_ledger_of_one_seed_is_the_same_twice_and_says_something_of_everything(database: DatabaseUrls) -> None:
    with open_books(database) as (_, watermark):
        one, two = (plant_all(4, watermark, of_each=2) for _ in range(2))
    assert one == two
    assert {charge.id for charge in one.charges} == set(one.buckets)
    assert {f"order:{order.id}" for order in one.orders} <= set(one.verdicts)
    said = {verdict.class_ for verdict in one.verdicts.values()}
    # D09 and D32 are of the fetching, D12 is a wait, D28 is how a finding closes.
    assert said == {"MATCHED", "PENDING"} | {f"D{n:02}" for n in range(1, 32)} - {"D09", "D12", "D28"}


@pytest.mark.parametrize("kind", ["full", "incremental"])
def test_every_planted_case_is_found_with_its_amount_and_nothing_else(database: DatabaseUrls, kind: str) -> None:
    with open_books(database) as (connection, watermark):
        ledger = plant_all(1, watermark, of_each=12)
        load(connection, all_rows(ledger))
        run = run_match(database, kind, ledger.terms)  # type: ignore[arg-type]
        assert find_differences(connection, ledger) == []
        assert find_differences_in_totals(connection, run.run_id, ledger.totals()) == []


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_rows_in_any_order_and_late_come_to_the_same_findings(database: DatabaseUrls, seed: int) -> None:
    """An incremental run after every instalment; the full one at the end has nothing to add."""
    with open_books(database) as (connection, watermark):
        ledger = plant_all(seed, watermark, of_each=4)
        for rows in deal(ledger, seed, 5):
            load(connection, rows)
            run_match(database, "incremental", ledger.terms)
        assert find_differences(connection, ledger) == []
        full = run_match(database, "full", ledger.terms)
        assert (full.opened, full.closed, full.missed) == (0, 0, 0)
        assert find_differences(connection, ledger) == []
        assert find_differences_in_totals(connection, full.run_id, ledger.totals()) == []


@pytest.fixture
def scratch(database: DatabaseUrls) -> DatabaseUrls:
    """For examples that are rolled back."""
    return database


def judge_and_roll_back(database: DatabaseUrls, ledger: Ledger, instalments: int, seed: int) -> list[str]:
    with psycopg.connect(database.admin, autocommit=True) as connection, connection.transaction(force_rollback=True):
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        for rows in deal(ledger, seed, instalments):
            load(connection, rows)
        run = uuid.uuid4()
        terms = Jsonb(to_terms(ledger.terms).to_document())
        connection.execute("SELECT FROM makegood.begin_reconciliation(%s, 'full', %s)", (run, terms))
        connection.execute("SELECT FROM makegood.match_charges(%s)", (run,))
        return find_differences(connection, ledger) + find_differences_in_totals(connection, run, ledger.totals())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(mix=mixes, instalments=st.integers(1, 4))
def test_totals_and_findings_of_any_mix_add_up_to_the_cent(
    scratch: DatabaseUrls, mix: tuple[list[str], int], instalments: int
) -> None:
    with open_books(scratch) as (_, watermark):
        ledger = plant(mix[0], mix[1], watermark)
    assert judge_and_roll_back(scratch, ledger, instalments, mix[1]) == []
    for currency in {charge.currency for charge in ledger.charges}:
        parts = [
            sums for (code, bucket), sums in ledger.totals().items() if (code, bucket != "provider") == (currency, True)
        ]
        whole = ledger.totals()[currency, "provider"]
        assert (sum(count for count, _ in parts), sum(amount for _, amount in parts)) == whole


def test_hundred_thousand_orders_have_precision_and_recall_of_one(database: DatabaseUrls) -> None:
    with open_books(database) as (connection, watermark):
        planted = plant_many(connection, MANY, 7, watermark)
        ledger_terms = plant([], 0, watermark).terms
        run = run_match(database, "full", ledger_terms)
        assert count_differences_in_many(connection) == {"right": planted.broken, "wrong": 0, "absent": 0}
        assert find_differences_in_totals(connection, run.run_id, planted_totals(connection)) == []
