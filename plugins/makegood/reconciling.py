"""The reconciliation, for whoever runs it: an Airflow task or a command. Plain values in, plain values out.

A run is begun, fetched for, matched, put right, reported and finished, in this order; each stage may be repeated, and
one that died is begun anew. The id of its row in ``job_runs`` is the id of its row in ``reconciliation_runs``. Without
a complete fetch the match still looks, says so (D32), and nothing is put right.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from makegood import jobs
from makegood.database import Database
from makegood.engine.runner import Runner
from makegood.errors import MakegoodError, TransientError, UnknownOrder
from makegood.gateways.ledger import PROVIDER, open_ledger
from makegood.local import where
from makegood.local.private import make_private_folder, write_private
from makegood.reconciliation import match as matcher
from makegood.reconciliation.classes import ALARMING
from makegood.reconciliation.options import Options, check_options, choose_kind
from makegood.reconciliation.read import find_last_full, read_report
from makegood.reconciliation.remedy import JOB as REMEDY_JOB
from makegood.reconciliation.remedy import remedy_findings
from makegood.reconciliation.report import Report, find_problems, summarise
from makegood.reconciliation.report_html import render_html
from makegood.reconciliation.source import COLLECTIONS
from makegood.reconciliation.sync import sync as fetch
from makegood.reconciliation.terms import make_terms
from makegood.runs import record as runs
from makegood.session import with_runner
from makegood.settings import get_settings

JOB = "reconcile_charges"
# The first fetch of a large account takes hours; without a word for longer than this a run is abandoned.
SECONDS_MAX = 6 * 3600.0
STAGES = ("sync", "match", "remedies", "report")
REPORTS_KEPT = 500  # files: three weeks of hourly ones

Answer = TypeVar("Answer")
Tell = Callable[[str, Mapping[str, int]], None]


@dataclass(frozen=True)
class Reconciled:
    """What a whole run came to."""

    run_id: str
    report: Report
    file: Path
    counts: Mapping[str, int]


# Airflow's tasks


def begin_reconciliation(
    *,
    kind: str = "auto",
    since: str | None = None,
    until: str | None = None,
    classes: list[str] | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    key: str | None = None,
    triggered_by: str,
) -> dict[str, Any]:
    """Opens a run and says of which kind it is; the same key again is the same run."""
    options = check_options(kind=kind, since=since, until=until, classes=classes or (), act=not dry_run, limit=limit)
    return _with_database(lambda database: _begin(database, options, key, triggered_by))


def sync_charges(run_id: str) -> dict[str, int]:
    """Fetches what is new at the provider."""
    return _with_database(lambda database: _stage(database, run_id, "sync", _sync(database, run_id)))


def match_run(run_id: str) -> dict[str, int]:
    """Compares both sides, writes the findings, and the alerts that they are worth."""
    return _with_database(lambda database: _stage(database, run_id, "match", _match(database, run_id)))


def remedy_run(run_id: str) -> dict[str, int]:
    """Puts right what the policy allows, or says what it would; a stale run puts right nothing."""
    return with_runner(lambda runner: _stage(runner.database, run_id, "remedies", _remedy(runner, run_id)))


def report_run(run_id: str) -> dict[str, Any]:
    """Writes the page of the run; returns where it is, and what it says in one sentence."""

    async def write(database: Database) -> dict[str, Any]:
        report, file = await _write_report(database, run_id)
        return {
            "summary": summarise(report),
            "adds_up": report.adds_up,
            "open": report.open_findings,
            "need_somebody": report.need_somebody,
            "file": str(file),
            "link": f"{get_settings().dashboard_url}/reconciliation?run={run_id}",
        }

    return _with_database(write)


# A whole run in one process


def reconcile(options: Options, *, triggered_by: str, tell: Tell = lambda *_: None) -> Reconciled:
    """Fetch, match, put right, report; ``tell`` hears of each stage as it begins (no counts) and as it ends."""
    begun = _with_database(lambda database: _begin(database, options, None, triggered_by))
    run_id = str(begun["run_id"])
    stages: dict[str, Callable[[str], Mapping[str, Any]]] = {
        "sync": sync_charges,
        "match": match_run,
        "remedies": remedy_run,
    }
    if not options.sync:
        del stages["sync"]
    try:
        for name, stage in stages.items():
            tell(name, {})
            tell(name, _forgiving(stage, run_id) if name == "sync" else stage(run_id))
        tell("report", {})
        report, file = _with_database(lambda database: _write_report(database, run_id))
    except BaseException as error:
        with contextlib.suppress(MakegoodError):
            fail_run(run_id, f"{type(error).__name__}: {error}")
        raise
    sent = jobs.send_alerts()
    _with_database(lambda database: _count(database, run_id, "alerts", sent))
    return Reconciled(run_id, report, file, jobs.finish_run(run_id))


def fail_run(run_id: str, error: str) -> None:
    _with_database(lambda database: runs.finish_run(database, uuid.UUID(run_id), error))


def get_report(run_id: str | None, *, findings: int = 1000) -> Report:
    """The report of a run, or of the newest one."""
    report = ask(lambda database: read_report(database, run_id, findings=findings))
    if report is None:
        what = "no reconciliation has run yet" if run_id is None else f"there is no reconciliation {run_id}"
        raise UnknownOrder(what, hint="`makegood reconcile` runs one.")
    return report


def ask(work: Callable[[Database], Coroutine[Any, Any, Answer]]) -> Answer:
    """One question by somebody who only reads."""
    return _with_database(work, role="read")


def reports_folder() -> Path:
    return get_settings().reports or where.find_home() / "reports"


# The stages


async def _begin(database: Database, options: Options, key: str | None, triggered_by: str) -> dict[str, Any]:
    now, last_full = await find_last_full(database)
    kind = choose_kind(options, now, last_full, get_settings().reconcile_full_hour)
    parameters = options.to_document() | {"kind": kind}
    run_id = await runs.begin_run(database, JOB, key or str(uuid.uuid4()), triggered_by, parameters, SECONDS_MAX)
    asked = await _asked(database, str(run_id))  # of the first begin, if this is not it
    return {"run_id": str(run_id), "counts": {}, "kind": asked["kind"], "dry_run": asked["dry_run"]}


async def _asked(database: Database, run_id: str) -> dict[str, Any]:
    rows = await database.call("SELECT parameters FROM makegood.job_runs WHERE id = %s", (uuid.UUID(run_id),))
    if not rows:
        raise UnknownOrder(f"there is no run {run_id}")
    return dict(rows[0]["parameters"])


async def _stage(
    database: Database, run_id: str, name: str, work: Coroutine[Any, Any, Mapping[str, int]]
) -> dict[str, int]:
    """What a stage did is counted as a part of the run, also that it failed."""
    try:
        counts = dict(await work)
    except BaseException:
        with contextlib.suppress(MakegoodError):
            await _count(database, run_id, name, {"batches_failed": 1})
        raise
    await _count(database, run_id, name, counts)
    return counts


async def _count(database: Database, run_id: str, name: str, counts: Mapping[str, int]) -> None:
    await runs.count_part(database, uuid.UUID(run_id), name, counts)


async def _sync(database: Database, run_id: str) -> dict[str, int]:
    """Raises where a collection could not be completed: the next try goes on at the page where this one was.

    One that another fetch has is not complete either: nobody here knows how far that one is.
    """
    settings = get_settings()
    if not settings.sync_enabled:
        await database.call("SELECT makegood.forget_sync(%s)", (PROVIDER,))
        return {}
    full = (await _asked(database, run_id))["kind"] == "full"
    async with open_ledger(settings) as ledger:
        since = await _find_again(database, ledger.provider, settings.sync_again_seconds) if full else None
        counts = await fetch(database, ledger, settings, since=since)
    failed = [name.partition(".")[0] for name, n in counts.items() if name.endswith((".failed", ".busy")) and n]
    if failed:
        raise TransientError(
            f"{', '.join(dict.fromkeys(failed))} could not be fetched to the end",
            hint="`makegood reconcile sync` says why.",
        )
    return {name.replace(".", "_"): n for name, n in counts.items()}


async def _find_again(database: Database, provider: str, seconds: int) -> int | None:
    """From where a full run reads again: what became visible later than any overlap. Not before all were read once."""
    (row,) = await database.call(
        "SELECT min(watermark) AS least, count(watermark) AS read FROM makegood.provider_sync WHERE provider = %s",
        (provider,),
    )
    return int(row["least"].timestamp()) - seconds if row["read"] == len(COLLECTIONS) else None


async def _remedy(runner: Runner, run_id: str) -> dict[str, int]:
    asked = await _asked(runner.database, run_id)
    classes, limit, dry_run = asked["classes"] or None, asked["limit"], asked["dry_run"]
    rows = await runner.database.call("SELECT triggered_by FROM makegood.job_runs WHERE id = %s", (uuid.UUID(run_id),))
    actor = find_person(rows[0]["triggered_by"]) or REMEDY_JOB
    counts = await remedy_findings(
        runner, uuid.UUID(run_id), classes=classes, dry_run=dry_run, limit=limit, actor=actor
    )
    return dict(counts)


def find_person(triggered_by: str) -> str | None:
    """Who started a run by hand: it is they who ask for what needs a second person, so they cannot be the second.

    ``command:ann`` and ``airflow:manual:ann`` are Ann's; a scheduled run is nobody's.
    """
    parts = triggered_by.split(":")
    if parts[0] == "command" and len(parts) > 1:
        return ":".join(parts[1:]) or None
    return ":".join(parts[2:]) or None if parts[0] == "airflow" and len(parts) > 2 else None


async def _match(database: Database, run_id: str) -> dict[str, int]:
    asked = await _asked(database, run_id)
    settings, id_ = get_settings(), uuid.UUID(run_id)
    options = check_options(since=asked["since"], until=asked["until"])
    window = matcher.Window(options.since, options.until) if options.since and options.until else None
    await matcher.begin(database, id_, asked["kind"], make_terms(settings), window)
    try:
        matched = await matcher.match(database, id_)
    except BaseException as error:
        with contextlib.suppress(MakegoodError):
            said = f"{type(error).__name__}: {error}"
            await database.call("SELECT makegood.fail_reconciliation(%s, %s)", (id_, said))
        raise
    # After the match and not with it: a stage that dies here is run again, matches nothing new, and writes them then.
    rows = await database.call(
        "SELECT makegood.alert_reconciliation(%s, %s, %s) AS n",
        (id_, settings.finding_alert_above_minor, sorted(ALARMING)),
    )
    return {**matched.counts, "alerts_written": rows[0]["n"]}


async def _write_report(database: Database, run_id: str) -> tuple[Report, Path]:
    report = await read_report(database, run_id)
    if report is None:
        raise UnknownOrder(f"there is no reconciliation {run_id}", hint="Its match did not begin.")
    file = _store(f"reconciliation-{report.run.started_at:%Y%m%dT%H%M%S}-{run_id}.html", render_html(report))
    found = {"problems": len(find_problems(report)), "need_somebody": report.need_somebody}
    await _count(database, run_id, "report", found)
    return report, file


def _store(name: str, page: str) -> Path:
    """In the home folder only its owner reads it; a folder that somebody named has its own rights, which stay."""
    folder = reports_folder()
    if get_settings().reports is None:
        write_private(make_private_folder(folder) / name, page)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        staged = folder / f".{name}.new"
        staged.write_text(page, encoding="utf-8")
        staged.replace(folder / name)
    _prune(folder)
    return folder / name


def _prune(folder: Path) -> None:
    """The newest stay: a folder that only grows fills a disk."""
    for old in sorted(folder.glob("reconciliation-*.html"))[:-REPORTS_KEPT]:
        old.unlink(missing_ok=True)


def _forgiving(stage: Callable[[str], Mapping[str, int]], run_id: str) -> Mapping[str, int]:
    """A provider that cannot be fetched does not stop the match: it says that the source is stale."""
    try:
        return stage(run_id)
    except MakegoodError:
        return {"batches_failed": 1}


def _with_database(work: Callable[[Database], Coroutine[Any, Any, Answer]], role: where.Role = "jobs") -> Answer:
    async def run() -> Answer:
        async with Database(where.database_url(role)) as database:
            return await work(database)

    return asyncio.run(run())
