"""docker-compose.yml is whole: there is no Docker engine in CI, so what can be wrong without one is looked at here."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from makegood.local.airflow_database import POOLS, slots_of
from makegood.settings import PREFIX, Settings

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
# The compose specification's names for what is used here; a typing error is not among them.
TOP = {"services", "volumes", "configs"}
KEYS = {"image", "build", "restart", "environment", "command", "depends_on", "healthcheck", "ports", "volumes"} | {
    "configs",
    "network_mode",
}
CONDITIONS = {"service_healthy", "service_completed_successfully"}


def test_everything_that_makes_up_a_house_is_there() -> None:
    airflow = {"airflow-api-server", "airflow-dag-processor", "airflow-scheduler"}
    assert SERVICES.keys() == {"postgres", "migrate", "shop", "traffic", "dashboard", *airflow}
    assert {key for key in COMPOSE if not key.startswith("x-")} == TOP


@pytest.mark.parametrize("name", SERVICES)
def test_service_says_only_what_compose_knows(name: str) -> None:
    assert SERVICES[name].keys() <= KEYS
    assert SERVICES[name]["image"] in {"makegood", "postgres:18"}


@pytest.mark.parametrize("name", SERVICES)
def test_service_waits_for_services_that_are_there_and_can_be_waited_for(name: str) -> None:
    for needed, how in SERVICES[name].get("depends_on", {}).items():
        assert needed in SERVICES
        assert how["condition"] in CONDITIONS
        if how["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[needed]
        else:
            assert SERVICES[needed]["restart"] == "no"


@pytest.mark.parametrize("name", SERVICES)
def test_service_uses_what_is_declared_and_mounts_what_exists(name: str) -> None:
    for mount in SERVICES[name].get("volumes", []):
        source = mount.split(":")[0]
        assert (ROOT / source).is_dir() if source.startswith(".") else source in COMPOSE["volumes"]
    for config in SERVICES[name].get("configs", []):
        assert config["source"] in COMPOSE["configs"]


@pytest.mark.parametrize("name", SERVICES)
def test_service_is_reached_from_this_machine_only(name: str) -> None:
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[name].get("ports", []))


@pytest.mark.parametrize("name", SERVICES)
def test_settings_of_a_service_exist(name: str) -> None:
    ours = [key for key in SERVICES[name].get("environment", {}) if key.startswith(PREFIX)]
    assert {key.removeprefix(PREFIX).lower() for key in ours} <= Settings.model_fields.keys()


def test_programs_exist() -> None:
    commands = [service["command"] for service in SERVICES.values() if "command" in service]
    lines = [command[2].splitlines() if command[0] == "sh" else [" ".join(command)] for command in commands]
    for line in (line for found in lines for line in found):
        program, *words = line.split()
        if program == "python":
            assert importlib.util.find_spec(words[1]) is not None
        elif program == "makegood":
            assert (ROOT / "plugins" / "makegood" / "cli" / f"{words[0]}.py").is_file()
        else:
            assert program == "airflow"


def test_secrets_have_no_default_and_are_asked_for() -> None:
    used = set(re.findall(r"\$\{([A-Z_]+)", TEXT))
    assert used == set(re.findall(r"\$\{([A-Z_]+):\?", TEXT)) == {"POSTGRES_PASSWORD", "AIRFLOW_JWT_SECRET"}
    assert ":-" not in TEXT


def test_airflow_runs_as_many_tasks_at_once_as_its_pools_have_slots() -> None:
    """Fewer, and batches that hang would keep the begin, the alerts and the end of every run waiting."""
    slots = sum(map(slots_of, POOLS))
    for name in ("airflow-scheduler", "airflow-api-server", "airflow-dag-processor"):
        assert SERVICES[name]["environment"]["AIRFLOW__CORE__PARALLELISM"] == str(slots)


def test_dags_and_plugins_of_the_project_are_what_airflow_reads() -> None:
    for name in ("airflow-dag-processor", "airflow-scheduler", "airflow-api-server"):
        environment, mounts = SERVICES[name]["environment"], SERVICES[name]["volumes"]
        for folder in ("dags", "plugins"):
            assert f"./{folder}:{environment[f'AIRFLOW__CORE__{folder.upper()}_FOLDER']}:ro" in mounts
