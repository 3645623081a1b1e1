"""The pandas side: what a user would have to write to get the answers of a full run out of `read_sql` and merges.

The verdict on every order, charge, payout and fee as docs/reconciliation.md has it, from the same tables, and of what
is broken its class, amount at risk, currency, charge and remedy. Imports nothing of makegood.

Written for speed, each of these because it was measured to be faster: plain pairs are set aside by a few columns, and
all columns are read of the others only; what a row says by itself is asked of the database; nothing goes row by row.
`dtype_backend="pyarrow"` was no faster than the strings of pandas 3, which are Arrow's as well.

It is spared what a full run does besides: a finding's details, history and closing, the totals per currency, and D32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import sqlalchemy

Books = dict[str, pd.DataFrame]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

# `settled`: by itself it may be one half of a plain pair.
ORDERS = """
SELECT order_id, payment_ref, amount_minor, currency, status IN ('paid', 'fulfilled') AND refunded_minor = 0 AS settled
  FROM makegood.reconcilable_orders
"""
CHARGES = """
SELECT id AS charge_id, payment_ref, order_ref, captured_minor, currency,
       status = 'succeeded' AND NOT captures_open AND livemode = :livemode AS settled
  FROM makegood.provider_charges
"""
ODD_ORDERS = """
SELECT order_id, workflow_type, status, amount_minor, currency, payment_ref, refunded_minor AS ours_minor,
       dispute_known, written_off_minor, partial_shipment, greatest(created_at, changed_at) AS changed_at
  FROM makegood.reconcilable_orders WHERE order_id = ANY (:ids)
"""
ODD_CHARGES = """
SELECT id AS charge_id, payment_ref, order_ref, status, amount_minor AS authorized_minor, captured_minor, currency,
       livemode, captures_open, capture_before, created_at
  FROM makegood.provider_charges WHERE id = ANY (:ids)
"""
REFUNDS = "SELECT charge_id, status, amount_minor, created_at FROM makegood.provider_refunds"
DISPUTES = "SELECT charge_id, status, amount_minor, created_at FROM makegood.provider_disputes"
WORKFLOWS = """
SELECT entity_id AS order_id, workflow_type, current_state, held_at IS NOT NULL AS held, deadline_at, updated_at
  FROM makegood.workflow_executions
"""
# Of a payout that was made by hand, or whose parts are not here, nothing can be said.
PAYOUTS = """
SELECT id, amount_minor, currency, created_at FROM makegood.provider_payouts p WHERE status = 'paid'
   AND (NOT EXISTS (SELECT FROM makegood.provider_sync s
                     WHERE s.provider = p.provider AND s.collection = 'payouts' AND s.fetched_at IS NOT NULL)
        OR id IN (SELECT payout_id FROM makegood.provider_payouts_read WHERE with_parts))
"""
MOVEMENTS = """
SELECT id, kind, source_ref, payout_ref, amount_minor, fee_minor, net_minor, currency
  FROM makegood.provider_balance_transactions
"""
CLOCK = """
SELECT clock_timestamp() AS now_at, min(watermark) AS watermark FROM makegood.provider_sync
 WHERE collection IN ('charges', 'refunds', 'disputes')
"""
UNDONE = ("failed", "compensated")
FINDING = ["unit", "class", "order_id", "charge_id", "amount_at_risk_minor", "currency", "remedy"]


def compare(engine: sqlalchemy.Engine, terms: dict[str, Any]) -> pd.DataFrame:
    """Everything that is broken, each once."""
    books = read_books(engine, terms)
    clock = pd.read_sql(CLOCK, engine).iloc[0]
    odd = read_odd(engine, books)
    charges = describe_charges(odd, terms)
    orders = describe_orders(odd, charges, clock)
    judged = [judge_orders(orders, terms, clock), judge_charges(charges, terms, clock)]
    judged += [judge_payouts(books, terms, clock), judge_fees(books, terms)]
    return pd.concat(judged)[FINDING]


def read_books(engine: sqlalchemy.Engine, terms: dict[str, Any]) -> Books:
    small = {
        "refunds": REFUNDS,
        "disputes": DISPUTES,
        "workflows": WORKFLOWS,
        "payouts": PAYOUTS,
        "movements": MOVEMENTS,
    }
    return {
        "orders": pd.read_sql(ORDERS, engine),
        "charges": pd.read_sql(sqlalchemy.text(CHARGES), engine, params={"livemode": terms["livemode"]}),
        **{name: pd.read_sql(query, engine) for name, query in small.items()},
    }


def read_odd(engine: sqlalchemy.Engine, books: Books) -> Books:
    """All that is in no plain pair, with every column, and all that hangs together with it."""
    orders, charges = find_odd(books)
    ids = {"orders": books["orders"].order_id[orders], "charges": books["charges"].charge_id[charges]}
    read = {
        "orders": pd.read_sql(sqlalchemy.text(ODD_ORDERS), engine, params={"ids": ids["orders"].to_list()}),
        "charges": pd.read_sql(sqlalchemy.text(ODD_CHARGES), engine, params={"ids": ids["charges"].to_list()}),
    }
    return {**books, **read}


def find_odd(books: Books) -> tuple[Mask, Mask]:
    """Which orders and which charges are not half of a plain pair, nor alone with one that is none."""
    orders, charges = books["orders"], books["charges"]
    pairs = find_plain_pairs(books)
    odd_orders, odd_charges = np.ones(len(orders), bool), np.ones(len(charges), bool)
    odd_orders[pairs.order], odd_charges[pairs.charge] = False, False
    new_orders, new_charges = orders[odd_orders], charges[odd_charges]
    while len(new_orders) or len(new_charges):  # until nothing else hangs together with what is odd
        more_orders = is_in(orders.order_id, new_charges.order_ref)
        more_orders |= is_in(orders.payment_ref, pd.concat([new_charges.payment_ref, new_charges.charge_id]))
        more_charges = is_in(charges.payment_ref, new_orders.payment_ref)
        more_charges |= is_in(charges.charge_id, new_orders.payment_ref)
        more_charges |= is_in(charges.order_ref, new_orders.order_id)
        new_orders, new_charges = orders[more_orders & ~odd_orders], charges[more_charges & ~odd_charges]
        odd_orders |= more_orders
        odd_charges |= more_charges
    return odd_orders, odd_charges


def find_plain_pairs(books: Books) -> pd.DataFrame:
    """The positions of orders and of the one charge that pays each of them, where nothing is to be thought about."""
    orders, charges, workflows = books["orders"], books["charges"], books["workflows"]
    unusual = workflows.order_id[workflows.current_state != "completed"]
    touched = pd.concat([books["refunds"].charge_id, books["disputes"].charge_id])
    pairs = orders.assign(order=range(len(orders)), settled=orders.settled & ~is_in(orders.order_id, unusual)).merge(
        charges.drop(columns="charge_id").assign(
            charge=range(len(charges)), settled=charges.settled & ~is_in(charges.charge_id, touched)
        ),
        on="payment_ref",
        suffixes=("", "_charge"),
    )
    plain = (
        pairs.settled
        & pairs.settled_charge
        & (pairs.amount_minor == pairs.captured_minor)
        & (pairs.currency == pairs.currency_charge)
        & (pairs.order_ref.isna() | (pairs.order_ref == pairs.order_id))
    )
    pairs = pairs.loc[plain, ["order", "charge"]]
    return pairs[~(pairs.order.duplicated(keep=False) | pairs.charge.duplicated(keep=False))]


def is_in(column: pd.Series, keys: pd.Series) -> Mask:
    """``column.isin(keys)``, which for strings makes an object of each key; Arrow's own does not."""
    found = pc.is_in(pa.array(column), value_set=pa.array(keys.dropna()))
    return np.asarray(found)


def describe_charges(odd: Books, terms: dict[str, Any]) -> pd.DataFrame:
    """Whose each odd charge is, what was given back, what is disputed. One row for each order it may belong to."""
    charges, orders = odd["charges"], odd["orders"][["order_id", "payment_ref"]]
    links = pd.concat(
        [
            charges[["charge_id", "payment_ref"]].merge(orders, on="payment_ref"),
            charges[["charge_id"]].merge(orders, left_on="charge_id", right_on="payment_ref"),
            charges[["charge_id", "order_ref"]].merge(orders, left_on="order_ref", right_on="order_id"),
        ]
    )[["charge_id", "order_id"]].drop_duplicates()
    links = links.sort_values("order_id")
    links["candidates"] = links.groupby("charge_id").order_id.transform("size")
    described = (
        charges.merge(sum_refunds(odd["refunds"]), on="charge_id", how="left")
        .merge(sum_disputes(odd["disputes"]), on="charge_id", how="left")
        .merge(links, on="charge_id", how="left")
    )
    sums = ["refunded_minor", "refund_failed_minor", "disputed_minor", "lost_minor", "candidates"]
    described[sums] = described[sums].fillna(0).astype("int64")
    described["link"] = np.select(
        [described.livemode != terms["livemode"], described.candidates == 0, described.candidates > 1],
        ["other_mode", "orphan", "ambiguous"],
        "linked",
    )
    gone = described.refunded_minor + described.disputed_minor + described.lost_minor
    described["left_minor"] = described.captured_minor - gone
    described["youngest_at"] = described[["created_at", "refund_at", "dispute_at"]].max(axis=1)
    return described


def sum_refunds(refunds: pd.DataFrame) -> pd.DataFrame:
    alive = refunds.status.isin(["succeeded", "pending"])
    return (
        refunds.assign(alive=refunds.amount_minor.where(alive, 0), failed=refunds.amount_minor.where(~alive, 0))
        .groupby("charge_id", as_index=False)
        .agg(refunded_minor=("alive", "sum"), refund_failed_minor=("failed", "max"), refund_at=("created_at", "max"))
    )


def sum_disputes(disputes: pd.DataFrame) -> pd.DataFrame:
    is_open, lost = disputes.status == "open", disputes.status == "lost"
    return (
        disputes.assign(open=disputes.amount_minor.where(is_open, 0), lost=disputes.amount_minor.where(lost, 0))
        .groupby("charge_id", as_index=False)
        .agg(disputed_minor=("open", "sum"), lost_minor=("lost", "sum"), dispute_at=("created_at", "max"))
    )


def count_charges(charges: pd.DataFrame, orders: pd.DataFrame) -> pd.DataFrame:
    """The charges of each order, the one that pays it first, and which of them count."""
    amounts = orders[["order_id", "amount_minor", "currency"]]
    held = charges[charges.link.isin(["linked", "ambiguous"])].merge(amounts, on="order_id", suffixes=("", "_order"))
    held["linked"] = held.link == "linked"
    held["succeeded"] = held.linked & (held.status == "succeeded")
    held["foreign"] = held.currency != held.currency_order
    returned, gone = held.captured_minor <= held.refunded_minor, held.left_minor <= 0
    held["rank"] = np.select(
        [~held.succeeded, returned, gone, held.captured_minor == held.amount_minor], [4, 3, 2, 0], 1
    )
    held = held.sort_values(["order_id", "rank", "created_at", "charge_id"], ignore_index=True)
    by_order = held.groupby("order_id")
    held["place"] = by_order.cumcount()
    taken = held.captured_minor.where(held.succeeded, 0)
    first = taken.groupby(held.order_id).transform("first")
    kept = taken.where(held.captured_minor > held.refunded_minor, 0).groupby(held.order_id).transform("sum")
    over = (held.refunded_minor == held.captured_minor) & (held.left_minor == 0)
    covered = (held.place > 0) & (np.maximum(first, kept) >= held.amount_minor)
    held["counts"] = held.succeeded & ~(over & (covered | held.foreign))
    held["extra"] = held.succeeded & (held.place > 0) & (held.left_minor > 0)
    return held


def sum_by_order(held: pd.DataFrame) -> pd.DataFrame:
    """What each order's charges come to."""
    counted, linked = held.counts, held.linked
    foreign = counted & held.foreign
    twice = (held.refunded_minor + held.lost_minor - held.captured_minor).clip(lower=0)
    open_hold = linked & ((held.status == "authorized") | held.captures_open)
    either = np.minimum(held.refunded_minor, held.disputed_minor + held.lost_minor)
    sums = (
        pd.DataFrame(
            {
                "order_id": held.order_id,
                "charges": 1,
                "counted": counted.astype("int64"),
                "failed": (linked & (held.status == "failed")).astype("int64"),
                "pending": (linked & (held.status == "pending")).astype("int64"),
                "lapsed": (linked & (held.status == "lapsed")).astype("int64"),
                "authorized_minor": held.authorized_minor.where(linked & (held.status == "authorized"), 0),
                "captures_open": (counted & held.captures_open).astype("int64"),
                "cap_minor": held.captured_minor.where(counted, 0),
                "ref_minor": held.refunded_minor.where(counted, 0),
                "all_ref_minor": held.refunded_minor.where(held.succeeded, 0),
                "over_minor": twice.where(counted, 0),
                "lost_minor": held.lost_minor.where(counted, 0),
                "disputed_minor": held.disputed_minor.where(counted, 0),
                "equal": (counted & (held.captured_minor == held.amount_minor)).astype("int64"),
                "foreign": foreign.astype("int64"),
            }
        )
        .groupby("order_id")
        .sum()
    )
    most = (
        pd.DataFrame(
            {
                "order_id": held.order_id,
                "both_minor": either.where(counted, 0),
                "refund_failed_minor": held.refund_failed_minor.where(counted, 0),
                "charges_at": held.youngest_at,
            }
        )
        .groupby("order_id")
        .max()
    )
    sums = sums.join(most)
    sums["capture_before"] = held[open_hold].groupby("order_id").capture_before.min()
    sums["charged_currency"] = held[held.succeeded & held.foreign].groupby("order_id").currency.min()
    sums["first_charge"] = held[held.place == 0].set_index("order_id").charge_id
    latest = held[held.extra].sort_values(["created_at", "charge_id"]).drop_duplicates("order_id", keep="last")
    sums["extra_charge"] = latest.set_index("order_id").charge_id
    return sums


def describe_orders(odd: Books, charges: pd.DataFrame, clock: pd.Series) -> pd.DataFrame:
    """Every odd order with what its charges come to and where its workflow stands."""
    orders = odd["orders"]
    sums = sum_by_order(count_charges(charges, orders))
    facts = orders.merge(odd["workflows"], on=["order_id", "workflow_type"], how="left")
    facts = facts.merge(sums, left_on="order_id", right_index=True, how="left")
    state = facts.current_state
    facts["workflow"] = np.select(
        [
            state.isna(),
            state == "completed",
            state.isin(UNDONE),
            state == "compensating",
            facts.held.eq(True),
            facts.deadline_at <= clock.now_at,
        ],
        ["none", "completed", "undone", "compensating", "held", "late"],
        "active",
    )
    numbers = sums.select_dtypes("int64").columns
    facts[numbers] = facts[numbers].fillna(0).astype("int64")
    facts["net_minor"] = facts.cap_minor - facts.ref_minor
    facts["left_minor"] = facts.net_minor - facts.lost_minor - facts.disputed_minor
    excess = (facts.cap_minor - facts.amount_minor).clip(lower=0)
    facts["own_ref_minor"] = (facts.ref_minor - excess).clip(lower=0)
    facts["youngest_at"] = facts[["changed_at", "charges_at", "updated_at"]].max(axis=1)
    return facts


def judge_orders(o: pd.DataFrame, terms: dict[str, Any], clock: pd.Series) -> pd.DataFrame:
    """The first rule that holds, in the order of precedence, with its amount at risk and its remedy."""
    tolerance = terms["tolerance_minor"]
    paid, cancelled = o.status.isin(["paid", "fulfilled"]), o.status == "cancelled"
    cap, ref, lost, net, due, ours = o.cap_minor, o.ref_minor, o.lost_minor, o.net_minor, o.amount_minor, o.ours_minor
    left, own_ref, taken = o.left_minor, o.own_ref_minor, cap > 0
    still_paid = (net > 0) & ~cancelled
    too_much, too_little = left - tolerance > due, still_paid & (cap < due - tolerance)
    gap = np.maximum(left - due, due - cap)
    booked = (ours == ref) | (ours == o.all_ref_minor) | (ours == own_ref)
    off = np.minimum.reduce([(ours - some).abs() for some in (ref, o.all_ref_minor, own_ref)])
    nothing_yet = ~taken & (o.pending == 0)
    unheld = paid & nothing_yet & (o.authorized_minor == 0)
    moving, held = o.workflow.isin(["active", "late"]), o.workflow == "held"
    under_way, ended = moving | held, o.workflow == "completed"
    shifted = np.logical_or.reduce([(cap == due * n) | (due == cap * n) for n in (10, 100, 1000)])
    lapse_before = clock.now_at + pd.Timedelta(seconds=terms["lapse_warning_seconds"])
    was_foreign = o.charged_currency.notna() & ~taken
    unbooked = paid & (ours == 0) & (o.written_off_minor == 0)
    banks = lost + o.disputed_minor > 0  # where the bank has a say, a refund may give the money twice
    shipped = (o.status == "fulfilled") | o.partial_shipment | ended | held
    rules: list[tuple[str, Any, Any, Any]] = [
        ("D16", (o.foreign > 0) | (was_foreign & (under_way | unbooked)), cap, "human"),
        ("D22", o.over_minor > 0, o.over_minor, "human"),
        ("D26", (o.both_minor > 0) & ~((o.disputed_minor == 0) & (lost <= o.written_off_minor) & booked),
         o.both_minor, "human"),
        ("D24", (o.disputed_minor > 0) & ~o.dispute_known, o.disputed_minor, "record"),
        ("D25", lost > o.written_off_minor, lost - o.written_off_minor, "record"),
        ("D08", (o.counted >= 2) & (left > due) & (o.equal >= 1), left - due, np.where(banks, "human", "refund")),
        ("D17", (too_much | too_little) & taken & (due > 0) & shifted, gap, "human"),
        ("D31", (o.counted >= 2) & too_much & (o.equal == 0), left, "human"),
        ("D10", (o.counted == 1) & too_much, left - due, "human"),
        ("D23", taken & (net == 0) & under_way, ref, "stop"),
        ("D21", o.refund_failed_minor > ref, o.refund_failed_minor, "human"),
        ("D04", (left > 0) & (o.workflow == "compensating"), left, "wait"),
        ("D19", (ours > 0) & (o.all_ref_minor == 0) & taken, ours, np.where(banks, "human", "retry_refund")),
        ("D20", (ours > 0) & (o.all_ref_minor > 0) & taken & ~booked, off, "human"),
        ("D03", (left > 0) & ((o.workflow == "undone") | cancelled), left,
         np.select([banks | shipped, moving], ["human", "wait"], "refund")),
        ("D18", (own_ref > 0) & (ours == 0) & (o.workflow != "compensating"), own_ref, "record"),
        ("D14", unheld & (o.lapsed > 0), due, "human"),
        ("D13", nothing_yet & (o.authorized_minor > 0) & (o.capture_before <= lapse_before), o.authorized_minor,
         np.where(moving, "resume", "human")),
        ("D07", unheld & (o.lapsed == 0) & (o.failed > 0), due, np.where(moving, "stop", "human")),
        ("D05", paid & (o.charges == 0) & (due > 0), due, "human"),
        ("D15", ((left > due) & ~too_much) | (still_paid & (cap < due) & ~too_little), gap, "record"),
        ("PENDING", taken & (cap < due) & (o.captures_open > 0) & (o.capture_before > clock.now_at), 0, ""),
        ("D11", too_little, due - cap, np.where(o.partial_shipment, "record", "human")),
        ("D06", taken & (o.status == "pending") & (ended | ((o.workflow == "none") & (net > 0))), cap,
         np.where(ended, "correct", "human")),
        ("D02", taken & o.workflow.isin(["late", "held"]), cap, np.where(held, "human", "resume")),
        ("PENDING", ~taken & ((o.authorized_minor > 0) | (o.pending > 0)), 0, ""),
    ]  # fmt: skip
    names, holds, amounts, remedies = (list(column) for column in zip(*rules, strict=True))
    classes = np.select(holds, names, "MATCHED")
    verdicts = pd.DataFrame(
        {
            "unit": "order:" + o.order_id,
            "class": classes,
            "order_id": o.order_id,
            "charge_id": o.extra_charge.where(classes == "D08", o.first_charge),
            "amount_at_risk_minor": np.select(holds, amounts, 0),
            "currency": o.charged_currency.where(classes == "D16", o.currency),
            "remedy": np.select(holds, remedies, ""),
            "youngest_at": o.youngest_at,
        }
    )
    return keep_old_enough(verdicts, terms, clock)


def judge_charges(charges: pd.DataFrame, terms: dict[str, Any], clock: pd.Series) -> pd.DataFrame:
    """Charges that belong to no single order, each once."""
    alone = charges[charges.link != "linked"].drop_duplicates("charge_id")
    orphan, other_mode = alone.link == "orphan", alone.link == "other_mode"
    gone = alone.refunded_minor + alone.lost_minor
    over, bank = gone - alone.captured_minor, alone.disputed_minor + alone.lost_minor > 0
    both = np.minimum(alone.refunded_minor, alone.disputed_minor)
    rules: list[tuple[str, Any, Any]] = [
        ("MATCHED", other_mode & (alone.captured_minor <= alone.refunded_minor), 0),
        ("D27", other_mode, alone.captured_minor),
        ("D22", over > 0, over),
        ("D26", both > 0, both),
        ("MATCHED", over == 0, 0),
        ("D31", alone.link == "ambiguous", alone.captured_minor),
        ("D01", orphan, -over),
    ]
    names, holds, amounts = (list(column) for column in zip(*rules, strict=True))
    classes = np.select(holds, names, "MATCHED")
    verdicts = pd.DataFrame(
        {
            "unit": "charge:" + alone.charge_id,
            "class": classes,
            "order_id": alone.order_ref.where(orphan, alone.order_id),
            "charge_id": alone.charge_id,
            "amount_at_risk_minor": np.select(holds, amounts, 0),
            "currency": alone.currency,
            "remedy": np.where((classes == "D01") & alone.order_ref.notna() & ~bank, "refund", "human"),
            "youngest_at": alone.youngest_at,
        }
    )
    return keep_old_enough(verdicts, terms, clock)


def keep_old_enough(verdicts: pd.DataFrame, terms: dict[str, Any], clock: pd.Series) -> pd.DataFrame:
    """What is broken and has had its grace; the rest is matched or pending."""
    of_refunds = verdicts["class"].isin(["D18", "D19", "D20", "D21"])
    grace = np.where(of_refunds, terms["refund_grace_seconds"], terms["charge_grace_seconds"])
    old = verdicts.youngest_at < clock.watermark - pd.to_timedelta(grace, unit="s")
    return verdicts.loc[verdicts["class"].str.startswith("D") & old, FINDING]


def judge_payouts(books: Books, terms: dict[str, Any], clock: pd.Series) -> pd.DataFrame:
    """Payouts that are not the sum of their movements."""
    movements = books["movements"]
    sums = movements[movements.kind != "payout"].groupby("payout_ref").net_minor.sum()
    payouts = books["payouts"].merge(sums, left_on="id", right_index=True, how="left")
    gap = payouts.amount_minor - payouts.net_minor.fillna(0).astype("int64")
    old = payouts.created_at < clock.watermark - pd.Timedelta(seconds=terms["payout_grace_seconds"])
    wrong = payouts[(gap != 0) & old]
    return pd.DataFrame(
        {
            "unit": "payout:" + wrong.id,
            "class": "D29",
            "amount_at_risk_minor": gap.abs()[wrong.index],
            "currency": wrong.currency,
            "remedy": "human",
        }
    )


def judge_fees(books: Books, terms: dict[str, Any]) -> pd.DataFrame:
    """Fees outside the band."""
    fees = books["movements"][books["movements"].kind == "charge"]
    least = fees.amount_minor * terms["fee_parts_min"] // 10_000
    most = fees.amount_minor * terms["fee_parts_max"] // 10_000 + terms["fee_fixed_minor"]
    beyond = np.maximum(fees.fee_minor - most, least - fees.fee_minor)
    wrong = fees[beyond > 0]
    return pd.DataFrame(
        {
            "unit": "balance:" + wrong.id,
            "class": "D30",
            "charge_id": wrong.source_ref,
            "amount_at_risk_minor": beyond[wrong.index],
            "currency": wrong.currency,
            "remedy": "record",
        }
    )
