"""The embedded server's passwords, in libpq's password file: mode 600, written before the server exists."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from makegood.local.ports import LOOPBACK

SUPERUSER = "postgres"
LOGIN_ROLES = ("makegood_jobs", "makegood_read")
ROLES = (SUPERUSER, *LOGIN_ROLES)


def read_passwords(path: Path) -> dict[str, str]:
    """Role to password; empty when there is no file or it is not whole."""
    if not path.exists():
        return {}
    fields = [line.split(":") for line in path.read_text().splitlines() if line and not line.startswith("#")]
    found = {row[3]: row[4] for row in fields if len(row) == 5}
    return found if set(ROLES) <= found.keys() else {}


def new_passwords() -> dict[str, str]:
    return {role: secrets.token_urlsafe(32) for role in ROLES}


def write_passwords(path: Path, port: int, passwords: Mapping[str, str]) -> None:
    """Replace the file in one step; at no moment is it readable by others, as libpq demands."""
    staged = path.with_name(path.name + ".new")
    staged.unlink(missing_ok=True)
    with os.fdopen(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.writelines(f"{LOOPBACK}:{port}:*:{role}:{passwords[role]}\n" for role in ROLES)
        file.flush()
        os.fsync(file.fileno())
    staged.replace(path)
