"""The scheduled jobs, for whoever runs them: an Airflow task or a command. Plain values in, plain values out.

A run is begun, its batches are carried out in any order, by anybody, also twice, and it is finished. Each function
opens what it needs and closes it again; two calls share nothing but the database.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from makegood import notify
from makegood.compensation import sweep as compensation
from makegood.database import Database
from makegood.engine.runner import Runner
from makegood.errors import InputError, MakegoodError
from makegood.gateways.messages import Messenger
from makegood.local import where
from makegood.notify import Send
from makegood.recovery import sweep as recovery
from makegood.recovery.decide import BATCHES_MAX, cut, merge, take_turns
from makegood.recovery.model import LANES, Batch
from makegood.runs import record as runs
from makegood.runs.model import Decided, Options
from makegood.session import with_runner
from makegood.settings import Settings, get_settings

RECOVERY, COMPENSATION = "recover_stuck_workflows", "retry_compensations"
COMPENSATIONS, WHOLE = "compensations", "batches"  # what batches are called, and all of a run that has but one
SIMULTANEOUS = 3  # claims of one process under way at once: one is written while another one calls
ALERT_SECONDS = 20.0  # while a run lasts, which may be minutes: who is to hear of something hears of it soon
LIMIT_MAX = 1_000_000
OLDER_THAN_SECONDS_MAX = 10 * 365 * 86400  # no order waits longer, and the calendar has an end

Tell = Callable[[Counter[str]], None]
Claim = Callable[[], Coroutine[Any, Any, Counter[str]]]
Preview = Callable[[Runner, Options], Coroutine[Any, Any, list[Decided]]]


@dataclass(frozen=True)
class Chunk:
    """One claim of a run and what it looks for: where one finds nothing, the next that looks for the same would not."""

    wanted: Hashable
    claim: Claim


@dataclass(frozen=True)
class Report:
    """What a whole run came to; ``decided`` only for a dry run, which changes nothing."""

    run_id: str
    counts: Mapping[str, int]
    decided: Sequence[Decided] = field(default_factory=list)


# Airflow's tasks


def begin_recovery(
    *,
    older_than_seconds: float | None = None,
    workflow_type: str | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    key: str | None = None,
    triggered_by: str,
) -> dict[str, Any]:
    """Opens a run and finds its batches per lane; the same key again is the same run. A dry run has no batches."""
    options = check_options(older_than_seconds, workflow_type, limit)

    async def begin(runner: Runner) -> dict[str, Any]:
        run_id = await _open_run(runner, RECOVERY, key, triggered_by, options, dry_run=dry_run)
        plan = await recovery.make_plan(runner, options)
        counts, batches = dict(plan.counts), plan.batches
        if dry_run:
            counts |= _tally(await _preview_recovery(runner, options))
            batches = dict.fromkeys(LANES, ())
        await runs.count_part(runner.database, run_id, "found", counts)
        names = [name for lane in LANES for name in name_batches(lane, len(batches[lane]))]
        await runs.expect_batches(runner.database, run_id, names)
        documents = {lane: [batch.to_document() for batch in batches[lane]] for lane in LANES}
        return {"run_id": str(run_id), "batches": documents, "counts": counts}

    return with_runner(begin)


def begin_compensation(
    *,
    older_than_seconds: float | None = None,
    workflow_type: str | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    key: str | None = None,
    triggered_by: str,
) -> dict[str, Any]:
    """Opens a run and cuts what is due into batches; the same key again is the same run. A dry run has no batches."""
    options = check_options(older_than_seconds, workflow_type, limit)

    async def begin(runner: Runner) -> dict[str, Any]:
        run_id = await _open_run(runner, COMPENSATION, key, triggered_by, options, dry_run=dry_run)
        counts = dict(await compensation.count_due(runner, options))
        size = 0 if dry_run else min(options.limit, counts.get("due", 0))
        if dry_run:
            counts |= _tally(await compensation.preview(runner, options))
        await runs.count_part(runner.database, run_id, "found", counts)
        batch_size = max(runner.settings.claim_batch, -(-size // BATCHES_MAX))
        batches = [{**asdict(options), "limit": n} for n in cut(size, batch_size)]
        await runs.expect_batches(runner.database, run_id, name_batches(COMPENSATIONS, len(batches)))
        return {"run_id": str(run_id), "batches": batches, "counts": counts}

    return with_runner(begin)


def name_batches(of: str, count: int) -> list[str]:
    """What the batches of a lane, or of the compensations, are called when they are carried out: ``part`` there."""
    return [f"{of}-{number}" for number in range(count)]


def recover_batch(run_id: str, batch: Mapping[str, Any], part: str) -> dict[str, int]:
    """Carries out one batch of a recovery; what it did is counted as a part of the run, also if it then fails."""
    wanted = Batch.from_document(batch)

    async def carry_out(runner: Runner) -> Counter[str]:
        chunks = _recovery_chunks(runner, uuid.UUID(run_id), [wanted])
        async with runs.batch(runner.database, uuid.UUID(run_id), part):
            return await _carry_out(runner, uuid.UUID(run_id), part, chunks)

    return dict(with_runner(carry_out))


def compensate_batch(run_id: str, batch: Mapping[str, Any], part: str) -> dict[str, int]:
    """Carries out one batch of compensations, likewise."""
    options = Options(**batch)

    async def carry_out(runner: Runner) -> Counter[str]:
        chunks = _compensation_chunks(runner, uuid.UUID(run_id), options)
        async with runs.batch(runner.database, uuid.UUID(run_id), part):
            return await _carry_out(runner, uuid.UUID(run_id), part, chunks)

    return dict(with_runner(carry_out))


def send_alerts() -> dict[str, int]:
    """Alerts that are waiting leave for the addresses in MAKEGOOD_NOTIFY_URLS, or for the log."""

    async def send() -> Counter[str]:
        async with Database(where.database_url("jobs")) as database:
            return await _send_alerts(database, get_settings())

    return dict(asyncio.run(send()))


def finish_run(run_id: str) -> dict[str, int]:
    """Ends a run and returns its totals; tidies up a bounded amount."""

    async def finish() -> dict[str, int]:
        async with Database(where.database_url("jobs")) as database:
            await runs.tidy(database, get_settings().keep_days)
            return await runs.finish_run(database, uuid.UUID(run_id))

    return asyncio.run(finish())


# Whole runs in one process


def recover(options: Options, *, triggered_by: str, dry_run: bool = False, tell: Tell = lambda _: None) -> Report:
    """One whole run of the recovery; ``tell`` hears first how much is due, then of each claim as it ends."""
    if dry_run:
        return with_runner(lambda runner: _preview_run(runner, RECOVERY, options, triggered_by, _preview_recovery))
    return with_runner(lambda runner: run_recovery(runner, options, triggered_by=triggered_by, tell=tell))


async def run_recovery(
    runner: Runner, options: Options, *, triggered_by: str, tell: Tell = lambda _: None, send: Send | None = None
) -> Report:
    """One whole run over an open runner; ``send`` None is whatever the settings say."""
    run_id = await _open_run(runner, RECOVERY, None, triggered_by, options)
    async with _run_until_end(runner, run_id, send):
        plan = await recovery.make_plan(runner, options)
        await runs.count_part(runner.database, run_id, "found", plan.counts)
        tell(Counter(due=plan.size))
        batches = take_turns(plan.batches[lane] for lane in LANES)
        async with runs.batch(runner.database, run_id, WHOLE):
            await _carry_out(runner, run_id, WHOLE, _recovery_chunks(runner, run_id, batches), tell, send)
        return await _end_run(runner, run_id, send)


def compensate(options: Options, *, triggered_by: str, dry_run: bool = False, tell: Tell = lambda _: None) -> Report:
    """One whole run of the compensations, likewise."""
    if dry_run:
        return with_runner(
            lambda runner: _preview_run(runner, COMPENSATION, options, triggered_by, compensation.preview)
        )
    return with_runner(lambda runner: run_compensation(runner, options, triggered_by=triggered_by, tell=tell))


async def run_compensation(
    runner: Runner, options: Options, *, triggered_by: str, tell: Tell = lambda _: None, send: Send | None = None
) -> Report:
    """One whole run over an open runner, likewise."""
    run_id = await _open_run(runner, COMPENSATION, None, triggered_by, options)
    async with _run_until_end(runner, run_id, send):
        counts = await compensation.count_due(runner, options)
        await runs.count_part(runner.database, run_id, "found", counts)
        tell(Counter(due=min(options.limit, counts.get("due", 0))))
        async with runs.batch(runner.database, run_id, WHOLE):
            await _carry_out(runner, run_id, WHOLE, _compensation_chunks(runner, run_id, options), tell, send)
        return await _end_run(runner, run_id, send)


def check_options(older_than_seconds: float | None, workflow_type: str | None, limit: int | None) -> Options:
    """The options of a run, or an InputError that names the one at fault."""
    limit = get_settings().recovery_limit if limit is None else limit
    if not 1 <= limit <= LIMIT_MAX:
        raise InputError(f"the limit is {limit}; it must be between 1 and {LIMIT_MAX:,}")
    if older_than_seconds is not None and not 0 <= older_than_seconds <= OLDER_THAN_SECONDS_MAX:
        raise InputError(f"older than is {older_than_seconds:g} s; it must be between 0 and {OLDER_THAN_SECONDS_MAX:,}")
    return Options(limit, older_than_seconds, workflow_type or None)


async def _open_run(
    runner: Runner, job: str, key: str | None, triggered_by: str, options: Options, *, dry_run: bool = False
) -> uuid.UUID:
    known = await runner.database.call("SELECT name FROM makegood.workflow_types ORDER BY name")
    names = [row["name"] for row in known]
    if options.workflow_type is not None and options.workflow_type not in names:
        raise InputError(f"unknown workflow type {options.workflow_type!r}; known are: {', '.join(names)}")
    parameters = {**asdict(options), "dry_run": dry_run}
    seconds_max = 2 * runner.settings.job_seconds_max
    return await runs.begin_run(runner.database, job, key or str(uuid.uuid4()), triggered_by, parameters, seconds_max)


@contextlib.asynccontextmanager
async def _run_until_end(runner: Runner, run_id: uuid.UUID, send: Send | None) -> AsyncIterator[None]:
    """A run that fails says so, if the database can still hear it, and tells whom it concerns what it has held; one
    that is stopped by hand leaves that to the next."""
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(MakegoodError):
            await runs.finish_run(runner.database, run_id, f"{type(error).__name__}: {error}")
        if isinstance(error, Exception):
            with contextlib.suppress(MakegoodError):
                await _send_alerts(runner.database, runner.settings, send)
        raise


async def _end_run(runner: Runner, run_id: uuid.UUID, send: Send | None) -> Report:
    sent = await _send_alerts(runner.database, runner.settings, send)
    await runs.count_part(runner.database, run_id, "alerts", sent)
    await runs.tidy(runner.database, runner.settings.keep_days)
    return Report(str(run_id), await runs.finish_run(runner.database, run_id))


async def _preview_run(runner: Runner, job: str, options: Options, triggered_by: str, preview: Preview) -> Report:
    """A dry run: one row that says what would have been done, and nothing else."""
    run_id = await _open_run(runner, job, None, triggered_by, options, dry_run=True)
    async with _run_until_end(runner, run_id, None):
        decided = await preview(runner, options)
        await runs.count_part(runner.database, run_id, "preview", _tally(decided))
        return Report(str(run_id), await runs.finish_run(runner.database, run_id), decided)


async def _preview_recovery(runner: Runner, options: Options) -> list[Decided]:
    plan = await recovery.make_plan(runner, options)
    batches = merge([batch for lane in LANES for batch in plan.batches[lane]])
    return [decided for batch in batches for decided in await recovery.preview(runner, batch)]


def _recovery_chunks(runner: Runner, run_id: uuid.UUID, batches: Sequence[Batch]) -> list[Chunk]:
    def chunk(batch: Batch, limit: int) -> Chunk:
        return Chunk(replace(batch, limit=0), lambda: recovery.recover_some(runner, run_id, batch, limit))

    size = runner.settings.claim_batch
    return take_turns([chunk(batch, limit) for limit in cut(batch.limit, size)] for batch in batches)


def _compensation_chunks(runner: Runner, run_id: uuid.UUID, options: Options) -> list[Chunk]:
    def chunk(limit: int) -> Chunk:
        return Chunk(None, lambda: compensation.compensate_some(runner, run_id, options, limit))

    return [chunk(limit) for limit in cut(options.limit, runner.settings.claim_batch)]


async def _carry_out(
    runner: Runner,
    run_id: uuid.UUID,
    part: str,
    chunks: Sequence[Chunk],
    tell: Tell = lambda _: None,
    send: Send | None = None,
) -> Counter[str]:
    """Chunk after chunk, a few at once, until none is left or the time is up; what was done is counted as it goes."""
    part = f"{part}-{uuid.uuid4().hex[:8]}"  # a task that is tried again adds to what its first try did
    deadline = time.monotonic() + runner.settings.job_seconds_max
    waiting, done = iter(chunks), Counter[str]()
    empty: set[Hashable] = set()
    telling = asyncio.Lock()  # in turn, so that what is told last is what is true last

    async def drive() -> None:
        for chunk in waiting:
            if time.monotonic() >= deadline:
                return
            if chunk.wanted in empty:
                continue
            counts = await chunk.claim()
            if not counts:  # somebody else was first; what other chunks look for may still be there
                empty.add(chunk.wanted)
                continue
            done.update(counts)
            async with telling:
                await runs.count_part(runner.database, run_id, part, done)
            tell(counts)

    # All of them to their end: what one has claimed is carried out, also when another one fails.
    async with _alerting(runner, done, send):
        ends = await asyncio.gather(*(drive() for _ in range(SIMULTANEOUS)), return_exceptions=True)
    failed = next((end for end in ends if isinstance(end, BaseException)), None)
    if failed is not None:
        raise failed
    return done


@contextlib.asynccontextmanager
async def _alerting(runner: Runner, done: Counter[str], send: Send | None) -> AsyncIterator[None]:
    """Alerts leave while the block lasts, every now and then, so that a storm is still few messages; the rest leave
    at the end of the run. What goes wrong here is met again there, and said."""
    over = asyncio.Event()

    async def alert() -> None:
        while not await _is_set_within(over, ALERT_SECONDS):
            with contextlib.suppress(MakegoodError):
                done.update(await _send_alerts(runner.database, runner.settings, send))

    alerting = asyncio.create_task(alert())
    try:
        yield
    finally:
        over.set()  # not cancelled: what was sent is marked as sent
        await asyncio.gather(alerting, return_exceptions=True)


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


async def _send_alerts(database: Database, settings: Settings, send: Send | None = None) -> Counter[str]:
    urls = [url.get_secret_value() for url in settings.notify_urls]
    rows = await database.call("SELECT code, exponent FROM makegood.currencies")
    return await notify.send_alerts(
        database,
        send or (Messenger(urls).send if urls else None),
        dashboard_url=settings.dashboard_url,
        exponents={row["code"]: row["exponent"] for row in rows},
    )


def _tally(decided: Sequence[Decided]) -> dict[str, int]:
    return {f"would_{decision}": n for decision, n in Counter(one.decision for one in decided).items()}
