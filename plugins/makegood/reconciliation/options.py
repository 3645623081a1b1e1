"""What a run of the reconciliation is asked to do, and which kind the schedule needs now. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from makegood.errors import InputError
from makegood.reconciliation.classes import NAMES

Kind = Literal["incremental", "full", "window"]
KINDS = ("auto", "incremental", "full")
WINDOW_MAX = timedelta(days=366)  # more than a year is a mistyped date


@dataclass(frozen=True, slots=True)
class Options:
    """``classes`` empty means all; ``act`` lets remedies do what the policy allows, without it they only say."""

    kind: str = "auto"
    since: datetime | None = None
    until: datetime | None = None
    classes: tuple[str, ...] = ()
    act: bool = False
    sync: bool = True
    limit: int | None = None

    def to_document(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "since": self.since.isoformat() if self.since else None,
            "until": self.until.isoformat() if self.until else None,
            "classes": list(self.classes),
            "sync": self.sync,
            "limit": self.limit,
            "dry_run": not self.act,
        }


def check_options(
    *,
    kind: str = "auto",
    since: str | None = None,
    until: str | None = None,
    classes: Sequence[str] = (),
    act: bool = False,
    sync: bool = True,
    limit: int | None = None,
) -> Options:
    """The options of a run, or an InputError that names the one at fault."""
    if kind not in KINDS:
        raise InputError(f"the kind is {kind!r}; it must be one of {', '.join(KINDS)}")
    begin, end = _parse_time("since", since), _parse_time("until", until)
    if (begin is None) != (end is None):
        raise InputError("a window has a beginning and an end: give both since and until, or neither")
    if begin is not None and end is not None and not timedelta() < end - begin <= WINDOW_MAX:
        raise InputError(
            f"the window from {begin:%Y-%m-%d %H:%M} until {end:%Y-%m-%d %H:%M} must last between a moment and a year"
        )
    if begin is not None and kind == "full":
        raise InputError("a full run looks at everything: leave out the window, or the full")
    if limit is not None and limit < 1:
        raise InputError(f"the limit is {limit}; it must be 1 or more")
    return Options(kind, begin, end, check_classes(classes), act, sync, limit)


def check_classes(classes: Sequence[str]) -> tuple[str, ...]:
    """``d8`` and ``D08`` are the same; one that does not exist is named."""
    return tuple(dict.fromkeys(_check_class(one) for part in classes for one in part.split(",") if one.strip()))


def choose_kind(options: Options, now: datetime, last_full: datetime | None, full_hour: int) -> Kind:
    """A window if one is given, what was asked for, or: full once a day, by the first run after ``full_hour`` UTC.

    By the last full run that came to its end and not by the clock alone, so that one that was missed or failed is
    made up for by the next, and the first run ever is full.
    """
    if options.since is not None:
        return "window"
    if options.kind != "auto":
        return "full" if options.kind == "full" else "incremental"
    due = now.astimezone(UTC).replace(hour=full_hour, minute=0, second=0, microsecond=0)
    if due > now:
        due -= timedelta(days=1)
    return "full" if last_full is None or last_full < due else "incremental"


def _check_class(text: str) -> str:
    found = re.fullmatch(r"[dD]?(\d{1,2})", text.strip())
    name = f"D{int(found[1]):02d}" if found else text.strip()
    if name not in NAMES:
        raise InputError(f"the class is {text.strip()!r}; it must be one of D01 to D32")
    return name


def _parse_time(name: str, text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"{name} is {text!r}; it must be a date or a time such as 2026-11-18 or 2026-11-18T14:00+01:00"
        ) from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
