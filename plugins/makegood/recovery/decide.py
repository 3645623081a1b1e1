"""Who is taken, and what becomes of each: decided purely, with the reason in words.

What is done with one workflow is the engine's own decision, so there is one set of rules; here it gets its
name among resume, wait, compensate and park, and its reason.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from makegood.engine.decide import decide as decide_next
from makegood.engine.definitions import COMPENSATING, Step, Workflow
from makegood.engine.model import BeginStep, Compensate, Execution, Hold, LookUpStep, Wait
from makegood.recovery.model import LANES, OTHER, Batch, Count, Plan, Stuck
from makegood.runs.model import Options, Verdict

BATCHES_MAX = 200  # of one run: Airflow maps over batches, at most 1,024

Key = TypeVar("Key", bound=Hashable)


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
            return Verdict("resume", explain_step(x, workflow.steps[index]))
        case LookUpStep(index) if workflow is not None:
            step = workflow.steps[index].name
            return Verdict("resume", f"the attempts of step {step!r} are spent: what became of it is looked up")
    return Verdict("resume", f"it goes on from {x.state!r}")


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
    """Shares the run's limit fairly among types and providers, and cuts each share into batches.

    A type that is not known here is another deployment's, until it was stuck for so long that nobody came.
    Workflows that are being undone are the other job's, except where nobody knows their type.
    """
    ours = [c for c in counts if c.workflow_type in workflows and c.state != COMPENSATING]
    orphans = [c for c in counts if c.workflow_type not in workflows and c.oldest_seconds >= orphaned_after_seconds]
    wants: dict[tuple[str, str], list[Count]] = {}
    for count in (*ours, *orphans):
        lane = find_lane(workflows.get(count.workflow_type), count.state)
        wants.setdefault((count.workflow_type, lane), []).append(count)
    shares = share(options.limit, {key: sum(c.due for c in group) for key, group in wants.items()})
    size = max(batch_max, -(-sum(shares.values()) // BATCHES_MAX))
    batches: dict[str, list[Batch]] = {lane: [] for lane in LANES}
    for (workflow_type, lane), group in wants.items():
        older = options.older_than_seconds
        if workflow_type not in workflows:
            older = max(orphaned_after_seconds, older or 0)
        states = tuple(sorted(c.state for c in group))
        for limit in cut(shares[workflow_type, lane], size):
            batches[lane].append(Batch(workflow_type, states, limit, older))
    not_mine = sum(c.due for c in counts if c.workflow_type not in workflows) - sum(c.due for c in orphans)
    return Plan(batches, _found(ours, not_mine=not_mine, orphaned=sum(c.due for c in orphans)))


def find_lane(workflow: Workflow | None, state: str) -> str:
    """The lane of a workflow in this state: that of the provider whom its next call goes to."""
    kind, index = workflow.by_state.get(state, ("unknown", 0)) if workflow else ("unknown", 0)
    if workflow is None or kind not in {"border", "doing"}:
        return OTHER
    provider = workflow.steps[index].action.provider
    return provider if provider in LANES else OTHER


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
