"""Lists of names written as plain words: a column of forty quoted strings hides what it says."""

from __future__ import annotations


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split())
