"""The embedded server's passwords, in libpq's password file: mode 600, written before the server exists."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path

from makegood.local.ports import LOOPBACK
from makegood.local.private import write_private

SUPERUSER = "postgres"
AIRFLOW_ROLE = "makegood_airflow"
LOGIN_ROLES = ("makegood_jobs", "makegood_read", "makegood_act", AIRFLOW_ROLE)
ROLES = (SUPERUSER, *LOGIN_ROLES)


def read_passwords(path: Path) -> dict[str, str]:
    """Role to password; empty when there is no file or the superuser is not in it: nothing could be mended then."""
    if not path.exists():
        return {}
    fields = [line.split(":") for line in path.read_text().splitlines() if line and not line.startswith("#")]
    found = {row[3]: row[4] for row in fields if len(row) == 5}
    return found if SUPERUSER in found else {}


def new_passwords() -> dict[str, str]:
    return {role: secrets.token_urlsafe(32) for role in ROLES}


def write_passwords(path: Path, port: int, passwords: Mapping[str, str]) -> None:
    """Replace the file in one step; at no moment is it readable by others, as libpq demands."""
    write_private(path, "".join(f"{LOOPBACK}:{port}:*:{role}:{passwords[role]}\n" for role in ROLES))
