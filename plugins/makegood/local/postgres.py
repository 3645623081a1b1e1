"""The embedded PostgreSQL: started once per home, on loopback, with passwords, as an unprivileged account.

Two processes may call anything here at once: a file lock makes them take turns. A server that crashed, a
machine that was switched off and a start that was killed midway are put right by the next start.
Weakness: `kill -9` of a process inside initdb leaves a staging folder behind until the next start removes it.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import LiteralString
from urllib.parse import quote

import psutil
import psycopg
from psycopg import sql

from makegood.errors import ConfigurationError
from makegood.local import logfile, passwords, placement, ports, tuning
from makegood.local.binaries import Binaries, find_binaries, make_reachable
from makegood.local.cluster import Cluster
from makegood.local.lock import exclusive, usable

logger = logging.getLogger(__name__)

DATABASE = "makegood"
START_SECONDS = 60
STOP_SECONDS = 60.0
PORT_TRIES = 3
NOT_RUNNING_HINT = "Run `make up`, or set MAKEGOOD_DATABASE_URL to a server of yours."


class _GoneError(ConfigurationError):
    """The server ended while we waited for it."""


class EmbeddedPostgres:
    """One server per home folder; every method may be called at any time, from any process."""

    def __init__(
        self,
        home: Path,
        *,
        binaries: Path | None = None,
        server_settings: Mapping[str, str] | None = None,
        say: Callable[[str], None] = logger.warning,
    ) -> None:
        self.home = home.absolute()
        self.log = self.home / "logs" / "postgres.log"
        self.passfile = self.home / "postgres.pass"
        self._binaries_prefix = binaries
        self._server_settings = dict(server_settings or {})
        self._say = say

    @property
    def port(self) -> int:
        """The port kept for this home; raises ConfigurationError before the first start."""
        return self._placed().port

    @property
    def data(self) -> Path:
        """The data folder; raises ConfigurationError before the first start."""
        return self._placed().cluster(self.home).data

    def url(self, role: str = "makegood_jobs", database: str = DATABASE) -> str:
        """A libpq URL without a secret: the password is in the file it names."""
        address = f"{quote(role)}@{ports.LOOPBACK}:{self.port}/{quote(database)}"
        return f"postgresql://{address}?sslmode=disable&passfile={quote(str(self.passfile), safe='')}"

    def is_running(self) -> bool:
        """Whether a live server process serves this home's data."""
        return self.find_process() is not None

    def find_process(self) -> psutil.Process | None:
        """The live server process of this home."""
        with usable(self.home):
            cluster = self._find_cluster()
            return cluster.get_postmaster() if cluster else None

    def has_crashed(self) -> bool:
        """Whether it went without a shutdown: its lock file is there and it is not."""
        with usable(self.home):
            cluster = self._find_cluster()
            return bool(cluster and cluster.has_lock_file()) and not self.is_running()

    def start(self) -> bool:
        """The server accepts connections, with its database and roles; False when it was running already."""
        with self._alone():
            return self._start()

    def create_database(self, name: str, owner: str) -> bool:
        """The database is there, of this owner if it is new; False when it was there already."""
        known = passwords.read_passwords(self.passfile)
        with self._alone(), self._connect(self._placed().cluster(self.home), self.port, known) as connection:
            return _create_database(connection, name, owner)

    def stop(self) -> bool:
        """Fast shutdown: open transactions roll back, data are on disk; False when it was not running."""
        with usable(self.home):
            if not self._placement_file.exists():
                return False
        with self._alone():
            cluster = self._find_cluster()
            return cluster is not None and cluster.stop(STOP_SECONDS)

    def wipe(self) -> None:
        """Stop the server and delete its data and passwords; nothing else in the home."""
        if not self.home.exists():
            return
        with self._alone():
            if cluster := self._find_cluster():
                cluster.stop(STOP_SECONDS)
                shutil.rmtree(cluster.folder)
            self._placement_file.unlink(missing_ok=True)
            self.passfile.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        with exclusive(self.home / "run" / "postgres.lock"), usable(self.home):
            yield

    @property
    def _placement_file(self) -> Path:
        return self.home / placement.PLACEMENT

    def _find_cluster(self) -> Cluster | None:
        placed = placement.read_placement(self._placement_file)
        return placed.cluster(self.home) if placed else None

    def _placed(self) -> placement.Placement:
        placed = placement.read_placement(self._placement_file)
        if placed is None:
            raise ConfigurationError(f"There is no embedded PostgreSQL in {self.home} yet", hint=NOT_RUNNING_HINT)
        return placed

    def _start(self) -> bool:
        before = placement.read_placement(self._placement_file)
        known = passwords.read_passwords(self.passfile)
        placed = before or self._remember(placement.place(self.home, made_anew=not known))
        known = known and self._add_missing(placed, known)
        cluster = placed.cluster(self.home)
        if before and known and cluster.get_postmaster():
            with contextlib.suppress(_GoneError):  # it was ending as we looked: start it like any other
                self._finish(cluster, placed, known)
                return False
        cluster.stop(STOP_SECONDS)  # a server whose port or passwords were lost cannot be talked to
        binaries = make_reachable(find_binaries(self._binaries_prefix), cluster.account)
        known = self._prepare(cluster, binaries, placed, known)
        self._finish(cluster, self._launch(cluster, binaries, placed, known), known)
        return True

    def _remember(self, placed: placement.Placement) -> placement.Placement:
        placement.write_placement(self._placement_file, placed)
        return placed

    def _add_missing(self, placed: placement.Placement, known: dict[str, str]) -> dict[str, str]:
        """A role that a newer version brings gets its password; `_finish` then creates it."""
        if not known.keys() >= set(passwords.ROLES):
            known = passwords.new_passwords() | known
            passwords.write_passwords(self.passfile, placed.port, known)
        return known

    def _prepare(
        self, cluster: Cluster, binaries: Binaries, placed: placement.Placement, known: dict[str, str]
    ) -> dict[str, str]:
        """Passwords on disk first, then the data: a kill in between loses nothing."""
        lost = not known
        known = known or passwords.new_passwords()
        passwords.write_passwords(self.passfile, placed.port, known)
        if not cluster.exists():
            sync = self._server_settings.get("fsync") != "off"
            cluster.create(binaries, known[passwords.SUPERUSER], sync=sync)
            return known
        cluster.check_version(binaries)
        cluster.clear_the_dead()
        if lost:
            self._say(f"{self.passfile} was lost; new passwords are set")
            cluster.set_superuser_password(binaries, known[passwords.SUPERUSER])
        return known

    def _launch(
        self, cluster: Cluster, binaries: Binaries, placed: placement.Placement, known: Mapping[str, str]
    ) -> placement.Placement:
        """Start on the kept port; on another, and say so, when somebody else has taken it."""
        for _ in range(PORT_TRIES):
            if not ports.is_free(placed.port):
                placed = self._move(placed, known)
            logfile.rotate(self.log)
            since = logfile.size_of(self.log)
            if self._run_pg_ctl(cluster, binaries, placed):
                return placed
            if "Address already in use" not in "\n".join(logfile.last_lines(self.log, since=since)):
                break
        raise self._failed_to_start(cluster, since)

    def _move(self, placed: placement.Placement, known: Mapping[str, str]) -> placement.Placement:
        moved = replace(placed, port=ports.choose_port())
        holder = ports.describe_holder(placed.port)
        self._say(f"Port {placed.port} is taken by {holder}; PostgreSQL uses {moved.port} from now on")
        passwords.write_passwords(self.passfile, moved.port, known)
        return self._remember(moved)

    def _run_pg_ctl(self, cluster: Cluster, binaries: Binaries, placed: placement.Placement) -> bool:
        settings = tuning.server_settings(tuning.measure(cluster.folder), placed.port, cluster.name)
        cluster.configure(tuning.render(settings | self._server_settings))
        command = ["start", "--silent", "--wait", f"--timeout={START_SECONDS}", "-D", str(cluster.data)]
        with logfile.appending(self.log) as output:
            done = cluster.account.run([binaries.program("pg_ctl"), *command], stdout=output, stderr=output)
        return done.returncode == 0

    def _failed_to_start(self, cluster: Cluster, since: int) -> ConfigurationError:
        lines = "\n".join(logfile.last_lines(self.log, since=since)) or "(nothing was logged)"
        if cluster.get_postmaster() is not None:
            message = f"PostgreSQL is starting but not ready after {START_SECONDS} seconds"
            hint = "It may be recovering after a crash: wait a minute and run `make up` again."
        else:
            message = "PostgreSQL did not start"
            hint = f"The whole log is {self.log}; `makegood doctor` checks the rest."
        return ConfigurationError(f"{message}.\nThe last lines it logged:\n{lines}", hint=hint)

    def _finish(self, cluster: Cluster, placed: placement.Placement, known: Mapping[str, str]) -> None:
        """A real connection, then the database and the roles if any is missing."""
        self.passfile.chmod(0o600)
        logfile.rotate(self.log)
        with self._connect(cluster, placed.port, known) as connection:
            _create_database(connection, DATABASE, passwords.SUPERUSER)
            for role in passwords.LOGIN_ROLES:
                exists = connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [role]).rowcount
                if not (exists and _can_log_in(placed.port, role, known[role])):
                    _set_login(connection, role, known[role], verb="ALTER" if exists else "CREATE")

    def _connect(self, cluster: Cluster, port: int, known: Mapping[str, str]) -> psycopg.Connection[tuple[object, ...]]:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return _connect(port, passwords.SUPERUSER, "postgres", known[passwords.SUPERUSER])
            except psycopg.OperationalError as error:
                if "password authentication failed" in str(error):
                    raise self._wrong_password() from error
                if cluster.get_postmaster() is None:
                    raise _GoneError(*self._failed_to_start(cluster, 0).args) from error
                if time.monotonic() > deadline:
                    raise self._failed_to_start(cluster, 0) from error
            time.sleep(0.1)

    def _wrong_password(self) -> ConfigurationError:
        return ConfigurationError(
            f"The embedded PostgreSQL refuses the password in {self.passfile}",
            hint="Remove that file and run `make up`: new passwords are set, the data stay.",
        )


def _connect(port: int, role: str, database: str, password: str) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(
        host=ports.LOOPBACK,
        port=port,
        user=role,
        dbname=database,
        password=password,
        sslmode="disable",
        connect_timeout=5,
        autocommit=True,
    )


def _create_database(connection: psycopg.Connection[tuple[object, ...]], name: str, owner: str) -> bool:
    """False when it is there already."""
    if connection.execute("SELECT FROM pg_database WHERE datname = %s", [name]).rowcount:
        return False
    statement = sql.SQL("CREATE DATABASE {} OWNER {}")
    connection.execute(statement.format(sql.Identifier(name), sql.Identifier(owner)))
    return True


def _can_log_in(port: int, role: str, password: str) -> bool:
    try:
        _connect(port, role, DATABASE, password).close()
    except psycopg.OperationalError:
        return False
    return True


def _set_login(
    connection: psycopg.Connection[tuple[object, ...]], role: str, password: str, *, verb: LiteralString
) -> None:
    """Only the scram verifier is sent, so that no log can ever hold the password."""
    verifier = connection.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
    statement = sql.SQL("{} ROLE {} LOGIN PASSWORD {}")
    connection.execute(statement.format(sql.SQL(verb), sql.Identifier(role), sql.Literal(verifier)))
