"""The provider's books fetched from the shop: equal to its own in the end, and no watermark over a hole."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import stripe
from databases import DatabaseUrls

from makegood.database import Database
from makegood.gateways.ledger import UPDATES, Ledger
from makegood.reconciliation import sync as module
from makegood.reconciliation.rate import Bucket
from makegood.reconciliation.source import Page, SourceRefused, SourceUnavailable
from makegood.reconciliation.sync import sync
from makegood.settings import Settings
from sandbox.client import ShopControl, ShopProcess

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

DAY = 86_400
LAG = 60
ONLY_CHARGES = ("charges",)


class Shopper:
    """Pays, captures and refunds through the real client."""

    def __init__(self, url: str, control: ShopControl) -> None:
        self._http = stripe.HTTPXClient(timeout=30, allow_sync_methods=True)
        self.api = stripe.StripeClient("sk_test_shop", base_addresses={"api": url}, http_client=self._http).v1
        self.control = control

    def pay(self, order: str, amount: int = 1999, card: str = "pm_card_visa", **more: Any) -> Any:
        given = {"amount": amount, "currency": "eur", "payment_method": card, "confirm": True}
        return self.api.payment_intents.create({**given, "metadata": {"order_id": order}, **more})

    def later(self, seconds: float = LAG + 2) -> None:
        """Everything so far becomes older than the lag."""
        self.control.advance_clock(seconds)

    def close(self) -> None:
        self._http.close()


@pytest.fixture
def shopper(shop: ShopControl, shop_process: ShopProcess) -> Iterator[Shopper]:
    found = Shopper(shop_process.url, shop)
    yield found
    found.close()


def fetch(
    database: DatabaseUrls, shopper: Shopper, settings: Settings, *, key: str = "sk_test_shop", **options: Any
) -> Counter[str]:
    """One fetch, quick and with few readers unless told otherwise."""
    changes = {"sync_pages_at_once": options.pop("at_once", 2), "sync_lag_seconds": LAG}
    changed = settings.model_copy(update=changes | options.pop("changes", {}))
    ledger_class = options.pop("ledger_class", Ledger)

    async def run() -> Counter[str]:
        ledger = ledger_class(key, str(settings.stripe_api_base), bucket=Bucket(1000))
        try:
            async with Database(database.jobs) as opened:
                return await sync(opened, ledger, changed, **options)
        finally:
            await ledger.close()

    return asyncio.run(run())


def states(database: DatabaseUrls) -> dict[str, Any]:
    return {row["collection"]: row for row in database.rows("SELECT * FROM makegood.provider_sync")}


def held(database: DatabaseUrls, collection: str) -> dict[str, Any]:
    return {row["id"]: row for row in database.rows(f"SELECT * FROM makegood.provider_{collection}")}


def at(database: DatabaseUrls, collection: str = "charges") -> datetime | None:
    found: datetime | None = states(database)[collection]["watermark"]
    return found


def many(shopper: Shopper, count: int, *, days: int = 1) -> None:
    """So many charges, spread over days."""
    for number in range(count):
        shopper.pay(f"order-{number}", 100 + number)
        if number % max(1, count // days) == 0:
            shopper.later(DAY)
    shopper.later()


def test_first_fetch_has_every_object_of_every_collection_as_the_shop_has_it(
    database: DatabaseUrls, shopper: Shopper, settings: Settings
) -> None:
    shopper.pay("order-1")
    refunded = shopper.pay("order-2", 500)
    refund = shopper.api.refunds.create(
        {"payment_intent": refunded.id, "amount": 200, "metadata": {"compensation_id": "c-1"}}
    )
    shopper.pay("order-3", 700, capture_method="manual")
    with pytest.raises(stripe.CardError):
        shopper.pay("order-4", card="pm_card_chargeDeclined")
    disputed = shopper.pay("order-5")
    dispute = shopper.control.open_dispute(disputed.latest_charge)
    payout = shopper.control.pay_out("eur")
    shopper.later()
    counts = fetch(database, shopper, settings)
    charges = {row["order_ref"]: row for row in held(database, "charges").values()}
    assert {name: (c["status"], c["amount_minor"], c["captured_minor"], c["plain"]) for name, c in charges.items()} == {
        "order-1": ("succeeded", 1999, 1999, True),
        "order-2": ("succeeded", 500, 500, False),
        "order-3": ("authorized", 700, 0, False),
        "order-4": ("failed", 1999, 0, False),
        "order-5": ("succeeded", 1999, 1999, False),
    }
    assert charges["order-1"]["currency"] == "EUR"
    assert charges["order-3"]["capture_before"] is not None
    assert held(database, "refunds")[refund.id]["compensation_ref"] == "c-1"
    assert held(database, "disputes")[dispute["id"]]["status"] == "open"
    assert held(database, "payouts")[payout["id"]]["amount_minor"] == payout["amount"]
    movements = held(database, "balance_transactions").values()
    assert sum(m["net_minor"] for m in movements if m["payout_ref"] == payout["id"]) == payout["amount"]
    assert counts["charges.rows"] == 5
    assert all(
        row["error"] is None and row["watermark"] and not row["lease_owner"] for row in states(database).values()
    )


def test_second_fetch_changes_nothing(database: DatabaseUrls, shopper: Shopper, settings: Settings) -> None:
    many(shopper, 5)
    shopper.control.pay_out("eur")
    shopper.later()
    fetch(database, shopper, settings)
    before = {name: held(database, name) for name in module.COLLECTIONS}
    counts = fetch(database, shopper, settings)
    assert sum(n for name, n in counts.items() if name.endswith("changed")) == 0
    assert {name: held(database, name) for name in module.COLLECTIONS} == before


def test_empty_shop_is_complete_after_one_fetch(database: DatabaseUrls, shopper: Shopper, settings: Settings) -> None:
    counts = fetch(database, shopper, settings)
    assert not any(name.endswith(("failed", "busy")) for name in counts)
    assert all(row["watermark"] is not None for row in states(database).values())


def test_watermark_stays_the_lag_behind_the_providers_clock_not_ours(
    database: DatabaseUrls, shopper: Shopper, settings: Settings
) -> None:
    shopper.control.advance_clock(100 * DAY)
    now = shopper.pay("order-1").created
    fetch(database, shopper, settings, collections=ONLY_CHARGES)
    assert held(database, "charges") == {}  # too young to be sure that nothing of its second is missing
    mark = at(database)
    assert mark is not None
    assert -5 <= mark.timestamp() - (now - LAG) <= 30
    shopper.later()
    fetch(database, shopper, settings, collections=ONLY_CHARGES)
    assert len(held(database, "charges")) == 1


def test_many_pages_with_many_readers_are_all_read_once(
    database: DatabaseUrls, shopper: Shopper, settings: Settings
) -> None:
    many(shopper, 330, days=3)
    counts = fetch(database, shopper, settings, at_once=6, collections=ONLY_CHARGES)
    assert len(held(database, "charges")) == 330
    assert counts["charges.changed"] == 330
    assert counts["charges.duplicates"] == 0
    assert database.rows("SELECT * FROM makegood.provider_windows") == []


class UsedUp(Ledger):
    """Pages of ten, and a rate that others use up."""

    async def list_page(self, collection: str, *, limit: int = 10, **more: Any) -> Page:
        return await super().list_page(collection, limit=min(limit, 10), **more)

    def loses_turns(self) -> bool:
        return False


class Unused(UsedUp):
    def loses_turns(self) -> bool:
        return True


@pytest.mark.parametrize(("ledger_class", "cut"), [(UsedUp, False), (Unused, True)])
def test_window_is_cut_for_an_idle_reader_only_while_turns_of_the_rate_are_lost(
    database: DatabaseUrls, shopper: Shopper, settings: Settings, ledger_class: type[Ledger], cut: bool
) -> None:
    began = shopper.pay("order-0").created
    for number in range(1, 64):
        shopper.pay(f"order-{number}", 100 + number)
        shopper.later(30)
    shopper.later()
    counts = fetch(
        database, shopper, settings, at_once=4, collections=ONLY_CHARGES, since=began, ledger_class=ledger_class
    )
    assert (len(held(database, "charges")), counts["charges.failed"]) == (64, 0)
    calls = len(shopper.control.list_calls(operation="list"))
    uncut = 1 + 7 + 2  # the time; seven pages, which share a row with the one before; and one window's two ends
    assert calls > uncut if cut else calls == uncut


def test_late_row_within_the_overlap_is_found_and_the_overlap_is_all_that_is_read(
    database: DatabaseUrls, shopper: Shopper, settings: Settings
) -> None:
    many(shopper, 4, days=4)
    fetch(database, shopper, settings, collections=ONLY_CHARGES)
    shopper.pay("late")
    shopper.later()
    database.rows("DELETE FROM makegood.provider_charges")  # as if none had been visible before
    fetch(database, shopper, settings, collections=ONLY_CHARGES, changes={"sync_overlap_seconds": DAY // 2})
    assert {row["order_ref"] for row in held(database, "charges").values()} == {"late"}
    fetch(database, shopper, settings, collections=ONLY_CHARGES, since=0)
    assert len(held(database, "charges")) == 5


def test_changes_of_old_objects_are_seen_without_being_new(
    database: DatabaseUrls, shopper: Shopper, settings: Settings
) -> None:
    held_back = shopper.pay("captured later", capture_method="manual")
    let_go = shopper.pay("let go", capture_method="manual")
    pending = shopper.api.refunds.create({"payment_intent": shopper.pay("r1", card="pm_card_pendingRefund").id})
    done = shopper.api.refunds.create({"payment_intent": shopper.pay("r2").id})
    dispute = shopper.control.open_dispute(shopper.pay("d1").latest_charge)
    payout = shopper.control.pay_out("eur", status="in_transit")
    shopper.later(3 * 3600)  # beyond the overlap
    fetch(database, shopper, settings)
    assert held(database, "refunds")[done.id]["status"] == "succeeded"
    shopper.later(3 * 3600)
    fetch(database, shopper, settings)
    shopper.api.payment_intents.capture(held_back.id, {"amount_to_capture": 1500})
    shopper.api.payment_intents.cancel(let_go.id)
    shopper.control.settle_refund(pending.id, "failed")
    shopper.control.settle_refund(done.id, "failed")  # seemed done: only an event tells
    shopper.control.close_dispute(dispute["id"], "lost")
    shopper.control.settle_payout(payout["id"], "paid")
    shopper.later(3 * 3600)
    fetch(database, shopper, settings)
    charges = {row["order_ref"]: row for row in held(database, "charges").values()}
    assert (charges["captured later"]["status"], charges["captured later"]["captured_minor"]) == ("succeeded", 1500)
    assert charges["let go"]["status"] == "lapsed"
    assert {row["status"] for row in held(database, "refunds").values()} == {"failed"}
    assert held(database, "disputes")[dispute["id"]]["status"] == "lost"
    assert held(database, "payouts")[payout["id"]]["status"] == "paid"


def test_authorisation_that_ran_out_is_lapsed(database: DatabaseUrls, shopper: Shopper, settings: Settings) -> None:
    shopper.pay("order-1", capture_method="manual")
    shopper.later()
    fetch(database, shopper, settings, collections=ONLY_CHARGES)
    shopper.later(8 * DAY)
    fetch(database, shopper, settings, collections=ONLY_CHARGES)
    (row,) = held(database, "charges").values()
    assert row["status"] == "lapsed"


# A provider on a bad day


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("the 3rd list skips a page", "rows were skipped"),
        ("the 2nd list skips a page", "left out"),  # the first page of all: the look before its first row tells
        ("the 2nd list denies that there is more", "left out"),
        ("lists 4 to 90 claim that there is more", "shows nothing new"),
    ],
)
def test_list_that_cannot_be_names_its_window_and_the_watermark_stays(
    database: DatabaseUrls, shopper: Shopper, settings: Settings, fault: str, says: str
) -> None:
    many(shopper, 230)
    start = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
    shopper.control.say(fault)  # the first list asks the time
    counts = fetch(database, shopper, settings, at_once=1, collections=ONLY_CHARGES, since=start)
    assert counts["charges.failed"] == 1
    state = states(database)["charges"]
    assert says in state["error"]
    assert "charges of 2026-01-01 00:00:00Z to" in state["error"]
    assert state["watermark"] is None
    shopper.control.clear_faults()
    counts = fetch(database, shopper, settings, at_once=1, collections=ONLY_CHARGES, since=start)
    assert counts["charges.failed"] == 0
    assert len(held(database, "charges")) == 230
    assert states(database)["charges"]["error"] is None
    assert at(database) is not None


def test_list_that_repeats_a_row_counts_it_once_and_says_so(
    database: DatabaseUrls, shopper: Shopper, settings: Settings
) -> None:
    many(shopper, 130)
    shopper.control.say("lists 2 to 3 repeat a row")
    counts = fetch(database, shopper, settings, at_once=1, collections=ONLY_CHARGES, since=1_700_000_000)
    assert (counts["charges.duplicates"], counts["charges.changed"]) == (2, 130)
    assert len(database.rows("SELECT * FROM makegood.provider_duplicates WHERE source = 'sync'")) == 2
    assert at(database) is not None


def test_key_that_is_not_accepted_stops_the_fetch_with_what_to_do(
    database: DatabaseUrls, shopper: Shopper, settings: Settings
) -> None:
    with pytest.raises(SourceRefused, match="does not accept the key") as caught:
        fetch(database, shopper, settings, key="sk_live_wrong")
    assert "MAKEGOOD_STRIPE_API_KEY" in str(caught.value.hint)
    shopper.pay("order-1")
    shopper.later()
    shopper.control.say("lists 3 to 90 are unauthorized")  # revoked in the middle
    with pytest.raises(SourceRefused):
        fetch(database, shopper, settings)
    assert all(row["watermark"] is None and not row["lease_owner"] for row in states(database).values())


@pytest.mark.parametrize("away", ["unauthorized", "down"])
def test_provider_that_is_not_there_after_a_good_fetch_is_said_by_every_collection(
    database: DatabaseUrls, shopper: Shopper, settings: Settings, monkeypatch: pytest.MonkeyPatch, away: str
) -> None:
    """The first question fails already, before anything is claimed: the good fetch before says nothing of this."""
    monkeypatch.setattr(module, "ATTEMPTS_MAX", 1)
    shopper.later()
    fetch(database, shopper, settings)
    marks = {name: row["watermark"] for name, row in states(database).items()}
    if away == "down":
        shopper.control.set_faults({"rules": [{"operation": "list", "fault": "error_503"}]})
    with pytest.raises((SourceRefused, SourceUnavailable)):
        fetch(database, shopper, settings, key="sk_live_wrong" if away == "unauthorized" else "sk_test_shop")
    said = "does not accept the key" if away == "unauthorized" else "does not answer"
    assert all(said in row["error"] and not row["lease_owner"] for row in states(database).values())
    assert {name: row["watermark"] for name, row in states(database).items()} == marks
    shopper.control.clear_faults()
    fetch(database, shopper, settings)
    assert all(row["error"] is None for row in states(database).values())


@pytest.mark.parametrize("fault", ["rate_limited", "error_503", "reset_before", "truncated", "malformed"])
def test_provider_that_is_only_busy_is_asked_again(
    database: DatabaseUrls, shopper: Shopper, settings: Settings, fault: str
) -> None:
    many(shopper, 120)
    rule = {"operation": "list", "fault": fault, "from_nth": 2, "to_nth": 3}
    shopper.control.set_faults({"retry_after_seconds": 1, "rules": [rule]})
    counts = fetch(database, shopper, settings, at_once=1, collections=ONLY_CHARGES, since=1_700_000_000)
    assert counts["charges.failed"] == 0
    assert len(held(database, "charges")) == 120


def test_provider_that_stays_away_leaves_the_watermark_and_gives_the_collection_back(
    database: DatabaseUrls, shopper: Shopper, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ATTEMPTS_MAX", 2)
    many(shopper, 120)
    shopper.control.set_faults({"rules": [{"operation": "list", "fault": "error_503", "from_nth": 3}]})
    counts = fetch(database, shopper, settings, at_once=1, collections=ONLY_CHARGES, since=1_700_000_000)
    assert counts["charges.failed"] == 1
    state = states(database)["charges"]
    assert (state["watermark"], state["lease_owner"]) == (None, None)
    assert "does not answer" in state["error"]
    assert len(held(database, "charges")) == 100  # the page that came is kept
    shopper.control.clear_faults()
    shopper_calls = len(shopper.control.list_calls(operation="list"))
    fetch(database, shopper, settings, at_once=1, collections=ONLY_CHARGES)
    assert len(held(database, "charges")) == 120
    # The time, the rest of the window with its two ends, and the window of the time since: nothing is read anew.
    assert len(shopper.control.list_calls(operation="list")) - shopper_calls <= 8


def test_object_in_an_unknown_currency_is_kept_aside_and_the_rest_goes_on(
    database: DatabaseUrls, shopper: Shopper, settings: Settings
) -> None:
    shopper.pay("order-1")
    shopper.pay("order-2", currency="kes")
    shopper.later()
    database.rows("DELETE FROM makegood.currencies WHERE code = 'KES'")
    counts = fetch(database, shopper, settings, collections=ONLY_CHARGES)
    assert (counts["charges.rows"], counts["charges.refused"]) == (1, 1)
    (kept,) = database.rows("SELECT * FROM makegood.provider_rejects")
    assert "KES does not exist" in kept["reason"]
    assert at(database) is not None


def test_charge_that_succeeds_is_named_by_its_event_however_old_it_is(
    database: DatabaseUrls, shopper: Shopper, settings: Settings
) -> None:
    """A bank debit is days old when it does; among many that may still change, chance alone would find it."""
    paid = shopper.pay("order-1")

    async def ask() -> Any:
        ledger = Ledger("sk_test_shop", str(settings.stripe_api_base), bucket=Bucket(1000))
        try:
            return await ledger.list_updates("charges", 0)
        finally:
            await ledger.close()

    named, _ = asyncio.run(ask())
    assert list(named) == [paid.latest_charge]
    assert "charge.failed" in UPDATES["charges"]


# Two at once


def test_collection_that_another_has_is_left_alone(
    database: DatabaseUrls, shopper: Shopper, settings: Settings
) -> None:
    database.rows("SELECT * FROM makegood.claim_sync('stripe', 'charges', 'another', 60)", role="jobs")
    counts = fetch(database, shopper, settings, collections=("charges", "refunds"))
    assert counts["charges.busy"] == 1
    assert states(database)["charges"]["watermark"] is None
    assert states(database)["refunds"]["watermark"] is not None


def test_page_of_a_fetch_that_was_taken_over_is_refused(database: DatabaseUrls) -> None:
    def ask(statement: str, *parameters: Any) -> list[dict[str, Any]]:
        return database.rows(statement, parameters, role="jobs")

    claim = "SELECT * FROM makegood.claim_sync('stripe', 'charges', %s, %s)"
    (late,) = ask(claim, "late", 0.0)
    plan = "SELECT * FROM makegood.plan_windows('stripe', 'charges', %s, %s::jsonb, 60)"
    window = json.dumps([{"from": 0, "until": 100}])
    ask(plan, late["fence"], window)
    database.rows("UPDATE makegood.provider_sync SET lease_until = clock_timestamp()")
    (new,) = ask(claim, "new", 60.0)
    page = "SELECT makegood.put_provider_page('stripe', 'charges', %s, 60, 0, '[]', '{}', true) AS put"
    assert ask(page, late["fence"])[0]["put"] is None
    assert ask(plan, late["fence"], window) == []
    ask("SELECT makegood.fail_window('stripe', 'charges', %s, 0, 'late')", late["fence"])
    ask("SELECT makegood.release_sync('stripe', 'charges', %s, 'late')", late["fence"])
    state = states(database)["charges"]
    assert (state["watermark"], state["lease_owner"], state["error"]) == (None, "new", None)
    assert ask(page, new["fence"])[0]["put"]["rows"] == 0
    assert at(database) == datetime.fromtimestamp(100, UTC)


def test_watermark_follows_the_first_window_that_is_not_done(database: DatabaseUrls) -> None:
    def ask(statement: str, *parameters: Any) -> list[dict[str, Any]]:
        return database.rows(statement, parameters, role="jobs")

    (claim,) = ask("SELECT * FROM makegood.claim_sync('stripe', 'charges', 'me', 60)")
    fence = claim["fence"]
    windows = json.dumps([{"from": n, "until": n + 100} for n in (0, 100, 200)])
    ask("SELECT * FROM makegood.plan_windows('stripe', 'charges', %s, %s::jsonb, 60)", fence, windows)

    def done(start: int, split: int | None = None) -> float | None:
        ask(
            "SELECT makegood.put_provider_page('stripe', 'charges', %s, 60, %s, '[]', '{}', %s, %s)",
            *(fence, start, split is None, split),
        )
        mark = at(database)
        return None if mark is None else mark.timestamp()

    assert done(100) is None  # the oldest is still open
    assert done(0, split=50) is None
    assert done(50) is None  # the newer half
    assert done(0) == 200  # and everything that waited behind it
    assert done(200) == 300


@pytest.mark.parametrize(
    "windows", [[{"from": 0, "until": 100}, {"from": 101, "until": 200}], [{"from": 600, "until": 700}]]
)
def test_windows_with_a_gap_are_refused(database: DatabaseUrls, windows: list[Any]) -> None:
    (claim,) = database.rows("SELECT * FROM makegood.claim_sync('stripe', 'charges', 'me', 60)", role="jobs")
    database.rows("UPDATE makegood.provider_sync SET watermark = to_timestamp(500)")
    with pytest.raises(Exception, match="leave a gap"):
        database.rows(
            "SELECT * FROM makegood.plan_windows('stripe', 'charges', %s, %s::jsonb, 60)",
            (claim["fence"], json.dumps(windows)),
            role="jobs",
        )
