"""What is so at this moment, and what would happen: read anew for whoever is about to act."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dashboard import data, formats
from dashboard.identity import seen_text
from makegood.settings import get_settings

About = dict[str, Any]
SHOWN_MAX = 5


@dataclass(frozen=True)
class Facts:
    """``lines`` may carry what others wrote; ``will`` is ours; ``orders`` are all that a group consists of.

    ``digest`` stands for what a second person is shown: what is sent is the one that was shown, not one read later.
    """

    lines: list[str]
    will: str
    possible: bool = True
    orders: list[str] = field(default_factory=list)
    digest: str | None = None


def look_at_order(about: About) -> Facts:
    row = _find_order(about)
    if row is None:
        return _unknown(about)
    lines = [_name(row), _how(row)]
    if row["finished_at"]:
        return Facts(lines, "It has ended: there is nothing to let go.", possible=False)
    if row["leased"] and not row["held_at"]:
        return Facts(lines, "A worker has it right now: there is nothing to do.", possible=False)
    return Facts(
        lines,
        ("It becomes due at once, with a new budget of attempts. " if row["held_at"] else "It becomes due at once. ")
        + "What was sent before is sent with the same key again, or looked up: nothing is charged twice.",
    )


def look_at_cancel(about: About) -> Facts:
    row = _find_order(about)
    if row is None:
        return _unknown(about)
    lines = [_name(row), _how(row)]
    if row["finished_at"]:
        return Facts(lines, "It has ended: it is too late to cancel it here.", possible=False)
    if row["current_state"] == "compensating":
        return Facts(lines, "It is being undone already.", possible=False)
    if row["cancel_requested"]:
        return Facts(lines, f"{row['cancel_requested_by']} has asked for that already.", possible=False)
    held = " It is held: let it go on as well, or it stays where it is." if row["held_at"] else ""
    return Facts(lines, f"At its next step border everything that was done is undone, the last step first.{held}")


def look_at_group(about: About) -> Facts:
    items = about["items"]
    orders = [item["entity_id"] for item in items]
    held = data.get_fresh("held_of", {"types": [item["workflow_type"] for item in items], "orders": orders})
    count, money = sum(row["workflows"] for row in held), formats.amounts(held, data.get_exponents())
    lines = [
        f"{formats.plural(len(items), 'order')}, of which {count:,} are held now" + (f", {money}" if money else "")
    ]
    if about.get("signature"):
        lines.append(f"All that failed like this: {seen_text(about['signature'])}")
    if about.get("more"):
        lines.append(f"There are more than {len(items):,} alike: the others are for the next time.")
    limit = get_settings().approval_above_orders
    will = "Each becomes due at once, with a new budget of attempts. Nothing is charged twice."
    if len(items) > limit:
        will += f" More than {limit:,} at once take a second person: this asks for one."
    return Facts(lines, will, possible=count > 0, orders=orders)


def look_at_undo(about: About) -> Facts:
    row = _find_undo(about)
    if row is None or row["state"] == "succeeded":
        return Facts([_order_line(about)], "There is nothing left to undo.", possible=False)
    if row["leased"] and not row["held_reason"]:
        return Facts(_undo_lines(about, row), "A worker is at it right now.", possible=False)
    will = "It is tried again within a minute, with the same key: what was refunded is not refunded twice."
    return Facts(_undo_lines(about, row), will)


def look_at_settlement(about: About) -> Facts:
    row = _find_undo(about)
    if row is None or row["state"] == "succeeded":
        return Facts([_order_line(about)], "It is done: there is nothing to settle.", possible=False)
    limit, exponents = get_settings().approval_above_minor, data.get_exponents()
    will = (
        "It counts as done elsewhere and is never sent again. Look at the provider first: nobody checks it after you."
    )
    if (row["amount_minor"] or 0) > limit:
        most = formats.amount(limit, row["currency"], exponents)
        will += f" More than {most} takes a second person: this asks for one."
    return Facts(_undo_lines(about, row), will)


def look_at_request(about: About) -> Facts:
    """For whoever is the second person: what was asked for, and all that it is about."""
    row, orders = _find_request(about)
    if row is None or row["state"] != "requested":
        return Facts(["Nobody waits for this any more."], "Nothing to do.", possible=False)
    will = "Approved, it can be carried out once, exactly like this."
    return Facts(request_lines(row), will, orders=orders, digest=row["digest"])


def look_at_approved(about: About) -> Facts:
    row, orders = _find_request(about)
    if row is None or row["state"] != "approved":
        return Facts(["It is not approved (any more)."], "Nothing to do.", possible=False)
    lines = [*request_lines(row), f"Approved by {row['approved_by']}: {seen_text(row['approval_reason'])}"]
    return Facts(lines, "It is carried out now, once, exactly as it was approved.", orders=orders)


def find_alike(source: str, signature: str) -> list[dict[str, str]]:
    """Everything parked that failed in one way, as far as one act takes it, and one more to say that there is more."""
    about = {"source": source, "signature": signature, "limit": data.GROUP_MAX + 1}
    rows = data.get_fresh("parked_alike", about)
    return [{"workflow_type": row["workflow_type"], "entity_id": row["entity_id"]} for row in rows]


def _find_order(about: About) -> data.Row | None:
    rows = data.get_fresh("order_facts", {"workflow_type": about["workflow_type"], "order": about["order"]})
    return rows[0] if rows else None


def _find_undo(about: About) -> data.Row | None:
    asked = {"workflow_type": about["workflow_type"], "order": about["order"], "step": about["step"]}
    rows = data.get_fresh("undo_facts", asked)
    return rows[0] if rows else None


def _find_request(about: About) -> tuple[data.Row | None, list[str]]:
    rows = data.get_fresh("approval", {"id": about["id"]})
    if not rows:
        return None, []
    items = data.get_fresh("approval_items", {"id": about["id"], "limit": data.GROUP_MAX})
    return rows[0], [item["entity_id"] for item in items]


def _unknown(about: About) -> Facts:
    return Facts([_order_line(about)], "Nothing is known of it.", possible=False)


def _name(row: data.Row) -> str:
    money = formats.amount(row["amount_minor"], row["currency"], data.get_exponents())
    return ", ".join(filter(None, [formats.short(row["entity_id"], 150), row["workflow_type"], money]))


def _how(row: data.Row) -> str:
    if row["held_at"]:
        since = formats.ago(row["held_at"], data.now())
        return f"It is {row['current_state']}, held since {since}: {seen_text(row['held_reason'] or '')}"
    return f"It is {row['current_state']}, after {formats.plural(row['attempts'], 'attempt')} of this step."


def _order_line(about: About) -> str:
    return formats.short(about["order"], 150)


def _undo_lines(about: About, row: data.Row) -> list[str]:
    money = formats.amount(row["amount_minor"], row["currency"], data.get_exponents())
    why = seen_text(row["last_error"] or row["held_reason"] or "")
    lines = [f"{_order_line(about)}, undo of {formats.short(row['step'], 60)}" + (f", {money}" if money else "")]
    return [
        *lines,
        f"It is {row['state']} after {formats.plural(row['attempts'], 'attempt')}" + (f": {why}" if why else ""),
    ]


def request_lines(row: data.Row) -> list[str]:
    money = formats.amount(row["amount_minor"], row["currency"], data.get_exponents())
    now = data.now()
    return [
        f"{row['action']}: {formats.short(row['subject'], 200)}" + (f", {money}" if money else ""),
        f"Asked for by {row['requested_by']} {formats.ago(row['requested_at'], now)}: {seen_text(row['reason'])}",
        f"It expires {formats.ago(row['expires_at'], now)}.",
    ]
