"""`makegood db …`, and an environment that is not ready: a clear message, the right exit code, no secret."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from makegood.local.passwords import read_passwords
from makegood.local.postgres import EmbeddedPostgres
from sandbox.client import ShopControl, ShopProcess

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "COLUMNS": "200",
        "MAKEGOOD_HOME": str(tmp_path / "home"),
    }


@pytest.fixture
def makegood(environment: dict[str, str], tmp_path: Path) -> Run:
    def run(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "makegood.cli", *arguments],
            env=environment | changes,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )

    return run


@pytest.fixture
def empty_database(server: EmbeddedPostgres) -> Iterator[str]:
    """A database that nobody has migrated yet."""
    name = f"empty_{secrets.token_hex(4)}"
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield server.url("postgres", name)
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def find_free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def url_with_password(server: EmbeddedPostgres, conninfo: str, password: str | None = None) -> str:
    """As people write it, the password in the address."""
    parts = conninfo_to_dict(conninfo)
    user = str(parts["user"])
    password = password or read_passwords(server.passfile)[user]
    return f"postgresql://{user}:{quote(password)}@{parts['host']}:{parts['port']}/{parts['dbname']}"


def test_db_status_and_migrate_bring_a_new_database_up_to_date(empty_database: str, makegood: Run) -> None:
    url = {"MAKEGOOD_DATABASE_URL": empty_database}
    status = makegood("db", "status", **url)
    assert status.returncode == 1
    assert "revision none" in status.stdout
    assert "makegood db migrate" in status.stderr
    migrated = makegood("db", "migrate", "--json", **url)
    assert migrated.returncode == 0
    assert "functions and grants" in json.loads(migrated.stdout)["applied"]
    again = makegood("db", "migrate", **url)
    assert (again.returncode, again.stdout) == (0, "")
    assert "nothing to do" in again.stderr
    status = makegood("db", "status", "--json", **url)
    assert status.returncode == 0
    assert json.loads(status.stdout)["current"] is True


def test_db_migrate_for_a_dba_prints_sql_and_needs_no_server(makegood: Run) -> None:
    printed = makegood("db", "migrate", "--sql")
    assert printed.returncode == 0
    assert "CREATE TABLE makegood.workflow_executions" in printed.stdout
    assert "CREATE OR REPLACE FUNCTION makegood.claim_workflows" in printed.stdout
    assert "sql" in json.loads(makegood("db", "migrate", "--sql", "--json").stdout)


def test_db_url_prints_the_one_that_was_given(database: Any, makegood: Run) -> None:
    url = {"MAKEGOOD_DATABASE_URL": database.jobs, "MAKEGOOD_DATABASE_ADMIN_URL": database.admin}
    assert makegood("db", "url", **url).stdout == database.jobs + "\n"
    assert json.loads(makegood("db", "url", "--role", "admin", "--json", **url).stdout) == {"url": database.admin}


def test_db_psql_hands_the_rest_to_psql_and_finds_the_tables(
    database: Any, server: EmbeddedPostgres, makegood: Run
) -> None:
    url = url_with_password(server, database.read)
    query = "SELECT count(*) FROM workflow_executions"
    shown = makegood("db", "psql", "--", "-At", "-c", query, MAKEGOOD_DATABASE_URL=url)
    assert (shown.returncode, shown.stdout) == (0, "0\n")


def test_db_psql_keeps_the_password_out_of_the_list_of_processes(
    database: Any, server: EmbeddedPostgres, environment: dict[str, str], tmp_path: Path
) -> None:
    url = url_with_password(server, database.read)
    password = read_passwords(server.passfile)["makegood_read"]
    with subprocess.Popen(
        [sys.executable, "-m", "makegood.cli", "db", "psql", "--", "-c", "SELECT pg_sleep(30)"],
        env=environment | {"MAKEGOOD_DATABASE_URL": url},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            command = b""
            deadline = time.monotonic() + 20
            while b"pg_sleep" not in command or b"makegood.cli" in command:  # until it has become psql
                assert time.monotonic() < deadline
                assert process.poll() is None
                command = Path(f"/proc/{process.pid}/cmdline").read_bytes()
                time.sleep(0.02)
            assert password.encode() not in command
        finally:
            process.send_signal(signal.SIGKILL)


# Not ready


@pytest.mark.parametrize(
    "command",
    [["timeline", "order-1"], ["cancel", "order-1", "--reason", "x"], ["db", "status"], ["db", "migrate"]],
    ids=" ".join,
)
def test_dead_database_is_exit_3_and_named(makegood: Run, command: list[str]) -> None:
    url = f"postgresql://me:hunter2@127.0.0.1:{find_free_port()}/shop"
    said = makegood(*command, "--json", MAKEGOOD_DATABASE_URL=url)
    assert said.returncode == 3
    error = json.loads(said.stdout)["error"]
    assert error["type"] == "DatabaseUnavailable"
    assert "cannot connect to PostgreSQL at 127.0.0.1:" in error["message"]
    assert error["hint"]
    assert "hunter2" not in said.stdout + said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize("command", [["timeline", "order-1"], ["db", "migrate"]], ids=" ".join)
def test_wrong_password_is_exit_3_and_not_shown(
    database: Any, server: EmbeddedPostgres, makegood: Run, command: list[str]
) -> None:
    url = url_with_password(server, database.jobs, "hunter2")
    said = makegood(*command, MAKEGOOD_DATABASE_URL=url)
    assert said.returncode == 3
    assert 'password authentication failed for user "makegood_jobs"' in " ".join(said.stderr.split())
    assert "hunter2" not in said.stdout + said.stderr
    assert "Traceback" not in said.stderr


def test_database_that_was_never_migrated_is_exit_3_with_what_to_run(empty_database: str, makegood: Run) -> None:
    said = makegood("timeline", "order-1", MAKEGOOD_DATABASE_URL=empty_database)
    assert said.returncode == 3
    assert "makegood db migrate" in said.stderr


def test_database_that_does_not_exist_is_exit_3(server: EmbeddedPostgres, makegood: Run) -> None:
    said = makegood("db", "status", MAKEGOOD_DATABASE_URL=server.url("postgres", "nowhere"))
    assert said.returncode == 3
    assert 'database "nowhere" does not exist' in " ".join(said.stderr.split())


def test_role_that_may_not_migrate_is_told_which_setting_to_use(database: Any, makegood: Run) -> None:
    said = makegood("db", "migrate", MAKEGOOD_DATABASE_URL=database.read)
    assert said.returncode == 3
    assert "permission denied" in said.stderr
    assert "MAKEGOOD_DATABASE_ADMIN_URL" in said.stderr
    assert "Traceback" not in said.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAKEGOOD_CLAIM_BATCH", "none"),
        ("MAKEGOOD_LOG_LEVEL", "LOUD"),
        ("MAKEGOOD_DATABASE_URL", "postgresql://me:hunter2@host:port/db"),
    ],
)
def test_bad_setting_is_exit_3_and_named(makegood: Run, name: str, value: str) -> None:
    said = makegood("timeline", "order-1", "--json", **{name: value})
    assert said.returncode == 3
    error = json.loads(said.stdout)["error"]
    assert (error["type"], error["message"].partition(":")[0]) == ("ConfigurationError", name)
    assert "hunter2" not in said.stdout + said.stderr


def test_no_server_at_all_is_exit_3_with_what_to_run(makegood: Run) -> None:
    said = makegood("timeline", "order-1")
    assert said.returncode == 3
    assert "make up" in said.stderr


def test_unknown_option_is_exit_2_in_a_real_process(makegood: Run) -> None:
    said = makegood("timeline", "order-1", "--nonsense", "--json")
    assert said.returncode == 2
    assert json.loads(said.stdout)["error"]["type"] == "BadArguments"


# The shop's customers


def test_shop_run_takes_every_order_to_its_end(
    database: Any, makegood: Run, shop_process: ShopProcess, shop: ShopControl
) -> None:
    """With canaries in the settings, and the worker's log at DEBUG."""
    ran = makegood(
        *["shop", "run", "--orders", "20", "--rate", "50", "--faults", "calm", "--json"],
        MAKEGOOD_DATABASE_URL=database.jobs,
        MAKEGOOD_SHOP_PORT=shop_process.url.rpartition(":")[2],
        MAKEGOOD_STRIPE_API_KEY="sk_test_canary4711",
        MAKEGOOD_LOG_LEVEL="DEBUG",
    )
    assert ran.returncode == 0, ran.stderr
    document = json.loads(ran.stdout)
    assert (document["placed"], document["crashes"]) == (20, 0)
    assert sum(document["ended"].values()) == 20
    assert "canary4711" not in ran.stdout + ran.stderr
    ended = database.rows("SELECT count(*) AS n FROM makegood.workflow_executions WHERE finished_at IS NOT NULL")
    assert ended == [{"n": 20}]
    charged = {entry["order_id"] for entry in shop.log() if entry["kind"] == "charge"}
    assert len(charged) == shop.totals()["counts"]["charge"]


def test_shop_run_without_a_shop_is_exit_3_and_named(database: Any, makegood: Run) -> None:
    port = str(find_free_port())
    ran = makegood("shop", "run", "--orders", "1", MAKEGOOD_DATABASE_URL=database.jobs, MAKEGOOD_SHOP_PORT=port)
    assert ran.returncode == 3
    assert f"127.0.0.1:{port}" in ran.stderr
    assert database.rows("SELECT count(*) AS n FROM makegood.workflow_executions") == [{"n": 0}]


@pytest.mark.parametrize(
    ("text", "exit_code"),
    [("the 3rd refund succeeds and then hangs", 0), ("make it rain", 2)],
)
def test_shop_say_adds_a_fault_in_words_or_says_what_is_not_understood(
    makegood: Run, shop_process: ShopProcess, shop: ShopControl, text: str, exit_code: int
) -> None:
    said = makegood("shop", "say", text, MAKEGOOD_SHOP_PORT=shop_process.url.rpartition(":")[2])
    assert said.returncode == exit_code
    assert len(shop.faults()["rules"]) == (1 if exit_code == 0 else 0)


def test_shop_say_without_a_shop_is_exit_3(makegood: Run) -> None:
    said = makegood("shop", "say", "every refund is refused", MAKEGOOD_SHOP_PORT=str(find_free_port()))
    assert said.returncode == 3
    assert "Traceback" not in said.stderr
