"""Cases about what was given back, or should have been: refunds, disputes, undos."""

from __future__ import annotations

from prover.ledgers.plot import Plot
from prover.ledgers.recipes import recipe
from prover.ledgers.rows import PENDING


@recipe
def d22_refunded_too_much(plot: Plot) -> None:
    order = plot.order("fulfilled", workflow="completed", refunded=plot.random.choice((0, plot.amount)))
    charge = plot.charge(order)
    over = plot.random.choice((1, plot.part(plot.amount)))
    plot.refund(charge, plot.amount, at=plot.old(plot.terms.charge_grace))
    plot.refund(charge, over)
    plot.expect(order, "D22", over, charges=(charge,), remedy="human")


@recipe
def d22_refunded_and_lost(plot: Plot) -> None:
    """It beats the refund beside a dispute (D26)."""
    order = plot.order("fulfilled", workflow="completed", dispute_known=True)
    charge = plot.charge(order)
    back = plot.part(plot.amount)
    plot.refund(charge, back)
    plot.dispute(charge, plot.amount, "lost")
    plot.expect(order, "D22", back, charges=(charge,), remedy="human")


@recipe
def d26_refund_and_dispute(plot: Plot) -> None:
    back = plot.part(plot.amount)
    order = plot.order("fulfilled", workflow="completed", refunded=plot.random.choice((0, back)))
    charge = plot.charge(order)
    plot.refund(charge, back)
    status = plot.random.choice(("open", "lost"))
    disputed = plot.amount - back if status == "lost" else plot.amount
    plot.dispute(charge, disputed, status)
    plot.expect(order, "D26", min(back, disputed), charges=(charge,), remedy="human")


@recipe
def d26_duplicate_given_back_and_disputed(plot: Plot) -> None:
    """The order is paid by the other charge; this one's money may leave twice."""
    order = plot.order(
        "fulfilled", workflow="completed", dispute_known=True, refunded=plot.random.choice((0, plot.amount))
    )
    first = plot.charge(order)
    second = plot.charge(order, payment_ref=plot.id("pi"), at=plot.later(first.created_at))
    twice = plot.random.choice((first, second))
    plot.refund(twice, plot.amount)
    plot.dispute(twice, plot.amount, "open")
    plot.expect(order, "D26", plot.amount, charges=(first, second), remedy="human")


@recipe
def d22_duplicate_that_left_twice(plot: Plot) -> None:
    """By two refunds, or by a refund and the bank."""
    order = plot.order("fulfilled", workflow="completed", dispute_known=True)
    first = plot.charge(order)
    second = plot.charge(order, payment_ref=plot.id("pi"), at=plot.later(first.created_at))
    twice, over = plot.random.choice((first, second)), plot.part(plot.amount)
    plot.refund(twice, plot.amount)
    if plot.random.choice((True, False)):
        plot.refund(twice, over)
    else:
        plot.dispute(twice, over, "lost")
    plot.expect(order, "D22", over, charges=(first, second), remedy="human")


@recipe
def d22_orphan_that_left_twice(plot: Plot) -> None:
    """It needs no order to be wrong."""
    charge = plot.charge(None)
    plot.refund(charge, plot.amount)
    plot.dispute(charge, plot.amount, "lost")
    plot.expect(charge, "D22", plot.amount, remedy="human")


@recipe
def d26_orphan_given_back_and_disputed(plot: Plot) -> None:
    charge, back = plot.charge(None), plot.part(plot.amount)
    plot.refund(charge, back)
    plot.dispute(charge, plot.amount, "open")
    plot.expect(charge, "D26", back, remedy="human")


@recipe
def d24_dispute_open(plot: Plot) -> None:
    order = plot.order("fulfilled", workflow="completed")
    charge = plot.charge(order)
    disputed = plot.random.choice((plot.amount, plot.part(plot.amount)))
    plot.dispute(charge, disputed, "open")
    plot.expect(order, "D24", disputed, charges=(charge,), remedy="record")


@recipe
def d25_dispute_lost(plot: Plot) -> None:
    lost = plot.random.choice((plot.amount, plot.part(plot.amount)))
    known = plot.random.choice((0, lost - 1))
    order = plot.order("fulfilled", workflow="completed", dispute_known=True, written_off=known)
    charge = plot.charge(order)
    plot.dispute(charge, lost, "lost")
    plot.expect(order, "D25", lost - known, charges=(charge,), remedy="record")


@recipe
def wait_dispute(plot: Plot) -> None:
    order = plot.order("fulfilled", workflow="completed")
    charge = plot.charge(order)
    plot.dispute(charge, plot.amount, "open", at=plot.young(plot.terms.charge_grace))
    plot.expect(order, PENDING, charges=(charge,))


@recipe
def d23_refunded_still_fulfilling(plot: Plot) -> None:
    order = plot.order("paid", workflow=plot.random.choice(("active", "late")), refunded=0)
    charge = plot.charge(order)
    plot.refund(charge, plot.amount)
    plot.expect(order, "D23", plot.amount, charges=(charge,), remedy="stop")


@recipe
def d21_refund_failed(plot: Plot) -> None:
    """Where our books say refunded too; and where a refund lives that is smaller by one."""
    back = plot.part(plot.amount)
    order = plot.order("fulfilled", workflow="completed", refunded=plot.random.choice((0, back)))
    charge = plot.charge(order)
    status = plot.random.choice(("failed", "canceled", "requires_action"))
    plot.refund(charge, back, status, at=plot.random.choice((None, plot.old(plot.terms.refund_grace))))
    if plot.random.choice((True, False)):
        plot.refund(charge, back - 1, "succeeded")
    plot.expect(order, "D21", back, charges=(charge,), remedy="human")


@recipe
def d04_being_undone(plot: Plot) -> None:
    order = plot.order(plot.random.choice(("paid", "cancelled")), workflow="compensating")
    charge = plot.charge(order)
    back = plot.random.choice((0, plot.part(plot.amount)))
    if back:
        plot.refund(charge, back)
    plot.expect(order, "D04", plot.amount - back, charges=(charge,), remedy="wait")


@recipe
def d19_refund_missing(plot: Plot) -> None:
    ours, status, workflow = plot.random.choice(
        ((plot.amount, "cancelled", "compensated"), (plot.part(plot.amount), "fulfilled", "completed"))
    )
    order = plot.order(status, workflow=workflow, refunded=ours, at=plot.random.choice((None, plot.at)))
    charge = plot.charge(order)
    plot.expect(order, "D19", ours, charges=(charge,), remedy="retry_refund")


@recipe
def wait_refund_missing(plot: Plot) -> None:
    """The refund may be on the way: a refund has a day."""
    at = plot.young(plot.terms.refund_grace)
    order = plot.order("fulfilled", workflow="completed", refunded=plot.part(plot.amount))
    charge = plot.charge(order, at=at)
    plot.expect(order, PENDING, charges=(charge,))


@recipe
def d20_refund_amount(plot: Plot) -> None:
    ours, theirs = plot.part(plot.amount), plot.part(plot.amount)
    theirs += ours == theirs
    order = plot.order("fulfilled", workflow="completed", refunded=ours)
    charge = plot.charge(order)
    plot.refund(charge, theirs, at=plot.random.choice((None, plot.old(plot.terms.refund_grace))))
    plot.expect(order, "D20", abs(ours - theirs), charges=(charge,), remedy="human")


@recipe
def d20_part_beside_a_duplicate_given_back(plot: Plot) -> None:
    """Which refund our books mean nobody can say; no money moves for it."""
    ours = plot.part(plot.amount)
    order = plot.order("fulfilled", workflow="completed", refunded=ours)
    first = plot.charge(order)
    second = plot.charge(order, payment_ref=plot.id("pi"), at=plot.later(first.created_at))
    plot.refund(second, plot.amount)
    plot.expect(order, "D20", min(ours, plot.amount - ours), charges=(first, second), remedy="human")


@recipe
def d03_charged_but_failed(plot: Plot) -> None:
    status, workflow = plot.random.choice(
        (("cancelled", "failed"), ("cancelled", "compensated"), ("cancelled", None), ("pending", "failed"))
    )
    at = plot.random.choice((None, plot.old(plot.terms.charge_grace)))
    order = plot.order(status, workflow=workflow, at=at)
    charge = plot.charge(order, at=order.created_at)
    plot.expect(order, "D03", plot.amount, charges=(charge,), remedy="refund", acts_on=charge)


@recipe
def d03_cancelled_after_it_was_shipped(plot: Plot) -> None:
    """Whether the goods come back is for a person to know."""
    order = plot.order("cancelled", workflow=plot.random.choice(("completed", "held")))
    charge = plot.charge(order)
    plot.expect(order, "D03", plot.amount, charges=(charge,), remedy="human")


@recipe
def d03_cancelled_and_still_under_way(plot: Plot) -> None:
    """Its workflow has not ended: it may ship, or give the money back itself."""
    order = plot.order("cancelled", workflow=plot.random.choice(("active", "late")))
    charge = plot.charge(order)
    plot.expect(order, "D03", plot.amount, charges=(charge,), remedy="wait")


@recipe
def d03_half_given_back(plot: Plot) -> None:
    """Both books know of the half."""
    back = plot.part(plot.amount)
    order = plot.order("cancelled", workflow="compensated", refunded=back)
    charge = plot.charge(order)
    plot.refund(charge, back)
    plot.expect(order, "D03", plot.amount - back, charges=(charge,), remedy="refund", acts_on=charge)


@recipe
def d03_paid_but_undone(plot: Plot) -> None:
    """The order itself says paid, as a plain pair would: only its workflow knows better."""
    order = plot.order("paid", workflow=plot.random.choice(("failed", "compensated")))
    charge = plot.charge(order)
    plot.expect(order, "D03", plot.amount, charges=(charge,))


@recipe
def d18_refund_unrecorded(plot: Plot) -> None:
    back = plot.random.choice((plot.amount, plot.part(plot.amount)))
    order = plot.order("fulfilled", workflow="completed")
    charge = plot.charge(order)
    plot.refund(charge, back, at=plot.random.choice((None, plot.old(plot.terms.refund_grace))))
    plot.expect(order, "D18", back, charges=(charge,), remedy="record")


@recipe
def d18_cancelled_and_refunded_elsewhere(plot: Plot) -> None:
    order = plot.order("cancelled", workflow=plot.random.choice(("failed", None)))
    charge = plot.charge(order)
    plot.refund(charge, plot.amount)
    plot.expect(order, "D18", plot.amount, charges=(charge,), remedy="record")


@recipe
def wait_refund_unrecorded(plot: Plot) -> None:
    order = plot.order("fulfilled", workflow="completed")
    charge = plot.charge(order)
    plot.refund(charge, plot.part(plot.amount), at=plot.young(plot.terms.refund_grace))
    plot.expect(order, PENDING, charges=(charge,))
