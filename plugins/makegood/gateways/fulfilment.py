"""Inventory and shipping: HTTP steps whose undo finds out by itself what there is to undo."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from makegood.engine.definitions import Action, Call, Request
from makegood.engine.outcomes import Outcome, Success, Suspect, Unknown
from makegood.gateways.http_steps import HttpEndpoint, exchange, find_all


@dataclass(frozen=True)
class Undo:
    """Takes back what a service has for an order. Harmless where it has nothing, and when done twice."""

    client: httpx.AsyncClient
    collection_url: str
    verb: str
    step: str
    id_name: str
    provider: str

    def action(self) -> Action:
        return Action(send=self.send, request=self.request, provider=self.provider)

    def request(self, call: Call) -> Request:
        return {"collection": self.collection_url, "verb": self.verb, "entity_id": call.entity_id}

    async def send(self, call: Call, request: Request) -> Outcome:
        known = call.result_of(self.step).get(self.id_name)
        if isinstance(known, str):
            return await self._take_back(call, known)
        found = await find_all(self.client, _list_url(self.collection_url, call))
        if isinstance(found, Unknown):
            return found
        if len(found) > 1:
            return Suspect("ambiguous", f"{len(found)} found for {call.entity_id}, at most one was asked for")
        return await self._take_back(call, found[0][self.id_name]) if found else Success({"nothing_to_undo": True})

    async def _take_back(self, call: Call, identity: str) -> Outcome:
        url = f"{self.collection_url}/{identity}/{self.verb}"
        headers = {"Idempotency-Key": call.key, "Content-Type": "application/json"}
        outcome = await exchange(self.client, "POST", url, headers=headers, content="{}")
        return Success({self.id_name: identity}) if isinstance(outcome, Success) else outcome


@dataclass(frozen=True)
class Inventory:
    client: httpx.AsyncClient
    url: str

    def reserve(self) -> Action:
        collection = f"{self.url}/inventory/reservations"
        endpoint = HttpEndpoint(self.client, collection, _reservation, lambda call: _list_url(collection, call))
        return keep_only(endpoint, "reservation_id", "inventory")

    def release(self) -> Action:
        collection = f"{self.url}/inventory/reservations"
        return Undo(self.client, collection, "release", "reserve", "reservation_id", "inventory").action()


@dataclass(frozen=True)
class Shipping:
    client: httpx.AsyncClient
    url: str

    def ship(self) -> Action:
        collection = f"{self.url}/shipping/shipments"
        endpoint = HttpEndpoint(self.client, collection, _shipment, lambda call: _list_url(collection, call))
        return keep_only(endpoint, "shipment_id", "shipping")

    def cancel(self) -> Action:
        collection = f"{self.url}/shipping/shipments"
        return Undo(self.client, collection, "cancel", "ship", "shipment_id", "shipping").action()


def keep_only(endpoint: HttpEndpoint, name: str, provider: str) -> Action:
    """The endpoint's action, with nothing kept of its answer but the id that the undo needs."""

    def kept(outcome: Outcome | None) -> Outcome | None:
        if not isinstance(outcome, Success):
            return outcome
        if not isinstance(outcome.result.get(name), str):
            return Unknown("malformed", f"the answer has no {name}")
        return Success({name: outcome.result[name]})

    async def send(call: Call, request: Request) -> Outcome | None:
        return kept(await endpoint.send(call, request))

    async def look_up(call: Call) -> Outcome | None:
        return kept(await endpoint.look_up(call))

    return Action(send=send, request=endpoint.request, look_up=look_up, provider=provider)


def _reservation(call: Call) -> Mapping[str, Any]:
    return {
        "order_id": call.entity_id,
        "sku": call.context.get("sku", "sku-1"),
        "quantity": call.context.get("quantity", 1),
    }


def _shipment(call: Call) -> Mapping[str, Any]:
    return {"order_id": call.entity_id, "address": call.context.get("address", {})}


def _list_url(collection: str, call: Call) -> str:
    return str(httpx.URL(collection, params={"order_id": call.entity_id}))
