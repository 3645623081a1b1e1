"""The services `make up` runs today; a further one is a further value here."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from makegood.local.airflow import find_airflow_services
from makegood.local.placement import find_port
from makegood.local.service import Service, code_stamp
from makegood.settings import Settings

DASHBOARD = "dashboard"
KEEPER = "keeper"
ORDERS_PER_SECOND = "2"  # enough to see life within seconds, little enough to leave running for days
# What a killed worker had is left to recovery for so long, and is stuck after a minute: it is seen at work soon.
TAKE_OVER_AFTER_SECONDS = "600"
# And what differs from the provider's books shows in the next report, not in tomorrow's.
DEMO = {
    "MAKEGOOD_STUCK_AFTER_SECONDS": "60",
    "MAKEGOOD_RECONCILE_CHARGE_GRACE_SECONDS": "60",
    "MAKEGOOD_RECONCILE_REFUND_GRACE_SECONDS": "300",
}


def find_services(settings: Settings, home: Path) -> list[Service]:
    """In the order a person would name them; the supervisor orders them by need."""
    services = [shop(settings, home), traffic(home), dashboard(settings), *find_airflow_services(settings, home)]
    services = [replace(service, env={**_demo(settings), **service.env}) for service in services]
    return [*services, keeper(home, tuple(service.name for service in services))]


def _demo(settings: Settings) -> Mapping[str, str]:
    """Only with the shop's own data, and never against what somebody has set."""
    return {name: value for name, value in DEMO.items() if name not in os.environ} if settings.embedded else {}


def shop(settings: Settings, home: Path) -> Service:
    """The shop in a box: payments, inventory and shipping on loopback."""
    where = ("--port", str(settings.shop_port), "--data", str(home / "shop"))
    return Service(
        name="shop",
        command=(sys.executable, "-m", "sandbox", *where),
        health=f"{settings.shop_url}/health",
        address=settings.shop_url,
        data=home / "shop",
        port=settings.shop_port,
        port_setting="MAKEGOOD_SHOP_PORT",
        facts=(code_stamp("sandbox"),),
    )


def traffic(home: Path) -> Service:
    """Live checkouts against the shop, with faults, so that there is something to see."""
    weather = ("--rate", ORDERS_PER_SECOND, "--faults", "stormy", "--take-over-after", TAKE_OVER_AFTER_SECONDS)
    mishaps = "--mishaps"  # so that the reconciliation has something true to find
    return Service(
        name="traffic",
        command=(sys.executable, "-m", "makegood.cli", "shop", "run", "--forever", *weather, mishaps),
        needs=("shop",),
        facts=(code_stamp("makegood"), str(find_port(home))),
    )


def keeper(home: Path, others: tuple[str, ...]) -> Service:
    """Starts again what falls. It needs the others so that it starts after them, and stops before."""
    return Service(
        name=KEEPER,
        command=(sys.executable, "-m", "makegood.local.keeper"),
        needs=others,
        facts=(code_stamp("makegood"), str(find_port(home))),
    )


def dashboard(settings: Settings) -> Service:
    """The pages, on loopback. They need nobody: without a database they say so, and wait for it."""
    address = f"http://127.0.0.1:{settings.dashboard_port}"
    return Service(
        name=DASHBOARD,
        command=(sys.executable, "-m", "dashboard", "--port", str(settings.dashboard_port)),
        health=f"{address}/_stcore/health",
        address=address,
        port=settings.dashboard_port,
        port_setting="MAKEGOOD_DASHBOARD_PORT",
        facts=(code_stamp("dashboard"), code_stamp("makegood")),
    )
