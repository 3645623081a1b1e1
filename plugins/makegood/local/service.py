"""A service as a value: what to run, how to know that it is well, and where a person finds it."""

from __future__ import annotations

import hashlib
import http.client
import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

HEALTH_TIMEOUT_SECONDS = 2.0
HTTP_WELL = range(200, 300)

Health = str | Callable[[], bool] | None


@dataclass(frozen=True)
class Service:
    """``health`` is an address that answers 2xx, a function, or None: being alive is enough."""

    name: str
    command: tuple[str, ...]
    health: Health = None
    env: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    address: str | None = None
    data: Path | None = None
    """What it keeps between runs; `make reset` deletes it."""
    port: int | None = None
    port_setting: str | None = None
    """The variable that moves the port, named when somebody else has it."""
    facts: tuple[str, ...] = ()
    """What else a running process has taken in, such as its code: when it differs, it is started anew."""
    optional: bool = False
    """When it does not start, the rest goes on without it."""
    start_seconds: float = 60.0
    stop_seconds: float = 10.0

    def fingerprint(self, settings: Mapping[str, str]) -> str:
        """Changes when the command, a fact or a setting does: then what runs is not what is wanted."""
        facts = [self.command, self.facts, sorted(self.env.items()), sorted(settings.items())]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    def is_healthy(self) -> bool:
        """One question, one bounded wait; any trouble means no."""
        if self.health is None:
            return True
        return get_answer(self.health) is not None if isinstance(self.health, str) else self.health()


def get_answer(address: str, *, timeout_seconds: float | None = None) -> bytes | None:
    """What is answered with 2xx, else None. Asked directly: a proxy in the environment is not for loopback."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=timeout_seconds or HEALTH_TIMEOUT_SECONDS)
    try:
        connection.request("GET", parts.path or "/")
        answer = connection.getresponse()
        return answer.read() if answer.status in HTTP_WELL else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def code_stamp(package: str) -> str:
    """Changes when the package's code does, so that `make up` after an update runs the new code."""
    spec = importlib.util.find_spec(package)
    folders = [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []
    files = [path.stat() for folder in folders for path in folder.rglob("*.py")]
    return f"{len(files)}:{max((file.st_mtime_ns for file in files), default=0)}"
