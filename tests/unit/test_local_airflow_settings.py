"""Airflow's configuration, health and migrations, as far as they can be known without running it."""

from __future__ import annotations

import base64
import configparser
import json
import stat
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from makegood.local import airflow, airflow_settings
from makegood.local.airflow import API_SERVER, DAG_PROCESSOR, NAMES, SCHEDULER, find_airflow_services, is_healthy
from makegood.local.airflow_database import HOUSEKEEPING, POOLS, find_head, slots_of
from makegood.local.airflow_settings import plain_settings, render, sqlalchemy_url, write_files
from makegood.settings import Settings

OWN = "postgresql://me:se%3Acret@db.example:5433/flow"
PLACED = {"id": "x", "port": 23456, "folder": "postgres"}


@pytest.fixture(autouse=True)
def dags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dags").mkdir()
    monkeypatch.setattr(airflow, "DAGS", tmp_path / "dags")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """As after the first start of the embedded server; its name has what has to be escaped."""
    home = tmp_path / "my home 100%"
    home.mkdir()
    (home / "postgres.json").write_text(json.dumps(PLACED))
    return home


def own_settings() -> Settings:
    return Settings(database_url=OWN, airflow_database_url=OWN)


def read(home: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(home / "airflow" / "airflow.cfg")
    return parser


def test_embedded_database_is_reached_through_psycopg_without_a_password_in_the_address(home: Path) -> None:
    write_files(Settings(), home)
    for option, driver in (("sql_alchemy_conn", "psycopg"), ("sql_alchemy_conn_async", "psycopg_async")):
        url = make_url(read(home)["database"][option])
        assert url.drivername == f"postgresql+{driver}"
        assert (url.username, url.password, url.host, url.port) == ("makegood_airflow", None, "127.0.0.1", 23456)
        assert url.database == "airflow"
        assert url.query["passfile"] == str(home / "postgres.pass")


def test_password_of_an_own_database_moves_to_a_file_that_libpq_reads(home: Path) -> None:
    write_files(own_settings(), home)
    url = make_url(read(home)["database"]["sql_alchemy_conn"])
    assert (url.username, url.password, url.host, url.database) == ("me", None, "db.example", "flow")
    passfile = Path(str(url.query["passfile"]))
    assert passfile.read_text() == "*:*:*:*:se\\:cret\n"
    assert stat.S_IMODE(passfile.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("postgresql://h/d", "postgresql+psycopg://h/d"),
        ("postgresql://u:p@h:5433/d", "postgresql+psycopg://u@h:5433/d?passfile=%2Fpass"),
        ("host=h user='u u' dbname=d", "postgresql+psycopg://u%20u@h/d"),  # libpq's other form
        ("postgresql://u@h/d?sslmode=require", "postgresql+psycopg://u@h/d?sslmode=require"),
        ("postgresql://u@a:1,b:2/d", "postgresql+psycopg://u@/d?host=a%2Cb&port=1%2C2"),  # several servers
        ("host=/run/postgresql dbname=d", "postgresql+psycopg:///d?host=%2Frun%2Fpostgresql"),  # a socket
    ],
)
def test_address_for_sqlalchemy_names_the_same_database(address: str, url: str) -> None:
    assert sqlalchemy_url(address, Path("/pass"), driver="psycopg") == url


def test_secrets_are_made_once_and_kept_from_others(home: Path) -> None:
    write_files(Settings(), home)
    files = [path for path in (home / "airflow").rglob("*") if path.is_file()]
    before = {path: path.read_bytes() for path in files}
    write_files(Settings(), home)
    assert {path: path.read_bytes() for path in files} == before
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert stat.S_IMODE((home / "airflow").stat().st_mode) == 0o700
    assert len(base64.urlsafe_b64decode(read(home)["core"]["fernet_key"])) == 32
    assert len(airflow_settings.read_password(home)) >= 16


@pytest.mark.parametrize("damage", ["", "{", "[]"])
def test_damaged_secrets_are_made_anew(home: Path, damage: str) -> None:
    write_files(Settings(), home)
    (home / "airflow" / "secrets.json").write_text(damage)
    (home / "airflow" / "passwords.json").write_text(damage)
    write_files(Settings(), home)
    assert read(home)["api_auth"]["jwt_secret"]
    assert airflow_settings.read_password(home)


def test_secrets_are_in_no_environment_and_on_no_command_line(home: Path) -> None:
    write_files(Settings(), home)
    hidden = [
        *json.loads((home / "airflow" / "secrets.json").read_text()).values(),
        airflow_settings.read_password(home),
    ]
    for service in find_airflow_services(Settings(), home):
        shown = " ".join((*service.command, *service.env.values(), *service.facts))
        assert not [secret for secret in hidden if secret in shown]


def test_file_reads_back_as_it_was_meant() -> None:
    hidden = {"fernet_key": "f", "secret_key": "s", "jwt_secret": "j"}
    parser = configparser.ConfigParser()
    parser.read_string(render({"core": {"dags_folder": "/my home 100%/dags"}}, hidden))
    assert dict(parser["core"]) == {"dags_folder": "/my home 100%/dags", "fernet_key": "f"}
    assert (parser["api"]["secret_key"], parser["api_auth"]["jwt_secret"]) == ("s", "j")


def test_everything_listens_on_loopback_at_the_port_that_is_set(home: Path) -> None:
    settings = Settings(airflow_port=8099)
    plain = plain_settings(settings, home)
    assert (plain["api"]["host"], plain["api"]["port"]) == ("127.0.0.1", "8099")
    assert plain["core"]["execution_api_server_url"] == "http://127.0.0.1:8099/execution/"
    services = {service.name: service for service in find_airflow_services(settings, home)}
    assert tuple(services) == NAMES
    assert (services[API_SERVER].port, services[API_SERVER].address) == (8099, "http://127.0.0.1:8099")
    assert services[SCHEDULER].needs == (API_SERVER,)
    assert "--skip-serve-logs" in services[SCHEDULER].command


def test_own_server_without_a_database_for_airflow_leaves_it_out(home: Path) -> None:
    settings = Settings(database_url=OWN)
    assert "MAKEGOOD_AIRFLOW_DATABASE_URL" in str(airflow.why_left_out(settings))
    assert find_airflow_services(settings, home) == []
    assert airflow.why_left_out(own_settings()) is None


def test_without_dags_there_is_nothing_to_run(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(airflow, "DAGS", home / "nowhere")
    assert "no DAGs" in str(airflow.why_left_out(Settings()))


HEARD = b"""{"metadatabase": {"status": "healthy"},
  "scheduler": {"status": "healthy", "latest_scheduler_heartbeat": "1970-01-01T00:01:40+00:00"},
  "dag_processor": {"status": null, "latest_dag_processor_heartbeat": null}}"""


@pytest.mark.parametrize(
    ("answer", "part", "since", "well"),
    [
        (HEARD, "metadatabase", 0.0, True),
        (HEARD, "scheduler", 100.0, True),
        (HEARD, "scheduler", 101.0, False),  # that was the one before
        (HEARD, "dag_processor", 0.0, False),  # not heard of yet
        (HEARD.replace(b"healthy", b"unhealthy"), "scheduler", 0.0, False),
        (HEARD.replace(b"healthy", b"unhealthy"), "metadatabase", 0.0, False),
        (None, "metadatabase", 0.0, False),  # the API server itself
        (None, "scheduler", 0.0, True),  # nobody to ask is no evidence against it
        (b"<html>", "scheduler", 0.0, False),  # something else lives there
        (b"[]", "metadatabase", 0.0, False),
    ],
)
def test_health_is_what_airflow_says_of_the_process_of_now(
    answer: bytes | None, part: str, since: float, well: bool
) -> None:
    assert is_healthy(answer, part, since) is well


def test_service_is_started_anew_when_its_configuration_changes(home: Path) -> None:
    def facts(settings: Settings) -> tuple[str, ...]:
        write_files(settings, home)
        (found,) = (service for service in find_airflow_services(settings, home) if service.name == DAG_PROCESSOR)
        return found.facts

    assert facts(Settings()) == facts(Settings())
    assert facts(Settings()) != facts(Settings(airflow_port=8099))


@pytest.mark.parametrize(
    ("files", "head"),
    [
        ({"1": 'revision = "a"\ndown_revision = None\n', "2": "revision = 'b'\ndown_revision = 'a'\n"}, "b"),
        ({"1": 'revision: str = "a"\n', "2": 'revision: str = "b"\ndown_revision: str | None = "a"\n'}, "b"),
        ({"1": 'revision = "a"\n', "2": 'revision = "b"\n'}, None),  # two heads: better to run the migration
        ({"__init__": ""}, None),
    ],
)
def test_head_of_migration_files_is_the_one_nothing_builds_on(
    tmp_path: Path, files: dict[str, str], head: str | None
) -> None:
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    assert find_head(tmp_path) == head


def test_pools_are_one_per_service_and_one_for_what_waits_for_none_with_words() -> None:
    names = ("compensations", "housekeeping", "inventory", "other", "payments", "shipping")
    assert {f"makegood_{name}" for name in names} <= POOLS.keys()
    assert all(POOLS.values())


def test_as_many_tasks_run_at_once_as_all_pools_have_slots_so_that_none_can_starve_another(tmp_path: Path) -> None:
    at_once = int(plain_settings(Settings(), tmp_path)["core"]["parallelism"])
    assert sum(slots_of(name) for name in POOLS) <= at_once
    assert slots_of(HOUSEKEEPING) > 1
