"""Airflow's configuration: one file in the home, made of plain settings and of secrets that are made once.

`AIRFLOW_HOME=.makegood/airflow .venv/bin/airflow …` works by hand with the same file. It holds the secrets, so
that they are in no environment and on no command line; the address of the database holds no password either.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

from psycopg.conninfo import conninfo_to_dict

from makegood.local.passwords import AIRFLOW_ROLE
from makegood.local.placement import find_port
from makegood.local.ports import LOOPBACK
from makegood.local.postgres import EmbeddedPostgres
from makegood.local.private import make_private_folder, write_private
from makegood.settings import Settings

PROJECT = Path(__file__).resolve().parents[3]
DAGS = PROJECT / "dags"
PLUGINS = PROJECT / "plugins"
DATABASE = "airflow"
USER = "admin"

Sections = dict[str, dict[str, str]]

# Every task makes a dozen requests, every parsed file says when its next run is: nobody reads that, disks keep it.
QUIET = (
    "airflow.api_fastapi.execution_api",
    "airflow.models.dag",
    "airflow.sdk.api.client",
    "airflow.serialization.definitions.dag",
    "http.access",
    "supervisor",
)
# Airflow's hook for such things, run before its logs are set up, which would undo a level but keeps a filter. The
# warning comes at every start with any server but SQLite; ours serves loopback, its password file is closed.
LOCAL_SETTINGS = """# Rewritten at every `make up`.
import logging

__all__ = ()

logging.getLogger("airflow.api_fastapi.auth.managers.simple.simple_auth_manager").addFilter(
    lambda record: "looks like production" not in record.msg
)
"""


def folder_of(home: Path) -> Path:
    return home / "airflow"


def file_of(home: Path) -> Path:
    return folder_of(home) / "airflow.cfg"


def logs_of(home: Path) -> Path:
    """Of tasks and of parsed files; the components' own logs are beside those of the other services."""
    return folder_of(home) / "logs"


def login_file(home: Path) -> Path:
    return folder_of(home) / "passwords.json"


def read_password(home: Path) -> str:
    """The password of the user `admin`; raises KeyError or OSError when there is none yet."""
    return str(json.loads(login_file(home).read_text())[USER])


def find_database(settings: Settings, home: Path) -> str | None:
    """The libpq address of Airflow's database, which may hold a password; None when there is none to use."""
    if not settings.embedded:
        return settings.airflow_database_url.get_secret_value() if settings.airflow_database_url else None
    return EmbeddedPostgres(home).url(AIRFLOW_ROLE, DATABASE) if find_port(home) else None


def plain_settings(settings: Settings, home: Path) -> Sections:
    """Everything but the secrets; a setting that differs from Airflow's own has its reason beside it."""
    address = find_database(settings, home)
    folder, url = folder_of(home), settings.airflow_url
    return {
        "core": {
            "dags_folder": str(DAGS),
            "plugins_folder": str(PLUGINS),
            "load_examples": "False",
            "dags_are_paused_at_creation": "False",  # a job that nobody switched on recovers nothing
            "executor": "LocalExecutor",
            # As many as all pools have slots, so that a provider that hangs keeps nobody else waiting. Each is a
            # process with an interpreter, whose work is mostly waiting for answers.
            "parallelism": "8",
            "simple_auth_manager_users": f"{USER}:admin",
            "simple_auth_manager_passwords_file": str(login_file(home)),
            "execution_api_server_url": f"{url}/execution/",
            "min_serialized_dag_update_interval": "5",  # a changed file is seen at once; there are few
        },
        "database": {
            **_addresses(address, home),
            "sql_alchemy_pool_size": "2",  # per process, of which there are a dozen
            "sql_alchemy_max_overflow": "8",
        },
        "logging": {
            "base_log_folder": str(logs_of(home)),
            "dag_processor_child_process_log_directory": str(logs_of(home) / "dag_processor"),
            "namespace_levels": " ".join(f"{name}=WARNING" for name in QUIET),
        },
        "api": {
            "host": LOOPBACK,
            "port": str(settings.airflow_port),
            "base_url": url,
            "workers": "1",
        },
        "dag_processor": {
            "refresh_interval": "30",  # new files
            "min_file_process_interval": "30",  # changed files
            "parsing_processes": "1",  # the files are few, the cores are the tasks'
            "print_stats_interval": "0",
            "dag_bundle_storage_path": str(folder / "bundles"),
        },
    }


def write_files(settings: Settings, home: Path) -> None:
    """The configuration as it should be now; secrets and the password that are there stay."""
    make_private_folder(folder_of(home) / "config")
    make_private_folder(folder_of(home))
    _write_if_changed(folder_of(home) / "config" / "airflow_local_settings.py", LOCAL_SETTINGS)
    hidden = _keep(folder_of(home) / "secrets.json", new_secrets())
    _keep(login_file(home), {USER: secrets.token_urlsafe(12)})
    if password := conninfo_to_dict(find_database(settings, home) or "").get("password"):
        _write_if_changed(_passfile(home), f"*:*:*:*:{_escaped(str(password))}\n")
    _write_if_changed(file_of(home), render(plain_settings(settings, home), hidden))


def new_secrets() -> dict[str, str]:
    """By the names `render` knows them under."""
    return {
        "fernet_key": base64.urlsafe_b64encode(os.urandom(32)).decode(),  # the form Airflow's Fernet wants
        "secret_key": secrets.token_urlsafe(32),
        "jwt_secret": secrets.token_urlsafe(64),
    }


def render(plain: Sections, hidden: Mapping[str, str]) -> str:
    """The settings as Airflow's configuration file."""
    sections = {name: dict(options) for name, options in plain.items()}
    for section, option in (("core", "fernet_key"), ("api", "secret_key"), ("api_auth", "jwt_secret")):
        sections.setdefault(section, {})[option] = hidden[option]
    lines = ["# Rewritten at every `make up`, from plugins/makegood/local/airflow_settings.py."]
    for name, options in sections.items():
        lines += ["", f"[{name}]", *(f"{option} = {value.replace('%', '%%')}" for option, value in options.items())]
    return "\n".join(lines) + "\n"


def _addresses(address: str | None, home: Path) -> dict[str, str]:
    if address is None:
        return {}
    return {
        "sql_alchemy_conn": sqlalchemy_url(address, _passfile(home), driver="psycopg"),
        "sql_alchemy_conn_async": sqlalchemy_url(address, _passfile(home), driver="psycopg_async"),
    }


def sqlalchemy_url(address: str, passfile: Path, *, driver: str) -> str:
    """The same database for SQLAlchemy; a password in it moves to the password file, which is named instead."""
    parts = {name: str(value) for name, value in conninfo_to_dict(address).items()}
    if parts.pop("password", None) is not None:
        parts["passfile"] = str(passfile)
    user, database = quote(parts.pop("user", ""), safe=""), quote(parts.pop("dbname", ""), safe="")
    where = f"{user}@" if user else ""
    if not set(",/").intersection(parts.get("host", ",")):  # several servers and sockets go with the rest
        where += parts.pop("host") + (f":{port}" if (port := parts.pop("port", "")) else "")
    rest = f"?{urlencode(parts, quote_via=quote)}" if parts else ""
    return f"postgresql+{driver}://{where}/{database}{rest}"


def _passfile(home: Path) -> Path:
    return folder_of(home) / "database.pass"


def _escaped(password: str) -> str:
    """As libpq reads its password file."""
    return password.replace("\\", "\\\\").replace(":", "\\:")


def _keep(path: Path, new: dict[str, str]) -> dict[str, str]:
    """What the file holds, with what is new added; a damaged file counts as empty."""
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        found = {}
    kept = new | found if isinstance(found, dict) else new
    _write_if_changed(path, json.dumps(kept) + "\n")
    return kept


def _write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        write_private(path, text)
