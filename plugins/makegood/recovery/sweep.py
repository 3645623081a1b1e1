"""Finds stuck workflows and takes them on: gather, decide, write down why, apply, count.

May run twice, overlap with itself, and be killed anywhere: what it works on is leased under a fence, and what it
left is stuck again when the lease has run out.
"""

from __future__ import annotations

import uuid
from collections import Counter

from makegood.engine.breakers import Breakers
from makegood.engine.decide import find_provider
from makegood.engine.model import Execution
from makegood.engine.runner import Runner
from makegood.engine.store import Wanted
from makegood.recovery.decide import decide, plan
from makegood.recovery.model import Batch, Count, Plan, Stuck
from makegood.runs.model import Decided, Options
from makegood.runs.record import record_decisions


async def make_plan(runner: Runner, options: Options) -> Plan:
    """What is stuck now, in fair shares. Reads only."""
    rows = await runner.database.call(
        "SELECT * FROM makegood.count_stuck(%s, %s)",
        (options.older_than_seconds, [options.workflow_type] if options.workflow_type else None),
    )
    counts = [Count(*(row[name] for name in COLUMNS)) for row in rows]
    settings = runner.settings
    return plan(
        counts,
        runner.workflows,
        options,
        batch_max=settings.claim_batch,
        orphaned_after_seconds=settings.orphaned_after_seconds,
    )


COLUMNS = ("workflow_type", "current_state", "due", "waiting", "leased", "oldest_seconds")


async def recover_some(runner: Runner, run_id: uuid.UUID, batch: Batch, limit: int) -> Counter[str]:
    """Claims up to ``limit`` of a batch's workflows and drives them; an empty counter: nothing was left."""
    claimed = await runner.store.claim(limit, to_wanted(batch))
    if not claimed:
        return Counter()
    await runner.breakers.look()
    decided = decide_all(runner, claimed)
    await record_decisions(runner.database, run_id, [one for one in decided if one.decision != "wait"])
    counts = Counter(one.decision for one in decided) + Counter({"taken": len(claimed)})
    return Counter[str](counts) + await runner.engine.advance(claimed)


async def preview(runner: Runner, batch: Batch) -> list[Decided]:
    """What would be done with a batch now; nothing is changed."""
    await runner.breakers.look()
    return decide_all(runner, await runner.store.claim(batch.limit, to_wanted(batch), dry_run=True))


def decide_all(runner: Runner, claimed: list[Execution]) -> list[Decided]:
    return [_decide_one(runner, runner.breakers, x) for x in claimed]


def _decide_one(runner: Runner, breakers: Breakers, x: Execution) -> Decided:
    workflow = runner.workflows.get(x.workflow_type)
    verdict = decide(Stuck(x, workflow, breakers.known_outage(find_provider(x, workflow))))
    return Decided(x.id, x.entity_id, x.state, verdict.decision, verdict.reason)


def to_wanted(batch: Batch) -> Wanted:
    return Wanted(
        types=[batch.workflow_type],
        states=batch.states,
        stuck_only=batch.older_than_seconds is None,
        older_than_seconds=batch.older_than_seconds,
    )
