"""``python -m dashboard``: the pages on loopback, quiet, and without a word to the outside.

Everything Streamlit would read from a configuration file is said here, so that no file of the person who starts it
changes what is served.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
import sys
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from streamlit.web import cli

from dashboard import theme
from makegood.errors import ConfigurationError
from makegood.settings import PREFIX, Settings, get_settings

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


# What a page never needs is not there to be found.
NOT_OURS = ("DATABASE_ADMIN_URL", "AIRFLOW_DATABASE_URL", "STRIPE_API_KEY", "NOTIFY_URLS")
SECRET_LENGTH_MIN = 32
AUTH = ("redirect_uri", "cookie_secret", "client_id", "client_secret", "server_metadata_url")  # without any, no login


def forget_secrets() -> None:
    """This process keeps the two database logins it works with, where they are given, and no other secret."""
    own = all(os.environ.get(f"{PREFIX}DATABASE_{name}_URL") for name in ("READ", "ACT"))
    for name in (*NOT_OURS, *(("DATABASE_URL",) if own else ())):
        os.environ.pop(PREFIX + name, None)


def check_login(settings: Settings, address: str) -> None:
    """Refuses to start with a login that would let anybody in."""
    if settings.login == "demo" and not is_loopback(address):
        raise ConfigurationError(
            f"{PREFIX}DASHBOARD_LOGIN is demo, where everybody is anybody, and the dashboard would listen on {address}",
            hint=f"Listen on 127.0.0.1, or set {PREFIX}DASHBOARD_LOGIN to oidc or proxy.",
        )
    secret = settings.dashboard_proxy_secret
    if settings.login == "proxy" and (secret is None or len(secret.get_secret_value()) < SECRET_LENGTH_MIN):
        raise ConfigurationError(
            f"{PREFIX}DASHBOARD_LOGIN is proxy, and {PREFIX}DASHBOARD_PROXY_SECRET is too short",
            hint=f"Set {SECRET_LENGTH_MIN} random characters, and let the proxy send them in X-Makegood-Proxy-Secret.",
        )
    if settings.login in {"oidc", "proxy"} and settings.database_url and not settings.database_act_url:
        raise ConfigurationError(
            f"{PREFIX}DASHBOARD_LOGIN is {settings.login}, and {PREFIX}DATABASE_ACT_URL is not set",
            hint="People act as a login with makegood_act and nothing else; the one that works or reads may do more.",
        )
    if settings.login == "oidc":
        check_secrets(settings.dashboard_secrets)


def check_secrets(path: Path | None) -> None:
    """The file has all that st.login needs; a cookie that anybody can sign is no login."""
    auth = read_auth(path)
    missing = [name for name in AUTH if not isinstance(auth.get(name), str) or not auth[name]]
    if not missing and len(auth["cookie_secret"]) < SECRET_LENGTH_MIN:
        missing = [f"a cookie_secret of {SECRET_LENGTH_MIN} characters"]
    if not missing and not urlsplit(auth["redirect_uri"]).hostname:
        missing = ["a redirect_uri such as https://dashboard.example/oauth2callback"]
    if missing:
        raise ConfigurationError(
            f"{PREFIX}DASHBOARD_LOGIN is oidc, and [auth] in {PREFIX}DASHBOARD_SECRETS lacks {', '.join(missing)}",
            hint=f"It needs {', '.join(AUTH)}.",
        )


def read_auth(path: Path | None) -> dict[str, Any]:
    """Streamlit's [auth] section; empty where there is none."""
    try:
        auth = tomllib.loads(path.read_text(encoding="utf-8")).get("auth") if path else None
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{PREFIX}DASHBOARD_SECRETS cannot be read: {path}") from error
    return auth if isinstance(auth, dict) else {}


def find_hosts(settings: Settings, address: str) -> set[str]:
    """The names this is asked for under. A page of somebody else's must not get here by one that leads to loopback."""
    named = [settings.dashboard_url]
    if settings.login == "oidc":  # where people come back to when they have logged in
        named.append(read_auth(settings.dashboard_secrets)["redirect_uri"])
    return {"127.0.0.1", "localhost", address, *(host for one in named if (host := urlsplit(one).hostname))}


def is_loopback(address: str) -> bool:
    try:
        return address == "localhost" or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m dashboard", description="The dashboard of makegood.")
    parser.add_argument("--port", type=int, default=8501)
    parser.add_argument("--address", default="127.0.0.1")
    asked = parser.parse_args()
    forget_secrets()
    try:
        settings = get_settings()
        check_login(settings, asked.address)
    except ConfigurationError as error:
        sys.exit(f"error: {error}\n       {error.hint or ''}")
    flags = [f"--{name}={value}" for name, value in options(asked.port, asked.address).items()]
    flags += [f"--server.allowedHosts={host}" for host in sorted(find_hosts(settings, asked.address))]
    if settings.login == "oidc":
        flags.append(f"--secrets.files={settings.dashboard_secrets}")
    sys.argv = ["streamlit", "run", str(APP), *flags]
    cli.main(prog_name="streamlit")


if __name__ == "__main__":
    main()
