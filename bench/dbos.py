"""DBOS Transact's side of a figure, run in an environment of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from bench.scratch import Scratch, to_url
from makegood.errors import ConfigurationError

HERE = Path(__file__).resolve().parent


def run_dbos(python: Path, scratch: Scratch, workflows: int, *options: str) -> float:
    """DBOS's workflows per second, by the server's clock, with every workflow whole in its own tables."""
    command = [str(python), str(HERE / "dbos_side.py"), "--workflows", str(workflows), *options]
    done = subprocess.run([*command, "--url", to_url(scratch.admin_url)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigurationError(f"the DBOS side did not run: {done.stderr.strip()[-500:]}")
    return float(json.loads(done.stdout.strip().splitlines()[-1])["per_second"])
