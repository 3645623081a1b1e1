"""``makegood reconcile policy`` and the kill switch: what may be put right without a person, and how much."""

from __future__ import annotations

import json as jsonlib
from typing import Annotated, Any

import typer
from rich.table import Table

from makegood.cli import job, output
from makegood.cli.reconcile import reconcile
from makegood.cli.reconcile_remedies import check_class
from makegood.errors import EXIT_DONE, InputError

policy = typer.Typer(help="Which findings are acted upon, and how much money may go back.", no_args_is_help=True)
reconcile.add_typer(policy, name="policy")

Reason = Annotated[str, typer.Option("--reason", help="Why; kept in the audit trail.")]
Environment = Annotated[
    str | None, typer.Option("--environment", help="live or test; that of your Stripe key, if not given.")
]
Minor = Annotated[int | None, typer.Option(min=0, help="In minor units: 10000 is 100.00 EUR.")]
Count = Annotated[int | None, typer.Option(min=0)]
CAPS = ("item_minor", "run_count", "run_minor", "day_count", "day_minor", "customer_count", "customer_minor")


@policy.command(epilog="Example: makegood reconcile policy show --json")
def show(json: output.JsonFlag = False) -> int:
    """Show the kill switch, the classes that are acted upon, and the caps per currency."""
    from makegood.cli.connect import ask

    switch = ask("SELECT stopped, reason, changed_by, changed_at FROM makegood.remedy_switch", role="read")[0]
    classes = ask("SELECT * FROM makegood.remedy_policy ORDER BY environment, class", role="read")
    caps = ask("SELECT * FROM makegood.remedy_caps ORDER BY environment, currency", role="read")
    if json:
        output.show_json({"environment": _environment(None), "switch": switch, "classes": classes, "caps": caps})
        return EXIT_DONE
    state = f"STOPPED by {switch['changed_by']}: {switch['reason']}" if switch["stopped"] else "allowed"
    output.page.print(output.harmless(f"Remedies are {state}."), markup=False)
    acted = [f"{row['class']} ({row['environment']})" for row in classes if not row["dry_run"]]
    output.page.print(f"Acted upon: {', '.join(acted) or 'none'}; every other class is only told about.", markup=False)
    table = Table("environment", "currency", *(name.replace("_", " ") for name in CAPS), box=None, pad_edge=False)
    for row in caps:
        table.add_row(row["environment"], row["currency"], *(f"{row[name]:,}" for name in CAPS))
    output.page.print(table)
    return EXIT_DONE


@policy.command("set", epilog='Example: makegood reconcile policy set --class D08 --act --reason "a month of dry runs"')
def set_policy(  # one option per cap
    reason: Reason,
    classes: Annotated[list[str] | None, typer.Option("--class", help="The class; may be repeated.")] = None,
    act: Annotated[bool | None, typer.Option("--act/--dry-run", help="Act upon it, or only tell about it.")] = None,
    currency: Annotated[str | None, typer.Option("--currency", help="Whose caps, for example EUR.")] = None,
    item_minor: Minor = None,
    run_count: Count = None,
    run_minor: Minor = None,
    day_count: Count = None,
    day_minor: Minor = None,
    customer_count: Count = None,
    customer_minor: Minor = None,
    environment: Environment = None,
    actor: job.Actor = None,
    json: output.JsonFlag = False,
) -> int:
    """Act upon a class, or change how much of a currency may go back without a second person."""
    given = (item_minor, run_count, run_minor, day_count, day_minor, customer_count, customer_minor)
    caps = {name: value for name, value in zip(CAPS, given, strict=True) if value is not None}
    if bool(classes) != (act is not None):
        raise InputError("--class goes with --act or --dry-run", hint="For example --class D08 --act.")
    if bool(caps) != (currency is not None) or not (classes or caps):
        raise InputError("--currency goes with at least one cap", hint="For example --currency EUR --item-minor 10000.")
    where, who = _environment(environment), actor or job.whoami()
    changed = [_set_class(where, check_class(name), not act, who, reason) for name in classes or ()]
    if currency is not None:
        changed.append(_set_caps(where, currency, caps, who, reason))
    if json:
        output.show_json({"environment": where, "changed": changed})
    else:
        output.page.print(f"{len(changed)} changed in {where}.", markup=False)
    return EXIT_DONE


@reconcile.command("stop-remedies", epilog='Example: makegood reconcile stop-remedies --reason "refunds look odd"')
def stop_remedies(reason: Reason, actor: job.Actor = None, json: output.JsonFlag = False) -> int:
    """The kill switch: from now on no remedy starts, and one that has started is refused before its refund."""
    return _switch(stopped=True, actor=actor, reason=reason, json=json)


@reconcile.command("allow-remedies", epilog='Example: makegood reconcile allow-remedies --reason "it was a test"')
def allow_remedies(reason: Reason, actor: job.Actor = None, json: output.JsonFlag = False) -> int:
    """Takes the kill switch back: what the policy allows is done again."""
    return _switch(stopped=False, actor=actor, reason=reason, json=json)


def _switch(*, stopped: bool, actor: str | None, reason: str, json: bool) -> int:
    from makegood.cli.connect import ask

    statement = "SELECT makegood.switch_remedies(%s, %s, %s) AS verdict"
    verdict = ask(statement, (stopped, actor or job.whoami(), reason))[0]["verdict"]
    if json:
        output.show_json({"verdict": verdict, "stopped": stopped})
    else:
        already = " already" if verdict == "unchanged" else ""
        output.page.print(f"Remedies are {'stopped' if stopped else 'allowed'}{already}.")
    return EXIT_DONE


def _set_class(where: str, name: str, dry_run: bool, actor: str, reason: str) -> dict[str, Any]:
    from makegood.cli.connect import ask

    ask("SELECT makegood.set_remedy_policy(%s, %s, %s, %s, %s)", (where, name, dry_run, actor, reason))
    return {"class": name, "dry_run": dry_run}


def _set_caps(where: str, currency: str, caps: dict[str, int], actor: str, reason: str) -> dict[str, Any]:
    from makegood.cli.connect import ask

    statement = "SELECT * FROM makegood.set_remedy_caps(%s, %s, %s::jsonb, %s, %s)"
    return ask(statement, (where, currency, jsonlib.dumps(caps), actor, reason))[0]


def _environment(given: str | None) -> str:
    from makegood.reconciliation.remedy_terms import make_remedy_terms
    from makegood.settings import get_settings

    if given not in {None, "live", "test"}:
        raise InputError(f"--environment is {given!r}; it must be live or test")
    return given or make_remedy_terms(get_settings()).environment
