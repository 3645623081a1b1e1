"""The provider's books through the real ``stripe`` client: lists by ``created``, single objects, and what changed.

Reads only. Every request waits for its turn in one bucket, so that all cursors together stay within the account's rate.
Nothing is repeated here: whoever asks knows how patient to be. Answers are taken as the client decoded them: making its
own objects of a page of a hundred costs some 20 ms, and at the live rate no core has that.
"""

from __future__ import annotations

import contextlib
import email.utils
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import httpx
import stripe

from makegood.errors import PermanentError
from makegood.gateways.http_steps import retry_after_seconds
from makegood.gateways.ledger_rows import read_row
from makegood.reconciliation.rate import Bucket, allowed_per_second
from makegood.reconciliation.source import PAGE_ROWS, Page, Row, SourceRefused, SourceUnavailable, SourceWrong
from makegood.settings import Settings

PROVIDER = "stripe"
REQUEST_SECONDS = 30.0  # a page of a hundred takes a second or two on a bad day
# What tells of a change to an object that may be older than any window, per collection.
UPDATES: Mapping[str, tuple[str, ...]] = {
    # A bank debit succeeds or fails days after it was made.
    "charges": (
        "charge.succeeded",
        "charge.failed",
        "charge.captured",
        "charge.expired",
        "charge.updated",
        "payment_intent.canceled",
    ),
    "refunds": ("refund.updated", "refund.failed", "charge.refund.updated"),
    "disputes": (
        "charge.dispute.updated",
        "charge.dispute.closed",
        "charge.dispute.funds_withdrawn",
        "charge.dispute.funds_reinstated",
    ),
    "payouts": ("payout.updated", "payout.paid", "payout.failed", "payout.canceled"),
}
OWN_MOVEMENTS = frozenset(("payout", "payout_failure", "payout_cancel"))


@contextlib.asynccontextmanager
async def open_ledger(settings: Settings) -> AsyncIterator[Ledger]:
    """The configured account's books, within the rate of its key; the connections close with the block."""
    key = settings.stripe_api_key.get_secret_value()
    bucket = Bucket(settings.sync_rate_per_second or allowed_per_second(key))
    base = settings.stripe_api_base or settings.shop_url
    ledger = Ledger(key, base, bucket=bucket)
    try:
        yield ledger
    finally:
        await ledger.close()


class Ledger:
    """The books of one Stripe account; all requests take their turn in ``bucket``."""

    provider = PROVIDER

    def __init__(self, api_key: str, api_base: str | None = None, *, bucket: Bucket) -> None:
        self._http = stripe.HTTPXClient(timeout=httpx.Timeout(REQUEST_SECONDS))
        options: dict[str, Any] = {"base_addresses": {"api": api_base}} if api_base else {}
        self._client = stripe.StripeClient(api_key, http_client=self._http, max_network_retries=0, **options)
        self._bucket = bucket

    async def close(self) -> None:
        await self._http.close_async()  # type: ignore[no-untyped-call]

    async def now(self) -> datetime:
        """From the answer's ``Date``: the provider's clock decides what is young, not this machine's."""
        return _date_of(await self._get("balance_transactions", {"limit": 1}))

    def loses_turns(self) -> bool:
        return self._bucket.loses_turns()

    async def list_page(
        self,
        collection: str,
        *,
        start: int,
        end: int,
        after: str | None = None,
        before: str | None = None,
        limit: int = PAGE_ROWS,
    ) -> Page:
        parameters: dict[str, Any] = {"limit": limit, "created": {"gte": start, "lt": end}}
        parameters |= {"starting_after": after} if after else {}
        parameters |= {"ending_before": before} if before else {}
        return await self._list(collection, parameters)

    async def list_payout(self, payout_id: str, *, after: str | None = None) -> Page:
        """Without the payout's own movement: that is the sum, not a part of it."""
        parameters: dict[str, Any] = {"limit": PAGE_ROWS, "payout": payout_id}
        page = await self._list("balance_transactions", parameters | ({"starting_after": after} if after else {}))
        parts = [{**row, "payout_ref": payout_id} for row in page.rows if row["kind"] not in OWN_MOVEMENTS]
        return Page(parts, page.ids, page.created, page.has_more, page.refused)

    async def list_updates(
        self, collection: str, since: int, *, after: str | None = None
    ) -> tuple[Mapping[str, int], Page]:
        """From the events of the last 30 days. They come in no order and more than once, so only their ids are used."""
        if collection not in UPDATES:
            return {}, Page((), (), (), False)
        parameters: dict[str, Any] = {"limit": PAGE_ROWS, "types": list(UPDATES[collection]), "created": {"gte": since}}
        parameters |= {"starting_after": after} if after else {}
        answer = await self._get("events", parameters)
        events, has_more = read_list(answer)
        named = dict(filter(None, (_named(event) for event in events)))
        ids, created = [event["id"] for event in events], [event["created"] for event in events]
        return named, Page((), ids, created, has_more)

    async def get_one(self, collection: str, object_id: str) -> Row | None:
        """A charge with its payment intent, which alone knows of a cancellation."""
        options = {"expand": ["payment_intent"]} if collection == "charges" else {}
        try:
            answer = await self._get(f"{collection}/{quote(object_id, safe='')}", options)
        except SourceWrong as error:
            if isinstance(error.__cause__, stripe.InvalidRequestError) and error.__cause__.http_status == 404:
                return None
            raise
        return read_row(collection, answer.data, int(_date_of(answer).timestamp()))

    async def _list(self, collection: str, parameters: Mapping[str, Any]) -> Page:
        answer = await self._get(collection, parameters)
        return read_page(collection, *read_list(answer), _date_of(answer))

    async def _get(self, path: str, parameters: Mapping[str, Any]) -> Any:
        return await self._ask(lambda: self._client.raw_request_async("get", f"/v1/{path}", **parameters))

    async def _ask(self, request: Callable[[], Awaitable[Any]]) -> Any:
        await self._bucket.turn()
        try:
            return await request()
        except stripe.StripeError as error:
            ours = translated(error)
            if isinstance(ours, SourceUnavailable) and ours.retry_after_seconds:
                self._bucket.pause(ours.retry_after_seconds)
            raise ours from error
        except (httpx.HTTPError, ValueError) as error:  # a body that is no JSON
            raise SourceUnavailable(f"Stripe's answer could not be read: {type(error).__name__}") from error


def read_list(answer: Any) -> tuple[list[Any], bool]:
    """What a list shows, and whether there is more."""
    found = answer.data.get("data") if isinstance(answer.data, dict) else None
    if not isinstance(found, list):
        raise SourceUnavailable("Stripe's answer could not be read: it is no list")
    return found, bool(answer.data.get("has_more"))


def read_page(collection: str, items: list[Any], has_more: bool, now: datetime) -> Page:
    """One bad object never stops a page: it is set aside with its reason."""
    rows: list[Row] = []
    refused: list[tuple[str, str]] = []
    for item in items:
        try:
            rows.append(read_row(collection, item, int(now.timestamp())))
        except PermanentError as error:
            refused.append((str(item.get("id")), str(error)))
    return Page(rows, [item["id"] for item in items], [item["created"] for item in items], has_more, tuple(refused))


def translated(error: stripe.StripeError) -> Exception:
    """Only what a person has to mend, or what was asked wrongly, is definite; everything else may work later."""
    said = error.user_message or str(error)
    if isinstance(error, stripe.AuthenticationError | stripe.PermissionError):
        return SourceRefused(
            f"Stripe does not accept the key ({error.http_status}): {said}",
            hint="Set MAKEGOOD_STRIPE_API_KEY to a key that may read charges, refunds, disputes, balance and payouts.",
        )
    if isinstance(error, stripe.RateLimitError) or error.http_status is None or error.http_status >= 500:
        wait_seconds = retry_after_seconds(error.headers or {})
        return SourceUnavailable(f"Stripe does not answer now: {said}", retry_after_seconds=wait_seconds)
    if isinstance(error, stripe.InvalidRequestError):
        return SourceWrong(f"Stripe refused the request: {said}")
    return SourceUnavailable(f"Stripe's answer could not be read: {said}")


def _named(event: Mapping[str, Any]) -> tuple[str, int] | None:
    """Which object an event is about; of a payment, its charge."""
    item = event["data"]["object"]
    if item.get("object") == "payment_intent":
        charge = item.get("latest_charge")
        return (charge, item["created"]) if isinstance(charge, str) else None
    return item["id"], item["created"]


def _date_of(answer: Any) -> datetime:
    said = answer.headers.get("date") or answer.headers.get("Date")
    return email.utils.parsedate_to_datetime(said) if said else datetime.now(UTC)
