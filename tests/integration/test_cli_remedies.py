"""`makegood reconcile remedy`, `approve`, `policy` and the kill switch as a person runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from databases import DatabaseUrls
from remedying import Plot
from sweeps import surroundings

from makegood.settings import Settings
from sandbox.client import ShopControl

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def plot(database: DatabaseUrls, shop: ShopControl, settings: Settings) -> Iterator[Plot]:
    plot = Plot(database, str(settings.stripe_api_base), settings)
    yield plot
    plot.close()


@pytest.fixture
def makegood(database: DatabaseUrls, settings: Settings, tmp_path: Path) -> Run:
    """Runs one command of ``makegood reconcile`` under somebody's name."""
    environment = surroundings(database, settings, tmp_path)

    def run(*arguments: str, by: str = "ann") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "makegood.cli", "reconcile", *arguments],
            env=environment | {"LOGNAME": by},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return run


def read(shown: subprocess.CompletedProcess[str]) -> Any:
    assert shown.stdout.count("\n") == 1, shown
    return json.loads(shown.stdout)


def count_refunds(shop: ShopControl) -> int:
    return sum(entry["kind"] == "refund" for entry in shop.log())


def test_refund_above_the_cap_goes_from_dry_run_to_a_second_person_to_the_money(
    plot: Plot, makegood: Run, shop: ShopControl
) -> None:
    """One story: told about, allowed, asked for by ann, approved by ben, made once."""
    finding = str(plot.find("D08").id)
    told = read(makegood("remedy", "--json"))
    assert told["counts"] == {"would_tell": 1}
    assert told["decisions"][0]["finding_id"] == finding
    makegood("policy", "set", "--class", "D08", "--act", "--reason", "a month of dry runs")
    makegood("policy", "set", "--currency", "EUR", "--item-minor", "1000", "--reason", "to begin with")
    assert read(makegood("remedy", "--json"))["counts"] == {"would_ask": 1}
    assert read(makegood("remedy", "--act", "--json"))["counts"] == {"awaiting_approval": 1}

    own = makegood("approve", finding, "--reason", "mine", "--json")
    assert (own.returncode, read(own)["verdict"]) == (1, "self")
    other = makegood("approve", finding, "--reason", "two charges, one order", "--json", by="ben")
    assert (other.returncode, read(other)["verdict"], read(other)["amount_minor"]) == (0, "approved", 1999)
    assert count_refunds(shop) == 0
    done = makegood("remedy", "--act", "--class", "D08", "--json")
    assert read(done)["counts"] == {"started": 1, "remedied": 1}
    assert count_refunds(shop) == 1
    again = makegood("remedy", "--act")
    assert (again.returncode, again.stdout.strip()) == (0, "remedy: nothing to do.")
    rows = plot.database.rows("SELECT actor, action FROM makegood.operator_actions ORDER BY id")
    assert [(row["actor"], row["action"]) for row in rows] == [
        ("ann", "set remedy policy"),
        ("ann", "set remedy caps"),
        ("ann", "request approval"),
        ("ben", "approve"),
        ("ann", "use approval"),
        ("ann", "remedy: refund"),
    ]


def test_switch_by_command_stops_and_allows(plot: Plot, makegood: Run, shop: ShopControl) -> None:
    plot.allow("D08")
    plot.find("D08")
    assert read(makegood("stop-remedies", "--reason", "odd", "--json"))["verdict"] == "stopped"
    shown = makegood("policy", "show")
    assert "STOPPED by ann: odd" in shown.stdout
    assert "D08 (test)" in shown.stdout
    assert read(makegood("remedy", "--act", "--json"))["counts"] == {"leave": 1}
    assert count_refunds(shop) == 0
    assert makegood("allow-remedies", "--reason", "it was a test").stdout == "Remedies are allowed.\n"
    assert read(makegood("policy", "show", "--json"))["switch"]["stopped"] is False


def test_finding_acknowledged_ignored_and_refused_by_command(plot: Plot, makegood: Run) -> None:
    seen, ignored = plot.find("D08", "order-1"), plot.find("D08", "order-2")
    assert read(makegood("ack", str(seen.id), "--reason", "on it", "--json"))["verdict"] == "acknowledged"
    assert makegood("ignore", str(ignored.id), "--until", "30d", "--reason", "a test").returncode == 0
    assert plot.finding(ignored)["state"] == "ignored"
    nothing = makegood("refuse", str(seen.id), "--reason", "no", "--json")
    assert (nothing.returncode, read(nothing)["verdict"]) == (1, "nothing")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("approve", "x", "--reason", "y"), 2, "is not the id of a finding"),
        (("ack", "00000000-0000-0000-0000-000000000000", "--reason", "y"), 1, "there is no finding"),
        (("ignore", "00000000-0000-0000-0000-000000000000", "--reason", "y", "--until", "soon"), 2, "--until"),
        (("remedy", "--class", "8"), 2, "must be a class such as D08"),
        (("policy", "set", "--reason", "x"), 2, "at least one cap"),
        (("policy", "set", "--class", "D08", "--reason", "x"), 2, "--act or --dry-run"),
        (("policy", "set", "--currency", "EUR", "--reason", "x"), 2, "at least one cap"),
        (("policy", "set", "--currency", "EURO", "--item-minor", "1", "--reason", "x"), 2, "EURO does not exist"),
        (("policy", "set", "--class", "D08", "--act", "--environment", "prod", "--reason", "x"), 2, "live or test"),
        (("remedy",), 2, "no run of the reconciliation yet"),
    ],
)
def test_bad_arguments_are_named(makegood: Run, words: tuple[str, ...], code: int, message: str) -> None:
    shown = makegood(*words)
    assert shown.returncode == code, shown
    assert message in shown.stderr
