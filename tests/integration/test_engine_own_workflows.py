"""A second type of another shape, from a module of the user's own: nothing in the engine is about checkouts."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from checkouts import count_rows, drive, get_row, get_states, open_checkouts, order

from makegood.engine.runner import Start
from makegood.errors import ConfigurationError, UnknownWorkflowType
from makegood.settings import Settings
from makegood.workflows import open_workflows
from sandbox.client import ShopControl

# What a user writes: five steps, states of their own, one step without undo, plain and async callables, and HTTP.
SUBSCRIPTION = """
import httpx

from makegood.engine.definitions import Action, Step, Workflow
from makegood.engine.outcomes import Failed, Unknown
from makegood.errors import PermanentError
from makegood.gateways.http_steps import HttpEndpoint

EFFECTS = []
URL = {url!r}


def welcome(call, request):
    EFFECTS.append(("welcome", call.key))


def open_seat(call, request):
    EFFECTS.append(("open_seat", call.key))
    return {{"seat": "seat-" + call.entity_id}}


def close_seat(call, request):
    EFFECTS.append(("close_seat", call.context["seat"]["seat"]))


async def bill(call, request):
    EFFECTS.append(("bill", request))
    if call.context.get("unwell") and len([e for e in EFFECTS if e[0] == "bill"]) < 3:
        return Unknown("busy", "try again")


async def credit(call, request):
    EFFECTS.append(("credit", call.key))


def activate(call, request):
    if call.context.get("blocked"):
        raise PermanentError("the account is blocked")
    EFFECTS.append(("activate", call.key))


def workflows(settings):
    # Nobody tells a module when the end has come, so no connection is kept.
    client = httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_keepalive_connections=0))
    what = lambda call: {{"plan": call.context["plan"], "seat": call.context["seat"]}}
    grant = HttpEndpoint(client, URL + "/grants", what)
    revoke = HttpEndpoint(client, URL + "/revocations", lambda call: {{"who": call.entity_id}})
    yield Workflow(
        "subscription",
        steps=[
            Step("seat", "seating", "seated", Action(open_seat), undo=Action(close_seat), undo_name="close_seat"),
            Step("greet", "greeting", "greeted", Action(send=welcome)),
            Step("bill", "billing", "billed", Action(bill), Action(credit), "credit", moves_money=True),
            Step("grant", "granting", "granted", grant.action(), undo=revoke.action(), undo_name="revoke"),
            Step("activate", "activating", None, Action(send=activate)),
        ],
        topics_on_completed=["subscribed"],
        stuck_after_seconds=60,
        initial="ordered",
    )
"""
FORWARD = [
    *["ordered", "seating", "seated", "greeting", "greeted", "billing", "billed", "granting", "granted", "activating"],
    "completed",
]


class Service(ThreadingHTTPServer):
    """A tiny service in any language: it remembers keys, and fails as often as it is told."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[tuple[str, str, Any]] = []
        self.effects: dict[str, str] = {}
        self.statuses: list[int] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Service
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        key = self.headers["Idempotency-Key"]
        self.server.requests.append((self.path, key, body))
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        if status < 500:
            self.server.effects[key] = self.path
        answer = json.dumps({"granted": key} if status == 200 else {"error": {"code": "no", "message": "no"}}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as service:
        thread = threading.Thread(target=service.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield service
        service.shutdown()
        thread.join()


@pytest.fixture
def write_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module on the path, under a name of its own, forgotten after the test."""
    monkeypatch.syspath_prepend(str(tmp_path))
    written: list[str] = []

    def write(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        written.append(name)
        return name

    yield write
    for name in written:
        sys.modules.pop(name, None)


@pytest.fixture
def own(settings: Settings, service: Service, write_module: Any, shop: ShopControl) -> Settings:
    name = write_module("own_subscriptions", SUBSCRIPTION.format(url=service.url))
    return settings.model_copy(update={"workflows": (name,)})


def subscribe(database: Any, settings: Settings, **context: Any) -> list[tuple[str, Any]]:
    """Runs one subscription to its end and returns what its callables did."""

    async def run() -> None:
        async with open_checkouts(database.jobs, settings) as runner:
            start = Start("subscription", "sub-1", {"plan": "gold", **context}, 900, "SEK")
            await runner.start([start], triggered_by="signup")
            await drive(runner, database)

    asyncio.run(run())
    effects: list[tuple[str, Any]] = sys.modules["own_subscriptions"].EFFECTS
    return effects


def test_own_type_runs_forward_through_its_own_states(database: Any, own: Settings, service: Service) -> None:
    effects = subscribe(database, own)
    assert get_states(database, "sub-1") == FORWARD
    assert [name for name, _ in effects] == ["open_seat", "welcome", "bill", "activate"]
    assert service.requests == [
        ("/grants", "subscription-grant-sub-1", {"plan": "gold", "seat": {"seat": "seat-sub-1"}}),
    ]
    assert get_row(database, "sub-1")["context"]["grant"] == {"granted": "subscription-grant-sub-1"}
    assert database.rows("SELECT topic FROM makegood.outbox") == [{"topic": "subscribed"}]


def test_own_type_is_undone_in_reverse_and_a_step_without_undo_is_passed_over(
    database: Any, own: Settings, service: Service
) -> None:
    effects = subscribe(database, own, blocked=True)
    assert get_states(database, "sub-1") == [*FORWARD[:-1], "compensating", "compensated"]
    assert [name for name, _ in effects] == ["open_seat", "welcome", "bill", "credit", "close_seat"]
    assert [path for path, _, _ in service.requests] == ["/grants", "/revocations"]
    undone = database.rows("SELECT step, state, amount_minor FROM makegood.compensations ORDER BY succeeded_at")
    assert undone == [
        {"step": "grant", "state": "succeeded", "amount_minor": None},
        {"step": "bill", "state": "succeeded", "amount_minor": 900},
        {"step": "seat", "state": "succeeded", "amount_minor": None},
    ]
    facts = database.rows("SELECT metadata FROM makegood.workflow_transitions WHERE to_state = 'compensating'")
    assert facts[0]["metadata"] == {
        "failed_step": "activate",
        "error_type": "PermanentError",
        "error": "the account is blocked",
    }


def test_own_type_repeats_an_unknown_outcome_under_the_same_key(database: Any, own: Settings, service: Service) -> None:
    service.statuses = [503, 500]
    effects = subscribe(database, own, unwell=True)
    assert get_row(database, "sub-1")["current_state"] == "completed"
    assert Counter(name for name, _ in effects)["bill"] == 3
    assert len({json.dumps(request, sort_keys=True) for name, request in effects if name == "bill"}) == 1
    assert service.effects == {"subscription-grant-sub-1": "/grants"}
    assert len(service.requests) == 3


def test_own_type_whose_service_refuses_is_undone(database: Any, own: Settings, service: Service) -> None:
    service.statuses = [422]
    effects = subscribe(database, own)
    assert get_row(database, "sub-1")["current_state"] == "compensated"
    assert [name for name, _ in effects] == ["open_seat", "welcome", "bill", "credit", "close_seat"]
    assert [path for path, _, _ in service.requests] == ["/grants"]  # refused: there is nothing to revoke


def test_both_types_run_side_by_side_in_one_batch(
    database: Any, own: Settings, service: Service, shop: ShopControl
) -> None:
    async def run() -> Counter[str]:
        async with open_checkouts(database.jobs, own) as runner:
            subscriptions = [Start("subscription", f"sub-{n}", {"plan": "gold"}) for n in range(5)]
            await runner.start([*subscriptions, *(order(f"order-{n}") for n in range(5))], triggered_by="shop")
            return await runner.run_once()

    assert asyncio.run(run()) == {"completed": 10}


# A module that cannot be used is named, and nothing is written


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "module 'own_broken' cannot be used: ModuleNotFoundError: No module named 'own_broken'"),
        ("import nowhere_to_be_found", "module 'own_broken' cannot be used: ModuleNotFoundError: No module named 'now"),
        ("def workflows(settings) return []", "module 'own_broken' cannot be used: SyntaxError"),
        ("x = 1", "module 'own_broken' cannot be used: AttributeError"),
        ("workflows = []", "module 'own_broken' cannot be used: TypeError"),
        ("def workflows(settings): return None", "module 'own_broken' cannot be used: TypeError"),
        ("def workflows(settings): return ['checkout']", "module 'own_broken' cannot be used: TypeError"),
        ("def workflows(settings): raise KeyError('plan')", "module 'own_broken' cannot be used: KeyError: 'plan'"),
        (
            "from makegood.engine.definitions import *\ndef workflows(settings): return [Workflow('w', [])]",
            "workflow type 'w' has no steps",
        ),
        (
            "from makegood.engine.definitions import *\n"
            "def workflows(settings):\n"
            "    return [Workflow('checkout', [Step('s', 'doing', None, Action(send=print))])]",
            "workflow type 'checkout' is defined twice",
        ),
    ],
)
def test_module_that_cannot_be_used_is_named(
    database: Any, settings: Settings, write_module: Any, text: str | None, message: str
) -> None:
    if text is not None:
        write_module("own_broken", text)
    before = count_rows(database)

    async def run() -> None:
        async with open_workflows(settings.model_copy(update={"workflows": ("own_broken",)})):
            pass

    with pytest.raises(ConfigurationError) as refused:
        asyncio.run(run())
    assert message in str(refused.value)
    assert refused.value.hint
    assert count_rows(database) == before


def test_type_that_no_module_defines_is_refused_with_those_that_are(database: Any, own: Settings) -> None:
    async def run() -> None:
        async with open_checkouts(database.jobs, own) as runner:
            await runner.start([Start("rental", "r-1", {})], triggered_by="shop")

    with pytest.raises(UnknownWorkflowType, match="known are: checkout, subscription") as refused:
        asyncio.run(run())
    assert refused.value.hint == "Name the module that defines it in MAKEGOOD_WORKFLOWS."
