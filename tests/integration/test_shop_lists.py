"""Lists through the real client: nothing skipped, nothing twice, newest first."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise

import pytest
import stripe

from sandbox.client import ShopControl, ShopProcess

pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")

COUNT = 230
DAY = 86_400


@pytest.fixture(scope="module")
def client() -> Iterator[stripe.StripeClient]:
    """A shop with 230 charges: 110 two days ago, 100 yesterday, 20 today."""
    with ShopProcess() as process, ShopControl(process.url) as control:
        http = stripe.HTTPXClient(timeout=5, allow_sync_methods=True)
        client = stripe.StripeClient("sk_test_shop", base_addresses={"api": process.url}, http_client=http)
        for number in range(COUNT):
            if number in (110, 210):
                control.advance_clock(DAY)
            given = {"amount": number + 1, "currency": "usd", "payment_method": "pm_card_visa", "confirm": True}
            client.v1.payment_intents.create(given)  # type: ignore[arg-type]
        yield client
        http.close()


def test_list_without_limit_shows_ten_newest_first(client: stripe.StripeClient) -> None:
    page = client.v1.charges.list()
    assert [item.amount for item in page.data] == list(range(COUNT, COUNT - 10, -1))
    assert (page.has_more, page.url) == (True, "/v1/charges")


@pytest.mark.parametrize("limit", [7, 100])
def test_paging_past_a_hundred_sees_each_object_once(client: stripe.StripeClient, limit: int) -> None:
    found = [item.amount for item in client.v1.charges.list({"limit": limit}).auto_paging_iter()]
    assert found == list(range(COUNT, 0, -1))


def test_paging_backwards_sees_each_object_once(client: stripe.StripeClient) -> None:
    oldest = list(client.v1.charges.list({"limit": 100}).auto_paging_iter())[-1]
    found = [item.amount for item in client.v1.charges.list({"ending_before": oldest.id}).auto_paging_iter()]
    assert found == list(range(2, COUNT + 1))


def test_created_windows_that_touch_cover_all_and_overlap_nowhere(client: stripe.StripeClient) -> None:
    newest = client.v1.charges.list({"limit": 1}).data[0].created
    borders = [newest - 10 * DAY, newest - DAY - DAY // 2, newest - DAY // 2, newest + 1]
    found = []
    for start, end in pairwise(borders):
        window = client.v1.charges.list({"limit": 100, "created": {"gte": start, "lt": end}})
        found.append([item.amount for item in window.auto_paging_iter()])
    assert [len(window) for window in found] == [110, 100, 20]
    assert sorted(chain(*found)) == list(range(1, COUNT + 1))


def test_created_exact_second_finds_that_second(client: stripe.StripeClient) -> None:
    newest = client.v1.charges.list({"limit": 1}).data[0]
    found = list(client.v1.charges.list({"limit": 100, "created": newest.created}).auto_paging_iter())
    assert found[0].id == newest.id
    assert {item.created for item in found} == {newest.created}


def test_list_of_one_payment_intent_shows_its_charge_alone(client: stripe.StripeClient) -> None:
    intent = client.v1.payment_intents.list({"limit": 5}).data[4]
    found = client.v1.charges.list({"payment_intent": intent.id}).data
    assert [item.id for item in found] == [intent.latest_charge]


def test_list_expands_what_its_data_names(client: stripe.StripeClient) -> None:
    page = client.v1.payment_intents.list({"limit": 2, "expand": ["data.latest_charge"]})
    assert [item.latest_charge.amount for item in page.data] == [COUNT, COUNT - 1]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("given", "param", "code"),
    [
        ({"limit": 0}, "limit", "parameter_invalid_integer"),
        ({"limit": 101}, "limit", "parameter_invalid_integer"),
        ({"limit": "many"}, "limit", "parameter_invalid_integer"),
        ({"starting_after": "ch_none"}, "starting_after", "resource_missing"),
        ({"ending_before": "ch_none"}, "ending_before", "resource_missing"),
        ({"created": {"after": 5}}, "created[after]", "parameter_unknown"),
        ({"created": "yesterday"}, "created", "parameter_invalid_integer"),
        ({"updated": 5}, "updated", "parameter_unknown"),  # Stripe has no such filter
    ],
)
def test_list_with_a_bad_parameter_is_refused(
    client: stripe.StripeClient, given: dict[str, object], param: str, code: str
) -> None:
    with pytest.raises(stripe.InvalidRequestError) as refused:
        client.v1.charges.list(given)  # type: ignore[arg-type]
    assert (refused.value.param, refused.value.code) == (param, code)


def test_cursor_of_another_kind_is_refused(client: stripe.StripeClient) -> None:
    intent = client.v1.payment_intents.list({"limit": 1}).data[0]
    with pytest.raises(stripe.InvalidRequestError):
        client.v1.charges.list({"starting_after": intent.id})
