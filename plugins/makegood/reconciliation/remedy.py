"""Puts findings right after a run: gather, decide, apply, count.

May run twice, overlap with itself, and be killed anywhere. What is done about one finding is one transaction under the
finding's lock; a refund is then a workflow like any other, so whoever finds it unfinished continues it under its key.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence

import structlog

from makegood.database import Row
from makegood.engine.model import Outage
from makegood.engine.runner import Runner
from makegood.engine.store import Wanted
from makegood.reconciliation.remedies import DONE, Candidate, Decided, decide, to_candidate
from makegood.reconciliation.remedy_terms import make_remedy_terms

log = structlog.get_logger()

PAGE = 100  # started together, and driven together before more are started
PROVIDER = "payments"
ROUNDS_MAX = 20  # of waits that are over at once; what takes longer is the recovery's
JOB = "reconcile_charges"
# The whole run is in doubt: nothing else is tried.
RUN_OBSTACLES = frozenset({"stopped", "no_run", "stale", "abnormal"})
ALERTED = frozenset({"stale", "abnormal"})
ENDS = {"completed": "remedied", "failed": "refused", "compensated": "refused"}

Tell = Callable[[Counter[str]], None]


async def remedy_findings(
    runner: Runner,
    run_id: uuid.UUID,
    *,
    classes: Sequence[str] | None = None,
    dry_run: bool = True,
    limit: int | None = None,
    actor: str = JOB,
    tell: Tell = lambda _: None,
) -> Counter[str]:
    """Does what may be done about the findings of a run, and counts; a dry run only counts what would be done.

    ``limit`` is how many findings something is done about; ``tell`` hears of each page as it ends.
    """
    limit = runner.settings.remedy_limit if limit is None else limit
    total: Counter[str] = Counter()
    if dry_run:
        return tally(await preview_remedies(runner, run_id, classes=classes, limit=limit))
    rows = await runner.database.call("SELECT makegood.tell_books_again(%s) AS told", (PAGE,))
    total += Counter({"books_told": rows[0]["told"]})
    async for page in _pages(runner, run_id, classes):
        counts, over = await _apply(runner, run_id, page, actor, limit - _acted(total))
        tell(counts)
        total += counts
        if over or _acted(total) >= limit:
            break
    return total


async def preview_remedies(
    runner: Runner, run_id: uuid.UUID, *, classes: Sequence[str] | None = None, limit: int | None = None
) -> list[Decided]:
    """What would be done now, if everything that says dry run did not; nothing is changed."""
    limit = runner.settings.remedy_limit if limit is None else limit
    decided: list[Decided] = []
    async for page in _pages(runner, run_id, classes):
        decided += page
        if len(decided) >= limit:
            break
    return decided[:limit]


def tally(decided: Sequence[Decided]) -> Counter[str]:
    return Counter(f"would_{one.decision.act}" for one in decided)


async def find_run(runner: Runner) -> uuid.UUID | None:
    """The last run that came to its end, for whoever acts by hand."""
    rows = await runner.database.call(
        "SELECT id FROM makegood.reconciliation_runs WHERE state = 'matched' AND kind <> 'window'"
        " ORDER BY finished_at DESC LIMIT 1"
    )
    return rows[0]["id"] if rows else None


async def _pages(runner: Runner, run_id: uuid.UUID, classes: Sequence[str] | None) -> AsyncIterator[list[Decided]]:
    """Every open finding once, oldest first, each page decided upon as things are when it is read."""
    after: uuid.UUID | None = None
    while True:
        outage = await _find_outage(runner)
        rows = await _list(runner, run_id, classes, after)
        if not rows:
            return
        found = [to_candidate(row) for row in rows]
        yield [Decided(one, decide(one, outage=outage)) for one in found]
        after = found[-1].finding_id


async def _list(runner: Runner, run_id: uuid.UUID, classes: Sequence[str] | None, after: uuid.UUID | None) -> list[Row]:
    return await runner.database.call(
        "SELECT * FROM makegood.list_remedies(%s, %s::jsonb, %s, %s, %s)",
        (run_id, _terms(runner), list(classes) if classes else None, PAGE, after),
    )


async def _apply(
    runner: Runner, run_id: uuid.UUID, page: Sequence[Decided], actor: str, room: int
) -> tuple[Counter[str], bool]:
    """One page: each finding under its own transaction, then everything that was started is driven."""
    counts: Counter[str] = Counter()
    started: list[uuid.UUID] = []
    over = False
    for one in page:
        if _acted(counts) >= room:
            break
        if one.decision.act not in DONE:
            counts[one.decision.act] += 1
            continue
        row = await _carry_out(runner, run_id, one.candidate, actor)
        counts[row["verdict"]] += 1
        if row["workflow_id"] is not None and row["verdict"] in {"started", "resumed"}:
            started.append(row["workflow_id"])
        if row["verdict"] in RUN_OBSTACLES:
            over = True
            break
    blocked = next((d.candidate for d in page if d.candidate.obstacle in RUN_OBSTACLES), None)
    if blocked is not None and blocked.obstacle in ALERTED:
        await _alert(runner, run_id, blocked)
    return counts + await _drive(runner, started), over or blocked is not None


async def _carry_out(runner: Runner, run_id: uuid.UUID, found: Candidate, actor: str) -> Row:
    rows = await runner.database.call(
        "SELECT * FROM makegood.carry_out_remedy(%s, %s, %s::jsonb, %s)",
        (found.finding_id, run_id, _terms(runner), actor),
    )
    row = rows[0]
    log.info("remedy", finding_id=str(found.finding_id), class_=found.class_, verdict=row["verdict"], why=row["reason"])
    return row


async def _drive(runner: Runner, started: Sequence[uuid.UUID]) -> Counter[str]:
    """As far as it goes now; what waits for longer is the recovery's and the workers'."""
    ends: Counter[str] = Counter()
    for _ in range(ROUNDS_MAX):
        if not started:
            break
        counts = await runner.run_once(Wanted(ids=list(started)), batch=len(started))
        if not counts:
            break
        ends.update({ENDS.get(end, end): n for end, n in counts.items() if end != "waiting"})
    return ends


async def _find_outage(runner: Runner) -> Outage | None:
    await runner.breakers.look()
    outage = runner.breakers.known_outage(PROVIDER)
    return outage if outage is not None and outage.retry_in_seconds > 0 else None


async def _alert(runner: Runner, run_id: uuid.UUID, blocked: Candidate) -> None:
    await runner.database.call(
        "SELECT makegood.alert_no_remedies(%s, %s, %s)", (run_id, blocked.obstacle, blocked.reason)
    )


def _terms(runner: Runner) -> str:
    return json.dumps(make_remedy_terms(runner.settings).to_document())


def _acted(counts: Counter[str]) -> int:
    names = ("started", "corrected", "recorded", "resumed", "stopped_order")
    return sum(counts[name] for name in names)
