"""Where a home keeps its embedded server: the port and the folder, remembered between starts."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from makegood.errors import ConfigurationError
from makegood.local import binaries
from makegood.local.account import Account, choose_account
from makegood.local.cluster import Cluster
from makegood.local.lock import usable
from makegood.local.ports import choose_port

INSIDE = "postgres"
PLACEMENT = "postgres.json"
MARKER = "home.json"
STOP_SECONDS = 60.0


@dataclass(frozen=True)
class Placement:
    """``folder`` is relative to the home when it lies inside, so that a moved project keeps its data."""

    id: str
    port: int
    folder: str

    def cluster(self, home: Path) -> Cluster:
        folder = home / self.folder
        return Cluster(folder, f"makegood-{self.id}", choose_account(folder))


def read_placement(path: Path) -> Placement | None:
    """What an earlier start decided; None before the first, or when the file is damaged: `place` finds the data."""
    try:
        found = json.loads(path.read_text())
        return Placement(str(found["id"]), int(found["port"]), str(found["folder"]))
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
        return None


def write_placement(path: Path, placement: Placement) -> None:
    """Replace the file in one step."""
    staged = path.with_name(path.name + ".new")
    with staged.open("w") as file:
        file.write(json.dumps(asdict(placement)) + "\n")
        file.flush()
        os.fsync(file.fileno())
    staged.replace(path)


def place(home: Path, *, made_anew: bool) -> Placement:
    """Decide where data go, or find where they are: inside the home when the server's account can get there.

    ``made_anew`` says that nothing of an earlier server is left in the home: then data outside are nobody's.
    """
    account = choose_account(home / INSIDE)
    inside = account.make_folder(home / INSIDE)
    if account.can_write(inside):
        return Placement(secrets.token_hex(4), choose_port(), INSIDE)
    inside.rmdir()
    folder = binaries.open_shared() / hashlib.sha256(str(home).encode()).hexdigest()[:16]
    if made_anew and folder.exists():
        Cluster(folder, "", choose_account(folder)).stop(STOP_SECONDS)
        shutil.rmtree(folder)
    identity = _mark(folder, home, account)
    return Placement(identity, choose_port(), str(folder))


def find_port(home: Path) -> int | None:
    """The port kept for this home's server; None before its first start."""
    with usable(home):
        placed = read_placement(home / PLACEMENT)
    return placed.port if placed else None


def find_abandoned() -> list[Path]:
    """Folders outside any home whose home is gone or was made anew: their data serve nobody."""
    markers = sorted(binaries.SHARED.glob(f"*/{MARKER}")) if os.access(binaries.SHARED, os.R_OK) else []
    return [marker.parent for marker in markers if os.access(marker, os.R_OK) and not _belongs(marker)]


def _mark(folder: Path, home: Path, account: Account) -> str:
    """Note in the folder whose it is; one that is there keeps its identity."""
    marker = folder / MARKER
    if marker.exists():
        return str(json.loads(marker.read_text())["id"])
    account.make_folder(folder)
    identity = secrets.token_hex(4)
    account.write(marker, json.dumps({"home": str(home), "id": identity}) + "\n")
    if not account.can_write(folder):
        raise ConfigurationError(
            f"The account {account.name} can write neither in {home} nor in {folder}",
            hint="Run as an ordinary user, or set MAKEGOOD_HOME to a folder that account can reach.",
        )
    return identity


def _belongs(marker: Path) -> bool:
    owner = json.loads(marker.read_text())
    placed = read_placement(Path(owner["home"]) / PLACEMENT)
    return placed is not None and placed.id == owner["id"]
