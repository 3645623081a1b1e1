"""Environments of their own for the engines we are measured against.

`ensure_dbos_python` and `ensure_datacompy_python` guarantee a Python that has exactly the pinned package and the same
PostgreSQL driver version that makegood runs on, in a virtual environment apart from ours, so that neither side's
dependencies bend the other's. Made once and found again; a half-made one is made anew. uv makes it if uv can
be had and works, otherwise venv and pip; both use whatever package index the machine is set up with.

Weakness: only the package and the driver are pinned. What else it asks for is resolved on the day.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from makegood.errors import ConfigurationError

DBOS = ("dbos", "3.3.0")
DATACOMPY = ("datacompy", "1.1.0")
INSTALL_TIMEOUT_SECONDS = 600  # a cold package cache behind a slow line; beyond it something is stuck
PROBE_TIMEOUT_SECONDS = 60  # imports the package, which takes about a second on an idle machine
OUTPUT_LINES_MAX = 8  # installers put the reason last

# Importing it, rather than asking for its version only, also finds an install that was cut short.
_PROBE = "import importlib.metadata as m, {0}; print(m.version('{0}'), m.version('psycopg'))"


def ensure_dbos_python(folder: Path) -> Path:
    """Return the python of an environment in `folder` that can run DBOS; make the environment if need be."""
    return _ensure(folder, DBOS)


def ensure_datacompy_python(folder: Path) -> Path:
    """The same for datacompy, with SQLAlchemy to read a table; the pandas that it asks for is older than ours."""
    return _ensure(folder, DATACOMPY, "sqlalchemy")


def _ensure(folder: Path, package: tuple[str, str], *beside: str) -> Path:
    python = folder.absolute() / "bin" / "python"
    with _one_maker_at_a_time(folder):
        if not _is_ready(python, package):
            _make(folder.absolute(), python, package, beside)
    return python


@contextmanager
def _one_maker_at_a_time(folder: Path) -> Iterator[None]:
    """Hold a lock beside the folder, so that two benchmarks started together make it once."""
    lock = folder.absolute().with_name(folder.name + ".lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = lock.open("w")
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {lock.parent}, where the benchmark environment belongs: {error.strerror}",
            hint="make the folder writable or name another one",
        ) from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # given back when the file closes, also by a crash
        yield


def _is_ready(python: Path, package: tuple[str, str]) -> bool:
    if not python.exists():
        return False
    try:
        found = _run(python, "-I", "-c", _PROBE.format(package[0]), timeout_seconds=PROBE_TIMEOUT_SECONDS)
    except _CommandError:
        return False
    return found.split() == [package[1], importlib.metadata.version("psycopg")]


def _make(folder: Path, python: Path, package: tuple[str, str], beside: tuple[str, ...]) -> None:
    """Try each installer in turn from an empty folder; the last one's reason is the one reported."""
    requirements = (
        "==".join(package),
        f"psycopg[binary]=={importlib.metadata.version('psycopg')}",
        *(f"{name}=={importlib.metadata.version(name)}" for name in beside),
    )
    reasons: list[str] = []
    for name, install in (("uv", _install_with_uv), ("pip", _install_with_pip)):
        if name == "uv" and shutil.which("uv") is None:
            continue
        _clear(folder)
        try:
            install(folder, python, requirements)
        except _CommandError as failure:
            reasons.append(f"{name}: {failure}")
            continue
        if _is_ready(python, package):
            return
        reasons.append(f"{name}: installed, but {python} does not import it")
    raise ConfigurationError(
        f"cannot install {' '.join(package)} into {folder}\n" + "\n".join(reasons),
        hint="check that pip can reach a package index and that Python has the venv module, or install uv",
    )


def _install_with_uv(folder: Path, python: Path, requirements: tuple[str, ...]) -> None:
    _run("uv", "venv", "--quiet", "--python", sys.executable, folder)
    _run("uv", "pip", "install", "--quiet", "--python", python, *requirements)


def _install_with_pip(folder: Path, python: Path, requirements: tuple[str, ...]) -> None:
    _run(sys.executable, "-m", "venv", folder)
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)


def _clear(folder: Path) -> None:
    """Remove an environment that is of no use; refuse a path that is something else."""
    if not folder.exists():
        return
    if not folder.is_dir() or (any(folder.iterdir()) and not (folder / "pyvenv.cfg").exists()):
        raise ConfigurationError(
            f"{folder} exists and is no virtual environment",
            hint="name a folder that may be overwritten",
        )
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise ConfigurationError(f"cannot replace the environment in {folder}: {error}") from error


class _CommandError(Exception):
    """A command ended badly; the text is the tail of what it said."""


def _run(*command: str | Path, timeout_seconds: float = INSTALL_TIMEOUT_SECONDS) -> str:
    try:
        done = subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise _CommandError(_tail(error.stderr or error.stdout) or f"exit code {error.returncode}") from error
    except subprocess.TimeoutExpired as error:
        raise _CommandError(f"no end after {timeout_seconds:.0f} s") from error
    except OSError as error:
        raise _CommandError(str(error)) from error
    return done.stdout


def _tail(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-OUTPUT_LINES_MAX:])
