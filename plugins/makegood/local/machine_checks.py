"""What the doctor looks at on the machine: Python, packages, the home folder, memory, what was left lying."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from makegood.local import placement, tuning
from makegood.local.check import Check, fail, ok, warn
from makegood.local.lifecycle import Environment

PYTHON_OLDEST = (3, 11)
DISK_LEAST, DISK_ENOUGH = tuning.GB, 5 * tuning.GB
MEMORY_ENOUGH = 2 * tuning.GB
PROJECT = Path(__file__).resolve().parents[3]
MISSING_SHOWN = 5


def check_machine(environment: Environment) -> Iterator[Check]:
    """All checks that need no server, cheapest first."""
    yield check_python(sys.version_info[:3])
    yield check_packages(PROJECT / "requirements.txt")
    yield check_home(environment.home)
    yield check_disk(_nearest(environment.home))
    yield check_memory(tuning.measure(_nearest(environment.home)).memory_bytes)
    if environment.settings.embedded:
        yield from check_password_variable()
    yield check_leftovers(environment)


def check_python(version: tuple[int, int, int]) -> Check:
    words = ".".join(map(str, version))
    if version < PYTHON_OLDEST:
        return fail("Python", f"{words} is too old", "Install Python 3.11 or newer, remove .venv, run `make up`.")
    return ok("Python", words)


def check_packages(lock_file: Path) -> Check:
    """Every package of the lock is installed in exactly its version."""
    if not lock_file.exists():
        return ok("packages", "installed as a package, there is no lock to compare with")
    wanted = list(_read_lock(lock_file))
    wrong = [words for requirement in wanted if (words := _differs(requirement))]
    if wrong:
        more = f" and {len(wrong) - MISSING_SHOWN} more" if len(wrong) > MISSING_SHOWN else ""
        return fail("packages", "; ".join(wrong[:MISSING_SHOWN]) + more, "Run `make up`: it installs the lock.")
    return ok("packages", f"{len(wanted)} as locked")


def check_home(home: Path) -> Check:
    """Writable is tried, not guessed from modes."""
    folder = _nearest(home)
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ok("home folder", str(home))
    except OSError as error:
        todo = "Make it writable, or set MAKEGOOD_HOME to another folder."
        return fail("home folder", f"{folder} cannot be written: {error.strerror}", todo)


def check_disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free
    words = f"{free / tuning.GB:.1f} GB free in {folder}"
    if free < DISK_LEAST:
        return fail("disk", words, "Free at least 1 GB, or set MAKEGOOD_HOME to a larger disk.")
    return ok("disk", words) if free >= DISK_ENOUGH else warn("disk", words, "Free some: 5 GB leave room for a day.")


def check_memory(memory_bytes: int) -> Check:
    words = f"{memory_bytes / tuning.GB:.1f} GB"
    if memory_bytes < MEMORY_ENOUGH:
        return warn("memory", words, "It will run, slowly; 2 GB or more are comfortable.")
    return ok("memory", words)


def check_password_variable() -> Iterator[Check]:
    """Other programs that use our URLs would send this password instead of the file's."""
    if "PGPASSWORD" in os.environ:
        detail = "PGPASSWORD is set and wins over the password file for psql and other programs"
        yield warn("PGPASSWORD", detail, "Unset it when you use `makegood db url` with other programs.")


def check_leftovers(environment: Environment) -> Check:
    """What a crash or a deleted clone left behind; the next `up` sees to all but the latter."""
    crashed = [status.name for status in environment.supervisor.status(environment.services) if status.crashed]
    if environment.settings.embedded and environment.server.has_crashed():
        crashed.insert(0, "postgres")
    if crashed:
        return warn("left behind", f"{', '.join(crashed)} ended without being stopped", "Run `make up`.")
    if abandoned := placement.find_abandoned():
        folders = " ".join(map(str, abandoned))
        return warn("left behind", f"data of deleted clones: {folders}", f"If nobody needs them: rm -r {folders}")
    if environment.is_busy():
        return warn("left behind", "another makegood command holds the lock", "Wait for it to end.")
    return ok("left behind", "nothing")


def _read_lock(lock_file: Path) -> Iterator[Requirement]:
    for line in lock_file.read_text().splitlines():
        if line and line[0] not in " #-":
            try:
                requirement = Requirement(line.rstrip(" \\"))
            except InvalidRequirement:
                continue
            if requirement.marker is None or requirement.marker.evaluate():
                yield requirement


def _differs(requirement: Requirement) -> str | None:
    try:
        version = metadata.version(requirement.name)
    except metadata.PackageNotFoundError:
        return f"{requirement.name} is missing"
    return None if version in requirement.specifier else f"{requirement} is wanted, {version} is installed"


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest above it that exists."""
    return next(path for path in (folder, *folder.parents) if path.is_dir())
