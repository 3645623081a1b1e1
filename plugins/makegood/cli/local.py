"""``makegood up``, ``down``, ``reset``, ``status`` and ``doctor``: what runs on this machine."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.status import Status
from rich.table import Table
from rich.text import Text

from makegood.cli import output
from makegood.cli.app import app
from makegood.errors import EXIT_DONE, EXIT_FOUND_WRONG, EXIT_NOT_READY, InputError

if TYPE_CHECKING:
    from makegood.local.airflow import Login
    from makegood.local.check import Check
    from makegood.local.lifecycle import Environment, Up
    from makegood.local.supervisor import ServiceStatus

STYLES = {"running": "green", "ok": "green", "unhealthy": "red", "fail": "red", "warn": "yellow"}
MINUTE, HOUR, DAY = 60, 3600, 86400


class Stages:
    """One line per stage with its tick and its seconds; on a terminal, a spinner while it lasts."""

    def __init__(self) -> None:
        self._spinner: Status | None = None

    def begin(self, what: str) -> None:
        if output.people.is_terminal:
            self._spinner = output.people.status(f"{what} …")
            self._spinner.start()

    def done(self, what: str, outcome: str, seconds: float, *, well: bool = True) -> None:
        if self._spinner is not None:
            self._spinner.stop()
            self._spinner = None
        mark, style = ("✓", "green") if well else ("✗", "red")
        output.people.print(Text.assemble((mark, style), f" {what:<21} {outcome} ", (f"{seconds:.1f} s", "dim")))


@app.command(epilog="Example: makegood up --no-traffic")
def up(
    no_traffic: Annotated[bool, typer.Option("--no-traffic", help="The shop without customers.")] = False,
    no_airflow: Annotated[bool, typer.Option("--no-airflow", help="Without Airflow and its jobs.")] = False,
    no_dashboard: Annotated[bool, typer.Option("--no-dashboard", help="Without the dashboard.")] = False,
    json: output.JsonFlag = False,
) -> int:
    """Start everything: the database, its migrations, the shop, its traffic, the dashboard and Airflow.

    What runs is left alone.
    """
    from makegood.local import airflow
    from makegood.local.services import DASHBOARD

    environment = _environment()
    left_out = (*("traffic",) * no_traffic, *(DASHBOARD,) * no_dashboard, *airflow.NAMES * no_airflow)
    done = environment.up(without=left_out)
    statuses = environment.status()
    if json:
        output.show_json({**asdict(done), "services": _plain(statuses), "logs": str(environment.home / "logs")})
    else:
        _show_up(environment, done, statuses)
    return EXIT_DONE


@app.command(epilog="Example: makegood down")
def down(json: output.JsonFlag = False) -> int:
    """Stop everything that was started here, and keep the data."""
    stopped = _environment().down()
    if json:
        output.show_json({"stopped": stopped})
    else:
        output.say(f"Stopped {', '.join(stopped)}; the data are kept." if stopped else "Nothing was running.")
    return EXIT_DONE


@app.command(epilog="Example: makegood reset --yes")
def reset(
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False, json: output.JsonFlag = False
) -> int:
    """Stop everything and delete the data of this home. A server of your own is never touched."""
    environment = _environment()
    if not yes:
        _confirm(environment)
    environment.wipe()
    if json:
        output.show_json({"wiped": str(environment.home)})
    else:
        output.say(f"Everything in {environment.home} is wiped. `make up` starts anew.")
    return EXIT_DONE


@app.command(epilog="Example: makegood status --json")
def status(json: output.JsonFlag = False) -> int:
    """What is running, since when and where. Exit 1 when something is unwell or ended by itself."""
    environment = _environment()
    statuses = environment.status()
    if json:
        output.show_json({"services": _plain(statuses), "home": str(environment.home)})
    else:
        output.page.print(_status_table(statuses))
        output.say(f"Logs are in {environment.home / 'logs'}.")
    unwell = any(status.crashed or status.state == "unhealthy" for status in statuses)
    return EXIT_FOUND_WRONG if unwell else EXIT_DONE


@app.command(epilog="Example: makegood doctor --json")
def doctor(json: output.JsonFlag = False) -> int:
    """Look at everything makegood needs and say what to do. Exit 3 when it cannot run, 1 when something is wrong.

    A warning is worth reading and changes no exit code.
    """
    checks = list(_find_checks(_environment()))
    exit_code = _judge(checks)
    if json:
        output.show_json({"checks": [asdict(check) for check in checks], "ready": exit_code == EXIT_DONE})
    else:
        output.page.print(_check_table(checks))
    return exit_code


def _environment() -> Environment:
    from makegood.local.lifecycle import Environment
    from makegood.settings import get_settings

    return Environment(get_settings(), Stages(), output.say)


def _confirm(environment: Environment) -> None:
    if not sys.stdin.isatty():
        raise InputError("reset deletes data and there is no terminal to ask at", hint="Say --yes if you mean it.")
    output.say(f"This deletes the database, passwords, logs and the shop's records in {environment.home}.")
    if not environment.settings.embedded:
        output.say("The server that MAKEGOOD_DATABASE_URL names is left alone.")
    typer.confirm("Delete them?", abort=True, err=True)


def _find_checks(environment: Environment) -> Iterable[Check]:
    from makegood.local.check import carry_on
    from makegood.local.database_checks import check_database
    from makegood.local.machine_checks import check_machine
    from makegood.local.service_checks import check_services

    yield from carry_on("machine", check_machine(environment))
    yield from carry_on("database", check_database())
    yield from carry_on("services", check_services(environment))


def _judge(checks: Iterable[Check]) -> int:
    failed = [check for check in checks if check.verdict == "fail"]
    if any(check.blocks for check in failed):
        return EXIT_NOT_READY
    return EXIT_FOUND_WRONG if failed else EXIT_DONE


def _show_up(environment: Environment, done: Up, statuses: list[ServiceStatus]) -> None:
    from makegood.local.services import DASHBOARD

    if not done.started:
        output.say("Everything was running already.")
    for status in statuses:
        if status.name == DASHBOARD and status.state == "running":
            output.say(f"The dashboard is at {status.address}", style="bold")
    output.page.print(_status_table(statuses))
    if done.airflow:
        _show_login(environment, done.airflow)
    output.say(f"Logs are in {environment.home / 'logs'}. Next:")
    makegood = "makegood" if shutil.which("makegood") else os.path.relpath(Path(sys.executable).parent / "makegood")
    for command, what in (
        (f"{makegood} timeline {done.order or 'order-…'}", "where is this order?"),
        (f"{makegood} status", "what is running"),
        ("make down", "stop everything, keep the data"),
    ):
        output.say(f"  {command:<42} {what}")


def _show_login(environment: Environment, login: Login) -> None:
    from makegood.local.airflow_settings import read_password

    password = read_password(environment.home)
    output.say(f"Airflow is at {login.address}: user {login.user}, password {password}")
    output.say(f"  (kept in {login.password_file})")


def _status_table(statuses: Iterable[ServiceStatus]) -> Table:
    table = Table("service", "state", "pid", "up for", "where", box=None, pad_edge=False)
    for status in statuses:
        state = "stopped by itself" if status.crashed else str(status.state)
        table.add_row(
            status.name,
            Text(state, style="red" if status.crashed else STYLES.get(state, "")),
            str(status.pid or ""),
            _duration(status.uptime_seconds),
            status.address or "",
        )
    return table


def _check_table(checks: Iterable[Check]) -> Table:
    table = Table("", "check", "finding", "what to do", box=None, pad_edge=False)
    for check in checks:
        verdict = Text(str(check.verdict), style=STYLES[check.verdict])
        table.add_row(verdict, check.name, Text(check.detail), Text(check.todo or ""))
    return table


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for unit, letter in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= unit:
            return f"{seconds / unit:.0f} {letter}"
    return f"{seconds:.0f} s"


def _plain(statuses: Iterable[ServiceStatus]) -> list[dict[str, Any]]:
    return [{**asdict(status), "log": str(status.log) if status.log else None} for status in statuses]
