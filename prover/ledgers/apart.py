"""Charges that belong to no single order, and payouts: units of their own."""

from __future__ import annotations

from datetime import timedelta

from prover.ledgers.plot import Plot
from prover.ledgers.recipes import recipe
from prover.ledgers.rows import MATCHED, PENDING


@recipe
def d01_orphan(plot: Plot) -> None:
    """Without our metadata, or naming an order that nobody has."""
    named = plot.random.choice((None, plot.id("gone")))
    charge = plot.charge(None, order_ref=named, at=plot.random.choice((None, plot.old(plot.terms.charge_grace))))
    plot.expect(charge, "D01", charge.captured_minor, remedy="refund" if named else "human", acts_on=charge)


@recipe
def d01_orphan_partly_given_back(plot: Plot) -> None:
    charge = plot.charge(None)
    back = plot.part(plot.amount)
    plot.refund(charge, back)
    plot.expect(charge, "D01", plot.amount - back)


@recipe
def wait_orphan(plot: Plot) -> None:
    """Its order may be on the way."""
    plot.expect(plot.charge(None, at=plot.young(plot.terms.charge_grace)), PENDING)


@recipe
def d27_test_charge_of_a_paid_order(plot: Plot) -> None:
    order = plot.order(workflow="completed")
    real = plot.charge(order)
    test = plot.charge(order, livemode=not plot.terms.livemode, payment_ref=plot.id("pi"))
    plot.expect(order, MATCHED, charges=(real,))
    plot.expect(test, "D27", test.captured_minor, remedy="human")


@recipe
def d27_test_charge_instead_of_a_real_one(plot: Plot) -> None:
    order = plot.order("fulfilled", workflow="completed")
    test = plot.charge(order, livemode=not plot.terms.livemode)
    plot.expect(test, "D27", test.captured_minor, remedy="human")
    plot.expect(order, "D05", plot.amount, remedy="human")


@recipe
def d27_test_charge_without_order(plot: Plot) -> None:
    """The mode comes before the missing order."""
    test = plot.charge(None, livemode=not plot.terms.livemode)
    plot.expect(test, "D27", test.captured_minor, remedy="human")


@recipe
def d31_two_orders_by_different_keys(plot: Plot) -> None:
    """One by its payment, another by its metadata: it belongs to neither, and neither is said to lack a charge."""
    paid, named = plot.order(workflow="completed"), plot.order("pending", payment_ref=None)
    charge = plot.charge(paid, order_ref=named.id)
    plot.expect(charge, "D31", charge.captured_minor, remedy="human")
    plot.expect(paid, MATCHED)
    plot.expect(named, MATCHED)


@recipe
def d31_two_orders_with_one_payment(plot: Plot) -> None:
    one = plot.order("fulfilled")
    other = plot.order(plot.random.choice(("pending", "paid")), payment_ref=one.payment_ref)
    charge = plot.charge(one, order_ref=plot.random.choice((None, one.id)))
    plot.expect(charge, "D31", charge.captured_minor, remedy="human")
    plot.expect(one, MATCHED)
    plot.expect(other, MATCHED)


@recipe
def d29_payout_break(plot: Plot) -> None:
    at = plot.random.choice((plot.old(plot.terms.payout_grace), plot.watermark - timedelta(days=9)))
    off = plot.random.choice((-1, 1, plot.part(plot.amount)))
    fee = plot.fee(plot.amount)
    payout = plot.payout(plot.amount - fee, at=at)
    plot.movement(plot.amount, fee, payout=payout)
    plot.movement(off, 0, kind="adjustment", payout=payout)
    plot.expect(payout, "D29", abs(off), remedy="human")


@recipe
def d29_payout_of_nothing(plot: Plot) -> None:
    payout = plot.payout(plot.amount, at=plot.watermark - timedelta(days=4))
    plot.expect(payout, "D29", plot.amount, remedy="human")


@recipe
def wait_payout(plot: Plot) -> None:
    """Its movements may still be on the way."""
    plot.expect(plot.payout(plot.amount, at=plot.young(plot.terms.payout_grace)), PENDING)


@recipe
def d30_fee(plot: Plot) -> None:
    """Beyond the band, by as little as one."""
    amount = plot.random.randrange(1, 50) * 10_000
    low, high = plot.terms.fee_parts_min, plot.terms.fee_parts_max
    off = plot.random.randrange(1, 10)
    above = amount // 10_000 * high + plot.terms.fee_fixed_minor + off
    movement = plot.movement(amount, plot.random.choice((amount // 10_000 * low - off, above)))
    plot.expect(movement, "D30", off, remedy="record")
