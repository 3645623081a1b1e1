"""``makegood timeline order-123``: where an order is and how it came there, for a person at 3 in the morning."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated, Any

import typer

from makegood.cli import output
from makegood.cli.app import app
from makegood.errors import EXIT_DONE, UnknownOrder

ANSWER_SECONDS = 5  # somebody is waiting: the order's own story is not held up by a provider that hangs


@app.command(epilog="Example: makegood timeline order-123")
def timeline(
    order: Annotated[str, typer.Argument(help="The order, for example order-123.")],
    workflow_type: Annotated[str | None, typer.Option("--type", help="Only this workflow type.")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Do not ask the payment provider.")] = False,
    json: output.JsonFlag = False,
) -> int:
    """Show an order's story: states with times and gaps, attempts, undo, and the money at the provider."""
    from makegood.cli.connect import ask
    from makegood.cli.story import show_story
    from makegood.story import tell_story

    rows = ask("SELECT makegood.timeline(%s, %s) AS story", (order, workflow_type), role="read")
    if not rows:
        raise UnknownOrder(f"nothing is known of {order}", hint=_suggest(order))
    exponents = {row["code"]: row["exponent"] for row in ask("SELECT * FROM makegood.currencies", role="read")}
    stories = []
    for row in rows:
        money = None if offline else asyncio.run(_money(row["story"]))
        stories.append(tell_story(row["story"], money))
    if json:
        output.show_json({"order": order, "workflows": stories})
        return EXIT_DONE
    for story in stories:
        show_story(story, exponents)
    return EXIT_DONE


async def _money(story: dict[str, Any]) -> dict[str, Any] | None:
    """What the provider says of the order's payment, also of one whose answer never came; None without any."""
    import stripe

    from makegood.errors import PermanentError
    from makegood.gateways.payments import Payments
    from makegood.settings import get_settings

    row = story["workflow"]
    tried = any(attempt["step"] == "charge" for attempt in story["attempts"])
    charge = row["context"].get("charge")
    intent = charge.get("payment_intent") if isinstance(charge, dict) else None
    if not intent and not tried:
        return None
    settings = get_settings()
    payments = Payments(settings.stripe_api_key.get_secret_value(), settings.stripe_api_base or settings.shop_url)
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            if not intent:
                found = await payments.find_intent(row["entity_id"], datetime.fromisoformat(row["created_at"]))
                intent = found["id"] if found else None
            return await payments.money_of(intent) if intent else None
    except TimeoutError:
        return {"payment_intent": intent, "error": f"no answer within {ANSWER_SECONDS} s"}
    except (PermanentError, stripe.StripeError) as error:
        return {"payment_intent": None, "error": str(error)}
    finally:
        await payments.close()


def _suggest(order: str) -> str:
    from makegood.cli.connect import ask

    similar = ask(
        "SELECT entity_id FROM makegood.workflow_executions WHERE entity_id LIKE %s ORDER BY entity_id LIMIT 3",
        (f"{order.replace(chr(92), '').replace('%', '').replace('_', '')}%",),
        role="read",
    )
    if similar:
        return "Did you mean " + ", ".join(row["entity_id"] for row in similar) + "?"
    return "Order numbers are case-sensitive, for example order-123."
