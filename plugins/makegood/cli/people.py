"""``makegood people``: who may look and act through the dashboard. Every change is kept with who made it and why."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from makegood.cli import job, output
from makegood.cli.app import app
from makegood.errors import EXIT_DONE, UnknownOrder

people = typer.Typer(help="Who may look and act through the dashboard.", no_args_is_help=True)
app.add_typer(people, name="people")

LISTED_MAX = 1000
Login = Annotated[str, typer.Argument(help="The name the login brings, for example ann@example.com.")]
Why = Annotated[str, typer.Option("--reason", help="Why; kept in the audit trail.")]


@people.command("list", epilog="Example: makegood people list --json")
def list_people(json: output.JsonFlag = False) -> int:
    """Show everybody with their roles, who granted them and when."""
    from makegood.cli.connect import ask

    rows = ask(
        "SELECT login, roles, disabled, granted_by, granted_at FROM makegood.people ORDER BY login LIMIT %s",
        (LISTED_MAX,),
        role="read",
    )
    if json:
        output.show_json({"people": rows})
    elif not rows:
        output.page.print("Nobody may act yet: makegood people grant ann@example.com operator --reason …")
    else:
        output.page.print(_table(rows))
    return EXIT_DONE


@people.command(epilog='Example: makegood people grant ann@example.com operator engineer --reason "on call"')
def grant(
    login: Login,
    roles: Annotated[list[str], typer.Argument(help="Of viewer, engineer, operator, approver.")],
    reason: Why,
    actor: job.Actor = None,
    json: output.JsonFlag = False,
) -> int:
    """Give roles to a login, new or known; one that was shut out may come in again.

    A viewer looks. An engineer sees personal data too. An operator acts. An approver is the second person where an
    action needs two, and never for what they asked for themselves.
    """
    from makegood.cli.connect import ask

    row = ask("SELECT * FROM makegood.grant_person(%s, %s, %s, %s)", (login, roles, actor or job.whoami(), reason))[0]
    return _tell(row, json=json)


@people.command(epilog='Example: makegood people revoke ann@example.com --reason "left the team"')
def revoke(
    login: Login,
    roles: Annotated[list[str] | None, typer.Argument(help="These only; without any, the person is shut out.")] = None,
    reason: Why = ...,  # type: ignore[assignment]
    actor: job.Actor = None,
    json: output.JsonFlag = False,
) -> int:
    """Take roles from a login. It holds from the next action on, also for whoever is logged in. Exit 1 if unknown."""
    from makegood.cli.connect import ask

    rows = ask(
        "SELECT * FROM makegood.revoke_person(%s, %s, %s, %s)", (login, roles or None, actor or job.whoami(), reason)
    )
    if not rows:
        raise UnknownOrder(f"nobody is known as {login}", hint="`makegood people list` shows who is.")
    return _tell(rows[0], json=json)


def _tell(row: dict[str, Any], *, json: bool) -> int:
    if json:
        output.show_json(row)
    else:
        what = "is shut out" if row["disabled"] else f"is {', '.join(row['roles'])}"
        output.page.print(output.harmless(f"{row['login']} {what} now."), markup=False)
    return EXIT_DONE


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table("login", "roles", "granted by", "when (UTC)", box=None, pad_edge=False)
    for row in rows:
        roles = "shut out" if row["disabled"] else ", ".join(row["roles"])
        cells = (row["login"], roles, row["granted_by"])
        table.add_row(*(Text(output.harmless(cell)) for cell in cells), f"{row['granted_at']:%Y-%m-%d %H:%M}")
    return table
