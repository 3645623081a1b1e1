"""One outside call: within its total deadline, never raising, its outcome always one of four."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

from makegood.engine.definitions import Action, Call, Request
from makegood.engine.outcomes import Failed, Outcome, Success, Suspect, Unknown
from makegood.engine.payload import check_payload, clean
from makegood.errors import InputError, PermanentError

RESULT_BYTES_MAX = 16 * 1024  # four results of this size fit a context
ERROR_TYPE_LENGTH_MAX, ERROR_LENGTH_MAX = 200, 2000  # what the database keeps of an error


async def make_call(action: Action, call: Call, request: Request, threads: Executor | None = None) -> Outcome:
    """A plain function runs in a thread, which a deadline cannot stop: its outcome is unknown then,
    and it may still happen later, under the same key. It has its thread until it returns."""
    try:
        async with asyncio.timeout(call.timeout_seconds):
            answer = await (action.send(call, request) if action.is_async else _run(action, call, request, threads))
    except TimeoutError:
        return Unknown("timeout", f"no answer within {call.timeout_seconds:g} s", trouble="service")
    except PermanentError as error:
        answer = Failed(type(error).__name__, str(error))
    except Exception as error:  # whatever a step raises, it may have worked before it raised
        answer = Unknown(type(error).__name__, str(error), trouble="service")
    return _checked(answer)


async def look_up(action: Action, call: Call) -> Outcome | None:
    """What became of a call made earlier: an outcome, None without a trace, Unknown when it cannot be told now."""
    if action.look_up is None:
        return None
    try:
        async with asyncio.timeout(call.timeout_seconds):
            found = await action.look_up(call)
    except TimeoutError:
        return Unknown("timeout", f"the look-up did not answer within {call.timeout_seconds:g} s", trouble="service")
    except Exception as error:  # a look-up changes nothing, so it can simply be tried again
        found = Unknown(type(error).__name__, str(error), trouble="service")
    return None if found is None else _checked(found)


async def _run(action: Action, call: Call, request: Request, threads: Executor | None) -> Any:
    send = functools.partial(contextvars.copy_context().run, action.send, call, request)
    answer = await asyncio.get_running_loop().run_in_executor(threads, send)
    return await answer if inspect.isawaitable(answer) else answer


def _checked(answer: Any) -> Outcome:
    if isinstance(answer, Failed | Unknown | Suspect):
        # A proxy's binary error page is still just an error: what cannot be stored of it is left out.
        error_type, error = clean(answer.error_type, ERROR_TYPE_LENGTH_MAX), clean(answer.error, ERROR_LENGTH_MAX)
        return replace(answer, error_type=error_type, error=error)
    result = answer.result if isinstance(answer, Success) else ({} if answer is None else answer)
    if not isinstance(result, Mapping):
        return Suspect("bad_result", f"the step returned a {type(result).__name__}, not a mapping")
    result = dict(result)
    try:
        check_payload(result, name="result", bytes_max=RESULT_BYTES_MAX)
    except InputError as error:
        return Suspect("bad_result", str(error))
    return Success(result)
