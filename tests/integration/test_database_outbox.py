"""Messages leave the outbox by topic, at least once, to one deliverer at a time, and go when their time is over."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from database_worker import Row, Worker
from databases import DatabaseUrls

TOPIC = "send_confirmation"
LEASE_SECONDS = 60.0


@pytest.fixture
def admin(database: DatabaseUrls) -> Iterator[Worker]:
    with Worker(database.admin) as worker:
        worker.register()
        yield worker


@pytest.fixture
def mailer(database: DatabaseUrls, admin: Worker) -> Iterator[Worker]:
    with Worker(database.jobs, "mailer-1") as worker:
        yield worker


@pytest.fixture
def second_mailer(database: DatabaseUrls, admin: Worker) -> Iterator[Worker]:
    with Worker(database.jobs, "mailer-2") as worker:
        yield worker


def complete(worker: Worker, *orders: str) -> None:
    for order in orders:
        lease = worker.do(worker.started(order), "charge", "reserve")
        worker.begin(lease, "ship")
        message = {"topic": TOPIC, "key": order, "payload": {"entity_id": order}}
        worker.finish(lease, "ship", outbox=[message])


def write(admin: Worker, topic: str, count: int) -> None:
    admin.rows(
        "INSERT INTO makegood.outbox (topic, key, payload) SELECT %s, n::text, '{}' FROM generate_series(1, %s) n",
        topic,
        count,
    )


def take(worker: Worker, topic: str = TOPIC, batch: int = 100, lease_seconds: float = LEASE_SECONDS) -> list[Row]:
    return worker.rows("SELECT * FROM makegood.take_messages(%s, %s, %s)", topic, batch, lease_seconds)


def publish(worker: Worker, rows: list[Row], topic: str = TOPIC) -> int:
    ids = [row["id"] for row in rows]
    return int(worker.row("SELECT makegood.publish_messages(%s, %s) AS n", topic, ids)["n"])


def test_completed_order_leaves_a_message_that_its_deliverer_takes_and_publishes_once(mailer: Worker) -> None:
    complete(mailer, "order-1", "order-2")
    taken = take(mailer)
    assert [row["payload"]["entity_id"] for row in taken] == ["order-1", "order-2"]  # the oldest first
    assert {row["attempts"] for row in taken} == {1}
    assert publish(mailer, taken) == 2
    assert publish(mailer, taken) == 0  # told twice
    assert take(mailer) == []


def test_two_deliverers_never_have_the_same_message(mailer: Worker, second_mailer: Worker, admin: Worker) -> None:
    write(admin, TOPIC, 10)
    first, second = take(mailer, batch=6), take(second_mailer, batch=6)
    assert (len(first), len(second)) == (6, 4)
    assert not {row["id"] for row in first} & {row["id"] for row in second}


def test_message_of_a_deliverer_that_died_is_taken_again(mailer: Worker, second_mailer: Worker, admin: Worker) -> None:
    write(admin, TOPIC, 1)
    taken = take(mailer, lease_seconds=0.3)
    assert take(second_mailer) == []
    time.sleep(0.4)
    assert [(row["id"], row["attempts"]) for row in take(second_mailer)] == [(taken[0]["id"], 2)]


def test_message_that_could_not_be_delivered_waits(mailer: Worker, admin: Worker) -> None:
    write(admin, TOPIC, 2)
    ids = [row["id"] for row in take(mailer, lease_seconds=0.01)]
    mailer.rows("SELECT makegood.postpone_messages(%s, %s, 60)", TOPIC, ids[:1])
    time.sleep(0.05)
    assert [row["id"] for row in take(mailer)] == ids[1:]


def test_topic_of_somebody_else_is_neither_taken_nor_published(mailer: Worker, admin: Worker) -> None:
    write(admin, TOPIC, 1)
    write(admin, "alert", 1)
    confirmations = take(mailer)
    assert publish(mailer, confirmations, topic="alert") == 0
    assert len(take(mailer, "alert")) == 1
    assert take(mailer, "nobody's") == []


def test_taking_a_topic_does_not_look_through_another_that_nobody_takes(mailer: Worker, admin: Worker) -> None:
    write(admin, "update_analytics", 20_000)
    write(admin, "alert", 1)
    admin.rows("VACUUM ANALYZE makegood.outbox")
    read = "SELECT idx_tup_read AS n FROM pg_stat_user_indexes WHERE indexrelname = 'outbox_unpublished'"
    for worker in (admin, mailer):
        worker.rows("SELECT pg_stat_force_next_flush()")
    before = admin.row(read)["n"]
    assert len(take(mailer, "alert")) == 1
    mailer.rows("SELECT pg_stat_force_next_flush()")
    mailer.rows("SELECT 1")
    assert admin.row(read)["n"] - before < 100


def test_tidy_drops_what_was_delivered_long_ago_and_nothing_else_a_batch_at_a_time(
    mailer: Worker, admin: Worker
) -> None:
    write(admin, TOPIC, 8)
    publish(mailer, take(mailer, batch=6))
    admin.rows("UPDATE makegood.outbox SET published_at = published_at - interval '91 days' WHERE key::int <= 5")
    admin.rows("UPDATE makegood.outbox SET created_at = created_at - interval '400 days'")
    said = [mailer.row("SELECT messages FROM makegood.tidy(90, 3)")["messages"] for _ in range(3)]
    assert said == [3, 2, 0]
    left = mailer.rows("SELECT key, published_at IS NOT NULL AS published FROM makegood.outbox ORDER BY id")
    assert [(row["key"], row["published"]) for row in left] == [("6", True), ("7", False), ("8", False)]
