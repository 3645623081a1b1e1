"""What every service finds around it: this Python's programs, its compiled code, loopback without a proxy."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

LOOPBACK_NAMES = ("127.0.0.1", "localhost")


def python_variables(home: Path, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The programs of this very environment come first; compiled code is kept, in the home if nowhere else.

    Who forbids Python to write beside the sources (many containers do) would wait for Airflow and for every
    task to be compiled anew.
    """
    path = os.pathsep.join((str(Path(sys.executable).parent), environment.get("PATH", os.defpath)))
    if not environment.get("PYTHONDONTWRITEBYTECODE"):
        return {"PATH": path}
    return {"PATH": path, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(bytecode_folder(home))}


def bytecode_folder(home: Path) -> Path:
    return home / "bytecode"


def proxy_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """A proxy for the outside has no business between two processes on loopback."""
    told = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    names = ",".join(dict.fromkeys([*filter(None, told.split(",")), *LOOPBACK_NAMES]))
    return {"no_proxy": names, "NO_PROXY": names}
