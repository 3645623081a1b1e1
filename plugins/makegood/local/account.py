"""The account the server runs as: PostgreSQL refuses root, so root lends it an unprivileged one."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from makegood.errors import ConfigurationError

CANDIDATES = ("postgres", "nobody")
# The caller's PG* variables (PGDATA, PGPORT, PGOPTIONS …) must not reach the server's own programs.
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC", "HOME": "/"}


@dataclass(frozen=True)
class Account:
    """Whom programs run as; ``other`` is False when that is simply whoever called us."""

    uid: int
    gid: int
    name: str
    other: bool

    def run(self, command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run to the end with a clean environment; the exit code is the caller's to judge."""
        if self.other:
            options |= {"user": self.uid, "group": self.gid, "extra_groups": []}
        if "input" not in options:
            options["stdin"] = subprocess.DEVNULL
        try:
            return subprocess.run(  # noqa: S603 - our own programs, no shell
                [str(part) for part in command],
                cwd="/",  # the caller's folder may be closed to the account
                env=ENVIRONMENT,
                text=True,
                check=False,
                **options,
            )
        except OSError as error:  # not there, or closed to the account
            return subprocess.CompletedProcess([str(part) for part in command], 126, "", str(error))

    def can_run(self, program: Path) -> bool:
        """Whether the account can reach and execute a program: tried, not guessed from modes."""
        return self.run([program, "--version"], capture_output=True).returncode == 0

    def can_write(self, folder: Path) -> bool:
        """Whether the account can reach and write a folder."""
        test = 'test -w "$0" && test -x "$0" && test -r "$0"'
        return self.run(["/bin/sh", "-c", test, folder], capture_output=True).returncode == 0

    def make_folder(self, folder: Path) -> Path:
        """Create a folder, and its parents, that only the account may open."""
        folder.mkdir(parents=True, exist_ok=True)
        self.own(folder)
        folder.chmod(0o700)
        return folder

    def write(self, path: Path, text: str) -> None:
        """Replace a file in one step, readable by the account alone."""
        staged = path.with_name(path.name + ".new")
        staged.unlink(missing_ok=True)
        with os.fdopen(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        self.own(staged)
        staged.replace(path)

    def own(self, path: Path) -> None:
        if self.other:
            os.chown(path, self.uid, self.gid)


def choose_account(data: Path) -> Account:
    """Ourselves; for root, the owner of the data there is, else the first unprivileged account there is."""
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid(), "", other=False)
    if data.exists() and (owner := data.stat()).st_uid != 0:
        return Account(owner.st_uid, owner.st_gid, str(owner.st_uid), other=True)
    for name in CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid, name, other=True)
    raise ConfigurationError(
        f"PostgreSQL does not run as root, and none of the accounts {', '.join(CANDIDATES)} exists",
        hint="Run as an ordinary user, or create one of these accounts.",
    )
