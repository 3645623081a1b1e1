"""``python -m dashboard``: the pages on loopback, quiet, and without a word to the outside.

Everything Streamlit would read from a configuration file is said here, so that no file of the person who starts it
changes what is served.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from urllib.parse import urlsplit

from streamlit.web import cli

from dashboard import theme
from makegood.settings import get_settings

APP = Path(__file__).with_name("streamlit_app.py")


def options(port: int, address: str) -> dict[str, str]:
    return {
        "server.port": str(port),
        "server.address": address,
        "server.headless": "true",
        "server.showEmailPrompt": "false",
        "server.fileWatcherType": "none",
        "server.runOnSave": "false",
        "server.enableXsrfProtection": "true",
        "server.enableCORS": "true",
        "server.enableStaticServing": "false",
        "server.maxUploadSize": "1",  # nothing is uploaded
        "browser.gatherUsageStats": "false",
        "client.showErrorDetails": "none",
        "client.showErrorLinks": "false",  # they lead outside
        "client.toolbarMode": "viewer",
        "client.disableDataExport": "true",  # a sheet would run what looks like a formula
        "runner.magicEnabled": "false",
        "global.disableWidgetStateDuplicationWarning": "true",
        "logger.level": "warning",
        **theme.options(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dashboard", description="The dashboard of makegood.")
    parser.add_argument("--port", type=int, default=8501)
    parser.add_argument("--address", default="127.0.0.1")
    asked = parser.parse_args()
    # Nobody logs in: a page of somebody else's must not get here under a name that leads to loopback.
    hosts = {"127.0.0.1", "localhost", asked.address, urlsplit(get_settings().dashboard_url).hostname or "localhost"}
    flags = [f"--{name}={value}" for name, value in options(asked.port, asked.address).items()]
    flags += [f"--server.allowedHosts={host}" for host in sorted(hosts)]
    sys.argv = ["streamlit", "run", str(APP), *flags]
    cli.main(prog_name="streamlit")


if __name__ == "__main__":
    main()
