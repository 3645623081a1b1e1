"""Which kind of run the schedule needs, and what a person may ask for."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from makegood.errors import InputError
from makegood.reconciliation.options import Options, check_options, choose_kind
from makegood.reconciling import find_person


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "last_full", "kind"),
    [
        ("2026-11-18 16:00", None, "full"),  # the first run ever
        ("2026-11-18 16:00", "2026-11-18 02:00", "incremental"),
        ("2026-11-19 01:59", "2026-11-18 02:00", "incremental"),
        ("2026-11-19 02:00", "2026-11-18 02:00", "full"),  # the night's
        ("2026-11-19 02:00", "2026-11-19 01:30", "full"),  # one by hand before midnight's end does not count
        ("2026-11-19 03:00", "2026-11-19 02:00", "incremental"),
        ("2026-11-19 09:00", "2026-11-18 02:00", "full"),  # the night's was missed, or failed
        ("2026-12-01 02:00", "2026-11-30 02:00", "full"),  # the month ends
        ("2026-01-01 00:30", "2025-12-31 02:00", "incremental"),  # and the year
    ],
)
def test_schedule_is_full_once_a_night_and_makes_up_for_a_missed_one(
    now: str, last_full: str | None, kind: str
) -> None:
    assert choose_kind(Options(), at(now), at(last_full) if last_full else None, 2) == kind


def test_kind_that_was_asked_for_is_the_kind() -> None:
    now = at("2026-11-18 16:00")

    assert choose_kind(Options(kind="incremental"), now, None, 2) == "incremental"
    assert choose_kind(Options(kind="full"), now, now, 2) == "full"
    window = check_options(since="2026-11-01", until="2026-11-02")
    assert choose_kind(window, now, None, 2) == "window"


def test_window_is_in_utc_unless_it_says_otherwise() -> None:
    options = check_options(since="2026-10-25", until="2026-10-25T03:30:00+01:00")

    assert options.since == at("2026-10-25")
    assert options.until == at("2026-10-25 02:30")  # the hour that comes twice where clocks go back


def test_classes_are_written_as_people_write_them() -> None:
    assert check_options(classes=["d8", "D03,1", "D08"]).classes == ("D08", "D03", "D01")


@pytest.mark.parametrize(
    "asked",
    [
        {"kind": "everything"},
        {"since": "2026-01-01"},
        {"until": "2026-01-01"},
        {"since": "2026-01-01", "until": "2026-01-01"},
        {"since": "2026-01-02", "until": "2026-01-01"},
        {"since": "2006-01-01", "until": "2026-01-01"},
        {"since": "01.02.2026", "until": "2026-03-01"},
        {"kind": "full", "since": "2026-01-01", "until": "2026-01-02"},
        {"classes": ["D33"]},
        {"classes": ["D8; DROP"]},
        {"limit": 0},
    ],
)
def test_what_makes_no_sense_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        check_options(**asked)


@pytest.mark.parametrize(
    ("triggered_by", "person"),
    [
        ("command:ann", "ann"),
        ("airflow:manual:ann", "ann"),
        ("airflow:manual:ann:of:sales", "ann:of:sales"),
        ("airflow:scheduled", None),
        ("airflow:manual", None),  # by Airflow's own API, without a user
        ("command:", None),
        ("proof", None),
    ],
)
def test_run_started_by_hand_is_its_persons_and_a_scheduled_one_nobodys(triggered_by: str, person: str | None) -> None:
    assert find_person(triggered_by) == person
