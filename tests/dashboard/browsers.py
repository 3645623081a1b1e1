"""A real browser on the dashboard as `make up` runs it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from makegood.local import ports
from makegood.local.service import get_answer

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WAIT_MS = 40_000  # others use the machine too


@contextlib.contextmanager
def serve(url: str, folder: Path, **settings: str) -> Iterator[str]:
    """The dashboard as `make up` runs it, on a port of its own; settings as variables without their prefix."""
    port = ports.choose_port()
    given = {"HOME": str(folder), "DATABASE_READ_URL": url, **settings}
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)} | {f"MAKEGOOD_{name}": text for name, text in given.items()}
    command = [sys.executable, "-m", "dashboard", "--port", str(port)]
    with (folder / "dashboard.log").open("w") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, cwd=folder)
    try:
        deadline = time.monotonic() + 60
        while get_answer(f"http://127.0.0.1:{port}/_stcore/health") is None:
            assert process.poll() is None, (folder / "dashboard.log").read_text()
            assert time.monotonic() < deadline, "the dashboard is not healthy after 60 s"
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)
