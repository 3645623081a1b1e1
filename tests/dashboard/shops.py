"""Databases for the pages to read: nothing, an ordinary day, a disaster, and names that customers should not choose."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
from checkouts import NOWHERE, check_out, let_stick, open_checkouts, order, request_cancel
from databases import DatabaseUrls
from psycopg import sql
from psycopg.conninfo import make_conninfo

from makegood import jobs
from makegood.local.postgres import EmbeddedPostgres
from makegood.runs.model import Options
from makegood.settings import Settings
from sandbox.client import ShopControl

TEMPLATE = "makegood_template"
DECLINED = {"payment_method": "pm_card_chargeDeclined"}
HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "<svg/onload=alert(3)>",
    "[x](javascript:alert(4))",
    "![x](https://outside.example/a.png)",
    "<a href='https://outside.example'>x</a>",
    "$\\alpha$ and $$\\beta$$",
    ":material/home: :smile: :red[x]",
    "# **bold** _em_ `code` ~~s~~ | a | b |",
    "'; DROP TABLE makegood.workflow_executions; --",
    "{{7*7}} ${7*7} %{x} %(y)s %s",
    "a&amp;b &lt;b&gt; \\u003cscript\\u003e",
    '=HYPERLINK("https://outside.example","x")',
    "../../etc/passwd?x=1&order=order-1#frag",
    "\u202eевил \u200b\u202e ١٢٣ 漢字 🧨",
)
# What the browser is shown besides: more ways to be taken for markup, and ways to break a layout.
PAYLOADS = (
    *HOSTILE,
    "w" * 150,
    "漢" * 150,
    "Z" + "\u0351\u036b\u0343\u032a\u0302\u034f\u0334\u0319" * 12 + "A",
    "\u0645\u0631\u062d\u0628\u0627 \u05e9\u05dc\u05d5\u05dd order",
    "\u2066\u2067x\u2069\u2069 \ufeff\u00ad\u2060",
    "<iframe srcdoc='<script>alert(16)</script>'></iframe>",
    "<math><mtext><img src=x onerror=alert(17)></mtext></math>",
    "<style>*{display:none}</style>",
    "<details open ontoggle=alert(19)>x</details>",
    '"><script>alert(20)</script><input value="',
    "<https://outside.example> https://outside.example www.outside.example",
    "[x]: https://outside.example 'y' [x][x] ![x][x]",
    "```html <b>x</b> ``` <!-- x -->",
    ":blue-background[x] :streamlit: :material/delete: :rainbow[x]",
    "%3Cscript%3Ealert(25)%3C/script%3E &#60;script&#62;",
)
# A provider's key is ASCII, so more names than one beyond it count as a provider that is down: they are texts only.
NAMES = {text: text if text.isascii() or text in HOSTILE else f"typed-{n}" for n, text in enumerate(PAYLOADS)}
LINES = "\n\n# a heading\n\n* a list <b>bold</b>\n"


Place = DatabaseUrls


@contextlib.contextmanager
def open_place(server: EmbeddedPostgres) -> Iterator[Place]:
    name = f"pages_{secrets.token_hex(6)}"
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        create = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        connection.execute(create.format(sql.Identifier(name), sql.Identifier(TEMPLATE)))
    roles = ("postgres", "makegood_jobs", "makegood_read", "makegood_act")
    yield Place(*(make_conninfo(server.url(role), dbname=name) for role in roles))
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def make_settings(url: str, home: Path) -> Settings:
    return Settings(home=home, stripe_api_base=url, inventory_url=url, shipping_url=url)


def ordinary_day(place: Place, settings: Settings, shop: ShopControl) -> None:
    """Most orders are completed, some declined, some undone; one is let down a few times first; a job has run."""
    shop.set_faults({"rules": [{"operation": "reserve", "fault": "error_503", "order_id": "order-3", "times": 2}]})
    starts = [order(f"order-{n}", **(DECLINED if n == 7 else NOWHERE if n in {8, 9} else {})) for n in range(1, 61)]
    asyncio.run(check_out(place, settings, *starts))
    shop.clear_faults()
    recover(place, settings)


def disaster(place: Place, settings: Settings, shop: ShopControl) -> None:
    """Refunds are refused, answers lie, orders stand still, a provider is down, and a job has failed."""
    ordinary_day(place, settings, shop)
    rules = [
        *({"operation": "refund", "fault": "refused", "order_id": f"undo-{n}"} for n in range(1, 4)),
        *({"operation": "charge", "fault": "wrong_amount", "order_id": f"parked-{n}"} for n in range(1, 6)),
        {"operation": "ship", "fault": "reset_before", "order_id": "late-1", "nth": 1},
    ]
    shop.set_faults({"rules": rules})
    held = [order(f"undo-{n}", **NOWHERE) for n in range(1, 4)] + [order(f"parked-{n}") for n in range(1, 6)]
    asyncio.run(check_out(place, settings, *held))
    asyncio.run(leave(place, settings, [order("late-1")], begun=True))
    shop.clear_faults()
    let_stick(place, "late-1", seconds=900)
    place.rows("UPDATE makegood.workflow_executions SET next_attempt_at = clock_timestamp() WHERE entity_id = 'late-1'")
    recover(place, settings)
    asyncio.run(leave(place, settings, [order(f"stuck-{n}") for n in range(1, 60)], begun=False))
    let_stick(place, seconds=7200)
    request_cancel(place, "stuck-1")
    place.rows("SELECT makegood.trip_breaker('payments', 'w', 'connection refused', 600, 1200)", role="jobs")
    (run,) = place.rows(
        "SELECT makegood.begin_run('retry_compensations', 'k', 'schedule', '{}', 60) AS id", role="jobs"
    )
    place.rows("SELECT makegood.finish_run(%s, 'DatabaseUnavailable: it was away')", (run["id"],), role="jobs")


def parked(place: Place, settings: Settings, shop: ShopControl) -> None:
    """Five orders are parked, two refunds are held, the demo's people are known, and a customer left her address."""
    shop.set_faults({"rules": [
        *({"operation": "refund", "fault": "refused", "order_id": f"undo-{n}"} for n in range(1, 3)),
        *({"operation": "charge", "fault": "wrong_amount", "order_id": f"parked-{n}"} for n in range(1, 6)),
    ]})  # fmt: skip
    orders = [order(f"undo-{n}", **NOWHERE) for n in range(1, 3)] + [order(f"parked-{n}") for n in range(1, 6)]
    asyncio.run(check_out(place, settings, *orders))
    shop.clear_faults()
    for role in ("viewer", "engineer", "operator", "approver"):
        grant(place, f"demo-{role}", "viewer", role)
    place.rows(
        "UPDATE makegood.workflow_executions SET context = context || %s::jsonb,"
        " held_reason = 'write to brigitte@example.com' WHERE entity_id = 'parked-1'",
        ('{"customer": {"name": "Brigitte", "email": "brigitte@example.com"}}',),
    )


def grant(place: Place, login: str, *roles: str) -> None:
    place.rows("SELECT makegood.grant_person(%s, %s, 'root', 'a test')", (login, list(roles)), role="jobs")


def hostile(place: Place, settings: Settings, shop: ShopControl) -> None:
    """Every name a customer can choose, held with the same text as the reason and everywhere else it can get."""
    shop.set_faults({"rules": [{"operation": "charge", "fault": "wrong_amount"}]})
    typed = [
        order(name, **{text: text, "note": text + LINES, "deep": [{"customer": {text: [text]}}]})
        for text, name in NAMES.items()
    ]
    asyncio.run(check_out(place, settings, *typed))
    shop.set_faults({"rules": [{"operation": "refund", "fault": "refused"}]})
    asyncio.run(check_out(place, settings, *(order(f"undo-{n}", **NOWHERE) for n in range(len(NAMES)))))
    shop.clear_faults()
    whose = "workflow_id = (SELECT id FROM makegood.workflow_executions WHERE entity_id = %s)"
    for n, (text, name) in enumerate(NAMES.items()):
        place.rows("UPDATE makegood.workflow_executions SET held_reason = %s WHERE entity_id = %s", (text, name))
        place.rows(
            "UPDATE makegood.dead_letters SET error = %s, signature = %s, error_type = left(%s, 100), note = %s"
            " WHERE entity_id = %s", (text, text, text, text, name),
        )  # fmt: skip
        place.rows(
            "UPDATE makegood.step_attempts SET error = %s, error_type = left(%s, 100)"
            f" WHERE outcome = 'unknown' AND {whose}", (text, text, name),
        )  # fmt: skip
        place.rows(f"UPDATE makegood.compensations SET last_error = %s WHERE {whose}", (text, f"undo-{n}"))
        place.rows("SELECT * FROM makegood.request_cancel('checkout', %s, %s, %s)", (name, text, text), role="jobs")
    place.rows("SELECT makegood.trip_breaker(%s, 'w', %s, 600, 1200)", (HOSTILE[0], HOSTILE[3]), role="jobs")


def recover(place: Place, settings: Settings) -> str:
    """One run of the recovery, as the command would."""

    async def run() -> str:
        async with open_checkouts(place.jobs, settings) as runner:
            options = Options(limit=1000, older_than_seconds=0)
            return (await jobs.run_recovery(runner, options, triggered_by="command:test")).run_id

    return asyncio.run(run())


async def leave(place: Place, settings: Settings, starts: Sequence[Any], *, begun: bool) -> None:
    """Starts orders and goes away, after one turn or before the first."""
    async with open_checkouts(place.jobs, settings) as runner:
        await runner.start(starts, triggered_by="shop")
        if begun:
            await runner.run_once()
