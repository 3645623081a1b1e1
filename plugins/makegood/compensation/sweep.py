"""Takes undos that are due and drives them: gather, decide, write down why, apply, count.

Strictly in reverse order within a workflow: the database refuses a lower undo while a higher one is open. An undo
that cannot be done is held with its workflow, which stays ``compensating``; its alert leaves with it.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Mapping

from makegood.compensation.decide import decide
from makegood.engine.decide import find_provider
from makegood.engine.definitions import COMPENSATING
from makegood.engine.model import Execution
from makegood.engine.runner import Runner
from makegood.engine.store import Wanted
from makegood.runs.model import Decided, Options
from makegood.runs.record import record_decisions


async def count_due(runner: Runner, options: Options) -> Mapping[str, int]:
    """How much is due, and how much waits for its time or is being worked on. Reads only."""
    types = [options.workflow_type] if options.workflow_type else sorted(runner.workflows)
    rows = await runner.database.call("SELECT * FROM makegood.count_stuck(%s, %s)", (options.older_than_seconds, types))
    owing = [row for row in rows if row["current_state"] == COMPENSATING]
    found = {
        "due": sum(row["due"] for row in owing),
        "not_due": sum(row["waiting"] for row in owing),
        "leased": sum(row["leased"] for row in owing),
    }
    return {name: number for name, number in found.items() if number}


async def compensate_some(runner: Runner, run_id: uuid.UUID, options: Options, limit: int) -> Counter[str]:
    """Claims up to ``limit`` workflows whose next undo is due and drives them; an empty counter: nothing was left."""
    claimed = await runner.store.claim(limit, to_wanted(runner, options))
    if not claimed:
        return Counter()
    await runner.breakers.look()
    decided = await decide_all(runner, claimed)
    await record_decisions(runner.database, run_id, [one for one in decided if one.decision != "wait"])
    counts = Counter(one.decision for one in decided) + Counter({"taken": len(claimed)})
    return Counter[str](counts) + await runner.engine.advance(claimed)


async def preview(runner: Runner, options: Options) -> list[Decided]:
    """What would be done now; nothing is changed."""
    await runner.breakers.look()
    claimed = await runner.store.claim(options.limit, to_wanted(runner, options), dry_run=True)
    return await decide_all(runner, claimed)


async def decide_all(runner: Runner, claimed: list[Execution]) -> list[Decided]:
    return list(await asyncio.gather(*(_decide_one(runner, x) for x in claimed)))


async def _decide_one(runner: Runner, x: Execution) -> Decided:
    workflow = runner.workflows.get(x.workflow_type)
    owed = await runner.store.owed(x)
    outage = runner.breakers.known_outage(find_provider(x, workflow, owed))
    verdict = decide(workflow, owed, outage)
    return Decided(x.id, x.entity_id, x.state, verdict.decision, verdict.reason)


def to_wanted(runner: Runner, options: Options) -> Wanted:
    types = [options.workflow_type] if options.workflow_type else sorted(runner.workflows)
    return Wanted(types=types, states=[COMPENSATING], older_than_seconds=options.older_than_seconds)
