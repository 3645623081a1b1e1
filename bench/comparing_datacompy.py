"""The datacompy side: both tables read, compared by the payment, and the rows that differ handed on to be written.

It is given what a row of each side says of the same thing: the amount, the currency, whether it is paid, and what was
given back. Without the last two it could see neither a failed charge behind a paid order nor a missing refund. More it
cannot be given: it has no rules, so it says that two rows differ and never what is wrong, how much is at risk or what
to do, and a charge that only its metadata links to an order counts as alone. So nothing can be asked of its answer, but
that its rows are there. Its report for people is not asked for.
"""

from __future__ import annotations

from typing import Any

import datacompy  # type: ignore[import-not-found]
import pandas as pd
import sqlalchemy

ORDERS = """
SELECT payment_ref, amount_minor, currency, refunded_minor, status IN ('paid', 'fulfilled') AS paid
  FROM makegood.reconcilable_orders WHERE payment_ref IS NOT NULL
"""
CHARGES = """
SELECT c.payment_ref, c.captured_minor AS amount_minor, c.currency, coalesce(r.amount_minor, 0) AS refunded_minor,
       c.status = 'succeeded' AS paid
  FROM makegood.provider_charges c
  LEFT JOIN (SELECT charge_id, sum(amount_minor)::bigint AS amount_minor FROM makegood.provider_refunds
              WHERE status IN ('succeeded', 'pending') GROUP BY charge_id) r ON r.charge_id = c.id
"""


def compare(engine: sqlalchemy.Engine, _terms: dict[str, Any]) -> pd.DataFrame:
    """The rows that differ, with both sides of each, and those that only one side has."""
    orders, charges = pd.read_sql(ORDERS, engine), pd.read_sql(CHARGES, engine)
    compared = datacompy.PandasCompare(orders, charges, "payment_ref", df1_name="order", df2_name="charge")
    only_order = compared.df1_unq_rows.set_index("payment_ref").add_suffix("_order").reset_index()
    only_charge = compared.df2_unq_rows.set_index("payment_ref").add_suffix("_charge").reset_index()
    return pd.concat([compared.all_mismatch(), only_order, only_charge])
