"""``makegood reconcile remedy`` and what a person says about one finding: approve, refuse, ack, ignore."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from makegood.cli import job, output
from makegood.cli.reconcile import reconcile
from makegood.errors import EXIT_DONE, EXIT_FOUND_WRONG, InputError, UnknownOrder

if TYPE_CHECKING:
    from makegood.operating import Remedied

Finding = Annotated[str, typer.Argument(help="The finding's id.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; kept with the finding.")]
Classes = Annotated[
    list[str] | None, typer.Option("--class", help="Only this class, for example D08; may be repeated.")
]
DECISIONS_SHOWN = 50
# What each count means, in the order in which a person asks.
WORDS = {
    "remedied": "put right",
    "corrected": "corrected in our books",
    "recorded": "recorded",
    "resumed": "orders taken on",
    "stopped_order": "orders stopped",
    "awaiting_approval": "wait for a second person: makegood reconcile approve",
    "refused": "refused by the check before the money",
    "held": "HELD for a person",
    "wait": "wait for a later run",
    "tell": "only told about: makegood reconcile policy",
    "leave": "left as they are",
    "left": "left to a person",
    "books_told": "our books now know of",
    "would_refund": "would be refunded",
    "would_retry_refund": "would be refunded again",
    "would_resume": "orders would be taken on",
    "would_correct": "would be corrected in our books",
    "would_record": "would be recorded",
    "would_stop": "orders would be stopped",
    "would_ask": "would wait for a second person",
    "would_wait": "would wait for a later run",
    "would_tell": "are only told about: makegood reconcile policy",
    "would_leave": "would be left as they are",
}
SENTENCES = {
    "approved": "The refund is approved; the next run makes it, or now: makegood reconcile remedy --act",
    "self": "You asked for this refund; somebody else must approve it.",
    "expired": "The request has expired; the next run asks anew.",
    "changed": "The finding is not what was proposed any more; the next run asks anew.",
    "taken": "Somebody has approved it already.",
    "nothing": "No refund of this finding waits for anybody.",
    "refused": "The refund is refused, and the finding is acknowledged.",
    "acknowledged": "The finding is acknowledged.",
    "ignored": "The finding is ignored until {until}.",
    "busy": "The finding is being put right; nothing was changed.",
    "closed": "The finding is closed already.",
}
GOOD = frozenset({"approved", "refused", "acknowledged", "ignored"})


@reconcile.command(epilog="Example: makegood reconcile remedy --class D08 --act --limit 10")
def remedy(
    classes: Classes = None,
    act: Annotated[
        bool, typer.Option("--act/--dry-run", help="Do it, as far as the policy allows; otherwise only say what.")
    ] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="At most so many findings.")] = None,
    json: output.JsonFlag = False,
) -> int:
    """Put right what the last run of the reconciliation found. A dry run unless you say --act.

    A class that the policy only tells about is only told about, also with --act. Exit 1 when something is held.
    """
    from makegood.logs import configure_logs
    from makegood.operating import remedy_last_run
    from makegood.settings import get_settings

    configure_logs(get_settings().log_level)
    chosen = [check_class(name) for name in classes or ()]
    # Under one's own name: whoever asks for a refund is not the second person who approves it.
    done = remedy_last_run(chosen, dry_run=not act, limit=limit, actor=job.whoami())
    if json:
        output.show_json(done.to_document())
    else:
        _show(done, act=act)
    return EXIT_FOUND_WRONG if done.counts.get("held") else EXIT_DONE


@reconcile.command(epilog='Example: makegood reconcile approve 0a63… --reason "two charges, one order"')
def approve(finding: Finding, reason: Reason, json: output.JsonFlag = False) -> int:
    """Allow the refund that a finding waits with, as the second person: exactly its class, charge and amount.

    You approve as who you are logged in as. Exit 1 when it was not approved.
    """
    from makegood.cli.connect import ask

    row = ask("SELECT * FROM makegood.approve_remedy(%s, %s, %s)", (str(parse_finding(finding)), job.whoami(), reason))[
        0
    ]
    return _say(
        finding, row["verdict"], json=json, more={"amount_minor": row["amount_minor"], "currency": row["currency"]}
    )


@reconcile.command(epilog='Example: makegood reconcile refuse 0a63… --reason "the customer ordered two"')
def refuse(finding: Finding, reason: Reason, json: output.JsonFlag = False) -> int:
    """Refuse the refund that a finding waits with; the finding is yours then. Exit 1 when none was waiting."""
    from makegood.cli.connect import ask

    statement = "SELECT makegood.refuse_remedy(%s, %s, %s) AS verdict"
    row = ask(statement, (str(parse_finding(finding)), job.whoami(), reason))[0]
    return _say(finding, row["verdict"], json=json)


@reconcile.command(epilog='Example: makegood reconcile ack 0a63… --reason "asked the bank"')
def ack(finding: Finding, reason: Reason, actor: job.Actor = None, json: output.JsonFlag = False) -> int:
    """Take a finding on: jobs leave it alone, and it closes by itself when both sides agree."""
    from makegood.cli.connect import ask

    statement = "SELECT makegood.acknowledge_finding(%s, %s, %s) AS verdict"
    row = ask(statement, (str(parse_finding(finding)), actor or job.whoami(), reason))[0]
    return _say(finding, row["verdict"], json=json)


@reconcile.command(epilog='Example: makegood reconcile ignore 0a63… --until 30d --reason "a test order"')
def ignore(
    finding: Finding,
    reason: Reason,
    until: Annotated[str, typer.Option("--until", help="2026-12-24, or from now on: 12h, 30d. At most a year.")],
    actor: job.Actor = None,
    json: output.JsonFlag = False,
) -> int:
    """Do not hear of a finding until a time; if it still stands then, it is open again."""
    from makegood.cli.connect import ask

    end = parse_until(until)
    statement = "SELECT makegood.ignore_finding(%s, %s, %s, %s::timestamptz) AS verdict"
    row = ask(statement, (str(parse_finding(finding)), actor or job.whoami(), reason, end.isoformat()))[0]
    return _say(finding, row["verdict"], json=json, more={"until": end})


def parse_finding(text: str) -> uuid.UUID:
    try:
        return uuid.UUID(text)
    except ValueError:
        raise InputError(
            f"{text!r} is not the id of a finding", hint="`makegood reconcile remedy --json` shows them."
        ) from None


def parse_until(text: str) -> datetime:
    """A day, a time with its zone, or a span from now on."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        try:
            return datetime.now(UTC) + timedelta(seconds=job.parse_duration(text) or 0)
        except InputError:
            raise InputError(f"--until is {text!r}; it must be a time such as 2026-12-24, 12h or 30d") from None
    return found if found.tzinfo else found.astimezone()


def check_class(name: str) -> str:
    if len(name) != 3 or name[0] != "D" or not name[1:].isdigit():
        raise InputError(f"--class is {name!r}; it must be a class such as D08")
    return name


def _say(finding: str, verdict: str, *, json: bool, more: Mapping[str, Any] | None = None) -> int:
    if verdict == "unknown":
        raise UnknownOrder(f"there is no finding {finding}", hint="`makegood reconcile remedy --json` shows them.")
    if json:
        output.show_json({"finding_id": finding, "verdict": verdict, **(more or {})})
    else:
        output.page.print(SENTENCES[verdict].format(**(more or {})), markup=False)
    return EXIT_DONE if verdict in GOOD else EXIT_FOUND_WRONG


def _show(done: Remedied, *, act: bool) -> None:
    if not act:
        _show_decisions(done)
    counts = {name: n for name, n in done.counts.items() if n and name != "started"}
    if not counts:
        output.page.print("remedy: nothing to do.")
    for name, n in sorted(counts.items(), key=lambda item: list(WORDS).index(item[0]) if item[0] in WORDS else 99):
        output.page.print(f"{n:>8,}  {WORDS.get(name, name.replace('_', ' '))}", markup=False)
    if not act and counts:
        output.say("Nothing was done: say --act for what the policy allows.")


def _show_decisions(done: Remedied) -> None:
    if not done.decided:
        return
    table = Table("finding", "class", "what", "decision", "why", box=None, pad_edge=False)
    for one in done.decided[:DECISIONS_SHOWN]:
        found = one.candidate
        cells = (str(found.finding_id), found.class_, found.unit, one.decision.act, one.decision.reason)
        table.add_row(*(output.harmless(cell) for cell in cells))
    output.page.print(table, markup=False)
    if len(done.decided) > DECISIONS_SHOWN:
        output.say(f"and {len(done.decided) - DECISIONS_SHOWN:,} more: --json has them all")
