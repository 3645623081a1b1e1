"""Who is taken, and what becomes of each: decided purely, with the reason in words.

What is done with one workflow is the engine's own decision, so there is one set of rules; here it gets its
name among resume, wait, compensate and park, and its reason.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from makegood.engine.decide import decide as decide_next
from makegood.engine.definitions import COMPENSATING, Step, Workflow, describe_call
from makegood.engine.model import BeginStep, Compensate, Execution, Hold, LookUpStep, Wait
from makegood.engine.plan import forward_call
from makegood.recovery.model import LANES, OTHER, Batch, Count, Plan, Stuck
from makegood.runs.model import Options, Verdict

BATCHES_MAX = 200  # of one run: Airflow maps over batches, at most 1,024

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")


def decide(stuck: Stuck) -> Verdict:
    """What to do with one stuck workflow, and why."""
    x, workflow = stuck.execution, stuck.workflow
    match decide_next(x, workflow, outage=stuck.outage):
        case Wait(seconds):
            down = f"{stuck.outage.provider} is down" if stuck.outage else "its next attempt is not due"
            return Verdict("wait", f"{down}; tried again in {seconds:.0f} s")
        case Hold(reason, _):
            return Verdict("park", reason)
        case Compensate(_, done_count, why):
            steps = f"{done_count} step{'' if done_count == 1 else 's'} to undo"
            return Verdict("compensate", f"{why or 'a cancel was requested'}: {steps}")
        case BeginStep(index) if workflow is not None:
            step = workflow.steps[index]
            unusable = find_unusable(x, step)
            return Verdict("park", unusable) if unusable else Verdict("resume", explain_step(x, step))
        case LookUpStep(index) if workflow is not None:
            name = workflow.steps[index].name
            return Verdict("resume", f"the attempts of step {name!r} are spent: what became of it is looked up")
    return Verdict("resume", f"it goes on from {x.state!r}")


def find_unusable(x: Execution, step: Step) -> str | None:
    """Why the step's call cannot even be worked out from the workflow's data, in the words in which it is then held;
    None where it can."""
    if step.action.request is describe_call:  # takes the data as they are
        return None
    try:
        step.action.request(forward_call(x, step))
    except Exception as error:  # whatever a request function raises
        return f"{type(error).__name__}: {error}"
    return None


def explain_step(x: Execution, step: Step) -> str:
    if x.state != step.doing:
        return f"step {step.name!r} was never begun: it begins now"
    return (
        f"step {step.name!r} was begun and has no answer: "
        f"attempt {x.attempts + 1} of {step.attempts_max} under the same key"
    )


def plan(
    counts: Sequence[Count],
    workflows: Mapping[str, Workflow],
    options: Options,
    *,
    batch_max: int,
    orphaned_after_seconds: float,
) -> Plan:
    """Shares the run's limit fairly among types and providers, and cuts each share into batches, which take turns
    within their lane: one that hangs keeps nobody waiting for longer than one of its batches takes.

    A type that is not known here is another deployment's, until it was stuck for so long that nobody came.
    Workflows that are being undone are the other job's, except where nobody knows their type.
    """
    ours = [c for c in counts if c.workflow_type in workflows and c.state != COMPENSATING]
    orphans = [c for c in counts if c.workflow_type not in workflows and c.oldest_seconds >= orphaned_after_seconds]
    wants: dict[tuple[str, str], list[Count]] = {}
    for count in (*ours, *orphans):
        provider = find_next_provider(workflows.get(count.workflow_type), count.state)
        wants.setdefault((count.workflow_type, provider), []).append(count)
    shares = share(options.limit, {key: sum(c.due for c in group) for key, group in wants.items()})
    size = max(batch_max, -(-sum(shares.values()) // BATCHES_MAX))
    batches: dict[str, list[list[Batch]]] = {lane: [] for lane in LANES}
    # The smallest share first: what is few is over soon, however it does.
    for workflow_type, provider in sorted(wants, key=shares.__getitem__):
        group = wants[workflow_type, provider]
        older = options.older_than_seconds
        if workflow_type not in workflows:
            older = max(orphaned_after_seconds, older or 0)
        states = tuple(sorted(c.state for c in group))
        limits = cut(shares[workflow_type, provider], size)
        batches[find_lane(provider)].append([Batch(workflow_type, states, limit, older) for limit in limits])
    not_mine = sum(c.due for c in counts if c.workflow_type not in workflows) - sum(c.due for c in orphans)
    in_turn = {lane: take_turns(groups) for lane, groups in batches.items()}
    return Plan(in_turn, _found(ours, not_mine=not_mine, orphaned=sum(c.due for c in orphans)))


def find_next_provider(workflow: Workflow | None, state: str) -> str:
    """Whom the next call of a workflow in this state goes to; without one, it is all the same."""
    kind, index = workflow.by_state.get(state, ("unknown", 0)) if workflow else ("unknown", 0)
    if workflow is None or kind not in {"border", "doing"}:
        return OTHER
    return workflow.steps[index].action.provider or OTHER


def find_lane(provider: str) -> str:
    return provider if provider in LANES else OTHER


def take_turns(groups: Iterable[Sequence[Item]]) -> list[Item]:
    """The first of each group, then the second of each, until all are used up."""
    queues = list(groups)
    return [queue[turn] for turn in range(max(map(len, queues), default=0)) for queue in queues if turn < len(queue)]


def share(limit: int, wants: Mapping[Key, int]) -> dict[Key, int]:
    """Everybody gets the same, nobody more than they want, until the limit is used up."""
    shares = dict.fromkeys(wants, 0)
    hungry = [key for key in wants if wants[key] > 0]
    while limit > 0 and hungry:
        each = limit // len(hungry) or 1  # the last few, one each to as many as there are
        for key in hungry[:limit]:
            given = min(wants[key] - shares[key], each)
            shares[key] += given
            limit -= given
        hungry = [key for key in hungry if shares[key] < wants[key]]
    return shares


def merge(batches: Sequence[Batch]) -> list[Batch]:
    """Batches that look for the same as one: claimed and given back, each would find the same workflows again."""
    limits: dict[Batch, int] = {}
    for batch in batches:
        wanted = replace(batch, limit=0)
        limits[wanted] = limits.get(wanted, 0) + batch.limit
    return [replace(wanted, limit=limit) for wanted, limit in limits.items()]


def cut(total: int, size: int) -> list[int]:
    return [min(size, total - first) for first in range(0, total, size)]


def _found(counts: Sequence[Count], **others: int) -> dict[str, int]:
    found = {
        "due": sum(c.due for c in counts),
        "not_due": sum(c.waiting for c in counts),
        "leased": sum(c.leased for c in counts),
        **others,
    }
    return {name: number for name, number in found.items() if number}
