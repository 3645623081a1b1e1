"""Scratch databases for a benchmark: migrated, gone afterwards."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from makegood import migrations


@dataclass(frozen=True)
class Scratch:
    """One migrated database, for the one who prepares it and for the jobs."""

    name: str
    admin_url: str
    jobs_url: str


@contextlib.contextmanager
def scratch_database(admin_url: str, jobs_url: str) -> Iterator[Scratch]:
    name = f"makegood_bench_{secrets.token_hex(4)}"
    with psycopg.connect(admin_url, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    try:
        scratch = Scratch(name, make_conninfo(admin_url, dbname=name), make_conninfo(jobs_url, dbname=name))
        migrations.migrate(scratch.admin_url)
        yield scratch
    finally:
        with psycopg.connect(admin_url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))


def to_url(conninfo: str) -> str:
    """postgresql://… of a connection string, for clients that take nothing else."""
    parts = conninfo_to_dict(conninfo)
    user, host, port, name = (parts.get(key, "") for key in ("user", "host", "port", "dbname"))
    password = f":{parts['password']}" if parts.get("password") else ""
    rest = "&".join(f"{key}={parts[key]}" for key in ("passfile", "sslmode") if parts.get(key))
    return f"postgresql://{user}{password}@{host}:{port}/{name}" + (f"?{rest}" if rest else "")
