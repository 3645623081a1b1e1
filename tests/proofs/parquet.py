"""A ledger as Parquet files, as another house would keep its books."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from prover.ledgers.rows import Ledger

TIME = pa.timestamp("us", tz="UTC")
TYPES = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}


def write_ledger(ledger: Ledger, folder: Path) -> None:
    """Every other charge twice: what is said twice counts once."""
    orders = [{**asdict(row), "order_id": row.id, "changed_at": None} for row in ledger.orders]
    workflows = [
        {
            "order_id": row.entity_id,
            "current_state": row.current_state,
            "deadline_at": row.deadline_at,
            "held": row.held_at is not None,
            "updated_at": row.created_at,
        }
        for row in ledger.workflows
    ]
    charges = [asdict(row) for row in ledger.charges]
    tables = {
        "orders": orders,
        "charges": charges + charges[::2],
        "refunds": [asdict(row) for row in ledger.refunds],
        "disputes": [asdict(row) for row in ledger.disputes],
        "workflows": workflows,
    }
    for name, rows in tables.items():
        pq.write_table(pa.Table.from_pylist(rows, schema=_schema(rows)), folder / f"{name}.parquet")


def _schema(rows: list[dict[str, object]]) -> pa.Schema:
    names = list(rows[0])
    values = {name: next((row[name] for row in rows if row[name] is not None), None) for name in names}
    return pa.schema([(name, TYPES.get(type(values[name]), TIME)) for name in names])
