"""One run of ``makegood recover`` in a process of its own: its seconds, counts and peak memory, as one JSON line.

Everything is set in the environment, as for the command. The seconds begin when everything is imported, as on the
DBOS side, and end when the run has its totals. A run counts only if it completed everything that was stuck.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.scratch import Scratch, to_url
from makegood import jobs
from makegood.errors import ConfigurationError
from makegood.logs import configure_logs

MB = 1024 * 1024
STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class Recovered:
    """What one run came to."""

    seconds: float
    counts: Mapping[str, int]
    peak_mb: float


def recover_in_process(scratch: Scratch, count: int, *, calls_at_once: int, shop_url: str | None = None) -> Recovered:
    """Recovers all that is stuck in the scratch database, which must be ``count`` workflows."""
    command = [sys.executable, "-m", "bench.recovering", str(count)]
    environment = make_environment(scratch, calls_at_once, shop_url)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ConfigurationError(f"the recovery did not run: {done.stderr.strip()[-500:]}")
    recovered = Recovered(**json.loads(done.stdout.strip().splitlines()[-1]))
    if recovered.counts.get("completed") != count:
        raise ConfigurationError(f"{count} were stuck, it came to {dict(recovered.counts)}; the run is void")
    return recovered


def make_environment(scratch: Scratch, calls_at_once: int, shop_url: str | None) -> dict[str, str]:
    """Ours without any setting of makegood, which then has its defaults but for what is named here."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MAKEGOOD_")}
    shop = ("STRIPE_API_BASE", "INVENTORY_URL", "SHIPPING_URL") if shop_url else ()
    return {
        **kept,
        **{f"MAKEGOOD_{name}": str(shop_url) for name in shop},
        "MAKEGOOD_DATABASE_URL": to_url(scratch.jobs_url),
        "MAKEGOOD_WORKFLOWS": "bench.checkouts",
        "MAKEGOOD_CALLS_AT_ONCE": str(calls_at_once),
    }


def main(limit: int) -> None:
    configure_logs("WARNING")
    options = jobs.check_options(None, None, limit)
    begin = time.perf_counter()
    report = jobs.recover(options, triggered_by="bench")
    seconds = time.perf_counter() - begin
    print(json.dumps({"seconds": seconds, "counts": dict(report.counts), "peak_mb": read_peak_mb()}))


def read_peak_mb() -> float:
    """The most memory this process ever had resident.

    By the kernel's own mark where there is one: getrusage() of a new process begins at the size of its parent.
    """
    found = re.search(r"^VmHWM:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE) if STATUS.exists() else None
    if found:
        return int(found[1]) * 1024 / MB
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / MB if sys.platform == "darwin" else peak * 1024 / MB


if __name__ == "__main__":
    main(int(sys.argv[1]))
