"""Brings a database to the shape this version expects: all of it in one transaction, or nothing.

Revisions (``sql/migrations``) run once, in order, forward only. Functions and grants (``sql/functions``,
``sql/grants.sql``) are installed anew whenever their text changed. Everything is plain SQL, and
``print_sql`` gives a DBA the whole of it to read and run.
"""

from __future__ import annotations

import functools
import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy
from alembic import command, context, op
from alembic.config import Config
from alembic.script import ScriptDirectory

from makegood.errors import ConfigurationError

# Any fixed number of ours: two migrations at once wait for each other.
_LOCK = 0x6D616B65676F6F64
VERSIONS_OLDEST, VERSIONS_NEWEST = 14, 18


@dataclass(frozen=True)
class Status:
    """What a database has and what this version wants."""

    revision: str | None
    head: str
    scripts_current: bool

    @property
    def current(self) -> bool:
        return self.revision == self.head and self.scripts_current


def migrate(url: str) -> list[str]:
    """Applies what is missing and returns its names; an empty list means it was current already."""
    with psycopg.connect(url) as plain:
        _check_server_version(plain)
    applied: list[str] = []
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=functools.partial(psycopg.connect, url))
    try:
        with engine.connect() as connection, connection.begin():
            config = _config()
            config.attributes.update(connection=connection, applied=applied)
            command.upgrade(config, "head")
    finally:
        engine.dispose()
    return applied


def print_sql() -> str:
    """The SQL of a migration from nothing, for a DBA to read and run with psql."""
    out = io.StringIO()
    config = _config()
    config.output_buffer = out
    command.upgrade(config, "head", sql=True)
    return out.getvalue()


def get_status(url: str) -> Status:
    """Reads only; a database that was never migrated has revision None."""
    with psycopg.connect(url) as connection:
        head = ScriptDirectory.from_config(_config()).get_current_head() or ""
        if connection.execute("SELECT to_regclass('makegood.alembic_version')").fetchone() == (None,):
            return Status(None, head, False)
        row = connection.execute("SELECT version_num FROM makegood.alembic_version").fetchone()
        return Status(row[0] if row else None, head, _installed_hash(connection) == _scripts_hash())


def run_file(name: str) -> None:
    """Runs one file of ``sql/`` inside a revision, or prints it when there is no connection."""
    _run((sql_folder() / name).read_text(encoding="utf-8"))


def run_online() -> None:
    connection = context.config.attributes["connection"]
    applied: list[str] = context.config.attributes["applied"]
    driver = connection.connection.driver_connection
    driver.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    before = _revision(driver)
    if before is None or _installed_hash(driver) != _scripts_hash():
        driver.execute(_read("roles.sql"))
    driver.execute("SET LOCAL ROLE makegood_owner")
    context.configure(connection=connection, version_table_schema="makegood", on_version_apply=_remember(applied))
    with context.begin_transaction():
        context.run_migrations()
        # After any revision too: what it created is granted to nobody yet, and its functions to everybody.
        if applied or _installed_hash(driver) != _scripts_hash():
            driver.execute(_scripts())
            applied.append("functions and grants")
    driver.execute("RESET ROLE")


def print_offline() -> None:
    context.configure(dialect_name="postgresql", version_table_schema="makegood", transactional_ddl=True)
    with context.begin_transaction():
        write = context.get_context().impl.static_output
        write(_read("roles.sql"))
        write("SET LOCAL ROLE makegood_owner;")
        context.run_migrations()
        write(_scripts())
        write("RESET ROLE;")


@functools.cache
def sql_folder() -> Path:
    """``sql/`` beside the checkout's ``plugins/``, or inside an installed package."""
    here = Path(__file__).resolve()
    for folder in (here.parents[2] / "sql", here.parent / "sql"):
        if (folder / "migrations" / "env.py").is_file():
            return folder
    raise ConfigurationError(
        "The folder sql/ with the migrations was not found.",
        hint="Run this command from a checkout of makegood, or install its wheel.",
    )


def _run(script: str) -> None:
    if context.is_offline_mode():
        context.get_context().impl.static_output(script)
    else:
        # The driver itself: SQLAlchemy would read a percent sign or a colon as a parameter.
        driver: Any = op.get_bind().connection.driver_connection
        driver.execute(script)


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(sql_folder() / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _read(name: str) -> str:
    return (sql_folder() / name).read_text(encoding="utf-8")


def _scripts() -> str:
    """Functions and grants, and the note of which version of them is installed."""
    files = [path.read_text(encoding="utf-8") for path in sorted((sql_folder() / "functions").glob("*.sql"))]
    note = f"COMMENT ON TABLE makegood.alembic_version IS 'Which migrations ran. Scripts: {_scripts_hash()}';\n"
    return "\n".join([*files, _read("grants.sql"), note])


@functools.cache
def _scripts_hash() -> str:
    digest = hashlib.sha256()
    for path in [*sorted((sql_folder() / "functions").glob("*.sql")), sql_folder() / "grants.sql"]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _installed_hash(connection: psycopg.Connection) -> str | None:
    row = connection.execute("SELECT obj_description(to_regclass('makegood.alembic_version'), 'pg_class')").fetchone()
    return row[0].rpartition("Scripts: ")[2] if row and row[0] else None


def _revision(connection: psycopg.Connection) -> str | None:
    if connection.execute("SELECT to_regclass('makegood.alembic_version')").fetchone() == (None,):
        return None
    row = connection.execute("SELECT version_num FROM makegood.alembic_version").fetchone()
    return row[0] if row else None


def _remember(applied: list[str]):  # type: ignore[no-untyped-def]  # Alembic's callback takes whatever it grows
    def on_version_apply(*, step, **_):  # type: ignore[no-untyped-def]
        applied.append(f"{step.up_revision_id} {step.up_revision.doc}")

    return on_version_apply


def _check_server_version(connection: psycopg.Connection) -> None:
    major = connection.info.server_version // 10000
    if not VERSIONS_OLDEST <= major <= VERSIONS_NEWEST:
        raise ConfigurationError(
            f"The server is PostgreSQL {major}; makegood needs {VERSIONS_OLDEST} to {VERSIONS_NEWEST}.",
            hint="Point MAKEGOOD_DATABASE_URL at a supported server, or unset it to use the embedded one.",
        )
