"""Files that only their owner may read: replaced in one step, at no moment open to others."""

from __future__ import annotations

import os
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """The file holds the text, mode 600, on disk; a kill in between leaves the one before."""
    staged = path.with_name(path.name + ".new")
    staged.unlink(missing_ok=True)
    with os.fdopen(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    staged.replace(path)


def make_private_folder(folder: Path) -> Path:
    """The folder exists, and only its owner may open it."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder
