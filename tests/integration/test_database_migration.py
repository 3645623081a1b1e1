"""A migration brings any database to the one shape, once, whoever runs it and however many do."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from database_worker import MIGRATED, Worker, open_database
from psycopg import sql

from makegood import migrations
from makegood.local.binaries import find_binaries
from makegood.local.postgres import EmbeddedPostgres

MIGRATE = "import json, sys; from makegood import migrations; print(json.dumps(migrations.migrate(sys.argv[1])))"

# What a database looks like from outside, each as rows of text. Object ids and column numbers are left out.
CATALOGUE = {
    "columns": """
        SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity::text,
               pg_get_expr(d.adbin, d.adrelid), a.attacl::text, col_description(c.oid, a.attnum)
          FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
          LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
         WHERE c.relnamespace = 'makegood'::regnamespace AND c.relkind IN ('r', 'v') AND a.attnum > 0""",
    "relations": """
        SELECT relname, relkind::text, pg_get_userbyid(relowner), relacl::text, reloptions::text,
               obj_description(oid, 'pg_class')
          FROM pg_class WHERE relnamespace = 'makegood'::regnamespace""",
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid)
          FROM pg_constraint WHERE connamespace = 'makegood'::regnamespace""",
    "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'makegood'",
    "functions": """
        SELECT pg_get_functiondef(oid), pg_get_userbyid(proowner), proacl::text, obj_description(oid, 'pg_proc')
          FROM pg_proc WHERE pronamespace = 'makegood'::regnamespace""",
    "triggers": """
        SELECT pg_get_triggerdef(t.oid), t.tgenabled::text
          FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
         WHERE c.relnamespace = 'makegood'::regnamespace AND NOT t.tgisinternal""",
    "schema": """
        SELECT nspname, pg_get_userbyid(nspowner), nspacl::text, obj_description(oid, 'pg_namespace')
          FROM pg_namespace WHERE nspname = 'makegood'""",
    "revisions": "SELECT version_num FROM makegood.alembic_version",
    "currencies": "SELECT code, exponent FROM makegood.currencies",
}


def read_catalogue(url: str) -> dict[str, list[tuple[object, ...]]]:
    with psycopg.connect(url) as connection:
        return {name: sorted(connection.execute(query).fetchall(), key=repr) for name, query in CATALOGUE.items()}


@pytest.fixture
def empty(server: EmbeddedPostgres) -> Iterator[str]:
    """A database in which nothing has run yet."""
    with open_database(server, template="template1") as name:
        yield server.url("postgres", name)


def test_migration_of_an_empty_database_makes_it_current(empty: str) -> None:
    before = migrations.get_status(empty)
    assert (before.revision, before.current) == (None, False)
    applied = migrations.migrate(empty)
    assert applied[0].startswith("0001 ")
    assert applied[-1] == "functions and grants"
    after = migrations.get_status(empty)
    assert (after.revision, after.scripts_current, after.current) == (after.head, True, True)


def test_migration_again_does_nothing(server: EmbeddedPostgres) -> None:
    with open_database(server) as name:
        url = server.url("postgres", name)
        before = read_catalogue(url)
        assert migrations.migrate(url) == []
        assert read_catalogue(url) == before


def test_migration_of_an_older_version_installs_functions_and_grants_anew(server: EmbeddedPostgres) -> None:
    with open_database(server) as name:
        url = server.url("postgres", name)
        before = read_catalogue(url)
        with Worker(url) as admin:
            admin.rows("DROP FUNCTION makegood.timeline(text, text)")
            admin.rows("GRANT UPDATE ON makegood.workflow_transitions TO makegood_read")
            admin.rows("COMMENT ON TABLE makegood.alembic_version IS 'Scripts: of an older version'")
        assert not migrations.get_status(url).current
        assert migrations.migrate(url) == ["functions and grants"]
        assert read_catalogue(url) == before


def test_migration_that_fails_midway_leaves_nothing(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "_scripts", lambda: "SELECT 1 / 0")
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrations.migrate(empty)
    assert migrations.get_status(empty).revision is None
    with Worker(empty) as admin:
        assert admin.rows("SELECT 1 FROM pg_namespace WHERE nspname = 'makegood'") == []


def wait_for_waiting(door: psycopg.Connection[tuple[object, ...]], count: int) -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    for _ in range(3000):
        if door.execute(waiting).fetchone() == (count,):
            return
        door.execute("SELECT pg_sleep(0.01)")
    raise AssertionError(f"there were never {count} migrations waiting")


def test_migrations_of_two_processes_at_once_converge(server: EmbeddedPostgres, empty: str) -> None:
    """Both are held at the door until both are there."""
    command = [sys.executable, "-c", MIGRATE, empty]
    with psycopg.connect(empty, autocommit=True) as door:
        door.execute("SELECT pg_advisory_lock(%s)", (migrations._LOCK,))
        both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        wait_for_waiting(door, 2)
        door.execute("SELECT pg_advisory_unlock(%s)", (migrations._LOCK,))
        answers = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    applied = sorted(json.loads(output) for output, _ in answers)
    assert applied[0] == []
    assert applied[1][-1] == "functions and grants"
    assert read_catalogue(empty) == read_catalogue(server.url("postgres", MIGRATED))


def test_migration_while_another_database_of_the_server_is_migrated_does_not_meet_it(
    server: EmbeddedPostgres, empty: str
) -> None:
    """Roles belong to the whole server, and two writers of one role's row end in an error: what is there stays."""
    bounded = psycopg.conninfo.make_conninfo(empty, options="-c lock_timeout=2s")
    with psycopg.connect(server.url("postgres", "postgres")) as other:
        for role in ("makegood_owner", "makegood_jobs", "makegood_read", "makegood_act"):
            other.execute(sql.SQL("ALTER ROLE {} SET search_path = makegood").format(sql.Identifier(role)))
        assert migrations.migrate(bounded)[-1] == "functions and grants"
        other.rollback()


def test_printed_sql_through_psql_gives_the_same_database(server: EmbeddedPostgres, empty: str, tmp_path: Path) -> None:
    script = tmp_path / "makegood.sql"
    script.write_text(migrations.print_sql(), encoding="utf-8")
    psql = [str(find_binaries().program("psql")), "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1"]
    done = subprocess.run([*psql, f"--file={script}", empty], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert read_catalogue(empty) == read_catalogue(server.url("postgres", MIGRATED))
    assert migrations.get_status(empty).current
    assert migrations.migrate(empty) == []


@pytest.mark.parametrize("role", ["makegood_jobs", "makegood_read"])
def test_status_asked_by_any_of_our_roles_is_answered(server: EmbeddedPostgres, role: str) -> None:
    with open_database(server) as name:
        assert migrations.get_status(server.url(role, name)).current


def test_migration_by_a_login_that_may_not_is_refused_and_leaves_nothing(server: EmbeddedPostgres) -> None:
    login, password = f"stranger_{secrets.token_hex(4)}", secrets.token_hex(16)
    with open_database(server, template="template1") as name, Worker(server.url("postgres", name)) as admin:
        admin.rows(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(login), sql.Literal(password)))
        url = psycopg.conninfo.make_conninfo(server.url("postgres", name), user=login, password=password)
        try:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                migrations.migrate(url)
            assert migrations.get_status(url).revision is None
        finally:
            admin.rows(sql.SQL("DROP ROLE {}").format(sql.Identifier(login)))
