"""Airflow's metadata database: made, migrated when the installed Airflow asks for it, with a pool per service.

The pools are written to the table that Airflow reads: its command line takes seconds to do the same.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path

import psycopg

from makegood.errors import ConfigurationError
from makegood.local import airflow_settings, logfile
from makegood.local.reach import connect, reach
from makegood.settings import get_settings

MIGRATE_SECONDS_MAX = 600.0
CLEAN_SECONDS_MAX = 300.0
CLEAN_EVERY_SECONDS = 86400.0
CLEAN_BATCH = 10_000  # rows to a transaction: tasks go on beside it
# What a run leaves. Not the DAGs and their versions, which the runs that are kept refer to.
CLEANED = ("asset_event", "dag_run", "import_error", "job", "log", "task_instance", "task_instance_history", "xcom")
# What `airflow db migrate` does. That command first notes itself in a table, which is not there yet.
MIGRATE = "from airflow.utils.db import upgradedb; upgradedb()"
REVISION = re.compile(r"""^(revision|down_revision)\b[^=]*=\s*["']([^"']+)["']""", re.MULTILINE)

Connection = psycopg.Connection[tuple[object, ...]]

POOL_SLOTS = 1  # one batch at a time, with many calls in it; a person may change it, and it stays
HOUSEKEEPING, HOUSEKEEPING_SLOTS = "makegood_housekeeping", 2  # two jobs begin in the same second
POOLS = {
    HOUSEKEEPING: "Beginnings and ends of jobs, which wait for no provider",
    "makegood_payments": "Calls to the payment provider",
    "makegood_inventory": "Calls to the inventory service",
    "makegood_shipping": "Calls to the shipping service",
    "makegood_other": "Calls of workflow types of your own",
    "makegood_reconciliation": "Fetching the provider's books, and putting right what differs",
    "makegood_compensations": "Undos of completed steps",
}
ADD_POOL = """
INSERT INTO slot_pool (pool, slots, description, include_deferred) VALUES (%s, %s, %s, false)
ON CONFLICT (pool) DO NOTHING
"""


def prepare(address: str, home: Path, environment: Mapping[str, str]) -> list[str]:
    """The tables are those of the installed Airflow and the pools are there; returns what had to be done."""
    reach(address)  # a wrong address is said in one line, before Airflow says it in a hundred
    done = []
    stamp = airflow_settings.folder_of(home) / "migrated"
    version = metadata.version("apache-airflow-core")
    if not _is_current(address, stamp, version):
        _migrate(home, environment)
        stamp.write_text(version + "\n")
        done.append(f"migrated to {version}")
    with connect(address) as connection:
        if added := add_pools(connection):
            done.append(f"{added} pools")
    return done


def drop_old(home: Path, environment: Mapping[str, str], *, days_max: float) -> bool:
    """Records of runs older than this are gone, at most once a day; returns whether anything was tried.

    A failure is in the log and is tried again the next day: the records only cost room.
    """
    stamp = airflow_settings.folder_of(home) / "cleaned"
    if stamp.exists() and time.time() - stamp.stat().st_mtime < CLEAN_EVERY_SECONDS:
        return False
    stamp.touch()  # before: one that hangs or is killed must not be tried every few minutes
    before = datetime.now(UTC) - timedelta(days=days_max)
    words = ("db", "clean", "--clean-before-timestamp", before.isoformat(timespec="seconds"), "--skip-archive", "--yes")
    options = ("--batch-size", str(CLEAN_BATCH), "--tables", ",".join(CLEANED))
    _run_logged(home, "airflow-clean", ["-m", "airflow", *words, *options], environment, CLEAN_SECONDS_MAX)
    return True


def add_pools(connection: Connection) -> int:
    """Every pool is there; one that is keeps its slots. Returns how many were added."""
    rows = [connection.execute(ADD_POOL, [name, slots_of(name), what]).rowcount for name, what in POOLS.items()]
    return sum(rows)


def slots_of(pool: str) -> int:
    """What a pool comes with. All together are what runs at once here, so that none keeps another one waiting."""
    return HOUSEKEEPING_SLOTS if pool == HOUSEKEEPING else POOL_SLOTS


def find_head(folder: Path) -> str | None:
    """The revision in these migration files that no other builds on; None when that is not exactly one.

    Read as text: importing them means importing Airflow, which takes as long as migrating.
    """
    found = [dict(REVISION.findall(path.read_text())) for path in folder.glob("*.py")]
    revisions = {file["revision"] for file in found if "revision" in file}
    heads = revisions - {file.get("down_revision") for file in found}
    return heads.pop() if len(heads) == 1 else None


def get_revision(connection: Connection) -> str | None:
    """The revision the database is at; None when nothing was ever migrated."""
    if connection.execute("SELECT to_regclass('alembic_version')").fetchone() == (None,):
        return None
    row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    return str(row[0]) if row else None


def _is_current(address: str, stamp: Path, version: str) -> bool:
    """Both must agree: the database about its tables, the stamp about what a migration does besides them."""
    if not stamp.exists() or stamp.read_text().strip() != version:
        return False
    head = find_head(_migration_files())
    with connect(address) as connection:
        return head is not None and get_revision(connection) == head


def _migration_files() -> Path:
    spec = importlib.util.find_spec("airflow")  # found, not imported
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (versions := Path(folder) / "migrations" / "versions").is_dir():
            return versions
    raise ConfigurationError("Airflow is not installed", hint="Run `make up`: it installs the lock.")


def _migrate(home: Path, environment: Mapping[str, str]) -> None:
    log = home / "logs" / "airflow-migrate.log"
    since = logfile.size_of(log)
    how = _run_logged(home, "airflow-migrate", ["-c", MIGRATE], environment, MIGRATE_SECONDS_MAX)
    if how != f"ended with {os.EX_OK}":
        lines = "\n".join(logfile.last_lines(log, since=since))
        raise ConfigurationError(
            f"The migration of Airflow's database {how}.\nThe last lines it logged:\n{lines}",
            hint=f"The whole log is {log}; once mended, run `make up` again, or `makegood up --no-airflow`.",
        )


def _run_logged(
    home: Path, name: str, arguments: Sequence[str], environment: Mapping[str, str], seconds_max: float
) -> str:
    """How it ended, within its time; what it says is in its log."""
    with logfile.appending(home / "logs" / f"{name}.log") as output:
        try:
            done = subprocess.run(  # noqa: S603 - a fixed program, no shell
                [sys.executable, *arguments],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                check=False,
                timeout=seconds_max,
            )
        except subprocess.TimeoutExpired:
            return f"took more than {seconds_max:.0f} s"
    return f"ended with {done.returncode}"


def main() -> None:
    """Where somebody else migrates Airflow's database (docker-compose.yml), the pools are still ours to add."""
    address = get_settings().airflow_database_url
    if address is None:
        raise ConfigurationError(
            "MAKEGOOD_AIRFLOW_DATABASE_URL is not set",
            hint="It names the database of the Airflow that needs the pools.",
        )
    with connect(address.get_secret_value()) as connection:
        print(f"{add_pools(connection)} pools added")


if __name__ == "__main__":
    main()
