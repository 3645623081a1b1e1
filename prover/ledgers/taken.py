"""Cases about what was taken: too much, too little, twice, in the wrong money, or not at all."""

from __future__ import annotations

from datetime import timedelta

from prover.ledgers.plot import CURRENCIES, Plot
from prover.ledgers.recipes import recipe
from prover.ledgers.rows import PENDING


@recipe
def d16_currency(plot: Plot) -> None:
    order = plot.order(workflow="completed")
    other = plot.random.choice([code for code in CURRENCIES if code != order.currency])
    charge = plot.charge(order, currency=other)
    plot.expect(order, "D16", charge.captured_minor, charges=(charge,), currency=other, remedy="human")


@recipe
def d08_charged_twice(plot: Plot) -> None:
    order = plot.order(workflow="completed")
    first = plot.charge(order)
    payment = plot.random.choice((order.payment_ref, plot.id("pi")))  # a retry of the payment, or a new one
    second = plot.charge(order, payment_ref=payment, at=plot.later(first.created_at))
    plot.expect(order, "D08", plot.amount, charges=(first, second), remedy="refund", acts_on=second)


@recipe
def d08_charged_three_times(plot: Plot) -> None:
    order = plot.order(workflow="completed")
    charges = tuple(plot.charge(order, payment_ref=plot.id("pi")) for _ in range(3))
    plot.expect(order, "D08", 2 * plot.amount, charges=charges)


@recipe
def d08_second_charge_partly_given_back(plot: Plot) -> None:
    order = plot.order(workflow="completed")
    first = plot.charge(order)
    second = plot.charge(order, payment_ref=plot.id("pi"), at=plot.later(first.created_at))
    back = plot.random.choice((plot.part(plot.amount), plot.amount - 1))
    plot.refund(second, back)
    plot.expect(order, "D08", plot.amount - back, charges=(first, second))


@recipe
def d08_three_of_which_the_bank_took_one(plot: Plot) -> None:
    """One too many is still with us, and not the one that the bank took: a person's, as the bank has a say."""
    order = plot.order(workflow="completed", dispute_known=True, written_off=plot.amount)
    at = [plot.at + timedelta(minutes=minutes) for minutes in (1, 2, 3)]
    charges = tuple(plot.charge(order, payment_ref=plot.id("pi"), at=when) for when in at)
    taken = plot.random.randrange(3)
    plot.dispute(charges[taken], plot.amount, "lost")
    spare = charges[1 if taken == 2 else 2]  # the latest that is still with us
    plot.expect(order, "D08", plot.amount, charges=charges, remedy="human", acts_on=spare)


@recipe
def d08_smaller_second_charge(plot: Plot) -> None:
    order = plot.order(workflow="completed")
    first = plot.charge(order)
    second = plot.charge(order, plot.part(plot.amount), payment_ref=plot.id("pi"), at=plot.later(first.created_at))
    plot.expect(order, "D08", second.captured_minor, charges=(first, second), remedy="refund", acts_on=second)


@recipe
def d17_minor_units(plot: Plot) -> None:
    factor = plot.random.choice((10, 100, 1000))
    small = plot.amount
    large = small * factor
    amount, captured = plot.random.choice(((small, large), (large, small)))
    order = plot.order(amount=amount, workflow="completed")
    charge = plot.charge(order, captured)
    plot.expect(order, "D17", large - small, charges=(charge,), remedy="human")


@recipe
def d31_charges_that_fit_nothing(plot: Plot) -> None:
    order = plot.order(workflow="completed")
    first = plot.charge(order, plot.part(plot.amount))
    over = plot.random.choice((plot.terms.tolerance_minor + 1, plot.part(plot.amount) // 2))
    over -= over == first.captured_minor  # the second would be the amount by chance
    second = plot.charge(order, plot.amount - first.captured_minor + over, payment_ref=plot.id("pi"))
    plot.expect(order, "D31", plot.amount + over, charges=(first, second), remedy="human")


@recipe
def d10_over_capture(plot: Plot) -> None:
    over = plot.terms.tolerance_minor + plot.random.choice((1, plot.part(plot.amount)))
    order = plot.order(workflow=plot.random.choice(("completed", "active", None)))
    charge = plot.charge(order, plot.amount + over)
    plot.expect(order, "D10", over, charges=(charge,), remedy="human")


@recipe
def d10_over_capture_half_put_right(plot: Plot) -> None:
    """What is still too much is at risk, and no more."""
    back = plot.part(plot.amount)
    still = plot.terms.tolerance_minor + plot.random.choice((1, plot.part(plot.amount)))
    order = plot.order(workflow="completed", refunded=plot.random.choice((0, back)))
    charge = plot.charge(order, plot.amount + back + still)
    plot.refund(charge, back)
    plot.expect(order, "D10", still, charges=(charge,), remedy="human")


@recipe
def d16_given_back_and_still_paid(plot: Plot) -> None:
    """Our books say paid and know of no refund, and nothing is there."""
    order = plot.order(workflow="completed")
    charge = plot.charge(order, currency=plot.random.choice([code for code in CURRENCIES if code != order.currency]))
    plot.refund(charge, plot.amount)
    plot.expect(order, "D16", 0, charges=(charge,), currency=charge.currency, remedy="human")


@recipe
def d15_rounding(plot: Plot) -> None:
    """Up to the tolerance, to either side; also where more may be captured."""
    off = plot.random.choice((1, -1)) * plot.random.randrange(1, plot.terms.tolerance_minor + 1)
    order = plot.order(workflow="completed")
    end = plot.watermark + timedelta(days=3)
    charge = plot.charge(order, plot.amount + off, captures_open=off < 0, capture_before=end if off < 0 else None)
    plot.expect(order, "D15", abs(off), charges=(charge,), remedy="record")


@recipe
def wait_more_captures(plot: Plot) -> None:
    """D12: more may be captured."""
    order = plot.order(workflow=plot.random.choice(("completed", "active")))
    short = plot.terms.tolerance_minor + plot.random.choice((1, plot.part(plot.amount)))
    end = plot.watermark + timedelta(days=plot.random.randrange(1, 6))
    charge = plot.charge(order, plot.amount - short, authorised=plot.amount, captures_open=True, capture_before=end)
    plot.expect(order, PENDING, charges=(charge,))


@recipe
def d11_under_capture(plot: Plot) -> None:
    short = plot.terms.tolerance_minor + plot.random.choice((1, plot.part(plot.amount)))
    shipped_in_part = plot.random.choice((True, False))
    order = plot.order("fulfilled", workflow="completed", partial_shipment=shipped_in_part)
    charge = plot.charge(order, plot.amount - short, authorised=plot.amount)
    plot.expect(order, "D11", short, charges=(charge,), remedy="record" if shipped_in_part else "human")


@recipe
def d11_captures_ran_out(plot: Plot) -> None:
    """More could have been captured, until it was too late."""
    order = plot.order("fulfilled", workflow="completed")
    end = plot.watermark - timedelta(hours=2)
    charge = plot.charge(order, plot.part(plot.amount), authorised=plot.amount, captures_open=True, capture_before=end)
    plot.expect(order, "D11", plot.amount - charge.captured_minor, charges=(charge,), remedy="human")


@recipe
def d13_lapses_soon(plot: Plot) -> None:
    order = plot.order(plot.random.choice(("pending", "paid")), workflow=plot.random.choice(("active", "late")))
    end = plot.watermark + plot.terms.lapse_soon - timedelta(hours=1)
    charge = plot.charge(order, status="authorized", capture_before=end)
    plot.expect(order, "D13", plot.amount, charges=(charge,), remedy="resume")


@recipe
def wait_authorised(plot: Plot) -> None:
    order = plot.order(plot.random.choice(("pending", "paid")), workflow="active")
    end = plot.watermark + plot.terms.lapse_soon + timedelta(hours=2)
    plot.expect(order, PENDING, charges=(plot.charge(order, status="authorized", capture_before=end),))


@recipe
def wait_charge_under_way(plot: Plot) -> None:
    order = plot.order(plot.random.choice(("pending", "paid")), workflow="active")
    plot.expect(order, PENDING, charges=(plot.charge(order, status="pending"),))


@recipe
def d14_lapsed(plot: Plot) -> None:
    order = plot.order(plot.random.choice(("paid", "fulfilled")), workflow="completed")
    charge = plot.charge(order, status="lapsed", capture_before=plot.at + timedelta(hours=1))
    plot.expect(order, "D14", plot.amount, charges=(charge,), remedy="human")


@recipe
def d07_false_paid(plot: Plot) -> None:
    order = plot.order(plot.random.choice(("paid", "fulfilled")), workflow=plot.random.choice(("completed", None)))
    charges = tuple(plot.charge(order, status="failed") for _ in range(plot.random.choice((1, 2))))
    plot.expect(order, "D07", plot.amount, charges=charges, remedy="human")


@recipe
def d07_false_paid_and_under_way(plot: Plot) -> None:
    """It would be shipped, and nobody has paid."""
    order = plot.order(workflow=plot.random.choice(("active", "late")))
    charge = plot.charge(order, status="failed")
    plot.expect(order, "D07", plot.amount, charges=(charge,), remedy="stop")


@recipe
def d05_missing_charge(plot: Plot) -> None:
    at = plot.random.choice((None, plot.old(plot.terms.charge_grace)))
    order = plot.order(plot.random.choice(("paid", "fulfilled")), workflow="completed", at=at)
    plot.expect(order, "D05", plot.amount, remedy="human")


@recipe
def wait_missing_charge(plot: Plot) -> None:
    order = plot.order(workflow="completed", at=plot.young(plot.terms.charge_grace))
    plot.expect(order, PENDING)


@recipe
def d06_order_says_unpaid(plot: Plot) -> None:
    workflow = plot.random.choice(("completed", None))
    order = plot.order("pending", workflow=workflow)
    charge = plot.charge(order)
    plot.expect(order, "D06", plot.amount, charges=(charge,), remedy="correct" if workflow else "human")


@recipe
def wait_order_says_unpaid(plot: Plot) -> None:
    order = plot.order("pending", workflow="completed")
    charge = plot.charge(order, at=plot.young(plot.terms.charge_grace))
    plot.expect(order, PENDING, charges=(charge,))


@recipe
def d02_not_completed(plot: Plot) -> None:
    workflow = plot.random.choice(("late", "held"))
    order = plot.order(plot.random.choice(("pending", "paid")), workflow=workflow)
    charge = plot.charge(order)
    plot.expect(order, "D02", plot.amount, charges=(charge,), remedy="resume" if workflow == "late" else "human")
