"""The workflow types this process knows: ``checkout``, ``remedy``, and those of the modules in MAKEGOOD_WORKFLOWS.

A module of yours defines ``workflows(settings)``, which returns Workflow values:

    from makegood.engine.definitions import Action, Step, Workflow

    def workflows(settings):
        return [Workflow("subscription", steps=[Step("invoice", "invoicing", None, Action(send=invoice))])]
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import AsyncIterator, Mapping

from makegood.engine.definitions import Workflow
from makegood.errors import ConfigurationError
from makegood.settings import Settings
from makegood.workflows.checkout import open_checkout
from makegood.workflows.remedy import open_remedy


@contextlib.asynccontextmanager
async def open_workflows(settings: Settings, url: str | None = None) -> AsyncIterator[Mapping[str, Workflow]]:
    """Every known type by name, with its gateways open until the end of the block.

    ``url`` is our own database, which a remedy asks before it moves money; without it remedies are left to others.
    """
    async with contextlib.AsyncExitStack() as stack:
        house = [await stack.enter_async_context(open_checkout(settings))]
        if url is not None:
            house.append(await stack.enter_async_context(open_remedy(settings, url)))
        yield collect([*house, *load_own(settings)])


def load_own(settings: Settings) -> list[Workflow]:
    """The types of the user's own modules; a module that cannot be used is named with the reason."""
    found: list[Workflow] = []
    for name in settings.workflows:
        try:
            own = list(importlib.import_module(name).workflows(settings))
            if other := next((value for value in own if not isinstance(value, Workflow)), None):
                raise TypeError(f"workflows() returned a {type(other).__name__}")  # noqa: TRY301 - told like all others
            found += own
        except ConfigurationError:
            raise
        except Exception as error:
            raise ConfigurationError(
                f"MAKEGOOD_WORKFLOWS: module {name!r} cannot be used: {type(error).__name__}: {error}",
                hint="It must be importable and define workflows(settings) returning Workflow values.",
            ) from error
    return found


def collect(workflows: list[Workflow]) -> Mapping[str, Workflow]:
    by_name = {workflow.name: workflow for workflow in workflows}
    if len(by_name) < len(workflows):
        names = [workflow.name for workflow in workflows]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigurationError(f"workflow type {twice!r} is defined twice", hint="Give one of them another name.")
    return by_name
