"""Whole ledgers from cases: so many of each, or any mix, all from one seed; and the ways their rows may arrive."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from datetime import datetime

from prover.ledgers import apart, returned, sound, taken  # noqa: F401 - they register their recipes
from prover.ledgers.plot import Plot
from prover.ledgers.recipes import RECIPES
from prover.ledgers.rows import Ledger, Order, Row, Terms

NAMES = tuple(RECIPES)
BROKEN = tuple(name for name in NAMES if not name.startswith("ok_"))
SOUND = tuple(name for name in NAMES if name.startswith("ok_") and not name.startswith("ok_plain"))


def plant(cases: Iterable[str], seed: int, watermark: datetime, terms: Terms | None = None, tag: str = "") -> Ledger:
    """The cases by name, in that order. The same seed and watermark give the same rows and answers.

    ``tag`` keeps the ids of two ledgers in one database apart.
    """
    ledger = Ledger(watermark, terms or Terms())
    for number, case in enumerate(cases):
        RECIPES[case](Plot(ledger, f"{tag}{case}_{number}", random.Random(f"{seed}/{number}/{case}")))
    return ledger


def plant_all(seed: int, watermark: datetime, *, of_each: int = 1, terms: Terms | None = None, tag: str = "") -> Ledger:
    """Every case there is, so many times."""
    return plant((name for name in NAMES for _ in range(of_each)), seed, watermark, terms, tag)


def deal(ledger: Ledger, seed: int, instalments: int) -> list[list[Row]]:
    """The rows in any order in so many instalments: a refund before its charge, a charge before its order.

    An order and its workflow come together: they are one database's.
    """
    shuffle = random.Random(f"{seed}/deal")
    hands: list[list[Row]] = [[] for _ in range(instalments)]
    workflows = {workflow.entity_id: workflow for workflow in ledger.workflows}
    rows: Sequence[Row] = [
        *ledger.orders,
        *ledger.charges,
        *ledger.refunds,
        *ledger.disputes,
        *ledger.balance_transactions,
        *ledger.payouts,
    ]
    for row in shuffle.sample(rows, len(rows)):
        hand = shuffle.choice(hands)
        hand.append(row)
        if isinstance(row, Order) and row.id in workflows:
            hand.append(workflows[row.id])
        elif not isinstance(row, Order) and shuffle.random() < 0.05:
            shuffle.choice(hands).append(row)  # the provider says it twice
    return hands
