"""The services `make up` runs today; a further one is a further value here."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from makegood.local.placement import find_port
from makegood.local.service import Service
from makegood.settings import Settings

ORDERS_PER_SECOND = "2"  # enough to see life within seconds, little enough to leave running for days


def find_services(settings: Settings, home: Path) -> list[Service]:
    """In the order a person would name them; the supervisor orders them by need."""
    return [shop(settings, home), traffic(home)]


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
    run = ("shop", "run", "--forever", "--rate", ORDERS_PER_SECOND, "--faults", "stormy")
    return Service(
        name="traffic",
        command=(sys.executable, "-m", "makegood.cli", *run),
        needs=("shop",),
        facts=(code_stamp("makegood"), str(find_port(home))),
    )


def code_stamp(package: str) -> str:
    """Changes when the package's code does, so that `make up` after an update runs the new code."""
    spec = importlib.util.find_spec(package)
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    files = [path.stat() for folder in folders for path in folder.rglob("*.py")]
    return f"{len(files)}:{max((file.st_mtime_ns for file in files), default=0)}"
