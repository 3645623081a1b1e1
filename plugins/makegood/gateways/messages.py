"""Messages to people through apprise: mail, chat, pagers, whatever address a team has."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import apprise
import structlog

from makegood.errors import ConfigurationError

log = structlog.get_logger()

# Its own words name addresses, and addresses have passwords in them.
logging.getLogger("apprise").setLevel(logging.CRITICAL)


class Messenger:
    """Sends to every address. A message counts as sent when one of them took it: an address that is broken
    for good must not make the others hear the same thing every minute. It is named in the log each time."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._targets = {_name(number, url): _open(number, url) for number, url in enumerate(urls, 1)}

    async def send(self, title: str, body: str) -> bool:
        taken = [await self._send_one(name, target, title, body) for name, target in self._targets.items()]
        return any(taken)

    async def _send_one(self, name: str, target: apprise.Apprise, title: str, body: str) -> bool:
        try:
            taken = bool(await target.async_notify(title=title, body=body, body_format=apprise.NotifyFormat.TEXT))
        except Exception as error:  # a plugin may raise whatever its service makes of it
            log.warning("message.failed", address=name, error=type(error).__name__)
            return False
        if not taken:
            log.warning("message.refused", address=name)
        return taken


def _open(number: int, url: str) -> apprise.Apprise:
    target = apprise.Apprise()
    if not target.add(url):
        raise ConfigurationError(
            f"MAKEGOOD_NOTIFY_URLS: address {_name(number, url)} is not one that apprise can send to",
            hint="For example mailto://user:password@example.com or slack://token/channel.",
        )
    return target


def _name(number: int, url: str) -> str:
    """Which address, and nothing of what is in it: a path or a header may be its secret."""
    return f"{number} ({url.partition('://')[0]}://…)"
