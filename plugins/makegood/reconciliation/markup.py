"""HTML from values, with everything that others wrote escaped: only what is made here counts as markup."""

from __future__ import annotations

import html

from makegood.story import harmless

EMPTY_ELEMENTS = frozenset({"meta", "br", "rect", "line"})


class Markup(str):
    """Text that is HTML already; made by `tag` and `join` only, or written by us."""

    __slots__ = ()


Child = str | Markup | None


def text(value: str) -> Markup:
    """What others wrote, as text: no element, no attribute, no control character that turns a line around."""
    return value if isinstance(value, Markup) else Markup(html.escape(harmless(value), quote=True))


def join(*children: Child) -> Markup:
    return Markup("".join(text(child) for child in children if child is not None))


def tag(name: str, /, *children: Child, **attributes: str | None) -> Markup:
    """``class_`` is the attribute class, ``stroke_width`` is stroke-width; None leaves an attribute out."""
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    written = "".join(f' {key}="{text(value)}"' for key, value in given.items())
    if name in EMPTY_ELEMENTS:
        return Markup(f"<{name}{written}>" if name in {"meta", "br"} else f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{join(*children)}</{name}>")
