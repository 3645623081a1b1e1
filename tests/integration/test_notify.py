"""Alerts through the real apprise to a real server: at least once, one message per storm, and no secret in any log."""

from __future__ import annotations

import asyncio
import http.server
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog
from database_worker import Worker
from sweeps import surroundings

from makegood import notify
from makegood.database import Database
from makegood.errors import EXIT_NOT_READY, ConfigurationError
from makegood.gateways.messages import Messenger
from makegood.jobs import send_alerts
from makegood.logs import configure_logs
from makegood.settings import Settings, get_settings

pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")  # apprise's mail plugin

DASHBOARD = "http://dashboard.example"
CANARIES = ("canary4711", "canary4712", "canary4713", "canary4714")


class Inbox:
    """What a chat or a pager would get; ``status`` is how it answers."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.status = 200
        inbox = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if inbox.status == 200:
                    inbox.messages.append(body)
                self.send_response(inbox.status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"json://127.0.0.1:{self.server.server_port}"

    def orders(self) -> Counter[str]:
        """How often each order was named."""
        return Counter(re.findall(r"^  (order-\d+)", "\n".join(m["message"] for m in self.messages), re.MULTILINE))


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    inbox = Inbox()
    thread = threading.Thread(target=inbox.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield inbox
    inbox.server.shutdown()
    thread.join()
    inbox.server.server_close()


@pytest.fixture
def jobs(database: Any) -> Iterator[Worker]:
    with Worker(database.jobs) as worker:
        worker.register()
        yield worker


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """Everything that is logged, at DEBUG, as it would be written; what libraries log included, from INFO."""
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    configure_logs("DEBUG")
    handler = logging.StreamHandler(written)
    handler.setLevel(logging.INFO)
    logging.getLogger().addHandler(handler)
    level = logging.getLogger().level
    logging.getLogger().setLevel(logging.INFO)
    yield written
    logging.getLogger().removeHandler(handler)
    logging.getLogger().setLevel(level)
    structlog.reset_defaults()


def hold(jobs: Worker, *numbers: int) -> None:
    """Orders that need a person, each with its alert."""
    for number in numbers:
        lease = jobs.started(f"order-{number}")
        assert jobs.pause(lease, hold_reason="the answer was a lie", error_type="wrong_amount") == "moved"


def send(database: Any, *urls: str) -> Counter[str]:
    """What a job does at its end."""

    async def run() -> Counter[str]:
        async with Database(database.jobs) as opened:
            return await notify.send_alerts(
                opened, Messenger(urls).send if urls else None, dashboard_url=DASHBOARD, exponents={"EUR": 2}
            )

    return asyncio.run(run())


def let_time_pass(database: Any) -> None:
    database.rows("UPDATE makegood.outbox SET taken_until = now() - interval '1 second' WHERE taken_until IS NOT NULL")


def read_outbox(database: Any) -> list[dict[str, Any]]:
    return list(database.rows("SELECT * FROM makegood.outbox WHERE topic = 'alert' ORDER BY id"))


def test_no_alert_sends_nothing(database: Any, inbox: Inbox) -> None:
    assert send(database, inbox.url) == {}
    assert inbox.messages == []


def test_alert_of_a_held_order_is_sent_once_and_then_published(database: Any, jobs: Worker, inbox: Inbox) -> None:
    hold(jobs, 1)
    assert send(database, inbox.url) == {"alerts": 1, "messages": 1}
    (message,) = inbox.messages
    assert message["title"] == "An order is held: 10.00 EUR"
    assert "order-1, 10.00 EUR: the answer was a lie" in message["message"]
    assert f"{DASHBOARD}/?order=order-1" in message["message"]
    (alert,) = read_outbox(database)
    assert alert["published_at"] is not None
    assert (alert["taken_until"], alert["attempts"]) == (None, 1)
    assert send(database, inbox.url) == {}
    assert len(inbox.messages) == 1


def test_storm_is_one_message(database: Any, jobs: Worker, inbox: Inbox) -> None:
    hold(jobs, *range(40))
    assert send(database, inbox.url) == {"alerts": 40, "messages": 1}
    assert [message["title"] for message in inbox.messages] == ["40 orders are held: 400.00 EUR"]


def test_other_messages_of_the_outbox_are_left_alone(database: Any, jobs: Worker, inbox: Inbox) -> None:
    database.rows("INSERT INTO makegood.outbox (topic, key, payload) VALUES ('send_confirmation', 'x', '{}')")
    assert send(database, inbox.url) == {}
    (row,) = database.rows("SELECT * FROM makegood.outbox")
    assert (row["published_at"], row["taken_until"]) == (None, None)


def test_one_more_than_a_batch_leaves_with_the_next(
    database: Any, jobs: Worker, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "BATCH", 3)
    hold(jobs, *range(4))
    assert [send(database, inbox.url)["alerts"] for _ in range(3)] == [3, 1, 0]
    assert inbox.orders() == dict.fromkeys((f"order-{n}" for n in range(4)), 1)


SENDER_KILLED_AFTER_SENDING = """
import asyncio, os, signal, sys
from makegood import notify
from makegood.database import Database
from makegood.gateways.messages import Messenger

async def send(title, body):
    assert await Messenger([sys.argv[2]]).send(title, body)
    os.kill(os.getpid(), signal.SIGKILL)

async def run():
    async with Database(sys.argv[1]) as database:
        await notify.send_alerts(database, send, dashboard_url="http://dashboard.example", exponents={})

asyncio.run(run())
"""


def test_sender_killed_between_sending_and_publishing_is_followed_by_another_after_its_time(
    database: Any, jobs: Worker, inbox: Inbox
) -> None:
    hold(jobs, 1)
    command = [sys.executable, "-c", SENDER_KILLED_AFTER_SENDING, database.jobs, inbox.url]
    killed = subprocess.run(command, env={"PATH": os.environ["PATH"]}, timeout=60, check=False, capture_output=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert len(inbox.messages) == 1
    assert read_outbox(database)[0]["published_at"] is None
    assert send(database, inbox.url) == {}  # it may still be sending
    let_time_pass(database)
    assert send(database, inbox.url) == {"alerts": 1, "messages": 1}
    assert len(inbox.messages) == 2  # twice, but never not at all
    assert read_outbox(database)[0]["attempts"] == 2


@pytest.mark.parametrize("how", ["refuses", "not there"])
def test_nobody_reachable_postpones_and_is_sent_later(database: Any, jobs: Worker, inbox: Inbox, how: str) -> None:
    hold(jobs, 1, 2)
    inbox.status = 500
    assert send(database, inbox.url if how == "refuses" else "json://127.0.0.1:9") == {"alerts_unsent": 2}
    assert [(row["published_at"], row["taken_until"] is not None) for row in read_outbox(database)] == [
        (None, True)
    ] * 2
    inbox.status = 200
    assert send(database, inbox.url) == {}  # not at once again
    let_time_pass(database)
    assert send(database, inbox.url) == {"alerts": 2, "messages": 1}
    assert len(inbox.messages) == 1


def test_one_of_two_addresses_broken_is_published_once_and_named_in_the_log(
    database: Any, jobs: Worker, inbox: Inbox, logs: io.StringIO
) -> None:
    hold(jobs, 1)
    assert send(database, "json://127.0.0.1:9", inbox.url) == {"alerts": 1, "messages": 1}
    assert send(database, "json://127.0.0.1:9", inbox.url) == {}
    assert len(inbox.messages) == 1
    refused = [json.loads(line) for line in logs.getvalue().splitlines() if "message.refused" in line]
    assert [line["address"] for line in refused] == ["1 (json://…)"]


def test_every_address_that_works_gets_the_message(database: Any, jobs: Worker, inbox: Inbox) -> None:
    hold(jobs, 1)
    assert send(database, inbox.url, inbox.url + "/other") == {"alerts": 1, "messages": 1}
    assert len(inbox.messages) == 2


def test_no_address_leaves_the_alert_in_the_log(database: Any, jobs: Worker, logs: io.StringIO) -> None:
    hold(jobs, 1)
    assert send(database) == {"alerts": 1, "messages": 1}
    (line,) = [json.loads(line) for line in logs.getvalue().splitlines() if '"event": "alert"' in line]
    assert line["title"] == "An order is held: 10.00 EUR"
    assert "order-1" in line["text"]
    assert read_outbox(database)[0]["published_at"] is not None


def test_two_senders_at_once_send_each_alert_once(
    database: Any, jobs: Worker, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "BATCH", notify.SHOWN_MAX)  # so that every order is named
    hold(jobs, *range(40))

    async def work(opened: Database) -> int:
        sent = 0
        while counts := await notify.send_alerts(
            opened, Messenger([inbox.url]).send, dashboard_url=DASHBOARD, exponents={}
        ):
            sent += counts["alerts"]
        return sent

    async def run() -> list[int]:
        async with Database(database.jobs) as one, Database(database.jobs) as other:
            return await asyncio.gather(work(one), work(other))

    sent = asyncio.run(run())
    assert sum(sent) == 40
    assert min(sent) > 0  # both had a part
    assert inbox.orders() == dict.fromkeys((f"order-{n}" for n in range(40)), 1)


def test_alerts_that_somebody_is_just_taking_are_passed_over(database: Any, jobs: Worker) -> None:
    """Two senders in the same moment: the second neither waits nor takes the same."""
    hold(jobs, *range(4))
    take = "SELECT id FROM makegood.take_alerts(%s, 60)"
    with Worker(database.jobs, "other") as other, jobs.connection.transaction():
        first = jobs.rows(take, 2)
        other.rows("SET statement_timeout = '5s'")
        second = other.rows(take, 10)
    assert (len(first), len(second)) == (2, 2)
    assert not {row["id"] for row in first} & {row["id"] for row in second}


def test_alert_that_is_published_twice_stays_as_it_was_and_no_other_topic_is_touched(
    database: Any, jobs: Worker
) -> None:
    hold(jobs, 1)
    database.rows("INSERT INTO makegood.outbox (topic, key, payload) VALUES ('send_confirmation', 'x', '{}')")
    ids = [row["id"] for row in database.rows("SELECT id FROM makegood.outbox")]
    publish = "SELECT makegood.publish_alerts(%s) AS n"
    assert jobs.row(publish, ids)["n"] == 1
    before = database.rows("SELECT * FROM makegood.outbox ORDER BY id")
    assert [row["published_at"] is not None for row in before] == [True, False]
    assert jobs.row(publish, ids)["n"] == 0  # a sender that was followed by another, and comes late
    jobs.rows("SELECT makegood.postpone_alerts(%s, 60)", ids)
    assert database.rows("SELECT * FROM makegood.outbox ORDER BY id") == before


def test_job_sends_to_the_addresses_of_its_settings(
    database: Any, jobs: Worker, inbox: Inbox, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in surroundings(database, settings, tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MAKEGOOD_NOTIFY_URLS", f"json://127.0.0.1:9 {inbox.url}")
    get_settings.cache_clear()
    try:
        hold(jobs, 1)
        assert send_alerts() == {"alerts": 1, "messages": 1}
        assert send_alerts() == {}
    finally:
        get_settings.cache_clear()
    assert [message["title"] for message in inbox.messages] == ["An order is held: 10.00 EUR"]


def test_provider_that_is_down_is_told_once_per_outage(database: Any, jobs: Worker, inbox: Inbox) -> None:
    trip = "SELECT makegood.trip_breaker('payments', 'worker-1', 'HTTP 503', 0.001, 0.001)"
    jobs.rows(trip)
    for _ in range(4):
        jobs.rows("SELECT pg_sleep(0.01)")
        assert jobs.row("SELECT makegood.take_probe('payments', 'worker-1', 60) AS taken")["taken"]
        jobs.rows(trip)
    assert send(database, inbox.url) == {"alerts": 1, "messages": 1}
    assert inbox.messages[0]["title"] == "A provider is down"
    assert inbox.messages[0]["message"].startswith("payments, down since ")


# Addresses are secrets


SECRET_PARTS = "user:canary4711@127.0.0.1:9/canary4712?token=canary4713&+X-Auth=canary4714"


def test_secrets_of_an_address_that_does_not_answer_are_in_no_log(
    database: Any, jobs: Worker, logs: io.StringIO
) -> None:
    """A password, a path, a token and a header."""
    hold(jobs, 1)
    assert send(database, f"json://{SECRET_PARTS}") == {"alerts_unsent": 1}
    assert "message.refused" in logs.getvalue()
    assert [canary for canary in CANARIES if canary in logs.getvalue()] == []


def test_secrets_of_a_plugin_that_raises_are_in_no_log(
    database: Any, jobs: Worker, logs: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any, **__: Any) -> bool:
        raise RuntimeError("could not send to canary4711")

    monkeypatch.setattr("apprise.Apprise.async_notify", fail)
    hold(jobs, 1)
    assert send(database, f"json://{SECRET_PARTS}") == {"alerts_unsent": 1}
    assert '"error": "RuntimeError"' in logs.getvalue()
    assert [canary for canary in CANARIES if canary in logs.getvalue()] == []


@pytest.mark.parametrize("address", [f"nonsense://{SECRET_PARTS}", "json://", "slack://canary4711"])
def test_wrong_address_is_refused_by_its_number_and_scheme_alone(address: str, logs: io.StringIO) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Messenger(["json://127.0.0.1:9", address])
    scheme = address.partition("://")[0]
    assert f"MAKEGOOD_NOTIFY_URLS: address 2 ({scheme}://…)" in str(refused.value)
    assert refused.value.exit_code == EXIT_NOT_READY
    told = f"{refused.value!r} {refused.value.hint} {refused.value.__cause__!r} {logs.getvalue()}"
    assert [canary for canary in CANARIES if canary in told] == []
