"""One PostgreSQL data folder: made whole or not at all, and the processes that serve it."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from makegood.errors import ConfigurationError
from makegood.local.account import Account
from makegood.local.binaries import Binaries
from makegood.local.passwords import SUPERUSER
from makegood.local.processes import is_alive, signal_if_there, wait_gone

HBA = "# Rewritten at every start: a password from everybody.\nhost all all 127.0.0.1/32 scram-sha-256\n"
INCLUDE = "\ninclude = 'makegood.conf'\n"
ORPHANS_LEAVE_SECONDS = 5.0


@dataclass(frozen=True)
class Cluster:
    """A folder that only the account may open, with the data in ``data``."""

    folder: Path
    name: str
    account: Account

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def exists(self) -> bool:
        return (self.data / "PG_VERSION").exists()

    def create(self, binaries: Binaries, password: str, *, sync: bool = True) -> None:
        """Run initdb under another name and rename, so that a kill in between leaves nothing half made."""
        staging = self.folder / "staging"
        shutil.rmtree(staging, ignore_errors=True)
        self.account.make_folder(staging)
        self.account.write(staging / "password", password + "\n")
        command = _initdb(binaries, staging)
        done = self.account.run(command if sync else [*command, "--no-sync"], capture_output=True)
        if done.returncode != 0:
            shutil.rmtree(staging, ignore_errors=True)
            raise _failed(f"The database could not be created in {self.folder}", done.stderr or done.stdout)
        with (staging / "data" / "postgresql.conf").open("a") as file:
            file.write(INCLUDE)
        (staging / "data").rename(self.data)
        shutil.rmtree(staging)

    def check_version(self, binaries: Binaries) -> None:
        """Raises ConfigurationError when another major version made the data: PostgreSQL cannot read them."""
        made_by = (self.data / "PG_VERSION").read_text().strip()
        if made_by != str(binaries.major):
            raise ConfigurationError(
                f"The data in {self.data} were made by PostgreSQL {made_by}, and this is {binaries.version}",
                hint=f"Dump them with PostgreSQL {made_by} and load them again, or wipe with `make reset`.",
            )

    def configure(self, settings: str) -> None:
        self.account.write(self.data / "makegood.conf", settings)
        self.account.write(self.data / "pg_hba.conf", HBA)

    def set_superuser_password(self, binaries: Binaries, password: str) -> None:
        """For a lost password file: whoever owns the data may set a new one while the server is stopped."""
        statement = f"ALTER ROLE {SUPERUSER} PASSWORD '{password}'\n"
        command = [str(binaries.program("postgres")), "--single", "-D", str(self.data), "postgres"]
        done = self.account.run(command, input=statement, capture_output=True)
        if done.returncode != 0:
            raise _failed(f"A new password could not be set in {self.data}", done.stderr)

    def get_postmaster(self) -> psutil.Process | None:
        """The live server of this folder; a pid that now belongs to another process is not it."""
        try:
            process = psutil.Process(int((self.data / "postmaster.pid").read_text().split("\n", 1)[0]))
            return process if _serves(process, self.data) else None
        except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
            return None

    def has_lock_file(self) -> bool:
        return (self.data / "postmaster.pid").exists()

    def clear_the_dead(self) -> None:
        """After a crash: drop a lock file whose server is gone, and see its orphaned processes out.

        PostgreSQL refuses to start when the number in its lock file is any live process of the same account.
        """
        if self.get_postmaster() is not None:
            return
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        staying = wait_gone(list(self._find_processes()), ORPHANS_LEAVE_SECONDS)
        for process in staying:
            signal_if_there(process, signal.SIGKILL)
        wait_gone(staying, ORPHANS_LEAVE_SECONDS)

    def stop(self, wait_seconds: float) -> bool:
        """Fast shutdown, and harder when it is not heard within the bound; False when nothing was running."""
        process = self.get_postmaster()
        if process is None:
            return False
        for how in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
            signal_if_there(process, how)
            if not wait_gone([process], wait_seconds):
                break
        return True

    def _find_processes(self) -> Iterator[psutil.Process]:
        title = f"postgres: {self.name}: "
        for process in psutil.process_iter(["cmdline"]):
            if (process.info["cmdline"] or [""])[0].startswith(title):
                yield process


def _serves(process: psutil.Process, data: Path) -> bool:
    if not is_alive(process) or "postgres" not in process.name():
        return False
    try:
        return bool(process.cwd() == str(data.resolve()))
    except psutil.AccessDenied:  # root in a container may not look at another account's folder
        return str(data) in process.cmdline()


def _initdb(binaries: Binaries, staging: Path) -> list[str | Path]:
    # The built-in provider needs no locale of the system and sorts the same everywhere.
    built_in = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] if binaries.major >= 17 else []
    return [
        binaries.program("initdb"),
        *("-D", staging / "data", "--username", SUPERUSER, "--pwfile", staging / "password"),
        *("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--data-checksums", *built_in),
    ]


def _failed(what: str, output: str) -> ConfigurationError:
    lines = "\n".join(output.strip().splitlines()[-8:])
    return ConfigurationError(f"{what}:\n{lines}", hint="Free some space or set MAKEGOOD_HOME to another folder.")
