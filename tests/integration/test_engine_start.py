"""Starting: once per order, and bad input of every kind is refused before anything is written."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from checkouts import GOOD, NoWait, count_rows, get_row, order

from makegood.engine.definitions import Action, Step, Workflow
from makegood.engine.runner import Runner, Start, open_runner
from makegood.errors import (
    AlreadyStarted,
    ConfigurationError,
    DatabaseUnavailable,
    InputError,
    MakegoodError,
    UnknownWorkflowType,
)
from makegood.settings import Settings

NOTHING = Action(send=lambda call, request: None)
TRIP = Workflow("checkout", [Step("charge", "charging", None, NOTHING, key="charge-{entity_id}")])


@contextlib.asynccontextmanager
async def opened(database: Any, settings: Settings, workflow: Workflow = TRIP) -> AsyncIterator[Runner]:
    async with open_runner(database.jobs, {workflow.name: workflow}, settings, chance=NoWait()) as runner:
        yield runner


def start(database: Any, settings: Settings, *starts: Start, worker: str | None = None) -> list[Any]:
    async def run() -> list[Any]:
        async with opened(database, settings) as runner:
            return list(await runner.start(starts, triggered_by="shop", worker=worker))

    return asyncio.run(run())


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"workflow_type": "checkuot"}, UnknownWorkflowType, "unknown workflow type 'checkuot'; known are: checkout"),
        ({"entity_id": ""}, InputError, "entity_id has 0 characters; 1 to 150 are allowed"),
        ({"entity_id": "x" * 151}, InputError, "entity_id has 151 characters"),
        ({"entity_id": "order\0"}, InputError, "entity_id contains a NUL"),
        ({"entity_id": "order\ud800"}, InputError, "entity_id contains half a character"),
        ({"entity_id": 123}, InputError, "entity_id is a int"),
        ({"entity_id": None}, InputError, "entity_id is a NoneType"),
        ({"amount_minor": 19.99}, InputError, "amount_minor is 19.99"),
        ({"amount_minor": float("nan")}, InputError, "amount_minor is nan"),
        ({"amount_minor": True}, InputError, "amount_minor is True"),
        ({"amount_minor": -1}, InputError, "amount_minor is -1"),
        ({"amount_minor": 2**63}, InputError, "amount_minor is 9223372036854775808"),
        ({"amount_minor": None}, InputError, "amount_minor is None"),
        ({"currency": None}, InputError, "currency is None"),
        ({"currency": "eur"}, InputError, "currency is 'eur'"),
        ({"currency": "ZZZ"}, InputError, "currency ZZZ does not exist"),
        ({"context": None}, InputError, "context is a NoneType; it must be a mapping"),
        ({"context": [1]}, InputError, "context is a list; it must be a mapping"),
        ({"context": {"a": float("nan")}}, InputError, "context.a is nan"),
        ({"context": {"a": float("inf")}}, InputError, "context.a is inf"),
        ({"context": {"a": "\0"}}, InputError, "context.a contains a NUL"),
        ({"context": {"a": "\udc00"}}, InputError, "context.a contains half a character"),
        ({"context": {"a": b"x"}}, InputError, "context.a is a bytes"),
        ({"context": {"a": Decimal(1)}}, InputError, "context.a is a Decimal"),
        ({"context": {"a": datetime.now(UTC)}}, InputError, "context.a is a datetime"),
        ({"context": {1: "a"}}, InputError, "context has the key 1"),
        ({"context": nested(40)}, InputError, "is nested deeper than 32"),
        ({"context": {"a": "x" * 70_000}}, InputError, "context is 70,008 bytes; at most 65,536 are kept"),
        # 64 KiB as text, but more as the database counts it: refused there.
        ({"context": {"a": [1] * 32_000}}, InputError, "context"),
        ({"traceparent": "nonsense"}, InputError, "traceparent"),
    ],
    ids=lambda value: None if isinstance(value, dict) else "",
)
def test_start_with_one_bad_order_refuses_the_batch_and_writes_nothing(
    database: Any, settings: Settings, changes: dict[str, Any], error: type[MakegoodError], message: str
) -> None:
    before = count_rows(database)
    bad = dataclasses.replace(order("order-2"), **changes)
    with pytest.raises(error) as refused:
        start(database, settings, order("order-1"), bad, order("order-3"))
    assert message in str(refused.value)
    assert count_rows(database) == before


def test_start_leaves_an_order_that_is_due_at_once(database: Any, settings: Settings) -> None:
    started = start(database, settings, order())
    row = get_row(database)
    assert [x.id for x in started] == [row["id"]]
    assert (row["current_state"], row["fence"], row["lease_owner"]) == ("created", 0, None)
    assert row["context"] == GOOD


def test_start_with_a_worker_leases_the_new_ones_to_it(database: Any, settings: Settings) -> None:
    started = start(database, settings, order(), worker="shop-1")
    row = get_row(database)
    assert (row["fence"], row["lease_owner"]) == (1, "shop-1")
    assert started[0].fence == 1


def test_start_of_the_same_again_is_the_same_order_and_returns_nothing_new(database: Any, settings: Settings) -> None:
    start(database, settings, order())
    before = count_rows(database)
    assert start(database, settings, order()) == []
    assert count_rows(database) == before


@pytest.mark.parametrize(
    "changes",
    [{"amount_minor": 2000}, {"currency": "USD"}, {"context": {**GOOD, "quantity": 2}}],
    ids=["amount", "currency", "context"],
)
def test_start_of_a_known_order_with_other_parameters_is_refused(
    database: Any, settings: Settings, changes: dict[str, Any]
) -> None:
    start(database, settings, order())
    with pytest.raises(AlreadyStarted, match="order-1 was already started as checkout with other parameters"):
        start(database, settings, dataclasses.replace(order(), **changes))
    assert get_row(database)["amount_minor"] == 1999


def test_start_of_one_order_twice_in_a_batch_starts_it_once(database: Any, settings: Settings) -> None:
    assert len(start(database, settings, order(), order())) == 1
    assert count_rows(database)["workflow_executions"] == 1


def test_start_of_one_order_twice_with_other_parameters_is_refused_and_writes_nothing(
    database: Any, settings: Settings
) -> None:
    """Otherwise the row would have the one amount and the worker would charge the other."""
    before = count_rows(database)
    dearer = dataclasses.replace(order(), amount_minor=200_000)
    with pytest.raises(AlreadyStarted, match="order-1"):
        start(database, settings, order(), dearer)
    assert count_rows(database) == before


def test_start_takes_any_mapping_and_an_entity_of_any_script(database: Any, settings: Settings) -> None:
    context = MappingProxyType({**GOOD, "note": "→ 漢字 {0} %s '\" \x1b[31m"})
    entity_id = "Auftrag №1 / ünïcode {x} %s"
    start(database, settings, Start("checkout", entity_id, context, 1999, "EUR"))
    assert get_row(database, entity_id)["context"] == dict(context)


def test_start_of_nothing_is_nothing(database: Any, settings: Settings) -> None:
    assert start(database, settings) == []


def test_many_starters_of_one_order_at_once_start_it_once(database: Any, settings: Settings) -> None:
    async def run() -> list[int]:
        async with opened(database, settings) as runner:
            asked = (runner.start([order()], triggered_by=f"shop-{n}") for n in range(20))
            return [len(started) for started in await asyncio.gather(*asked)]

    assert sorted(asyncio.run(run())) == [0] * 19 + [1]
    assert count_rows(database)["workflow_transitions"] == 1


# What the database knows of a type


def test_type_whose_state_would_change_its_meaning_is_refused(database: Any, settings: Settings) -> None:
    start(database, settings, order())
    other = Workflow("checkout", [Step("pay", "charging", None, NOTHING)])

    async def run() -> None:
        async with opened(database, settings, other):
            pass

    with pytest.raises(ConfigurationError, match="state charging of workflow type checkout already means something"):
        asyncio.run(run())


def test_runner_of_the_reading_role_is_told_which_grant_is_missing(database: Any, settings: Settings) -> None:
    async def run() -> None:
        async with open_runner(database.read, {"checkout": TRIP}, settings):
            pass

    with pytest.raises(ConfigurationError, match="permission denied") as refused:
        asyncio.run(run())
    assert "makegood_jobs" in (refused.value.hint or "")


def test_runner_over_a_database_that_was_never_migrated_says_what_to_run(server: Any, settings: Settings) -> None:
    async def run() -> None:
        async with open_runner(server.url("postgres", "postgres"), {"checkout": TRIP}, settings):
            pass

    with pytest.raises(ConfigurationError) as refused:
        asyncio.run(run())
    assert "makegood db migrate" in (refused.value.hint or "")


def test_runner_over_a_database_that_is_not_there_says_where_it_looked(settings: Settings) -> None:
    async def run() -> None:
        async with open_runner("postgresql://me:hunter2@127.0.0.1:1/shop", {"checkout": TRIP}, settings):
            pass

    with pytest.raises(DatabaseUnavailable, match=r"cannot connect to PostgreSQL at 127\.0\.0\.1:1/shop as me") as seen:
        asyncio.run(run())
    assert "hunter2" not in str(seen.value)
