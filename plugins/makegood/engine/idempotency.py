"""One outside effect per key, for callers outside any workflow: however many ask at once, one call is made.

A workflow's own steps need none of this: their lease already makes them the only caller, and their keys are
stored with their state (``begin_steps``). The recovery points are the same, in the same table.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from makegood.database import Database
from makegood.engine.definitions import Request
from makegood.engine.outcomes import Failed, Outcome, Success, Unknown, from_response, to_response
from makegood.engine.payload import request_hash
from makegood.errors import KeyReused

POLL_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Effect:
    """What is to happen once: its key, what it does, and the parameters that the key stands for."""

    key: str
    operation: str
    request: Request
    call_seconds: float = 30.0
    """The call's total deadline. Other callers wait this long before one of them takes over."""


async def call_once(
    database: Database,
    effect: Effect,
    caller: str,
    call: Callable[[], Awaitable[Outcome]],
    *,
    window_seconds: float = 20 * 3600,
) -> Outcome:
    """The answer of the one call made under the key, whoever made it.

    Unknown stays open: the next caller tries again under the same key, until the provider may have
    forgotten it (``expired``: look it up). Other parameters under a used key raise KeyReused.
    """
    deadline = asyncio.get_running_loop().time() + 2 * effect.call_seconds
    while asyncio.get_running_loop().time() < deadline:
        verdict, stored = await _take(database, effect, caller, window_seconds)
        match verdict:
            case "go":
                return await _call(database, effect, caller, call)
            case "known" if stored is not None:
                return from_response(stored)
            case "conflict":
                raise KeyReused(f"key {effect.key} was already used with other parameters")
            case "expired":
                return Unknown("expired", f"the provider may have forgotten key {effect.key}: look it up")
        await asyncio.sleep(POLL_SECONDS)
    return Unknown("busy", f"another caller holds key {effect.key}")


async def _take(
    database: Database, effect: Effect, caller: str, window_seconds: float
) -> tuple[str, dict[str, object] | None]:
    # A caller that is a little slower than its deadline must not meet a second one.
    call_seconds = effect.call_seconds + 5
    rows = await database.call(
        "SELECT * FROM makegood.take_key(%s, %s, decode(%s, 'hex'), %s, %s, %s)",
        (effect.key, effect.operation, request_hash(effect.request), caller, call_seconds, window_seconds),
    )
    return rows[0]["verdict"], rows[0]["response"]


async def _call(database: Database, effect: Effect, caller: str, call: Callable[[], Awaitable[Outcome]]) -> Outcome:
    try:
        async with asyncio.timeout(effect.call_seconds):
            outcome = await call()
    except TimeoutError:
        outcome = Unknown("timeout", f"no answer within {effect.call_seconds:g} s")
    except Exception as error:  # it may have worked before it raised
        outcome = Unknown(type(error).__name__, str(error))
    if isinstance(outcome, Success | Failed):
        # The first answer that was stored counts, should a second caller have been quicker after all.
        rows = await database.call(
            "SELECT makegood.answer_key(%s, %s::jsonb) AS response", (effect.key, json.dumps(to_response(outcome)))
        )
        return from_response(rows[0]["response"])
    await database.call("SELECT makegood.give_up_key(%s, %s)", (effect.key, caller))
    return outcome
