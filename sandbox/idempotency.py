"""One key, one effect: the first request's answer is stored with its effect, and later ones get it again.

As Stripe has it: the stored answer is replayed whatever its status; the same key with other parameters or on
another endpoint is refused; a request whose key is being worked on gets 409; after ``key_age_seconds`` the
key is forgotten and a request that uses it is new.

Which keys are being worked on is known to this process only, so a crash leaves none behind.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Awaitable, Callable

from sandbox.answers import Answer, RefusedError, error_for
from sandbox.shop import Call, Shop

KEY_LENGTH_MAX = 255


def check_key(call: Call) -> None:
    if call.key is not None and len(call.key) > KEY_LENGTH_MAX:
        message = f"Idempotency keys can have up to {KEY_LENGTH_MAX} characters; this one has {len(call.key)}."
        raise _refuse(call, 400, "idempotency_key_too_long", message)


async def answer_once(shop: Shop, call: Call, work: Callable[[], Awaitable[Answer]]) -> Answer:
    """The stored answer when there is one; otherwise that of ``work``, which stores it with its effect."""
    if call.key is None:
        return await work()
    slot = (call.scope, call.key)
    if slot in shop.keys_in_progress:
        raise _in_use(call)
    replay = find_answer(shop, call)
    if replay is not None:
        await shop.pause()
        return replay
    shop.keys_in_progress.add(slot)
    try:
        return await work()
    finally:
        shop.keys_in_progress.discard(slot)


def find_answer(shop: Shop, call: Call) -> Answer | None:
    row = shop.store.row("SELECT * FROM answers WHERE scope = ? AND key = ?", (call.scope, call.key))
    if row is None or row["at"] + shop.options.key_age_seconds <= shop.clock.now():
        return None
    _refuse_other_request(call, row)
    headers = {"Idempotent-Replayed": "true", "Original-Request": row["request_id"]}
    return Answer(row["status"], row["body"], headers, replayed=True)


def keep_answer(shop: Shop, call: Call, answer: Answer) -> None:
    """Inside the transaction of the effect. A forgotten key's row is replaced."""
    if call.key is None:
        return
    values = (call.scope, call.key, call.path, get_fingerprint(call), answer.status, answer.body)
    shop.store.execute(
        "INSERT OR REPLACE INTO answers (scope, key, endpoint, fingerprint, status, body, request_id, at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (*values, call.request_id, shop.clock.now()),
    )


def get_fingerprint(call: Call) -> str:
    return hashlib.sha256(json.dumps(call.params, sort_keys=True).encode()).hexdigest()


def _refuse_other_request(call: Call, row: sqlite3.Row) -> None:
    hint = f"Try using a key other than '{call.key}' if you meant to execute a different request."
    if row["endpoint"] != call.path:
        message = "Keys for idempotent requests can only be used for the same endpoint they were first used for"
        raise _refuse(call, 400, None, f"{message} ('{call.path}' vs '{row['endpoint']}'). {hint}")
    if row["fingerprint"] != get_fingerprint(call):
        message = "Keys for idempotent requests can only be used with the same parameters they were first used with."
        raise _refuse(call, 400, None, f"{message} {hint}")


def _in_use(call: Call) -> RefusedError:
    message = (
        "There is currently another in-progress request using this Idempotent Key (that probably means you submitted "
        f"twice, and the other request is still going through): {call.key}. Please try again later."
    )
    return _refuse(call, 409, "idempotency_key_in_use", message)


def _refuse(call: Call, status: int, code: str | None, message: str) -> RefusedError:
    if call.service != "stripe" and code is None:
        code = "idempotency_key_reused"
    return RefusedError(error_for(call.service, status, code, message, error_type="idempotency_error"), kept=False)
