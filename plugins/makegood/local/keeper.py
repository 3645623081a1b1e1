"""Starts again what fell or hangs: a service whose process ended by itself or no longer answers, and the server after a
crash. It also sees to it that nothing grows for ever: logs, and what Airflow remembers.

A process of its own (`python -m makegood.local.keeper`), the last to be started and the first to be stopped. Airflow's
scheduler, for one, ends when its database goes away for a moment, and expects somebody to start it again.
What does not stay up is tried less and less often, and never given up. What a person stopped stays stopped.
Weakness: a service without a health of its own (the demo's traffic) may hang unnoticed, and so may the keeper itself.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable

import structlog

from makegood.errors import ConfigurationError
from makegood.local.lifecycle import Environment
from makegood.local.progress import Silent
from makegood.logs import configure_logs
from makegood.settings import get_settings

log = structlog.get_logger()

LOOK_SECONDS = 3.0
WAIT_SECONDS, WAIT_SECONDS_MAX = 3.0, 300.0
STAYED_UP_SECONDS = 600.0  # after this a fall is a new one
PROBE_SECONDS = 15.0  # a question costs each service a little
HUNG_SECONDS = 60.0  # without one good answer for so long: a busy machine may miss a few
TIDY_SECONDS = 600.0  # how often it is asked whether something is old; the first time after as long


class Keeper:
    """Looks at what was started and has fallen; ``clock`` is monotonic, in seconds."""

    def __init__(self, environment: Environment, clock: Callable[[], float] = time.monotonic) -> None:
        self._environment = environment
        self._clock = clock
        self._falls: dict[str, tuple[int, float]] = {}
        """How often each fell in a row, and when it was last started."""
        self._down: set[str] = set()
        """What could not be started, and is still owed a start."""
        self._unwell: dict[str, float] = {}
        """Since when each gives no good answer."""
        self._probed = self._tidied = clock()

    def look(self) -> list[str]:
        """Starts again what has fallen or hangs and is due; returns what is up again."""
        fallen = self._environment.find_fallen(self._down)
        hung = [name for name in self._find_hung() if name not in fallen]
        started = [name for name in fallen if self._is_due(name) and self._start(name, "service.fell")]
        started += [name for name in hung if self._is_due(name) and self._start(name, "service.hangs")]
        self._unwell = {name: since for name, since in self._unwell.items() if name not in started}
        return started

    def tidy(self) -> None:
        """Logs stay small at any time; what is old goes every now and then."""
        self._environment.rotate_logs()
        if self._clock() - self._tidied >= TIDY_SECONDS:
            self._tidied = self._clock()
            self._environment.drop_old()

    def _find_hung(self) -> list[str]:
        """Those without a good answer for long enough; asked anew only now and then."""
        if self._clock() - self._probed >= PROBE_SECONDS:
            unwell = self._environment.find_unwell()
            self._probed = self._clock()
            self._unwell = {name: self._unwell.get(name, self._probed) for name in unwell}
        return [name for name, since in self._unwell.items() if self._clock() - since >= HUNG_SECONDS]

    def _is_due(self, name: str) -> bool:
        falls, started = self._falls.get(name, (0, float("-inf")))
        if self._clock() - started > STAYED_UP_SECONDS:
            self._falls.pop(name, None)
            return True
        wait_seconds = min(WAIT_SECONDS_MAX, WAIT_SECONDS * 2.0 ** min(falls, 30))
        return self._clock() - started >= wait_seconds

    def _start(self, name: str, why: str) -> bool:
        falls, _ = self._falls.get(name, (0, 0.0))
        log.warning(why, service=name, falls=falls + 1)
        try:
            self._environment.revive(name)
        except ConfigurationError as error:
            log.error("service.not_started", service=name, error=str(error).partition("\n")[0])  # noqa: TRY400 - said
            self._down.add(name)
            return False
        finally:
            self._falls[name] = (falls + 1, self._clock())
        self._down.discard(name)
        log.info("service.started", service=name)
        return True


def reap() -> None:
    """Those that were started here and have ended leave the list of processes."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main() -> None:
    settings = get_settings()
    configure_logs(settings.log_level)
    keeper = Keeper(Environment(settings, Silent(), lambda text: log.info("keeper", text=text)))
    while True:
        time.sleep(LOOK_SECONDS)
        reap()
        try:
            keeper.look()
            keeper.tidy()
        except ConfigurationError as error:  # the home is busy or cannot be read: it is looked at again
            log.warning("keeper.waits", error=str(error).partition("\n")[0])


if __name__ == "__main__":
    main()
