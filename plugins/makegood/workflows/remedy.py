"""A remedy: the charge is read again, our own side is asked again, and then the money goes back, once.

    created → checking → checked → refunding → completed

The refund cannot be taken back, so it comes last and has no undo. Its key follows from the remedy's operation key (one
per charge, class and sequence), and unknown is handled as for any step: replayed, looked up, held.

Known weakness: what a person does at the provider between check and refund, a few milliseconds as a rule, is not
seen; the provider itself refuses more than the charge has. A remedy whose provider is down right then gives up rather
than act on an old check.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import psycopg

from makegood.database import Database
from makegood.engine.definitions import Action, Step, Workflow
from makegood.gateways.payments import Payments
from makegood.gateways.remedies import Remedies
from makegood.reconciliation.remedy_terms import make_remedy_terms
from makegood.settings import Settings

REMEDY = "remedy"
# Between the check and the refund nobody waits: the check would be an old one.
PATIENCE_SECONDS = 0.001


@contextlib.asynccontextmanager
async def open_remedy(
    settings: Settings, url: str, *, connection_class: Any = psycopg.AsyncConnection
) -> AsyncIterator[Workflow]:
    """The remedy over the configured provider and our own database; both are closed with the block."""
    terms = json.dumps(make_remedy_terms(settings).to_document())
    payments = Payments(settings.stripe_api_key.get_secret_value(), settings.stripe_api_base or settings.shop_url)
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(payments.close)
        opening, opened = asyncio.Lock(), list[Database]()

        async def ask(entity_id: str) -> Mapping[str, Any]:
            async with opening:  # most workers never see a remedy, and hold no connection for one
                if not opened:
                    database = Database(url, connections=1, connection_class=connection_class)
                    opened.append(await stack.enter_async_context(database))
            rows = await opened[0].call("SELECT * FROM makegood.recheck_remedy(%s, %s::jsonb)", (entity_id, terms))
            return rows[0]

        remedies = Remedies(payments, ask)
        yield make_remedy(
            check=remedies.check(), refund=remedies.refund(), stuck_after_seconds=settings.stuck_after_seconds
        )


def make_remedy(*, check: Action, refund: Action, stuck_after_seconds: float = 300) -> Workflow:
    return Workflow(
        REMEDY,
        steps=[
            Step("check", "checking", "checked", action=check, key="check-{entity_id}", timeout_seconds=30),
            Step(
                "refund",
                "refunding",
                None,
                action=refund,
                key="refund-{entity_id}",
                timeout_seconds=30,
                moves_money=True,
                patience_seconds=PATIENCE_SECONDS,
            ),
        ],
        stuck_after_seconds=stuck_after_seconds,
    )
