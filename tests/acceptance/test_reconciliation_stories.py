"""The published detection stories: found by the next run, put right, and the customer has exactly their money back.

The real shop is the oracle: its own log says what was charged and what was given back. Everything in between is what a
person would use: the commands, the policy, a second person's approval.
"""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import stripe
from databases import DatabaseUrls

from makegood.settings import Settings
from sandbox.client import ShopControl

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

Document = dict[str, Any]
Reconcile = Callable[..., Document]
# As in production, but nobody waits: what is a second old is old enough to be judged, and an orphan's second look comes
# after a second instead of an hour.
HURRY = {
    "MAKEGOOD_RECONCILE_CHARGE_GRACE_SECONDS": "0",
    "MAKEGOOD_RECONCILE_REFUND_GRACE_SECONDS": "0",
    "MAKEGOOD_REMEDY_ORPHAN_SECONDS": "0",
    "MAKEGOOD_SYNC_LAG_SECONDS": "1",
}
GIVES_UP_SECONDS = 3.0
AMOUNT_MINOR = 1999
DEAR_MINOR = 25_000  # above what one remedy may give back without a second person
PAYMENT: Document = {
    "currency": "eur",
    "payment_method": "pm_card_visa",
    "payment_method_types": ["card"],
    "confirm": True,
}


@pytest.fixture
def makegood(database: DatabaseUrls, settings: Settings, tmp_path: Path) -> Callable[..., Any]:
    """Runs a command against the test's database and shop; its document, and its exit code if one is expected."""
    url = str(settings.stripe_api_base)
    port = url.rpartition(":")[2]
    addresses = {f"MAKEGOOD_{name}": url for name in ("STRIPE_API_BASE", "INVENTORY_URL", "SHIPPING_URL")}
    environment = {
        **{"HOME": str(tmp_path), "MAKEGOOD_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"},
        **{"MAKEGOOD_DATABASE_URL": database.jobs, "MAKEGOOD_SHOP_PORT": port},
        **addresses,
        **HURRY,
    }

    def run(*words: str, code: int | None = None, **changes: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-m", "makegood.cli", *words, "--json"],
            env=environment | changes, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
        assert code is None or done.returncode == code, (
            words,
            done.returncode,
            done.stdout[-2000:],
            done.stderr[-2000:],
        )
        return json.loads(done.stdout)

    return run


@pytest.fixture
def reconcile(makegood: Callable[..., Any], shop: ShopControl) -> Reconcile:
    """The next run, an hour of the provider's later."""

    def run(*words: str) -> Document:
        shop.advance_clock(3600)
        found: Document = makegood("reconcile", *words)
        assert found["adds_up"], found["problems"]
        assert found["problems"] == []
        return found

    return run


@pytest.fixture
def provider(settings: Settings) -> Iterator[stripe.StripeClient]:
    """The provider as a program without makegood uses it: it gives up after seconds, where others wait for 31."""
    base: Any = {"api": str(settings.stripe_api_base)}
    transport = stripe.HTTPXClient(timeout=httpx.Timeout(GIVES_UP_SECONDS), allow_sync_methods=True)
    yield stripe.StripeClient("sk_test_makegood", base_addresses=base, http_client=transport, max_network_retries=0)
    transport.close()


def charge(provider: stripe.StripeClient, order: str, amount_minor: int = AMOUNT_MINOR) -> str:
    """Without a key of its own: the client invents one each time."""
    request: Any = {**PAYMENT, "amount": amount_minor, "metadata": {"order_id": order}}
    return str(provider.v1.payment_intents.create(request).id)


def allow(database: DatabaseUrls, *classes: str) -> None:
    for class_ in classes:
        database.rows(
            "SELECT makegood.set_remedy_policy('test', %s, false, 'ann', 'we trust it')", (class_,), role="jobs"
        )


def classes_of(found: Document) -> dict[str, str]:
    return {one["order"]: one["class"] for one in found["findings"]}


def money_of(shop: ShopControl, order: str) -> tuple[int, int]:
    """What the shop's own log says: charged and given back."""
    story = shop.order(order)
    return story["charged"].get("eur", 0), story["refunded"].get("eur", 0)


def test_zombie_order_is_found_by_the_next_run_and_the_customer_has_their_money_back(
    database: DatabaseUrls, shop: ShopControl, reconcile: Reconcile, provider: stripe.StripeClient
) -> None:
    charge(provider, "order-77")  # and there the process died: no order was ever written
    assert database.rows("SELECT 1 FROM makegood.orders WHERE id = 'order-77'") == []

    found = reconcile()
    assert classes_of(found) == {"order-77": "D01"}
    assert found["at_risk_minor"] == {"EUR": AMOUNT_MINOR}
    assert money_of(shop, "order-77") == (AMOUNT_MINOR, 0)  # nobody allowed anything

    allow(database, "D01")
    reconcile("--act", "--full")  # the second look; by itself it comes an hour later
    assert money_of(shop, "order-77") == (AMOUNT_MINOR, AMOUNT_MINOR)

    for _ in range(2):
        after = reconcile("--act", "--full")
        assert after["open"] == 0
    assert money_of(shop, "order-77") == (AMOUNT_MINOR, AMOUNT_MINOR)
    assert shop.order("order-77")["counts"] == {"charge": 1, "refund": 1}


def test_double_charge_is_found_approved_by_a_second_person_and_given_back_exactly(
    database: DatabaseUrls,
    shop: ShopControl,
    makegood: Callable[..., Any],
    reconcile: Reconcile,
    provider: stripe.StripeClient,
) -> None:
    shop.set_faults({"hang_seconds": 10, "rules": [{"operation": "charge", "fault": "timeout_after", "nth": 1}]})
    with pytest.raises(stripe.APIConnectionError):
        charge(provider, "order-1", DEAR_MINOR)  # it worked, and nobody heard
    shop.clear_faults()
    payment = charge(provider, "order-1", DEAR_MINOR)  # retried, without the same key
    database.rows(
        "INSERT INTO makegood.orders (id, status, amount_minor, currency, payment_ref, customer_ref)"
        " VALUES ('order-1', 'fulfilled', %s, 'EUR', %s, 'cus_1')",
        (DEAR_MINOR, payment),
    )
    assert money_of(shop, "order-1") == (2 * DEAR_MINOR, 0)

    found = reconcile()
    assert classes_of(found) == {"order-1": "D08"}
    assert found["at_risk_minor"] == {"EUR": DEAR_MINOR}

    allow(database, "D08")
    reconcile("--act")
    assert money_of(shop, "order-1") == (2 * DEAR_MINOR, 0)  # above the cap: it waits for a second person
    (asked,) = database.rows("SELECT * FROM makegood.approvals")
    assert (asked["state"], asked["amount_minor"]) == ("requested", DEAR_MINOR)

    verdicts = [approve(database, who) for who in (asked["requested_by"], "bob", "carol")]
    assert verdicts == ["self", "approved", "taken"]
    for _ in range(2):
        reconcile("--act")
    assert money_of(shop, "order-1") == (2 * DEAR_MINOR, DEAR_MINOR)
    assert shop.order("order-1")["net"] == {"eur": DEAR_MINOR}  # exactly what the order costs

    after = reconcile("--act", "--full")
    assert after["open"] == 0
    assert shop.order("order-1")["counts"] == {"charge": 2, "refund": 1}


def approve(database: DatabaseUrls, who: str) -> str:
    """What a second person says to the only finding there is; the verdict."""
    rows = database.rows(
        "SELECT v.verdict FROM makegood.reconciliation_findings f,"
        " makegood.approve_remedy(f.id, %s, 'charged twice indeed') AS v",
        (who,),
        role="jobs",
    )
    return str(rows[0]["verdict"])


def test_day_in_the_shop_ends_with_totals_that_add_up_and_nothing_false_found(
    database: DatabaseUrls, shop: ShopControl, makegood: Callable[..., Any], reconcile: Reconcile
) -> None:
    """A hundred orders, declined, cancelled and undeliverable ones too, and what happened at the provider alone."""
    shopping = ("shop", "run", "--orders", "100", "--rate", "25", "--faults", "calm", "--mishaps", "--seed", "5")
    makegood(*shopping)
    shop.clear_faults()

    found = reconcile("--full")

    expected = truth(database, shop)
    assert set(expected.values()) <= {"D01", "D08", "D18"}
    assert Counter(expected.values())
    assert classes_of(found) == expected
    captured = {code.upper(): amount for code, amount in shop.totals()["charged"].items()}
    assert {totals["currency"]: totals["provider"]["amount_minor"] for totals in found["totals"]} == captured


def truth(database: DatabaseUrls, shop: ShopControl) -> dict[str, str]:
    """By the shop's log and our orders alone, without any rule of the reconciliation."""
    orders = {row["id"]: row for row in database.rows("SELECT * FROM makegood.orders")}
    charged: Counter[str] = Counter()
    refunded: Counter[str] = Counter()
    for entry in shop.log():
        if entry["kind"] == "charge":
            charged[entry["order_id"]] += 1
        elif entry["kind"] == "refund":
            refunded[entry["order_id"]] += 1
    wrong = {}
    for order, charges in charged.items():
        ours = orders.get(order)
        if ours is None:
            wrong[order] = "D01"
        elif charges > 1:
            wrong[order] = "D08"
        elif refunded[order] and not ours["refunded_minor"]:
            wrong[order] = "D18"
    return wrong


def test_incremental_runs_find_what_a_full_run_finds(
    database: DatabaseUrls, shop: ShopControl, reconcile: Reconcile, provider: stripe.StripeClient
) -> None:
    reconcile()  # the first is full, of nothing
    for number in range(3):
        charge(provider, f"order-{secrets.token_hex(3)}-{number}")
        assert reconcile()["run"]["kind"] == "incremental"

    full = reconcile("--full")

    assert (full["open"], full["run"]["missed"]) == (3, 0)


def test_provider_that_does_not_let_us_in_is_said_and_nothing_is_put_right(
    database: DatabaseUrls, shop: ShopControl, makegood: Callable[..., Any], provider: stripe.StripeClient
) -> None:
    charge(provider, "order-9")
    shop.advance_clock(3600)
    allow(database, "D01")

    found = makegood("reconcile", "--act", code=1, MAKEGOOD_STRIPE_API_KEY="revoked")

    assert "not here completely" in " ".join(found["problems"])
    assert money_of(shop, "order-9") == (AMOUNT_MINOR, 0)
    with psycopg.connect(database.read, autocommit=True) as connection:
        kinds = connection.execute("SELECT payload->>'kind' FROM makegood.outbox WHERE topic = 'alert'").fetchall()
    assert ("reconciliation_stale",) in kinds
