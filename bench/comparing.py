"""What a user would pick instead: both tables read into pandas, then merged or handed to datacompy.

Run by another Python (see environments.py), so it imports nothing of makegood. Prints seconds and what was found as one
JSON line. Each gets only the columns it compares and the keys it joins by, which is its fastest sensible way.

    python comparing.py pandas|datacompy postgresql+psycopg://…
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import pandas as pd
import sqlalchemy

ORDERS = "SELECT payment_ref, id AS order_id, status, amount_minor, currency, refunded_minor FROM makegood.orders"
CHARGES = "SELECT payment_ref, id AS charge_id, status, captured_minor, currency FROM makegood.provider_charges"
REFUNDS = (
    "SELECT charge_id, sum(amount_minor)::bigint AS given_back_minor FROM makegood.provider_refunds"
    " WHERE status IN ('succeeded', 'pending') GROUP BY charge_id"
)


def compare_with_pandas(engine: sqlalchemy.Engine) -> int:
    """The merge and the simplest questions: whose other side is missing, and whose amounts or currencies differ."""
    orders, charges = pd.read_sql(ORDERS, engine), pd.read_sql(CHARGES, engine)
    charges = charges.merge(pd.read_sql(REFUNDS, engine), on="charge_id", how="left")
    both = orders[orders.payment_ref.notna()].merge(
        charges, on="payment_ref", how="outer", suffixes=("", "_charge"), indicator=True
    )
    paid = both.status.isin(["paid", "fulfilled"])
    given_back = both.given_back_minor.fillna(0)
    wrong = (
        ((both._merge == "left_only") & paid)
        | ((both._merge == "right_only") & (both.captured_minor > 0))
        | ((both._merge == "both") & paid & (both.captured_minor != both.amount_minor))
        | ((both._merge == "both") & (both.currency != both.currency_charge))
        | ((both._merge == "both") & (given_back != both.refunded_minor))
        | ((both._merge == "both") & ~paid & (both.captured_minor > given_back))
    )
    return int(wrong.sum())


def compare_with_datacompy(engine: sqlalchemy.Engine) -> int:
    """Its comparison of the amounts and currencies, joined by the payment."""
    import datacompy  # type: ignore[import-not-found]  # noqa: PLC0415 - the pandas side does without

    orders = pd.read_sql("SELECT payment_ref, amount_minor, currency FROM makegood.orders", engine)
    charges = pd.read_sql(
        "SELECT payment_ref, captured_minor AS amount_minor, currency FROM makegood.provider_charges", engine
    )
    compare: Any = getattr(datacompy, "PandasCompare", None) or datacompy.Compare
    compared = compare(orders[orders.payment_ref.notna()], charges, join_columns="payment_ref")
    return len(compared.df1_unq_rows) + len(compared.df2_unq_rows) + len(compared.all_mismatch())


def main(tool: str, url: str) -> None:
    engine = sqlalchemy.create_engine(url)
    begin = time.perf_counter()
    found = {"pandas": compare_with_pandas, "datacompy": compare_with_datacompy}[tool](engine)
    print(json.dumps({"seconds": time.perf_counter() - begin, "found": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
