"""`makegood timeline` and `makegood cancel` as a person runs them: a process, a real database, a real shop."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from checkouts import NOWHERE, check_out, get_row, hasten, open_checkouts, order, pass_time, request_cancel
from psycopg.types.json import Jsonb

from makegood.engine.definitions import Action, Step, Workflow
from makegood.engine.runner import Start
from makegood.settings import Settings
from sandbox.client import ShopControl

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def makegood(database: Any, settings: Settings, tmp_path: Path) -> Run:
    """Runs one command against the test's database and shop."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "COLUMNS": "200",
        "MAKEGOOD_HOME": str(tmp_path / "home"),
        "MAKEGOOD_DATABASE_URL": database.jobs,
        "MAKEGOOD_STRIPE_API_BASE": str(settings.stripe_api_base),
    }

    def run(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "makegood.cli", *arguments],
            env=environment | changes,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_timeline_of_a_completed_order_tells_its_states_attempts_and_money(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    asyncio.run(check_out(database, settings, order()))
    shown = makegood("timeline", "order-1")
    assert (shown.returncode, shown.stderr) == (0, "")
    for word in ("order-1", "19.99 EUR", "completed after", "charging", "reserving", "shipping", "charged 19.99 EUR"):
        assert word in shown.stdout
    assert "net 19.99 EUR" in shown.stdout
    assert "Compensations" not in shown.stdout


def test_timeline_of_a_compensated_order_tells_why_and_that_the_money_is_back(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    asyncio.run(check_out(database, settings, order(**NOWHERE)))
    shown = makegood("timeline", "order-1").stdout
    assert "compensated after" in shown
    assert "ship failed: undeliverable" in shown
    assert "undo charge" in shown
    assert "refunded 19.99 EUR" in shown
    assert "net 0.00 EUR" in shown


def test_timeline_of_a_cancelled_order_names_who_and_why(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    asyncio.run(check_out(database, settings, order(), before=lambda: request_cancel(database)))
    shown = makegood("timeline", "order-1").stdout
    assert "cancel requested by support: customer called" in shown
    assert "cancelled by support: customer called" in shown
    assert "no payment is known for this order" in shown


def test_timeline_of_a_held_order_says_what_a_person_must_know(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    """The answer was a lie, so nothing of it was kept; the money is shown all the same."""
    shop.set_faults({"rules": [{"operation": "charge", "fault": "wrong_amount"}]})
    asyncio.run(check_out(database, settings, order()))
    shop.clear_faults()
    shown = makegood("timeline", "order-1").stdout
    assert "held for a person, charging for" in shown
    assert "answered with something else than was asked" in shown
    assert "charged 19.99 EUR" in shown


def test_timeline_of_a_waiting_order_says_when_it_goes_on_and_why_it_waits(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    shop.set_faults({"retry_after_seconds": 600, "rules": [{"operation": "charge", "fault": "rate_limited"}]})

    async def run() -> None:
        async with open_checkouts(database.jobs, settings) as runner:
            await runner.start([order()], triggered_by="shop")
            assert await runner.run_once() == {"waiting": 1}

    asyncio.run(run())
    shown = makegood("timeline", "order-1").stdout
    assert "next attempt in 9 min" in shown
    assert "unknown" in shown
    database.rows("UPDATE makegood.workflow_executions SET deadline_at = now() - interval '1 minute'")
    assert "STUCK, charging for" in makegood("timeline", "order-1").stdout


def test_timeline_json_is_one_document_with_the_same_facts(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    asyncio.run(check_out(database, settings, order(**NOWHERE)))
    shown = makegood("timeline", "order-1", "--json")
    assert shown.stderr == ""
    document = json.loads(shown.stdout)
    assert document["order"] == "order-1"
    (story,) = document["workflows"]
    assert story["workflow"]["current_state"] == "compensated"
    assert [t["seq"] for t in story["transitions"]] == list(range(1, 9))
    assert {c["step"]: c["state"] for c in story["compensations"]} == {"reserve": "succeeded", "charge": "succeeded"}
    money = story["money"]
    assert (money["charged"], money["refunded"], money["net"], money["currency"]) == (1999, 1999, 0, "EUR")


def test_timeline_of_an_unknown_order_is_exit_1_with_a_suggestion(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    asyncio.run(check_out(database, settings, order("order-1234")))
    shown = makegood("timeline", "order-123")
    assert (shown.returncode, shown.stdout) == (1, "")
    assert "nothing is known of order-123" in shown.stderr
    assert "Did you mean order-1234?" in shown.stderr
    document = json.loads(makegood("timeline", "ORDER", "--json").stdout)
    assert document["error"]["type"] == "UnknownOrder"
    assert "case-sensitive" in document["error"]["hint"]


def test_timeline_while_the_provider_is_down_says_so_and_shows_the_rest(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    asyncio.run(check_out(database, settings, order()))
    shown = makegood("timeline", "order-1", MAKEGOOD_STRIPE_API_BASE="http://127.0.0.1:1")
    assert shown.returncode == 0
    assert "Money at the provider: it cannot be told now" in shown.stdout
    assert "completed after" in shown.stdout


def test_timeline_while_the_provider_hangs_does_not_hang_with_it(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    asyncio.run(check_out(database, settings, order()))
    shop.set_faults({"hang_seconds": 60, "rules": [{"operation": "retrieve", "fault": "timeout_before"}]})
    before = time.monotonic()
    shown = makegood("timeline", "order-1", "--json")
    assert time.monotonic() - before < 20  # an answer in seconds
    assert shown.returncode == 0
    assert json.loads(shown.stdout)["workflows"][0]["money"]["error"] == "no answer within 5 s"


def test_timeline_offline_asks_nobody(database: Any, settings: Settings, shop: ShopControl, makegood: Run) -> None:
    asyncio.run(check_out(database, settings, order()))
    calls = shop.calls()["total"]
    assert makegood("timeline", "order-1", "--offline").returncode == 0
    assert shop.calls()["total"] == calls


HOSTILE = "order-[red]x[/red]-\x1b[31mred\x1b]0;title\x07-\u202e\x9b"


def test_timeline_of_hostile_text_shows_it_and_obeys_none_of_it(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    """Ids, reasons and errors from outside, on something that rich takes for a terminal."""

    async def run() -> None:
        async with open_checkouts(database.jobs, settings) as runner:
            await runner.start(
                [Start("checkout", HOSTILE, {"charge": "[bold]mine"}, 1999, "EUR")], triggered_by=HOSTILE
            )
            await runner.run_once()

    asyncio.run(run())
    database.rows("SELECT makegood.request_cancel('checkout', %s, %s, %s)", (HOSTILE, HOSTILE, HOSTILE))
    database.rows("UPDATE makegood.workflow_executions SET held_reason = %s", (HOSTILE,))
    shown = makegood("timeline", HOSTILE, FORCE_COLOR="1", NO_COLOR="1", TERM="dumb")
    assert shown.returncode == 0
    assert "order-[red]x[/red]-" in shown.stdout
    suggested = makegood("timeline", "order")
    assert suggested.returncode == 1
    for text in (shown.stdout, suggested.stderr):
        assert not {"\x07", "\u202e", "\x9b"} & set(text)
        assert "\x1b[31mred" not in text
        assert "\x1b]" not in text
    (story,) = json.loads(makegood("timeline", HOSTILE, "--json").stdout)["workflows"]
    assert story["workflow"]["entity_id"] == HOSTILE


@pytest.mark.parametrize("order_id", ["%", "order'; DROP TABLE x;--", "-1"])
def test_timeline_takes_any_text_for_an_order(makegood: Run, order_id: str) -> None:
    shown = makegood("timeline", "--", order_id)
    assert shown.returncode == 1
    assert f"nothing is known of {order_id}" in shown.stderr


def test_timeline_of_bytes_that_are_no_text_is_exit_2(database: Any, tmp_path: Path) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "makegood.cli", "timeline", b"order-\xff"],
        env={**os.environ, "MAKEGOOD_DATABASE_URL": database.read},
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert shown.returncode == 2
    assert b"Traceback" not in shown.stderr


def test_timeline_shows_every_type_of_an_entity_or_the_one_asked_for(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    gift = Workflow("gift", [Step("wrap", "wrapping", None, Action(send=print))])
    asyncio.run(check_out(database, settings, order()))
    database.rows("SELECT makegood.register_workflow(%s)", (Jsonb(gift.to_document()),))
    database.rows("SELECT makegood.start_workflow('gift', 'order-1')")
    both = json.loads(makegood("timeline", "order-1", "--json").stdout)
    assert [story["workflow"]["workflow_type"] for story in both["workflows"]] == ["checkout", "gift"]
    one = json.loads(makegood("timeline", "order-1", "--type", "gift", "--json").stdout)
    assert len(one["workflows"]) == 1


# Cancel


def test_cancel_is_requested_once_and_then_said_to_be_so(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    async def run() -> None:
        async with open_checkouts(database.jobs, settings) as runner:
            await runner.start([order()], triggered_by="shop")

    asyncio.run(run())
    asked = makegood("cancel", "order-1", "--reason", "customer called", "--as", "kim")
    assert (asked.returncode, asked.stdout) == (
        0,
        "order-1 will be undone at its next step border (it is created now).\n",
    )
    row = get_row(database)
    assert (row["cancel_requested_by"], row["cancel_reason"]) == ("kim", "customer called")
    again = makegood("cancel", "order-1", "--reason", "again", "--json")
    assert (again.returncode, json.loads(again.stdout)) == (
        0,
        {"order": "order-1", "verdict": "already_requested", "state": "created"},
    )
    actions = database.rows("SELECT actor, action, reason FROM makegood.operator_actions")
    assert actions == [{"actor": "kim", "action": "cancel", "reason": "customer called"}]


def test_cancel_of_an_order_that_is_being_undone_says_so(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    shop.set_faults({"rules": [{"operation": "refund", "fault": "refused"}]})
    asyncio.run(check_out(database, settings, order(**NOWHERE)))
    asked = makegood("cancel", "order-1", "--reason", "x", "--json")
    assert asked.returncode == 0
    assert json.loads(asked.stdout)["verdict"] == "compensating"


def test_cancel_of_a_completed_order_is_too_late_and_exit_1(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    asyncio.run(check_out(database, settings, order()))
    asked = makegood("cancel", "order-1", "--reason", "x")
    assert (asked.returncode, asked.stdout) == (1, "Too late: order-1 is completed.\n")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["order-9", "--reason", "x"], 1, "there is no checkout of order-9"),
        (["order-9", "--reason", "x", "--type", "gift"], 1, "there is no gift of order-9"),
        (["order-1", "--reason", " "], 2, "a cancel request needs who asks and why"),
        (["order-1", "--reason", "x", "--as", "y" * 201], 2, "--as has 201 characters"),
    ],
)
def test_cancel_that_cannot_be_is_refused_in_words(
    database: Any, settings: Settings, makegood: Run, arguments: list[str], exit_code: int, message: str
) -> None:
    async def run() -> None:
        async with open_checkouts(database.jobs, settings, change=hasten) as runner:
            await runner.start([order()], triggered_by="shop")
            pass_time(database)

    asyncio.run(run())
    asked = makegood("cancel", *arguments, "--json")
    assert asked.returncode == exit_code
    assert message in json.loads(asked.stdout)["error"]["message"]
    assert get_row(database)["cancel_requested"] is False
