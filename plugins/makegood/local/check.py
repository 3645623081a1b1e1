"""One finding of the doctor: what was looked at, how it is, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from makegood.errors import MakegoodError


class Verdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Check:
    """``blocks`` says that nothing can run until this is mended."""

    name: str
    verdict: Verdict
    detail: str
    todo: str | None = None
    blocks: bool = False


def carry_on(name: str, checks: Iterable[Check]) -> Iterator[Check]:
    """A check that cannot even be made is itself a finding; the next group is looked at all the same."""
    try:
        yield from checks
    except MakegoodError as error:
        yield fail(name, str(error), error.hint or "")


def ok(name: str, detail: str) -> Check:
    return Check(name, Verdict.OK, detail)


def warn(name: str, detail: str, todo: str) -> Check:
    return Check(name, Verdict.WARN, detail, todo)


def fail(name: str, detail: str, todo: str, *, blocks: bool = True) -> Check:
    return Check(name, Verdict.FAIL, detail, todo, blocks)
