"""One run of the matcher in a process of its own, as the job runs it: its seconds, counts and peak memory."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from typing import Any

from bench.recovering import read_peak_mb
from bench.scratch import Scratch
from makegood.database import Database
from makegood.errors import ConfigurationError
from makegood.reconciliation.match import Kind, begin, match
from makegood.reconciliation.terms import Terms


@dataclass(frozen=True)
class Run:
    """What one run came to."""

    seconds: float
    looked_at: int
    opened: int
    closed: int
    peak_mb: float


def match_in_process(scratch: Scratch, kind: Kind, terms: Terms) -> Run:
    command = [sys.executable, "-m", "bench.matching", scratch.jobs_url, kind, json.dumps(terms.to_document())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigurationError(f"the matcher did not run: {done.stderr.strip()[-500:]}")
    return Run(**json.loads(done.stdout.strip().splitlines()[-1]))


async def run(url: str, kind: Any, terms: Terms) -> Run:
    """Everything is imported and connected when the clock starts, as on the other sides."""
    async with Database(url) as database:
        began = time.perf_counter()
        opened = await begin(database, uuid.uuid4(), kind, terms)
        matched = await match(database, opened["id"])
        seconds = time.perf_counter() - began
        return Run(seconds, matched.looked_at, matched.opened, matched.closed, read_peak_mb())


def main(url: str, kind: str, terms: str) -> None:
    done = asyncio.run(run(url, kind, Terms(**json.loads(terms))))
    print(json.dumps(done.__dict__))


if __name__ == "__main__":
    main(*sys.argv[1:])
