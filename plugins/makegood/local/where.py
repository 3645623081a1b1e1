"""Where the database is: embedded under the home folder, or the one that MAKEGOOD_DATABASE_URL names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from makegood.errors import ConfigurationError
from makegood.local.postgres import NOT_RUNNING_HINT, EmbeddedPostgres
from makegood.settings import Settings, get_settings

Role = Literal["jobs", "read", "act"]


def find_home(settings: Settings | None = None) -> Path:
    """MAKEGOOD_HOME, else the nearest `.makegood` at or above the current folder, as git finds its own."""
    home = (settings or get_settings()).home
    if home.is_absolute() or "MAKEGOOD_HOME" in os.environ:
        return home.absolute()
    here = Path.cwd()
    return next((folder / home for folder in (here, *here.parents) if (folder / home).is_dir()), here / home)


def database_url(role: Role = "jobs") -> str:
    """A libpq URL to work, read or act with; raises ConfigurationError when the embedded server is down."""
    settings = get_settings()
    own = {"jobs": None, "read": settings.database_read_url, "act": settings.database_act_url}[role]
    external = own or settings.database_url
    return external.get_secret_value() if external else _embedded_url(f"makegood_{role}")


def admin_url() -> str:
    """A libpq URL whose role may migrate."""
    settings = get_settings()
    external = settings.database_admin_url or settings.database_url
    return external.get_secret_value() if external else _embedded_url("postgres")


def _embedded_url(role: str) -> str:
    server = EmbeddedPostgres(find_home())
    if not server.is_running():
        raise ConfigurationError("The embedded PostgreSQL is not running", hint=NOT_RUNNING_HINT)
    os.environ.pop("PGPASSWORD", None)  # meant for some other server, it would win over our password file
    return server.url(role)
