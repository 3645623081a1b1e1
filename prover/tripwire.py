"""Strikes a worker process at its k-th statement or outside call, from inside, without the engine's knowledge.

Statements are seen by a connection class, calls by wrapping each step's action. The engine under test is
the one that runs in production: nothing in it knows of this module.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import psycopg
from psycopg import AsyncClientCursor, AsyncConnection

from makegood.engine.definitions import Action, Call, Request, Workflow
from makegood.engine.outcomes import Outcome, Unknown

# What happens to the worker at a point. The last four are not deaths:
#   unacknowledged  it happened, but the worker sees an error
#   stopped_*       SIGSTOP until another worker has finished, then SIGCONT: a late writer
#   overtaken       the same, but the other worker is itself in the middle of a call when this one returns
BLOWS = ("before", "during", "after", "unacknowledged", "stopped_before", "stopped_after", "overtaken")
STOPPING = frozenset({"stopped_before", "stopped_after", "overtaken"})
IN_FLIGHT_SECONDS = 0.004  # about half of what the shop takes to answer


@dataclass
class Tripwire:
    """Counts what a worker does; at number ``index`` strikes once. Index None only counts."""

    index: int | None = None
    blow: str = "before"
    only: str = ""
    """Only what begins like this is counted."""
    labels: list[str] = field(default_factory=list)

    def reached(self, label: str) -> bool:
        if not label.startswith(self.only):
            return False
        self.labels.append(label)
        return self.index is not None and len(self.labels) - 1 == self.index

    async def around(self, label: str, work: Callable[[], Awaitable[Any]], lost: Callable[[Any], Any]) -> Any:
        """Does the work, struck or not. ``lost`` turns the result into what a lost answer looks like."""
        if not self.reached(label):
            return await work()
        match self.blow:
            case "before":
                die()
            case "stopped_before":
                stop()
            case "during":
                task = asyncio.ensure_future(work())
                await asyncio.wait([task], timeout=IN_FLIGHT_SECONDS)
                die()
        result = await work()
        match self.blow:
            case "after":
                die()
            case "stopped_after" | "overtaken":
                stop()
            case "unacknowledged":
                return lost(result)
        return result


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


class WiredConnection(AsyncConnection[Any]):
    """A connection whose every statement is a point."""

    wire: ClassVar[Tripwire] = Tripwire()

    async def execute(self, query: Any, params: Any = None, **options: Any) -> Any:
        text = str(query)
        if "makegood." not in text:  # the pool's own health check
            return await super().execute(query, params, **options)
        label = "statement " + text.partition("makegood.")[2].partition("(")[0].split()[0]
        wire = type(self).wire
        if wire.blow == "during" and wire.index == len(wire.labels):
            wire.reached(label)
            await self._send_and_die(text, params)
        return await wire.around(
            label, lambda: super(WiredConnection, self).execute(query, params, **options), _unanswered
        )

    async def _send_and_die(self, text: str, params: Any) -> None:
        """The statement leaves and nobody waits for its answer: the server finishes it alone."""
        whole = AsyncClientCursor(self).mogrify(text, params)
        self.pgconn.send_query(whole.encode())
        while self.pgconn.flush() == 1:
            pass
        die()


def _unanswered(_: Any) -> Any:
    raise psycopg.OperationalError("the acknowledgement was lost")


def wire_workflow(workflow: Workflow, wire: Tripwire, after_call: Callable[[str], None]) -> Workflow:
    """The same workflow with every outside call a point; ``after_call`` is told of each, with its label."""

    def wired(action: Action | None, name: str) -> Action | None:
        if action is None:
            return None
        send, look_up = action.send, action.look_up

        async def wired_send(call: Call, request: Request) -> Outcome:
            async def work() -> Outcome:
                outcome: Outcome = await send(call, request)
                after_call(name)
                return outcome

            outcome: Outcome = await wire.around(f"call {name}", work, lambda _: Unknown("lost", "the answer was lost"))
            return outcome

        async def wired_look_up(call: Call) -> Outcome | None:
            assert look_up is not None

            def lost(_: Any) -> Outcome:
                return Unknown("lost", "the answer was lost")

            outcome: Outcome | None = await wire.around(f"call look up {name}", lambda: look_up(call), lost)
            return outcome

        return replace(action, send=wired_send, look_up=wired_look_up if look_up else None)

    steps = []
    for step in workflow.steps:
        action = wired(step.action, step.name)
        assert action is not None
        steps.append(replace(step, action=action, undo=wired(step.undo, step.undo_name)))
    return Workflow(workflow.name, steps, workflow.topics_on_completed, workflow.stuck_after_seconds)
