"""What the doctor asks the database: reachable, a version we know, migrated, our rights, its clock."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psycopg

from makegood.errors import MakegoodError
from makegood.local import where
from makegood.local.check import Check, fail, ok, warn
from makegood.local.order_checks import check_orders
from makegood.local.reach import connect, describe

SKEW_SECONDS_MAX = 2.0
VERSIONS = range(14, 19)

Connection = psycopg.Connection[tuple[object, ...]]

RIGHTS = """
SELECT rolsuper,
       has_schema_privilege(current_user, 'makegood', 'USAGE'),
       has_table_privilege(current_user, 'makegood.workflow_executions', 'SELECT'),
       (SELECT count(*) FROM pg_proc p WHERE p.pronamespace = 'makegood'::regnamespace
                                         AND NOT has_function_privilege(current_user, p.oid, 'EXECUTE'))
FROM pg_roles WHERE rolname = current_user
"""


def check_database() -> Iterator[Check]:
    """Stops at the first thing without which the others cannot be known."""
    try:
        url = where.database_url()
        connection = connect(url)
    except MakegoodError as error:
        yield fail("database", str(error), error.hint or "Run `makegood up`.")
        return
    with connection:
        yield check_version(connection.info.server_version // 10000, describe(url))
        migrations = check_migrations()
        yield migrations
        if not migrations.blocks:
            yield check_rights(connection)
            yield check_orders(connection)
        yield check_clock(connection)


def check_version(major: int, address: str) -> Check:
    if major in VERSIONS:
        return ok("database", f"PostgreSQL {major} at {address}")
    detail = f"PostgreSQL {major} at {address} is not one of {VERSIONS[0]} to {VERSIONS[-1]}"
    return fail("database", detail, "Point MAKEGOOD_DATABASE_URL at a supported server, or unset it.")


def check_migrations() -> Check:
    from makegood.migrations import get_status  # noqa: PLC0415 - Alembic takes a while to import

    try:
        status = get_status(where.admin_url())
    except (psycopg.Error, MakegoodError) as error:
        todo = "Set MAKEGOOD_DATABASE_ADMIN_URL to a role that may migrate."
        return fail("migrations", str(error).strip(), todo)
    if status.current:
        return ok("migrations", f"current, {status.revision}")
    return fail("migrations", f"at {status.revision or 'none'}, wanted {status.head}", "Run `makegood db migrate`.")


def check_rights(connection: Connection) -> Check:
    """The jobs' role can use our schema, and can do no more than that."""
    row = connection.execute(RIGHTS).fetchone()
    superuser, schema, tables, refused = row or (False, False, False, 0)
    user = connection.info.user
    if superuser:
        return warn("rights", f"{user} is a superuser", "Use a role that has been granted makegood_jobs only.")
    if not (schema and tables) or refused:
        return fail("rights", f"{user} may not use all of the schema makegood", f"GRANT makegood_jobs TO {user};")
    return ok("rights", f"{user} may run the jobs")


def check_clock(connection: Connection) -> Check:
    """Decisions use the database's clock; a skewed machine only misleads whoever compares logs."""
    before = time.time()
    row = connection.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
    middle = (before + time.time()) / 2
    skew = abs(float(str(row[0])) - middle) if row else 0.0
    if skew > SKEW_SECONDS_MAX:
        return warn("clock", f"{skew:.1f} s apart from the database's", "Set this machine's clock (NTP).")
    return ok("clock", f"{skew:.2f} s apart from the database's")
