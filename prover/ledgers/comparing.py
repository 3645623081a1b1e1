"""Compares what a run has found with what was planted. Every difference is a violation, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, LiteralString

import psycopg

from prover.ledgers.rows import Ledger

Connection = psycopg.Connection[Any]
NOT_OURS = ("D09", "D32")  # said by those who fetch, not of what was planted
FOUND: LiteralString = (
    "SELECT * FROM makegood.reconciliation_findings WHERE state <> 'resolved' AND class <> ALL (%(not_ours)s)"
)


def find_differences(connection: Connection, ledger: Ledger) -> list[str]:
    """Against a small ledger: class, amount, currency, remedy and charge of every finding."""
    rows = connection.execute(
        "SELECT unit, class, amount_at_risk_minor, currency, remedy, charge_id FROM makegood.reconciliation_findings"
        " WHERE state <> 'resolved' AND class <> ALL (%s)",
        (list(NOT_OURS),),
    ).fetchall()
    found = {row[0]: row[1:] for row in rows}
    violations = [f"{unit} has {count} open findings" for unit, count in _twice(rows).items()]
    for unit, verdict in ledger.breaks.items():
        expected = (verdict.class_, verdict.amount_at_risk_minor, verdict.currency, verdict.remedy, verdict.charge_id)
        said = found.get(unit)
        if said is None or any(a != b for a, b in zip(expected, said, strict=True) if a is not None):
            violations.append(f"{unit}: expected {expected}, found {said}")
    violations += [
        f"{unit}: found {said}, nothing is wrong" for unit, said in found.items() if unit not in ledger.breaks
    ]
    return violations


def find_differences_in_totals(
    connection: Connection, run_id: object, expected: Mapping[Any, tuple[int, int]]
) -> list[str]:
    """(currency, bucket) → (charges, captured) of that run against the same of how it was planted."""
    rows = connection.execute(
        "SELECT currency, bucket, charges, amount_minor FROM makegood.reconciliation_totals WHERE run_id = %s",
        (run_id,),
    ).fetchall()
    said = {(row[0], row[1]): (row[2], int(row[3])) for row in rows}
    return [
        f"{key}: expected {expected.get(key, (0, 0))}, the run says {said.get(key, (0, 0))}"
        for key in sorted({*said, *expected})
        if said.get(key, (0, 0)) != expected.get(key, (0, 0))
    ]


def count_differences_in_many(connection: Connection, found: LiteralString = FOUND) -> dict[str, int]:
    """Against the tables of ``many``: how many findings are right, wrong (precision) and absent (recall).

    ``found`` selects them: ours, or somebody else's with unit, class, amount_at_risk_minor and currency.
    """
    row = connection.execute(
        """
        SELECT count(*) FILTER (WHERE (f.class, f.amount_at_risk_minor, f.currency)
                                    = (p.class, p.amount_at_risk_minor, p.currency)) AS right,
               count(*) FILTER (WHERE f.unit IS NOT NULL AND (f.class, f.amount_at_risk_minor, f.currency)
                                    IS DISTINCT FROM (p.class, p.amount_at_risk_minor, p.currency)) AS wrong,
               count(*) FILTER (WHERE p.unit IS NOT NULL AND (f.class, f.amount_at_risk_minor, f.currency)
                                    IS DISTINCT FROM (p.class, p.amount_at_risk_minor, p.currency)) AS absent
          FROM ("""
        + found
        + """) AS f
          FULL JOIN (SELECT * FROM planted.verdicts WHERE class LIKE 'D%%') AS p ON p.unit = f.unit
        """,
        {"not_ours": list(NOT_OURS)},
    ).fetchone()
    assert row is not None
    return dict(zip(("right", "wrong", "absent"), row, strict=True))


def planted_totals(connection: Connection) -> dict[tuple[str, str], tuple[int, int]]:
    rows = connection.execute(
        "SELECT currency, bucket, sum(charges), sum(amount_minor) FROM planted.totals GROUP BY 1, 2"
    ).fetchall()
    return {(row[0], row[1]): (int(row[2]), int(row[3])) for row in rows}


def _twice(rows: list[Any]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row[0]] = counts.get(row[0], 0) + 1
    return {unit: count for unit, count in counts.items() if count > 1}
