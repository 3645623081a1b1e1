"""Canaries: a card token, an e-mail and an API key go in; no log line and no exception lets them out."""

from __future__ import annotations

import asyncio
import io
import logging
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from checkouts import NOWHERE, check_out, get_row, hasten, open_checkouts, order, pass_time
from pydantic import SecretStr

from makegood.engine.definitions import Action, Call, Request, Step, Workflow
from makegood.engine.runner import Start, open_runner
from makegood.errors import MakegoodError
from makegood.logs import configure_logs
from makegood.settings import Settings
from sandbox.client import ShopControl

API_KEY = "sk_test_canary4711"
CARD = "pm_canary4712"
MAIL = "canary4713@example.com"
CANARIES = ("canary4711", "canary4712", "canary4713")
PRIVATE = {"payment_method": CARD, "email": MAIL}


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Everything that is logged, at DEBUG, as it would be written; what libraries log included, from INFO."""
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    configure_logs("DEBUG")
    handler = logging.StreamHandler(written)
    handler.setLevel(logging.INFO)
    logging.getLogger().addHandler(handler)
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.INFO)
    yield written
    logging.getLogger().removeHandler(handler)
    logging.getLogger().setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def secret(settings: Settings) -> Settings:
    return settings.model_copy(update={"stripe_api_key": SecretStr(API_KEY)})


def find_canaries(text: str) -> list[str]:
    return [line for line in text.splitlines() if any(canary in line for canary in CANARIES)]


def test_logs_of_a_storm_hold_no_secret(database: Any, secret: Settings, shop: ShopControl, logs: io.StringIO) -> None:
    """Completed, declined, undone, poisoned, unknown, taken over: every path that logs."""
    rules = [
        {"operation": "charge", "fault": "reset_after", "order_id": "order-2", "nth": 1},
        {"operation": "charge", "fault": "error_500_stored", "order_id": "order-3"},
        {"operation": "refund", "fault": "refused", "order_id": "order-4"},
    ]
    shop.set_faults({"rules": rules})
    known = {"email": MAIL}
    orders = [
        order("order-1", **known),
        order("order-2", **known),
        order("order-3", **known),
        order("order-4", **known, **NOWHERE),
        order("order-5", **PRIVATE),  # a card that the provider does not know
        Start("checkout", "order-6", {**known, "payment_method": [CARD]}, 1999, "EUR"),  # poison: no text
    ]
    asyncio.run(check_out(database, secret, *orders))
    assert get_row(database, "order-6")["held_at"] is not None
    assert "workflow.poisoned" in logs.getvalue()
    assert find_canaries(logs.getvalue()) == []


def test_log_of_a_row_that_the_database_refused_does_not_quote_it(
    database: Any, settings: Settings, logs: io.StringIO
) -> None:
    """PostgreSQL's own words quote the failing row: its context is in them."""

    async def send(call: Call, request: Request) -> dict[str, Any]:
        return {"numbers": [1] * 7000}  # small as text, large as the database counts it

    workflow = Workflow("errand", [Step("run", "running", None, Action(send=send))])
    start = Start("errand", "errand-1", {"m": MAIL, "p": CARD, "numbers": [1] * 3000})

    async def run() -> None:
        async with open_runner(database.jobs, {"errand": workflow}, settings) as runner:
            await runner.start([start], triggered_by="shop")
            await runner.run_once()

    asyncio.run(run())
    assert "workflow_executions_context_check" in get_row(database, "errand-1")["held_reason"]
    assert "workflow.poisoned" in logs.getvalue()
    assert find_canaries(logs.getvalue()) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"currency": "ZZZ"},
        {"traceparent": "nonsense"},
        {"context": {**PRIVATE, "numbers": [1] * 32_000}},  # refused by the database, row and all
        {"context": {**PRIVATE, "note": "x" * 70_000}},
        {"context": {**PRIVATE, "note": b"x"}},
    ],
    ids=["currency", "traceparent", "database", "size", "bytes"],
)
def test_refusal_of_a_start_does_not_quote_what_is_private(
    database: Any, settings: Settings, logs: io.StringIO, changes: dict[str, Any]
) -> None:
    start = Start(
        **{
            "workflow_type": "checkout",
            "entity_id": "order-1",
            "context": PRIVATE,
            "amount_minor": 1999,
            "currency": "EUR",
        }
        | changes
    )

    async def run() -> None:
        async with open_checkouts(database.jobs, settings) as runner:
            await runner.start([start], triggered_by="shop")

    with pytest.raises(MakegoodError) as refused:
        asyncio.run(run())
    told = (
        f"{refused.value} {refused.value.hint} {refused.value!r} {''.join(traceback.format_exception(refused.value))}"
    )
    assert find_canaries(told) == []
    assert find_canaries(logs.getvalue()) == []


def test_refusal_of_other_parameters_does_not_quote_them(database: Any, settings: Settings) -> None:
    async def run() -> None:
        async with open_checkouts(database.jobs, settings) as runner:
            await runner.start([order(**PRIVATE)], triggered_by="shop")
            await runner.start([order(email=MAIL)], triggered_by="shop")

    with pytest.raises(MakegoodError) as refused:
        asyncio.run(run())
    assert find_canaries("".join(traceback.format_exception(refused.value))) == []


def test_wrong_api_key_is_unknown_and_shown_nowhere(
    database: Any, settings: Settings, shop: ShopControl, logs: io.StringIO
) -> None:
    wrong = settings.model_copy(update={"stripe_api_key": SecretStr("sk_live_canary4711")})

    async def run() -> None:
        async with open_checkouts(database.jobs, wrong) as runner:
            await runner.start([order()], triggered_by="shop")
            for _ in range(8):  # as often as it would have attempts
                assert await runner.run_once() == {"waiting": 1}
                pass_time(database)

    asyncio.run(run())
    row = get_row(database)
    # Our fault, not the order's: it did not fail, it spent nothing, and nobody is called any more.
    assert (row["current_state"], row["attempts"], row["held_at"]) == ("charging", 0, None)
    (breaker,) = database.rows("SELECT provider, state FROM makegood.breakers")
    assert breaker == {"provider": "payments", "state": "open"}
    assert len(database.rows("SELECT step FROM makegood.step_attempts")) == 1
    stored = database.rows("SELECT error FROM makegood.step_attempts")
    assert stored
    assert find_canaries(str(stored)) == []
    assert find_canaries(logs.getvalue()) == []
    assert shop.order("order-1")["counts"] == {}


def test_workers_that_lose_the_race_log_no_context(
    database: Any, settings: Settings, shop: ShopControl, logs: io.StringIO
) -> None:
    async def run() -> None:
        async with open_checkouts(database.jobs, settings, change=hasten) as runner:
            await runner.start([order(email=MAIL)], triggered_by="shop")
            claimed = await runner.store.claim(1)
            pass_time(database)
            await runner.store.claim(1)
            assert await runner.engine.advance(claimed) == {"lost": 1}

    asyncio.run(run())
    assert "workflow.lost" in logs.getvalue()
    assert find_canaries(logs.getvalue()) == []
