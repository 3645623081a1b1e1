"""What a workflow is: steps with their undo, as data. The graph of legal states follows from it.

    created → charging → charged → reserving → reserved → shipping → completed
                 │          │          │           │          │
                 └→ failed  └──────────┴───────────┴──────────┴→ compensating → compensated

A step is a Python callable (``Action``) or an HTTP endpoint (``gateways.http_steps``).
"""

from __future__ import annotations

import hashlib
import inspect
import itertools
import re
import string
import uuid
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from makegood.engine.outcomes import Outcome
from makegood.errors import ConfigurationError

INITIAL = "created"
COMPENSATING = "compensating"
COMPLETED, FAILED, COMPENSATED = "completed", "failed", "compensated"
TERMINAL = frozenset({COMPLETED, FAILED, COMPENSATED})
KEY_LENGTH_MAX = 255  # what Stripe and the table take
ENTITY_ID_LENGTH_MAX = 150
PROVIDER_LENGTH_MAX = 100
_WORD = re.compile(r"[a-z][a-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class Call:
    """One outside call about to be made: who it is for, its key, and what earlier steps found out."""

    workflow_id: uuid.UUID
    workflow_type: str
    entity_id: str
    step: str
    key: str
    amount_minor: int | None
    currency: str | None
    context: Mapping[str, Any]
    timeout_seconds: float
    started_at: datetime
    """When the workflow was started: where a look-up begins to search."""
    compensation_id: uuid.UUID | None = None

    def result_of(self, step: str) -> Mapping[str, Any]:
        """What an earlier step found out; empty where it did not, whatever the caller keeps under that name."""
        found = self.context.get(step)
        return found if isinstance(found, Mapping) else {}


Request = Mapping[str, Any]
Send = Callable[[Call, Request], Awaitable[Any] | Any]
LookUp = Callable[[Call], Awaitable[Outcome | None]]


def describe_call(call: Call) -> Request:
    """The request of a plain callable: everything it may look at, so that its hash notices a change."""
    return {
        "entity_id": call.entity_id,
        "amount_minor": call.amount_minor,
        "currency": call.currency,
        "context": call.context,
    }


@dataclass(frozen=True, slots=True)
class Action:
    """An effect outside: ``request`` builds its parameters (pure), ``send`` makes the call under the key.

    ``send`` may be async or plain; it returns an Outcome, or a mapping (success), or raises: PermanentError
    is a definite failure, everything else unknown. ``look_up`` finds out what became of it once replaying
    is no longer safe; it returns None when there is no trace.
    """

    send: Send
    request: Callable[[Call], Request] = describe_call
    look_up: LookUp | None = None
    provider: str | None = None
    """Who is called. When it is down nobody calls it but one probe; None is whoever this step of this type calls."""
    is_async: bool = field(init=False, repr=False, compare=False)
    """Asked once: looking at a function costs as much as calling it."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_async", inspect.iscoroutinefunction(self.send))


@dataclass(frozen=True, slots=True)
class Step:
    """A named action with its undo. ``done`` is None for the last step, which ends in ``completed``."""

    name: str
    doing: str
    done: str | None
    action: Action
    undo: Action | None = None
    undo_name: str = "undo"
    key: str = "{type}-{step}-{entity_id}"
    timeout_seconds: float = 30.0
    attempts_max: int = 8
    undo_attempts_max: int = 20
    stuck_after_seconds: float | None = None
    moves_money: bool = False
    undo_when_unsure: bool = False
    """The undo is harmless where nothing happened, so a step without a trace may be undone, not held."""
    patience_seconds: float = 900.0
    """How long an order waits for a provider that is down before it is undone: a restart, not an evening."""

    def key_for(self, workflow_type: str, entity_id: str) -> str:
        """The same for ever. It travels in a header, which holds no other letters than these: other names by digest."""
        name = entity_id
        if not (name.isascii() and name.isprintable() and name == name.strip()):
            name = f"sha256-{hashlib.sha256(name.encode()).hexdigest()}"
        return self.key.format(type=workflow_type, step=self.name, entity_id=name)


@dataclass(frozen=True)
class Workflow:
    """A type: its steps in order, and the topics told in the transaction that completes it."""

    name: str
    steps: Sequence[Step]
    topics_on_completed: Sequence[str] = ()
    stuck_after_seconds: float = 300.0
    initial: str = INITIAL
    by_state: Mapping[str, tuple[str, int]] = field(init=False, repr=False)
    """State → (kind, index of its step); for ``done`` the step that comes next."""

    def __post_init__(self) -> None:
        _check(self)
        object.__setattr__(self, "steps", [_with_providers(self.name, step) for step in self.steps])
        states: dict[str, tuple[str, int]] = {self.initial: ("border", 0), COMPENSATING: ("compensating", 0)}
        for index, step in enumerate(self.steps):
            states[step.doing] = ("doing", index)
            if step.done is not None:
                states[step.done] = ("border", index + 1)
        object.__setattr__(self, "by_state", states | dict.fromkeys(TERMINAL, ("terminal", 0)))

    def done_state(self, index: int) -> str:
        return self.steps[index].done or COMPLETED

    def to_document(self) -> dict[str, Any]:
        """The form in which the database keeps it and enforces its graph."""
        return {
            "name": self.name,
            "states": _states(self),
            "edges": sorted(_edges(self)),
            "steps": [
                {
                    "name": step.name,
                    "doing": step.doing,
                    "done": self.done_state(index),
                    "undo": step.undo_name if step.undo else None,
                    "provider": step.action.provider,
                    "timeout_seconds": step.timeout_seconds,
                    "attempts_max": step.attempts_max,
                    "undo_attempts_max": step.undo_attempts_max,
                }
                for index, step in enumerate(self.steps)
            ],
        }


def _with_providers(workflow_type: str, step: Step) -> Step:
    """A callable that names no provider has a breaker of its own: one that hangs must not use up everybody's time."""

    def named(action: Action | None, name: str) -> Action | None:
        own = f"{workflow_type}.{name}"[:PROVIDER_LENGTH_MAX]
        return replace(action, provider=own) if action and action.provider is None else action

    action, undo = named(step.action, step.name), named(step.undo, f"{step.name}.{step.undo_name}")
    assert action is not None
    return replace(step, action=action, undo=undo)


def compensation_id(workflow_id: uuid.UUID, step: str) -> uuid.UUID:
    """Follows from workflow and step, so that the key of a refund can never be a second one."""
    return uuid.uuid5(workflow_id, step)


def undo_key(step: Step, workflow_id: uuid.UUID) -> str:
    return f"{step.undo_name}-{compensation_id(workflow_id, step.name)}"


def _states(workflow: Workflow) -> list[dict[str, Any]]:
    def state(name: str, kind: str, step: Step | None = None) -> dict[str, Any]:
        stuck_after = (step and step.stuck_after_seconds) or workflow.stuck_after_seconds
        return {
            "state": name,
            "kind": kind,
            "step": step.name if step and kind in {"doing", "done"} else None,
            "stuck_after_seconds": stuck_after,
        }

    states = [state(workflow.initial, "initial"), state(COMPENSATING, "compensating")]
    states += [state(name, "terminal") for name in sorted(TERMINAL)]
    for step in workflow.steps:
        states.append(state(step.doing, "doing", step))
        if step.done is not None:
            states.append(state(step.done, "done", step))
    return states


def _edges(workflow: Workflow) -> set[tuple[str, str]]:
    edges = {(COMPENSATING, COMPENSATED), (workflow.steps[0].doing, FAILED)}
    border = workflow.initial
    for index, step in enumerate(workflow.steps):
        done = workflow.done_state(index)
        edges |= {
            (border, step.doing),
            (step.doing, done),
            (border, COMPENSATING),
            (step.doing, COMPENSATING),
        }
        border = done
    return edges


def _check(workflow: Workflow) -> None:
    for wrong, what in itertools.chain(_find_graph_faults(workflow), _find_step_faults(workflow.name, workflow.steps)):
        if wrong:
            raise ConfigurationError(
                f"workflow type {workflow.name!r} {what}", hint="See docs/ARCHITECTURE.md, own workflows."
            )


def _find_graph_faults(workflow: Workflow) -> Iterator[tuple[bool, str]]:
    """Lazily: what is asked later may rely on what was asked before."""
    states = [
        workflow.initial,
        *(s.doing for s in workflow.steps),
        *(s.done for s in workflow.steps if s.done),
    ]
    names = [step.name for step in workflow.steps]
    yield not workflow.steps, "has no steps"
    yield len(set(names)) < len(names), "has two steps of one name"
    yield len(set(states)) < len(states), "uses a state twice"
    yield bool(TERMINAL & set(states)) or COMPENSATING in states, "uses a reserved state for a step"
    yield any(s.done is None for s in workflow.steps[:-1]), "has a step without a done state before the last"
    yield workflow.steps[-1].done is not None, "must end in completed: the last step's done is None"
    yield (
        any(not _WORD.fullmatch(word) for word in [workflow.name, *states, *names]),
        "has a name that is not a lower-case word",
    )
    yield not workflow.stuck_after_seconds > 0, "has a stuck_after_seconds that is not above 0"


def _find_step_faults(workflow_type: str, steps: Sequence[Step]) -> Iterator[tuple[bool, str]]:
    yield any("{entity_id}" not in s.key for s in steps), "has a key without {entity_id}"
    yield any(not _is_key(s.key) for s in steps), "has a key with something else than {type}, {step} and {entity_id}"
    # The second step would be refused its key, after the first one's effect.
    yield len({s.key_for(workflow_type, "") for s in steps}) < len(steps), "has two steps with one key"
    yield any(min(s.attempts_max, s.undo_attempts_max) < 1 for s in steps), "has a step with fewer than one attempt"
    yield any(not s.timeout_seconds > 0 for s in steps), "has a timeout_seconds that is not above 0"
    yield any(not s.patience_seconds > 0 for s in steps), "has a patience_seconds that is not above 0"
    providers = [action.provider for s in steps for action in (s.action, s.undo) if action and action.provider]
    yield any(len(name) > PROVIDER_LENGTH_MAX for name in providers), "has a provider whose name is too long"
    yield (
        any(s.stuck_after_seconds is not None and not s.stuck_after_seconds > 0 for s in steps),
        "has a stuck_after_seconds that is not above 0",
    )


def _is_key(template: str) -> bool:
    try:
        fields = {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    except ValueError:
        return False
    return fields <= {"type", "step", "entity_id"}


def _longest_key(workflow: Workflow) -> int:
    entity_id = "x" * ENTITY_ID_LENGTH_MAX
    keys = [step.key_for(workflow.name, entity_id) for step in workflow.steps]
    topics = [f"{topic}-{workflow.name}-{entity_id}" for topic in workflow.topics_on_completed]
    return max((len(text) for text in [*keys, *topics]), default=0)
