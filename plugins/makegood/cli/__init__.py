"""The command line ``makegood``. Exit 0 done, 1 ran and found something wrong, 2 bad arguments, 3 not ready.

Each command lives in the module named for it and registers itself on the app of ``makegood.cli.app``.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run one command; every error on purpose becomes one clear message and its exit code."""
    from makegood.cli.app import run

    sys.exit(run(sys.argv[1:]))
