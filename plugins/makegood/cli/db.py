"""``makegood db``: migrate, status, psql, url."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from makegood.cli import output
from makegood.cli.app import app
from makegood.errors import EXIT_DONE, EXIT_FOUND_WRONG, ConfigurationError

db = typer.Typer(help="The database: bring it up to date, look at it, open it.", no_args_is_help=True)
app.add_typer(db, name="db")

RoleOption = Annotated[
    str, typer.Option("--role", help="jobs (writes through functions), read (looks), admin (migrates).")
]


@db.command(epilog="Example: makegood db migrate --sql > for-the-dba.sql")
def migrate(
    sql: Annotated[bool, typer.Option("--sql", help="Print the SQL for a DBA instead of running it.")] = False,
    json: output.JsonFlag = False,
) -> int:
    """Bring the database up to date, in one transaction."""
    from makegood import migrations

    if sql:
        text = migrations.print_sql()
        output.show_json({"sql": text}) if json else sys.stdout.write(text)
        return EXIT_DONE
    address = _url("admin")
    with _in_words(address):
        applied = migrations.migrate(address)
    if json:
        output.show_json({"applied": applied})
    for name in applied:
        output.say(f"applied {name}")
    if not applied:
        output.say("The database is current; nothing to do.")
    return EXIT_DONE


@db.command(epilog="Example: makegood db status --json")
def status(json: output.JsonFlag = False) -> int:
    """Say which migrations the database has. Exit 1 when some are missing."""
    from makegood import migrations

    address = _url("admin")
    with _in_words(address):
        found = migrations.get_status(address)
    if json:
        output.show_json(
            {
                "revision": found.revision,
                "head": found.head,
                "functions_current": found.scripts_current,
                "current": found.current,
            }
        )
    else:
        scripts = "current" if found.scripts_current else "out of date"
        output.page.print(f"revision {found.revision or 'none'} of {found.head}, functions {scripts}")
        if not found.current:
            output.say("Run `makegood db migrate`.")
    return EXIT_DONE if found.current else EXIT_FOUND_WRONG


@db.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    epilog='Example: makegood db psql -- -c "SELECT count(*) FROM workflow_executions"',
)
def psql(context: typer.Context, role: RoleOption = "read") -> None:
    """Open psql on the database; everything after -- is handed to psql."""
    from makegood.local.binaries import find_binaries

    program = find_binaries().program("psql")
    address, secret = _without_password(_url(role))
    sys.stdout.flush()
    environment = {**os.environ, "PGOPTIONS": "-c search_path=makegood,public", **secret}
    os.execve(program, [str(program), address, *context.args], environment)  # noqa: S606 - the user asked for psql


@db.command(epilog='Example: psql "$(makegood db url)"')
def url(role: RoleOption = "jobs", json: output.JsonFlag = False) -> int:
    """Print where the database is. The embedded one's URL names a password file, not a password."""
    found = _url(role)
    output.show_json({"url": found}) if json else sys.stdout.write(found + "\n")
    return EXIT_DONE


def _without_password(address: str) -> tuple[str, dict[str, str]]:
    """Arguments can be read by everybody on the machine, variables only by the same user."""
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    parts = conninfo_to_dict(address)
    password = parts.pop("password", None)
    return make_conninfo("", **parts), {} if password is None else {"PGPASSWORD": str(password)}


@contextlib.contextmanager
def _in_words(address: str) -> Iterator[None]:
    import psycopg

    from makegood.database import unavailable

    try:
        yield
    except psycopg.OperationalError as error:
        raise unavailable(address, error) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise ConfigurationError(
            f"this login may not do that: {error.diag.message_primary}",
            hint="Set MAKEGOOD_DATABASE_ADMIN_URL to one that may, or give a DBA `makegood db migrate --sql`.",
        ) from error


def _url(role: str) -> str:
    from makegood.local import where

    match role:
        case "admin":
            return where.admin_url()
        case "jobs":
            return where.database_url("jobs")
        case "read":
            return where.database_url("read")
    raise typer.BadParameter(f"--role is {role!r}; it must be jobs, read or admin")
