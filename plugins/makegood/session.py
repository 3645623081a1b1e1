"""One piece of work over an open runner: with the settings, the workflow types and the database of this process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from makegood.engine.runner import Runner, open_runner
from makegood.local import where
from makegood.settings import get_settings
from makegood.workflows import open_workflows

GARBAGE_OBJECTS = 50_000  # what some thousand orders under way consist of: a few megabytes between two collections

Answer = TypeVar("Answer")


def with_runner(work: Callable[[Runner], Coroutine[Any, Any, Answer]]) -> Answer:
    """Everything that was opened is closed again, whatever the work comes to."""

    async def run() -> Answer:
        settings, url = get_settings(), where.database_url("jobs")
        async with open_workflows(settings, url) as workflows, open_runner(url, workflows, settings) as runner:
            return await work(runner)

    with collecting_less():
        return asyncio.run(run())


@contextlib.contextmanager
def collecting_less() -> Iterator[None]:
    """For a process that does nothing but drive orders: garbage is looked for neither in all that was imported nor in
    every order under way, again and again. That took a quarter of its time. It is the whole process's setting, so a
    library never does this."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
