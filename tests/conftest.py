"""One real PostgreSQL and one real shop for all tests; every test that asks gets a database of its own."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import structlog
from databases import DatabaseUrls
from psycopg import sql
from psycopg.conninfo import make_conninfo

from makegood import migrations
from makegood.local.postgres import EmbeddedPostgres
from makegood.settings import Settings
from sandbox.client import ShopControl, ShopProcess

TEMPLATE = "makegood_template"
LONGEST = frozenset({"test_airflow_recovers.py", "test_crash_proof.py", "test_dag_runs.py"})
# What a crash of the machine would need; a test's server does not outlive it.
ROLES = ("postgres", "makegood_jobs", "makegood_read", "makegood_act")
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


def pytest_configure(config: pytest.Config) -> None:
    """No variable of the person who runs the tests may change what they test."""
    for name in [name for name in os.environ if name.startswith("MAKEGOOD_") and name != "MAKEGOOD_CI"]:
        del os.environ[name]
    # Hundreds of processes are started; each would compile Airflow and the library anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that with several workers none of them is the last to be waited for."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """In CI everything is installed, so a skipped test is a failure."""
    report = yield
    if os.environ.get("MAKEGOOD_CI") and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report


@pytest.fixture(autouse=True)
def _logs_of_its_own() -> Iterator[None]:
    """A command that was run in this process has set up logs for its own stderr, which is closed by now."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """The embedded server, with a migrated template database."""
    postgres = EmbeddedPostgres(tmp_path_factory.mktemp("server"), server_settings=FAST)
    postgres.start()
    try:
        admin = postgres.url("postgres")
        with psycopg.connect(admin, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
        migrations.migrate(postgres.url("postgres", TEMPLATE))
        yield postgres
    finally:
        postgres.wipe()  # its data may lie outside pytest's folders, where an unprivileged user can read


@pytest.fixture
def database(server: EmbeddedPostgres) -> Iterator[DatabaseUrls]:
    """A fresh migrated database, gone after the test."""
    name = f"test_{secrets.token_hex(6)}"
    admin = server.url("postgres")
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(TEMPLATE))
        )
    urls = [make_conninfo(server.url(role), dbname=name) for role in ROLES]
    yield DatabaseUrls(*urls)
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.fixture(scope="session")
def shop_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShopProcess]:
    with ShopProcess(tmp_path_factory.mktemp("shop")) as process:
        yield process


@pytest.fixture
def shop(shop_process: ShopProcess) -> Iterator[ShopControl]:
    """The running shop, empty and calm."""
    with ShopControl(shop_process.url) as control:
        control.reset()
        yield control


@pytest.fixture
def settings(shop_process: ShopProcess, tmp_path: Path) -> Settings:
    url = shop_process.url
    return Settings(home=tmp_path, stripe_api_base=url, inventory_url=url, shipping_url=url)
