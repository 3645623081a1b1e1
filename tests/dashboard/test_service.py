"""The dashboard as a service of `make up`: on loopback, well without a database, and gone when stopped."""

from __future__ import annotations

from pathlib import Path

import httpx
import psutil
import pytest

from dashboard import __main__ as program
from makegood.local import ports
from makegood.local.services import DASHBOARD, dashboard, find_services
from makegood.local.supervisor import State, Supervisor
from makegood.settings import Settings


def test_dashboard_comes_up_on_loopback_without_a_database_and_goes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = ports.choose_port()
    monkeypatch.setenv("STREAMLIT_SERVER_ADDRESS", "0.0.0.0")  # somebody else's: it must not open ours to the world
    service = dashboard(Settings(dashboard_port=port))
    supervisor = Supervisor(tmp_path)
    assert supervisor.start([service]) == [DASHBOARD]
    try:
        (status,) = supervisor.status([service])
        assert (status.state, status.address) == (State.RUNNING, f"http://127.0.0.1:{port}")
        listening = psutil.Process(status.pid).net_connections("tcp")
        assert {found.laddr.ip for found in listening if found.status == psutil.CONN_LISTEN} == {"127.0.0.1"}
        answer = httpx.get(f"http://127.0.0.1:{port}/", trust_env=False)
        assert answer.status_code == 200
        assert "x-frame-options" not in answer.headers  # Airflow shows it inside its own page
        assert supervisor.start([service]) == []
    finally:
        assert supervisor.stop() == [DASHBOARD]
    assert ports.is_free(port)


def test_dashboard_is_one_of_the_services_and_its_port_a_setting(tmp_path: Path) -> None:
    (found,) = (s for s in find_services(Settings(dashboard_port=8777), tmp_path) if s.name == DASHBOARD)
    assert (found.port, found.port_setting) == (8777, "MAKEGOOD_DASHBOARD_PORT")


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ({}, "http://127.0.0.1:8501"),
        ({"dashboard_port": 8777}, "http://127.0.0.1:8777"),
        ({"dashboard_url": ""}, "http://127.0.0.1:8501"),
        ({"dashboard_port": 8777, "dashboard_url": "https://ops.example"}, "https://ops.example"),
    ],
)
def test_address_in_alerts_follows_the_port_unless_it_is_set(given: dict[str, object], address: str) -> None:
    assert Settings(**given).dashboard_url == address  # type: ignore[arg-type]


def test_nothing_is_told_to_the_outside_and_no_stack_to_a_viewer() -> None:
    options = program.options(8501, "127.0.0.1")
    assert options["browser.gatherUsageStats"] == "false"
    assert options["client.showErrorDetails"] == "none"
    assert options["server.enableXsrfProtection"] == "true"
    assert options["server.fileWatcherType"] == "none"
    assert not [name for name, value in options.items() if "://" in value]
