"""The same migration and the same whole run on every PostgreSQL at hand, for a login that is no superuser."""

from __future__ import annotations

import importlib.util
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from database_worker import Worker
from psycopg import sql

from makegood import migrations
from makegood.errors import ConfigurationError
from makegood.local import binaries
from makegood.local.postgres import EmbeddedPostgres

# A test's server does not outlive it, so nothing has to reach the disk.
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "shared_buffers": "32MB"}
DEBIAN_15 = Path("/usr/lib/postgresql/15")
SHOP = "shop"


def find_version(major: int) -> Path:
    if major == 15:
        if not (DEBIAN_15 / "bin" / "postgres").exists():
            pytest.skip("PostgreSQL 15 is not installed; Debian 12: apt install postgresql-15")
        return DEBIAN_15
    spec = importlib.util.find_spec(binaries.PACKAGE)
    assert spec is not None
    (package,) = spec.submodule_search_locations or []
    return Path(package) / {16: "pginstall", 18: binaries.FOLDER}[major]


@dataclass(frozen=True)
class Deployed:
    """A database that its own deployer made and migrated; the server's superuser did nothing but let it in."""

    major: int
    deployer: str
    jobs: str
    read: str
    applied: list[str]


@pytest.fixture(scope="module", params=[15, 16, 18])
def deployed(request: pytest.FixtureRequest) -> Iterator[Deployed]:
    prefix = find_version(request.param)
    folder = Path(tempfile.mkdtemp(prefix="makegood-versions-"))
    folder.chmod(0o755)  # the server's account must be able to pass through
    server = EmbeddedPostgres(folder / "home", binaries=prefix, server_settings=FAST)
    try:
        server.start()
        yield deploy(server, request.param)
    finally:
        server.wipe()
        shutil.rmtree(folder)


def deploy(server: EmbeddedPostgres, major: int) -> Deployed:
    password = secrets.token_hex(16)
    with Worker(server.url("postgres", "postgres")) as admin:
        for role in (
            "makegood_jobs",
            "makegood_read",
            "makegood_act",
        ):  # the embedded server's own: here nobody made them yet
            admin.rows(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
        admin.rows(sql.SQL("CREATE ROLE deployer LOGIN CREATEROLE CREATEDB PASSWORD {}").format(sql.Literal(password)))
    as_deployer = {"user": "deployer", "password": password}
    with Worker(psycopg.conninfo.make_conninfo(server.url("postgres", "postgres"), **as_deployer)) as deployer:
        deployer.rows(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(SHOP)))
    url = server.url("postgres", SHOP)
    own = psycopg.conninfo.make_conninfo(url, **as_deployer)
    applied = migrations.migrate(own)
    with Worker(own) as deployer:
        for role in ("makegood_jobs", "makegood_read"):  # as sql/roles.sql tells a DBA to
            give = sql.SQL("ALTER ROLE {} LOGIN PASSWORD {}")
            deployer.rows(give.format(sql.Identifier(role), sql.Literal(password)))
    jobs, read = (
        psycopg.conninfo.make_conninfo(url, user=role, password=password) for role in ("makegood_jobs", "makegood_read")
    )
    return Deployed(major, own, jobs, read, applied)


def test_migration_by_a_login_that_is_no_superuser_makes_its_database_current(deployed: Deployed) -> None:
    with Worker(deployed.deployer) as deployer:
        assert deployer.connection.info.server_version // 10_000 == deployed.major
        assert deployer.row("SELECT rolsuper FROM pg_roles WHERE rolname = current_user") == {"rolsuper": False}
    assert deployed.applied[-1] == "functions and grants"
    assert migrations.get_status(deployed.deployer).current
    assert migrations.migrate(deployed.deployer) == []


def test_migration_of_an_older_version_by_a_login_that_is_no_superuser_is_done_again(deployed: Deployed) -> None:
    with Worker(deployed.deployer) as deployer:
        deployer.rows("COMMENT ON TABLE makegood.alembic_version IS 'Scripts: of an older version'")
    assert migrations.migrate(deployed.deployer) == ["functions and grants"]


def test_run_to_the_end_works_as_on_the_embedded_version(deployed: Deployed) -> None:
    with Worker(deployed.jobs) as jobs:
        jobs.register()
        order = jobs.do(jobs.started("order-1"), "charge", "reserve", "ship")
        assert jobs.read(order)["current_state"] == "completed"
        assert jobs.cancel("order-1") == "too_late"
    with Worker(deployed.read) as read:
        (row,) = read.rows("SELECT timeline('order-1') AS story")
        assert [hop["seq"] for hop in row["story"]["transitions"]] == [1, 2, 3, 4, 5, 6, 7]


def test_run_back_to_the_start_works_as_on_the_embedded_version(deployed: Deployed) -> None:
    with Worker(deployed.jobs) as jobs:
        jobs.register()
        order = jobs.do(jobs.started("order-2"), "charge", "reserve")
        assert jobs.cancel("order-2") == "requested"
        assert jobs.begin(order, "ship")["verdict"] == "cancel"
        assert jobs.compensate(order, ["charge", "reserve"]) == "moved"
        for step in ("reserve", "charge"):
            assert jobs.begin_undo(order, step)["verdict"] == "go"
            assert jobs.finish_undo(order, step) == "moved"
        assert jobs.transition(order, "compensated")


def test_migration_of_a_server_that_is_too_old_is_refused_with_the_versions(
    deployed: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "VERSIONS_OLDEST", 19)
    with pytest.raises(ConfigurationError, match=f"The server is PostgreSQL {deployed.major}"):
        migrations.migrate(deployed.deployer)
