"""Cases with nothing wrong: most of a day, and the ways of being in order that look like a break."""

from __future__ import annotations

from datetime import timedelta

from prover.ledgers.plot import CURRENCIES, Plot
from prover.ledgers.recipes import recipe
from prover.ledgers.rows import MATCHED

HOUR = timedelta(hours=1)


@recipe
def ok_plain(plot: Plot) -> None:
    order = plot.order(plot.random.choice(("paid", "fulfilled")), workflow=plot.random.choice(("completed", None)))
    plot.expect(order, MATCHED, charges=(plot.charge(order),))


@recipe
def ok_plain_young(plot: Plot) -> None:
    """A plain pair is matched whatever its age."""
    at = plot.young(plot.terms.charge_grace)
    order = plot.order(workflow="completed", at=at)
    plot.expect(order, MATCHED, charges=(plot.charge(order, at=at),))


@recipe
def ok_by_payment_alone(plot: Plot) -> None:
    order = plot.order(workflow="completed")
    plot.expect(order, MATCHED, charges=(plot.charge(order, order_ref=None),))


@recipe
def ok_by_metadata_alone(plot: Plot) -> None:
    order = plot.order(workflow="completed", payment_ref=None)
    plot.expect(order, MATCHED, charges=(plot.charge(order),))


@recipe
def ok_by_charge_id(plot: Plot) -> None:
    """The order kept the charge's own id instead of the payment's."""
    name = plot.id("ch")
    order = plot.order(payment_ref=name)
    charge = plot.charge(order, id=name, payment_ref=plot.id("pi"), order_ref=plot.random.choice((None, order.id)))
    plot.expect(order, MATCHED, charges=(charge,))


@recipe
def ok_in_progress(plot: Plot) -> None:
    order = plot.order(plot.random.choice(("pending", "paid")), workflow="active")
    plot.expect(order, MATCHED, charges=(plot.charge(order),))


@recipe
def ok_not_begun(plot: Plot) -> None:
    order = plot.order("pending", workflow=plot.random.choice(("active", None)), payment_ref=None)
    plot.expect(order, MATCHED)


@recipe
def ok_declined(plot: Plot) -> None:
    order = plot.order(plot.random.choice(("pending", "cancelled")), workflow="failed")
    plot.expect(order, MATCHED, charges=(plot.charge(order, status="failed"),))


@recipe
def ok_declined_then_paid(plot: Plot) -> None:
    order = plot.order(workflow="completed")
    declined = plot.charge(order, status="failed")
    plot.expect(order, MATCHED, charges=(declined, plot.charge(order, at=plot.later(declined.created_at))))


@recipe
def ok_cancelled_unpaid(plot: Plot) -> None:
    order = plot.order("cancelled", workflow=plot.random.choice(("compensated", None)), payment_ref=None)
    plot.expect(order, MATCHED)


@recipe
def ok_cancelled_and_refunded(plot: Plot) -> None:
    order = plot.order("cancelled", workflow="compensated", refunded=plot.amount)
    charge = plot.charge(order)
    first = plot.part(plot.amount)
    for amount in plot.random.choice(([plot.amount], [first, plot.amount - first])):
        plot.refund(charge, amount)
    plot.expect(order, MATCHED, charges=(charge,))


@recipe
def ok_partial_refund_known(plot: Plot) -> None:
    back = plot.part(plot.amount)
    order = plot.order("fulfilled", workflow="completed", refunded=back)
    charge = plot.charge(order)
    plot.refund(charge, back)
    plot.expect(order, MATCHED, charges=(charge,))


@recipe
def ok_failed_refund_made_again(plot: Plot) -> None:
    """A refund of at least that much lives."""
    back = plot.part(plot.amount)
    order = plot.order("fulfilled", workflow="completed", refunded=back)
    charge = plot.charge(order)
    plot.refund(charge, back - plot.random.choice((0, 1)), plot.random.choice(("failed", "canceled")))
    plot.refund(charge, back, "succeeded")
    plot.expect(order, MATCHED, charges=(charge,))


@recipe
def ok_duplicate_given_back(plot: Plot) -> None:
    order = plot.order(workflow="completed")
    first = plot.charge(order)
    second = plot.charge(order, payment_ref=plot.id("pi"), at=plot.later(first.created_at))
    plot.refund(plot.random.choice((first, second)), plot.amount)
    plot.expect(order, MATCHED, charges=(first, second))


@recipe
def ok_duplicate_given_back_and_booked(plot: Plot) -> None:
    """By hand, and support wrote it down: our books say refunded, and the order is paid all the same."""
    order = plot.order("fulfilled", workflow="completed", refunded=plot.amount)
    first = plot.charge(order)
    second = plot.charge(order, payment_ref=plot.id("pi"), at=plot.later(first.created_at))
    plot.refund(plot.random.choice((first, second)), plot.amount)
    plot.expect(order, MATCHED, charges=(first, second))


@recipe
def ok_excess_given_back(plot: Plot) -> None:
    """Too much was taken, at worst by a power of ten, and put right, whether our books call that a refund or not."""
    over = plot.random.choice((plot.part(plot.amount), plot.amount * 9, plot.amount * 99))
    order = plot.order("fulfilled", workflow="completed", refunded=plot.random.choice((0, over)))
    charge = plot.charge(order, plot.amount + over)
    plot.refund(charge, over)
    plot.expect(order, MATCHED, charges=(charge,))


@recipe
def ok_wrong_amount_given_back_in_full(plot: Plot) -> None:
    taken = plot.amount + plot.random.choice((1, -1)) * plot.part(plot.amount)
    order = plot.order("cancelled", workflow="compensated", refunded=taken)
    charge = plot.charge(order, taken)
    plot.refund(charge, taken)
    plot.expect(order, MATCHED, charges=(charge,))


@recipe
def ok_wrong_currency_given_back(plot: Plot) -> None:
    """And charged anew in the right one, or cancelled with the refund booked as what it was in our money."""
    other = plot.random.choice([code for code in CURRENCIES if code != plot.currency])
    again = plot.random.choice((True, False))
    order = (
        plot.order("paid", workflow="completed")
        if again
        else plot.order("cancelled", workflow="failed", refunded=plot.part(plot.amount))
    )
    wrong = plot.charge(order, currency=other)
    plot.refund(wrong, plot.amount)
    right = (plot.charge(order, payment_ref=plot.id("pi"), at=plot.later(wrong.created_at)),) if again else ()
    plot.expect(order, MATCHED, charges=(wrong, *right))


@recipe
def ok_refund_and_loss_known(plot: Plot) -> None:
    back = plot.part(plot.amount)
    order = plot.order(
        "fulfilled", workflow="completed", refunded=back, dispute_known=True, written_off=plot.amount - back
    )
    charge = plot.charge(order)
    plot.refund(charge, back)
    plot.dispute(charge, plot.amount - back, "lost")
    plot.expect(order, MATCHED, charges=(charge,))


@recipe
def ok_two_captures(plot: Plot) -> None:
    """Two charges that come to the amount, to the cent."""
    order = plot.order("fulfilled", workflow="completed")
    first = plot.charge(order, plot.part(plot.amount))
    second = plot.charge(order, plot.amount - first.captured_minor, payment_ref=plot.id("pi"))
    plot.expect(order, MATCHED, charges=(first, second))


@recipe
def ok_being_undone(plot: Plot) -> None:
    """The undo has given everything back and is not yet written down."""
    order = plot.order("paid", workflow="compensating")
    charge = plot.charge(order)
    plot.refund(charge, plot.amount)
    plot.expect(order, MATCHED, charges=(charge,))


@recipe
def ok_dispute_won(plot: Plot) -> None:
    order = plot.order("fulfilled", workflow="completed", dispute_known=plot.random.choice((True, False)))
    charge = plot.charge(order)
    plot.dispute(charge, plot.amount, "won")
    plot.expect(order, MATCHED, charges=(charge,))


@recipe
def ok_dispute_known(plot: Plot) -> None:
    order = plot.order("fulfilled", workflow="completed", dispute_known=True)
    charge = plot.charge(order)
    plot.dispute(charge, plot.amount, "open")
    plot.expect(order, MATCHED, charges=(charge,))


@recipe
def ok_dispute_written_off(plot: Plot) -> None:
    lost = plot.random.choice((plot.amount, plot.part(plot.amount)))
    order = plot.order("fulfilled", workflow="completed", dispute_known=True, written_off=lost)
    charge = plot.charge(order)
    plot.dispute(charge, lost, "lost")
    plot.expect(order, MATCHED, charges=(charge,))


@recipe
def ok_duplicate_taken_back_by_the_bank(plot: Plot) -> None:
    """One of the two was lost and written off, or is disputed and our books know: nobody is owed anything."""
    lost = plot.random.choice((True, False))
    order = plot.order("fulfilled", workflow="completed", dispute_known=True, written_off=plot.amount if lost else 0)
    charges = (plot.charge(order), plot.charge(order, payment_ref=plot.id("pi"), at=plot.later(plot.at)))
    plot.dispute(plot.random.choice(charges), plot.amount, "lost" if lost else "open", at=plot.watermark - HOUR)
    plot.expect(order, MATCHED, charges=charges)


@recipe
def ok_cancelled_and_taken_back_by_the_bank(plot: Plot) -> None:
    """The customer has the money already."""
    order = plot.order("cancelled", workflow="failed", dispute_known=True, written_off=plot.amount)
    charge = plot.charge(order)
    plot.dispute(charge, plot.amount, "lost")
    plot.expect(order, MATCHED, charges=(charge,))


@recipe
def ok_stray_decline(plot: Plot) -> None:
    """Nothing was captured, so nobody's money is missing."""
    plot.expect(plot.charge(None, status="failed"), MATCHED)


@recipe
def ok_payout(plot: Plot) -> None:
    gross = [plot.part(plot.amount) for _ in range(plot.random.randrange(1, 4))]
    net = sum(amount - plot.fee(amount) for amount in gross)
    payout = plot.payout(net, at=plot.random.choice((plot.old, plot.young))(plot.terms.payout_grace))
    for amount in gross:
        plot.movement(amount, plot.fee(amount), payout=payout)
    plot.expect(payout, MATCHED)


@recipe
def ok_fee(plot: Plot) -> None:
    """On either border of the band."""
    amount = plot.random.randrange(1, 50) * 10_000
    low, high = plot.terms.fee_parts_min, plot.terms.fee_parts_max
    fee = plot.random.choice((amount // 10_000 * low, amount // 10_000 * high + plot.terms.fee_fixed_minor))
    plot.expect(plot.movement(amount, fee), MATCHED)


@recipe
def ok_orphan_given_back(plot: Plot) -> None:
    charge = plot.charge(None, order_ref=plot.random.choice((None, plot.id("gone"))))
    plot.refund(charge, plot.amount)
    plot.expect(charge, MATCHED)


@recipe
def ok_free_of_charge(plot: Plot) -> None:
    """It costs nothing, so no charge is missing."""
    plot.expect(plot.order(amount=0, workflow="completed", payment_ref=None), MATCHED)
