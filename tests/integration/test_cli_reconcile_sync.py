"""``makegood reconcile sync`` as a person and a program see it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from databases import DatabaseUrls

from makegood.cli.reconcile_sync import parse_since
from makegood.errors import InputError
from sandbox.client import ShopControl, ShopProcess


def makegood(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "makegood.cli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
        check=False,
    )


@pytest.fixture
def surroundings(database: DatabaseUrls, shop: ShopControl, shop_process: ShopProcess, tmp_path: Any) -> dict[str, str]:
    return {
        "MAKEGOOD_DATABASE_URL": database.jobs,
        "MAKEGOOD_STRIPE_API_BASE": shop_process.url,
        "MAKEGOOD_HOME": str(tmp_path),
    }


def test_sync_with_json_says_what_it_read_and_how_far_it_is_complete(
    surroundings: dict[str, str], shop: ShopControl
) -> None:
    done = makegood("reconcile", "sync", "--json", "--collection", "charges", **surroundings)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["complete"] is True
    charges = document["collections"]["charges"]
    assert (charges["rows"], charges["error"]) == (0, None)
    assert charges["watermark"] is not None


def test_sync_with_a_list_that_lies_exits_one_and_names_the_window(
    surroundings: dict[str, str], shop: ShopControl
) -> None:
    shop.say("lists 2 to 99 claim that there is more")
    done = makegood("reconcile", "sync", "--collection", "refunds", "--since", "2026-11-01", **surroundings)
    assert done.returncode == 1
    assert "refunds is NOT complete" in done.stderr
    assert "2026-11-01 00:00:00Z to" in " ".join(done.stderr.split())
    assert "never" in done.stdout


def test_sync_with_a_key_that_is_not_accepted_exits_three(surroundings: dict[str, str]) -> None:
    done = makegood("reconcile", "sync", **surroundings, MAKEGOOD_STRIPE_API_KEY="sk_live_wrong")
    assert done.returncode == 3
    assert "MAKEGOOD_STRIPE_API_KEY" in done.stderr
    assert "sk_live_wrong" not in done.stderr


def test_sync_of_an_unknown_collection_exits_two(surroundings: dict[str, str]) -> None:
    done = makegood("reconcile", "sync", "--collection", "invoices", **surroundings)
    assert done.returncode == 2
    assert "balance_transactions" in done.stderr


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-01", 1_793_491_200),
        ("2026-11-01T00:00:00", 1_793_491_200),
        ("2026-11-01T01:00:00+01:00", 1_793_491_200),
        # The hour that is shown twice in Berlin, told apart by its offset.
        ("2026-10-25T02:30:00+02:00", 1_792_888_200),
        ("2026-10-25T02:30:00+01:00", 1_792_891_800),
    ],
)
def test_since_is_utc_unless_it_says_otherwise(text: str, seconds: int) -> None:
    assert parse_since(text) == seconds


@pytest.mark.parametrize("text", ["yesterday", "2026-02-30", "20261101", "2026-W45", ""])
def test_since_that_is_no_day_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="such as 2026-11-01"):
        parse_since(text)
