"""Every way a case can be planted, by name. A name begins with what the case is about: a class, ``ok`` or ``wait``."""

from __future__ import annotations

from collections.abc import Callable

from prover.ledgers.plot import Plot

Recipe = Callable[[Plot], None]
RECIPES: dict[str, Recipe] = {}


def recipe(function: Recipe) -> Recipe:
    RECIPES[function.__name__] = function
    return function
