"""Nothing is held without its dead letter and its alert, and a person lets it go once, with a reason, on the record."""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from checkouts import NOWHERE, check_out, drive, get_row, get_undone, open_checkouts, order
from database_worker import Lease, Row, Worker, open_database, refused

from makegood.engine.definitions import compensation_id
from makegood.local.postgres import EmbeddedPostgres
from makegood.settings import Settings
from sandbox.client import ShopControl


@pytest.fixture(scope="module")
def name(server: EmbeddedPostgres) -> Iterator[str]:
    """One database for all that have orders of their own."""
    with open_database(server) as name:
        yield name


@pytest.fixture(scope="module")
def jobs(server: EmbeddedPostgres, name: str) -> Iterator[Worker]:
    with Worker(server.url("makegood_jobs", name)) as worker:
        worker.register()
        yield worker


@pytest.fixture(scope="module")
def admin(server: EmbeddedPostgres, name: str) -> Iterator[Worker]:
    with Worker(server.url("postgres", name)) as worker:
        yield worker


@pytest.fixture
def lease(jobs: Worker) -> Lease:
    return jobs.started(f"order-{uuid.uuid4()}")


@pytest.fixture
def held(jobs: Worker, lease: Lease) -> Lease:
    """Its charge was answered with a lie."""
    jobs.begin(lease, "charge")
    assert hold(jobs, lease) == "moved"
    return lease


@pytest.fixture
def owing(jobs: Worker, lease: Lease) -> Lease:
    """Charged and reserved, could not be shipped, owes both undos."""
    jobs.do(lease, "charge", "reserve")
    jobs.begin(lease, "ship")
    assert jobs.compensate(lease, ["charge", "reserve"]) == "moved"
    return lease


@pytest.fixture
def held_undo(jobs: Worker, owing: Lease) -> Lease:
    """The goods cannot be given back; the money waits behind them."""
    assert hold_undo(jobs, owing, "reserve") == "moved"
    return owing


def hold(jobs: Worker, lease: Lease, reason: str = "asked for 1999, the answer says 2000", **facts: Any) -> str:
    given = {"step": "charge", "attempt": 1, "outcome": "unknown", "error_type": "wrong_amount", "error": "a lie"}
    return jobs.pause(lease, hold_reason=reason, **given | facts)


def hold_undo(jobs: Worker, lease: Lease, step: str, attempt: int = 1) -> str:
    assert jobs.begin_undo(lease, step)["verdict"] == "go"
    facts = {"attempt": attempt, "outcome": "failed", "error_type": "refused", "error": "no such reservation"}
    return jobs.pause_undo(lease, step, hold_reason=f"the undo of step {step} did not succeed", **facts)


def release(worker: Worker, lease: Lease, actor: str = "kim", reason: str = "the provider is back") -> str:
    statement = "SELECT * FROM makegood.release_workflow('checkout', %s, %s, %s)"
    return worker.row(statement, lease.entity_id, actor, reason)["verdict"]


def settle(worker: Worker, lease: Lease, step: str, **given: str) -> Row:
    words = {"actor": "kim", "reason": "refunded by hand", "proof": "re_123", **given}
    statement = "SELECT * FROM makegood.settle_compensation('checkout', %s, %s, %s, %s, %s)"
    return worker.row(statement, lease.entity_id, step, words["actor"], words["reason"], words["proof"])


def claim_again(jobs: Worker, lease: Lease) -> Lease:
    (taken,) = jobs.claim(ids=[lease.id])
    return taken


def read_letters(worker: Worker, lease: Lease) -> list[Row]:
    statement = "SELECT *, convert_from(payload, 'UTF8')::jsonb AS story FROM makegood.dead_letters"
    return worker.rows(statement + " WHERE workflow_id = %s", lease.id)


def read_letter(worker: Worker, lease: Lease) -> Row:
    (letter,) = read_letters(worker, lease)
    return letter


def read_alerts(worker: Worker, lease: Lease) -> list[Row]:
    statement = "SELECT * FROM makegood.outbox WHERE topic = 'alert' AND payload->>'entity_id' = %s ORDER BY id"
    return worker.rows(statement, lease.entity_id)


def read_actions(worker: Worker, lease: Lease) -> list[Row]:
    return worker.rows("SELECT * FROM makegood.operator_actions WHERE subject = %s ORDER BY id", lease.entity_id)


def read_undos(worker: Worker, lease: Lease) -> dict[str, Row]:
    rows = worker.rows("SELECT * FROM makegood.compensations WHERE workflow_id = %s", lease.id)
    return {row["step"]: row for row in rows}


# Held: the dead letter and the alert


def test_hold_writes_one_dead_letter_with_the_whole_story(jobs: Worker, held: Lease) -> None:
    letter = read_letter(jobs, held)
    assert (letter["source"], letter["state"], letter["redrives"]) == ("workflow", "parked", 0)
    assert (letter["message_id"], letter["message_key"]) == (str(held.id), "checkout")
    assert (letter["entity_id"], letter["broker"]) == (held.entity_id, None)
    assert (letter["error_type"], letter["error"]) == ("wrong_amount", "asked for 1999, the answer says 2000")
    assert letter["headers"] == {
        **{"workflow_type": "checkout", "state": "charging", "step": "charge"},
        **{"amount_minor": 1000, "currency": "EUR"},
    }
    assert letter["attempts"] == 1
    assert letter["first_failed_at"] == letter["last_failed_at"]


def test_hold_keeps_the_story_as_it_is_after_the_failure(jobs: Worker, held: Lease) -> None:
    """Context, the way it took and the failed attempt: what a person needs when the row has long moved on."""
    story = read_letter(jobs, held)["story"]
    assert story["workflow"]["context"] == {}
    assert story["workflow"]["held_reason"] == "asked for 1999, the answer says 2000"
    assert [hop["to_state"] for hop in story["transitions"]] == ["created", "charging"]
    (attempt,) = story["attempts"]
    assert (attempt["step"], attempt["outcome"], attempt["error"]) == ("charge", "unknown", "a lie")


def test_hold_writes_one_alert_with_what_it_is_about(jobs: Worker, held: Lease) -> None:
    (alert,) = read_alerts(jobs, held)
    assert alert["payload"] == {
        **{"kind": "held_workflow", "entity_id": held.entity_id, "workflow_type": "checkout", "state": "charging"},
        **{"step": "charge", "amount_minor": 1000, "currency": "EUR", "error_type": "wrong_amount"},
        "error": "asked for 1999, the answer says 2000",
    }
    assert (alert["published_at"], alert["taken_until"], alert["attempts"]) == (None, None, 0)


def test_hold_of_an_undo_is_a_letter_of_its_own_kind_with_the_undos_attempts(jobs: Worker, held_undo: Lease) -> None:
    letter = read_letter(jobs, held_undo)
    assert (letter["source"], letter["headers"]["state"], letter["headers"]["step"]) == (
        *("compensation", "compensating", "reserve"),
    )
    assert (letter["attempts"], letter["error_type"]) == (1, "refused")
    assert [a["outcome"] for a in letter["story"]["attempts"] if a["kind"] == "compensation"] == ["failed"]
    owed = {undo["step"]: undo["state"] for undo in letter["story"]["compensations"]}
    assert owed == {"charge": "pending", "reserve": "held"}
    (alert,) = read_alerts(jobs, held_undo)
    assert alert["payload"]["kind"] == "held_compensation"


def test_hold_without_a_step_takes_it_from_the_state(jobs: Worker, lease: Lease) -> None:
    """A poisoned row: whoever parks it knows only the reason."""
    jobs.begin(lease, "charge")
    assert jobs.pause(lease, hold_reason="KeyError: 'sku'") == "moved"
    letter = read_letter(jobs, lease)
    assert (letter["error_type"], letter["headers"]["step"]) == ("held", "charge")


def test_hold_that_is_rolled_back_leaves_neither_letter_nor_alert(server: EmbeddedPostgres, name: str) -> None:
    with Worker(server.url("makegood_jobs", name)) as jobs:
        lease = jobs.started(f"order-{uuid.uuid4()}")
        with jobs.connection.transaction(force_rollback=True):
            assert hold(jobs, lease) == "moved"
            assert len(read_letters(jobs, lease)) == len(read_alerts(jobs, lease)) == 1
        assert read_letters(jobs, lease) == read_alerts(jobs, lease) == []
        assert jobs.read(lease)["held_at"] is None


def test_hold_whose_letter_cannot_be_written_does_not_happen(jobs: Worker, admin: Worker, lease: Lease) -> None:
    """Held without a letter would be held without anybody knowing."""
    with admin.connection.transaction(force_rollback=True):
        admin.rows("ALTER TABLE makegood.dead_letters ADD CONSTRAINT nothing_more CHECK (false) NOT VALID")
        with refused("23514"), admin.connection.transaction():
            hold(admin, lease)
        assert admin.read(lease)["held_at"] is None
    assert read_alerts(jobs, lease) == []


@pytest.mark.parametrize("how", ["fence", "held already", "finished"])
def test_hold_that_is_refused_writes_neither(jobs: Worker, how: str, lease: Lease) -> None:
    if how == "fence":
        lease = replace(lease, fence=lease.fence - 1)
    elif how == "finished":
        jobs.do(lease, "charge", "reserve", "ship")
    else:
        hold(jobs, lease)
    letters, alerts = read_letters(jobs, lease), read_alerts(jobs, lease)
    assert hold(jobs, lease, "a late worker's reason") == "lost"
    assert (read_letters(jobs, lease), read_alerts(jobs, lease)) == (letters, alerts)


def test_hold_of_one_among_many_writes_only_its_own(jobs: Worker) -> None:
    leases = [jobs.started(f"order-{uuid.uuid4()}") for _ in range(20)]
    items: list[Row] = [{"id": str(lease.id), "fence": lease.fence, "wait_seconds": 5} for lease in leases]
    items[7]["hold_reason"] = "a person looks"
    items[8] |= {"hold_reason": "never ours", "fence": 99}
    paused = jobs.rows("SELECT makegood.pause_workflows(%s::jsonb) AS id", json.dumps(items))
    assert {row["id"] for row in paused} == {lease.id for lease in leases} - {leases[8].id}
    assert [len(read_letters(jobs, lease)) for lease in leases] == [int(n == 7) for n in range(20)]
    assert [len(read_alerts(jobs, lease)) for lease in leases] == [int(n == 7) for n in range(20)]


def test_hold_after_a_release_is_the_same_letter_and_another_alert(jobs: Worker, held: Lease) -> None:
    before = read_letter(jobs, held)
    assert release(jobs, held, reason="looked into it") == "released"
    released = read_letter(jobs, held)
    assert (released["state"], released["redrives"], released["note"]) == ("redriving", 1, "looked into it")
    again = claim_again(jobs, held)
    jobs.begin(again, "charge")
    assert hold(jobs, again, "it lied again", error_type="lie", attempt=2) == "moved"
    after = read_letter(jobs, held)
    assert (after["id"], after["state"], after["redrives"]) == (before["id"], "parked", 1)
    assert (after["error"], after["error_type"]) == ("it lied again", "lie")
    assert after["first_failed_at"] == before["first_failed_at"] < after["last_failed_at"]
    assert len(after["story"]["attempts"]) == 2
    assert [alert["payload"]["error"] for alert in read_alerts(jobs, held)] == [before["error"], "it lied again"]


def test_hold_with_hostile_and_endless_text_is_kept_within_bounds(jobs: Worker, lease: Lease) -> None:
    jobs.begin(lease, "charge")
    endless = "'; DROP TABLE x; --\x1b[31m " * 500
    assert hold(jobs, lease, endless, error_type="t" * 5000) == "moved"
    letter = read_letter(jobs, lease)
    assert (letter["error"], letter["error_type"]) == (endless[:2000], "t" * 200)
    assert len(letter["signature"]) <= 300


# The signature: what failed in the same way is one group


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        # The order's own name, wherever it stands.
        ("order-1: no stock", "order-2: no stock", True),
        # Ids of others and numbers.
        ("asked for 1999 eur of pi_3Abc9", "asked for 45 eur of pi_7Xyz1", True),
        ("key refund-0190f0aa-1b2c is used", "key refund-0191aaaa-9d8e is used", True),
        ("no answer within 30 s", "no answer within 2.5 s", False),  # a whole number and a fraction are not one word
        # Another thing went wrong.
        ("the card was declined", "the card was lost", False),
        ("no stock", "no stock at all", False),
    ],
)
def test_signature_groups_what_differs_only_in_ids_and_numbers(jobs: Worker, one: str, other: str, alike: bool) -> None:
    ask = "SELECT makegood.failure_signature('checkout', 'charging', 'refused', %s, %s) AS said"
    first, second = jobs.row(ask, one, "order-1")["said"], jobs.row(ask, other, "order-2")["said"]
    assert (first == second) is alike, (first, second)
    assert first.startswith("checkout charging refused: ")


def test_signature_leaves_out_an_order_whose_name_has_no_number(jobs: Worker) -> None:
    ask = "SELECT makegood.failure_signature('checkout', 'charging', 'refused', %s, %s) AS said"
    said = [jobs.row(ask, f"{name} has no amount", name)["said"] for name in ("the lamp of ann", "the desk of bob")]
    assert said[0] == said[1] == "checkout charging refused: … has no amount"


@pytest.mark.parametrize("field", ["workflow_type", "state", "error_type"])
def test_signature_tells_types_states_and_errors_apart(jobs: Worker, field: str) -> None:
    given = {"workflow_type": "checkout", "state": "charging", "error_type": "refused"}
    ask = "SELECT makegood.failure_signature(%s, %s, %s, 'no', 'order-1') AS said"
    other = {**given, field: "another"}
    assert jobs.row(ask, *given.values())["said"] != jobs.row(ask, *other.values())["said"]


# Released by a person


def test_release_of_a_held_workflow_makes_it_due_with_a_new_budget(jobs: Worker, held: Lease) -> None:
    assert jobs.read(held)["attempts"] == 1
    assert release(jobs, held) == "released"
    row = jobs.read(held)
    assert (row["held_at"], row["held_reason"], row["attempts"]) == (None, None, 0)
    assert claim_again(jobs, held).fence == held.fence + 2


def test_release_is_no_progress(jobs: Worker, held: Lease) -> None:
    before = jobs.read(held)
    release(jobs, held)
    after = jobs.read(held)
    unchanged = ("current_state", "updated_at", "last_seq", "context", "created_at")
    assert [after[column] for column in unchanged] == [before[column] for column in unchanged]


@pytest.mark.parametrize("how", ["held", "waiting"])
def test_release_long_before_the_deadline_is_taken_by_the_next_recovery(jobs: Worker, lease: Lease, how: str) -> None:
    jobs.begin(lease, "charge")
    jobs.pause(lease, wait_seconds=600, **({"hold_reason": "look at it"} if how == "held" else {}))
    assert jobs.claim(ids=[lease.id], stuck_only=True) == []
    assert release(jobs, lease) == ("released" if how == "held" else "hastened")
    assert len(jobs.claim(ids=[lease.id], stuck_only=True)) == 1


def test_release_after_the_deadline_leaves_it_where_it_was(jobs: Worker, admin: Worker, held: Lease) -> None:
    admin.rows("UPDATE makegood.workflow_executions SET deadline_at = now() - interval '1 h' WHERE id = %s", held.id)
    before = jobs.read(held)["deadline_at"]
    release(jobs, held)
    assert jobs.read(held)["deadline_at"] == before


def test_release_of_a_held_undo_gives_every_open_undo_a_new_budget(jobs: Worker, held_undo: Lease) -> None:
    assert release(jobs, held_undo) == "released"
    undos = read_undos(jobs, held_undo)
    assert {step: (undo["state"], undo["attempts"]) for step, undo in undos.items()} == {
        **{"charge": ("pending", 0), "reserve": ("pending", 0)},
    }
    again = claim_again(jobs, held_undo)
    assert jobs.begin_undo(again, "reserve")["verdict"] == "go"


def test_release_leaves_an_undo_that_is_done_as_it_is(jobs: Worker, owing: Lease) -> None:
    jobs.begin_undo(owing, "reserve")
    jobs.finish_undo(owing, "reserve")
    hold_undo(jobs, owing, "charge")
    done = read_undos(jobs, owing)["reserve"]
    assert release(jobs, owing) == "released"
    assert read_undos(jobs, owing)["reserve"] == done


def test_release_refuses_whatever_the_former_holder_still_writes(jobs: Worker, held: Lease) -> None:
    release(jobs, held)
    assert jobs.begin(held, "charge")["verdict"] == "lost"
    assert jobs.finish(held, "charge") == "lost"
    assert hold(jobs, held, "late") == "lost"
    assert jobs.read(held)["held_at"] is None


def test_release_of_a_waiting_workflow_hastens_it_and_keeps_its_attempts(jobs: Worker, lease: Lease) -> None:
    jobs.begin(lease, "charge")
    jobs.pause(lease, wait_seconds=600)
    assert jobs.claim(ids=[lease.id]) == []
    assert release(jobs, lease) == "hastened"
    assert jobs.read(lease)["attempts"] == 1
    assert claim_again(jobs, lease).state == "charging"
    (action,) = read_actions(jobs, lease)
    assert action["action"] == "retry now"


def test_release_of_a_waiting_undo_hastens_the_undo_too(jobs: Worker, owing: Lease) -> None:
    jobs.begin_undo(owing, "reserve")
    jobs.pause_undo(owing, "reserve", wait_seconds=600, attempt=1, outcome="unknown", error_type="timeout")
    assert release(jobs, owing) == "hastened"
    undo = read_undos(jobs, owing)["reserve"]
    assert (undo["state"], undo["attempts"]) == ("pending", 1)
    due = "SELECT next_attempt_at <= clock_timestamp() AS due FROM makegood.compensations WHERE id = %s"
    assert jobs.row(due, undo["id"])["due"]


@pytest.mark.parametrize("state", ["leased", "due", "finished", "unknown"])
def test_release_of_what_needs_none_changes_nothing_and_leaves_no_record(
    jobs: Worker, admin: Worker, state: str
) -> None:
    lease = jobs.started(f"order-{uuid.uuid4()}")
    match state:
        case "due":
            jobs.pause(lease)
        case "finished":
            jobs.do(lease, "charge", "reserve", "ship")
        case "unknown":
            lease = replace(lease, entity_id="nobody")
    before = jobs.read(lease)
    assert release(jobs, lease) == {"leased": "due", "due": "due"}.get(state, state)
    assert jobs.read(lease) == before
    assert read_actions(jobs, lease) == []


def test_release_of_one_touches_no_other(jobs: Worker, held: Lease) -> None:
    other = jobs.started(f"order-{uuid.uuid4()}")
    hold(jobs, other, step=None, attempt=None)
    before = jobs.read(other), read_letters(jobs, other), read_undos(jobs, other), read_alerts(jobs, other)
    release(jobs, held)
    assert (jobs.read(other), read_letters(jobs, other), read_undos(jobs, other), read_alerts(jobs, other)) == before


def test_release_is_on_record_with_who_why_and_what_was_held(jobs: Worker, held: Lease) -> None:
    release(jobs, held, "kim", "  the provider is back  ")
    (action,) = read_actions(jobs, held)
    assert (action["actor"], action["action"], action["reason"]) == ("kim", "release", "the provider is back")
    assert action["details"] == {
        **{"workflow_type": "checkout", "workflow_id": str(held.id), "state": "charging"},
        "held_reason": "asked for 1999, the answer says 2000",
    }
    assert action["database_role"] == "makegood_jobs"


def test_release_whose_record_cannot_be_written_does_not_happen(jobs: Worker, admin: Worker, held: Lease) -> None:
    with admin.connection.transaction(force_rollback=True):
        admin.rows("ALTER TABLE makegood.operator_actions ADD CONSTRAINT nothing_more CHECK (false) NOT VALID")
        with refused("23514"), admin.connection.transaction():
            release(admin, held)
        assert admin.read(held)["held_at"] is not None
        assert read_letter(admin, held)["state"] == "parked"


@pytest.mark.parametrize(
    ("actor", "reason"), [("", "why"), (" ", "why"), ("kim", ""), ("kim", "  "), ("k" * 201, "why")]
)
def test_release_without_who_or_why_is_refused(jobs: Worker, held: Lease, actor: str, reason: str) -> None:
    with refused("MG011", "an action needs who acts"):
        release(jobs, held, actor, reason)
    with refused("MG011", "an action needs who acts"):
        settle(jobs, held, "charge", actor=actor, reason=reason)
    assert jobs.read(held)["held_at"] is not None


def test_release_by_two_operators_at_once_is_one_action(
    jobs: Worker, held: Lease, server: EmbeddedPostgres, name: str
) -> None:
    """The second asked first and was kept waiting: it sees what the other did."""
    with (
        Worker(server.url("makegood_jobs", name), "first") as first,
        Worker(server.url("makegood_jobs", name), "second") as second,
        ThreadPoolExecutor(1) as pool,
    ):
        with first.connection.transaction():
            assert release(first, held, "ann") == "released"
            waiting = pool.submit(release, second, held, "bob")
            jobs.wait_until_blocked(second)
        assert waiting.result(10) == "due"
    assert [action["actor"] for action in read_actions(jobs, held)] == ["ann"]
    assert read_letter(jobs, held)["redrives"] == 1


def test_release_that_was_asked_before_another_and_comes_after_it_sees_it(
    server: EmbeddedPostgres, name: str, jobs: Worker, held: Lease, admin: Worker
) -> None:
    """Both wait for a third; whoever's clock was read first must not take the other's release for a wait."""
    with Worker(server.url("makegood_jobs", name), "early") as early, ThreadPoolExecutor(1) as pool:
        with admin.connection.transaction():
            admin.rows("SELECT 1 FROM makegood.workflow_executions WHERE id = %s FOR UPDATE", held.id)
            waiting = pool.submit(release, early, held, "bob")
            jobs.wait_until_blocked(early)
            assert release(admin, held, "ann") == "released"
        assert waiting.result(10) == "due"
    assert [action["actor"] for action in read_actions(jobs, held)] == ["ann"]


def test_release_by_eight_at_once_is_one_action(server: EmbeddedPostgres, name: str, jobs: Worker, held: Lease) -> None:
    together = threading.Barrier(8)

    def ask(number: int) -> str:
        with Worker(server.url("makegood_jobs", name), f"person-{number}") as worker:
            together.wait()
            return release(worker, held, f"person-{number}")

    with ThreadPoolExecutor(8) as pool:
        verdicts = sorted(pool.map(ask, range(8)))
    assert verdicts == ["due"] * 7 + ["released"]
    assert len(read_actions(jobs, held)) == 1


# Settled elsewhere


def test_settle_records_the_undo_as_done_with_its_proof(jobs: Worker, held_undo: Lease) -> None:
    settled = settle(jobs, held_undo, "reserve", proof="  put back by hand  ")
    assert settled == {"verdict": "settled", "id": compensation_id(held_undo.id, "reserve"), "state": "succeeded"}
    undo = read_undos(jobs, held_undo)["reserve"]
    assert (undo["state"], undo["last_error"]) == ("succeeded", None)
    assert undo["result"] == {"settled_elsewhere": True, "by": "kim", "proof": "put back by hand"}
    assert jobs.read(held_undo)["held_at"] is None
    assert claim_again(jobs, held_undo).fence == held_undo.fence + 2
    letter = read_letter(jobs, held_undo)
    assert (letter["state"], letter["note"]) == ("redriving", "settled elsewhere: put back by hand")


def test_settle_of_money_is_on_record_with_its_amount(jobs: Worker, owing: Lease) -> None:
    jobs.begin_undo(owing, "reserve")
    jobs.finish_undo(owing, "reserve")
    hold_undo(jobs, owing, "charge")
    assert settle(jobs, owing, "charge")["verdict"] == "settled"
    (action,) = read_actions(jobs, owing)
    assert (action["actor"], action["action"], action["reason"]) == ("kim", "settle", "refunded by hand")
    assert action["details"] == {
        **{"workflow_type": "checkout", "workflow_id": str(owing.id), "step": "charge", "proof": "re_123"},
        **{"compensation_id": str(compensation_id(owing.id, "charge")), "amount_minor": 1000, "currency": "EUR"},
    }


def test_settle_whose_record_cannot_be_written_does_not_happen(jobs: Worker, admin: Worker, held_undo: Lease) -> None:
    with admin.connection.transaction(force_rollback=True):
        admin.rows("ALTER TABLE makegood.operator_actions ADD CONSTRAINT nothing_more CHECK (false) NOT VALID")
        with refused("23514"), admin.connection.transaction():
            settle(admin, held_undo, "reserve")
        assert read_undos(admin, held_undo)["reserve"]["state"] == "held"


def test_settle_while_a_worker_has_it_is_refused(jobs: Worker, owing: Lease) -> None:
    """Its call may be under way: the customer would get the money twice."""
    jobs.begin_undo(owing, "reserve")
    before = read_undos(jobs, owing)
    assert settle(jobs, owing, "reserve")["verdict"] == "busy"
    assert read_undos(jobs, owing) == before
    assert read_actions(jobs, owing) == []
    assert jobs.finish_undo(owing, "reserve") == "moved"


def test_settle_after_its_worker_died_refuses_what_the_worker_still_writes(
    jobs: Worker, admin: Worker, owing: Lease
) -> None:
    jobs.begin_undo(owing, "reserve")
    admin.rows("UPDATE makegood.workflow_executions SET lease_until = now() WHERE id = %s", owing.id)
    assert settle(jobs, owing, "reserve")["verdict"] == "settled"
    assert jobs.pause_undo(owing, "reserve", wait_seconds=5) == "lost"
    assert read_undos(jobs, owing)["reserve"]["result"]["proof"] == "re_123"


def test_settle_of_an_undo_whose_success_came_late_is_refused_and_a_retry_takes_it(
    jobs: Worker, admin: Worker, owing: Lease
) -> None:
    """A worker that was cut off brought its answer after another one had parked the order: nothing is to be done by
    hand any more, least of all a second refund."""
    jobs.begin_undo(owing, "reserve")
    jobs.finish_undo(owing, "reserve")
    jobs.begin_undo(owing, "charge")
    admin.rows("UPDATE makegood.workflow_executions SET lease_until = now() WHERE id = %s", owing.id)
    other = claim_again(jobs, owing)
    assert hold_undo(jobs, other, "charge", attempt=2) == "moved"
    assert jobs.finish_undo(owing, "charge") == "lost"  # late, but it was refunded
    before = read_undos(jobs, owing), jobs.read(owing)
    assert settle(jobs, owing, "charge")["verdict"] == "known"
    assert (read_undos(jobs, owing), jobs.read(owing)) == before
    assert read_actions(jobs, owing) == []
    assert release(jobs, owing) == "released"
    again = claim_again(jobs, owing)
    assert jobs.begin_undo(again, "charge")["verdict"] == "known"
    assert jobs.finish_undo(again, "charge", attempt=2) == "moved"
    assert jobs.transition(again, "compensated")


def test_settle_while_a_late_success_is_being_stored_waits_for_it(
    jobs: Worker, held_undo: Lease, server: EmbeddedPostgres, name: str
) -> None:
    late = replace(held_undo, fence=held_undo.fence - 1)
    with (
        Worker(server.url("makegood_jobs", name), "late") as first,
        Worker(server.url("makegood_jobs", name), "kim") as second,
        ThreadPoolExecutor(1) as pool,
    ):
        with first.connection.transaction():
            assert first.finish_undo(late, "reserve") == "lost"
            waiting = pool.submit(settle, second, held_undo, "reserve")
            jobs.wait_until_blocked(second)
        assert waiting.result(10)["verdict"] == "known"


def test_settle_of_an_undo_whose_known_answer_is_a_refusal_is_taken(
    jobs: Worker, admin: Worker, held_undo: Lease
) -> None:
    admin.rows(
        "UPDATE makegood.idempotency_keys k SET status = 'known', response = '{\"outcome\": \"failed\"}'"
        " FROM makegood.compensations c WHERE c.workflow_id = %s AND c.step = 'reserve' AND k.key = c.idempotency_key",
        held_undo.id,
    )
    assert settle(jobs, held_undo, "reserve")["verdict"] == "settled"


def test_settle_of_a_waiting_undo_lets_the_others_go_on_at_once(jobs: Worker, owing: Lease) -> None:
    jobs.begin_undo(owing, "reserve")
    jobs.pause_undo(owing, "reserve", wait_seconds=600, attempt=1, outcome="unknown", error_type="timeout")
    assert settle(jobs, owing, "reserve")["verdict"] == "settled"
    again = claim_again(jobs, owing)
    assert jobs.begin_undo(again, "charge")["verdict"] == "go"


def test_settle_while_another_undo_holds_the_order_leaves_it_held(jobs: Worker, held_undo: Lease) -> None:
    assert settle(jobs, held_undo, "charge")["verdict"] == "settled"
    row = jobs.read(held_undo)
    assert row["held_at"] is not None
    assert jobs.claim(ids=[held_undo.id]) == []
    assert read_letter(jobs, held_undo)["state"] == "parked"
    assert len(read_actions(jobs, held_undo)) == 1
    assert settle(jobs, held_undo, "reserve")["verdict"] == "settled"
    assert jobs.transition(claim_again(jobs, held_undo), "compensated")


@pytest.mark.parametrize(
    ("step", "verdict"),
    [
        ("reserve", "done"),  # it had succeeded by itself: that is the result that counts
        ("ship", "unknown"),  # nothing is owed for it
        ("swim", "unknown"),
    ],
)
def test_settle_of_what_is_not_open_changes_nothing(jobs: Worker, owing: Lease, step: str, verdict: str) -> None:
    jobs.begin_undo(owing, "reserve")
    jobs.finish_undo(owing, "reserve")
    before = read_undos(jobs, owing), jobs.read(owing)
    assert settle(jobs, owing, step)["verdict"] == verdict
    assert (read_undos(jobs, owing), jobs.read(owing)) == before
    assert read_actions(jobs, owing) == []


def test_settle_of_an_order_that_is_not_known_says_so(jobs: Worker, owing: Lease) -> None:
    assert settle(jobs, replace(owing, entity_id="nobody"), "charge")["verdict"] == "unknown"


@pytest.mark.parametrize("proof", ["", "   ", "x" * 501])
def test_settle_without_a_proof_that_can_be_kept_is_refused(jobs: Worker, held_undo: Lease, proof: str) -> None:
    with refused("MG011", "a settlement needs its proof in 1 to 500 characters"):
        settle(jobs, held_undo, "reserve", proof=proof)
    assert read_undos(jobs, held_undo)["reserve"]["state"] == "held"


def test_settle_by_two_at_once_is_one_action(
    jobs: Worker, held_undo: Lease, server: EmbeddedPostgres, name: str
) -> None:
    with (
        Worker(server.url("makegood_jobs", name), "first") as first,
        Worker(server.url("makegood_jobs", name), "second") as second,
        ThreadPoolExecutor(1) as pool,
    ):
        with first.connection.transaction():
            assert settle(first, held_undo, "reserve", proof="re_1")["verdict"] == "settled"
            waiting = pool.submit(settle, second, held_undo, "reserve", proof="re_2")
            jobs.wait_until_blocked(second)
        assert waiting.result(10)["verdict"] == "done"
    assert read_undos(jobs, held_undo)["reserve"]["result"]["proof"] == "re_1"
    assert len(read_actions(jobs, held_undo)) == 1


def test_settled_refund_is_never_sent_and_the_order_ends_compensated(
    database: Any, settings: Settings, shop: ShopControl
) -> None:
    """Through the engine and the real shop, which refuses the refund; a person made it by hand."""
    shop.set_faults({"rules": [{"operation": "refund", "fault": "refused"}]})
    asyncio.run(check_out(database, settings, order(**NOWHERE)))
    assert get_undone(database) == {"reserve": "succeeded", "charge": "held"}
    shop.clear_faults()
    calls = len(shop.list_calls(operation="refund"))
    (row,) = database.rows(
        "SELECT * FROM makegood.settle_compensation('checkout', 'order-1', 'charge', 'kim', 'by hand', 're_123')",
        role="jobs",
    )
    assert row["verdict"] == "settled"

    async def run() -> None:
        async with open_checkouts(database.jobs, settings) as runner:
            assert await drive(runner, database) == {"compensated": 1}

    asyncio.run(run())
    assert get_row(database)["current_state"] == "compensated"
    assert len(shop.list_calls(operation="refund")) == calls
    assert "refund" not in shop.order("order-1")["counts"]


def test_released_refund_goes_out_under_the_key_it_had(database: Any, settings: Settings, shop: ShopControl) -> None:
    shop.set_faults({"rules": [{"operation": "refund", "fault": "error_503"}]})

    async def run() -> None:
        async with open_checkouts(database.jobs, settings) as runner:
            await runner.start([order(**NOWHERE)], triggered_by="shop")
            await drive(runner, database)
            assert get_undone(database)["charge"] == "held"
            shop.clear_faults()
            database.rows("SELECT makegood.release_workflow('checkout', 'order-1', 'kim', 'back')", role="jobs")
            assert await drive(runner, database) == {"compensated": 1}

    asyncio.run(run())
    assert shop.order("order-1")["counts"]["refund"] == 1
    assert len({call["idempotency_key"] for call in shop.list_calls(operation="refund")}) == 1


# Housekeeping


def tidy(worker: Worker, keep_days: int = 90, batch: int = 100) -> Row:
    return worker.row("SELECT * FROM makegood.tidy(%s, %s)", keep_days, batch)


@pytest.fixture
def alone(database: Any) -> Iterator[tuple[Worker, Worker]]:
    """A database of its own, as jobs and as admin: tidying looks at everything."""
    with Worker(database.jobs) as jobs, Worker(database.admin) as admin:
        jobs.register()
        yield jobs, admin


def end(jobs: Worker, lease: Lease) -> None:
    jobs.do(lease, "charge", "reserve", "ship")


def test_tidy_resolves_the_letters_of_what_was_let_go_and_has_ended(alone: tuple[Worker, Worker]) -> None:
    jobs, _ = alone
    leases = {name: jobs.started(name) for name in ("ended", "under way", "held")}
    for lease in leases.values():
        hold(jobs, lease, step=None, attempt=None)
    for name in ("ended", "under way"):
        release(jobs, leases[name])
    again = claim_again(jobs, leases["ended"])
    again.state = "created"
    end(jobs, again)
    assert tidy(jobs)["resolved"] == 1
    states = {name: read_letter(jobs, lease)["state"] for name, lease in leases.items()}
    assert states == {"ended": "resolved", "under way": "redriving", "held": "parked"}
    assert tidy(jobs)["resolved"] == 0


def test_tidy_forgets_only_what_is_old(alone: tuple[Worker, Worker]) -> None:
    jobs, admin = alone
    for key in ("old", "new", "old and running"):
        run = jobs.row("SELECT makegood.begin_run('job', %s, 'test', '{}', 60) AS id", key)["id"]
        if key != "old and running":
            jobs.rows("SELECT makegood.finish_run(%s)", run)
        decision = {"id": str(uuid.uuid4()), "entity_id": key, "state": "created", "decision": "resume", "reason": "x"}
        jobs.rows("SELECT makegood.record_decisions(%s, %s::jsonb)", run, json.dumps([decision]))
    admin.rows(
        "UPDATE makegood.job_runs SET started_at = started_at - interval '91 days',"
        " expires_at = expires_at - interval '91 days' WHERE run_key LIKE 'old%'"
    )
    admin.rows(
        "UPDATE makegood.job_decisions SET decided_at = decided_at - interval '91 days' WHERE entity_id LIKE 'old%'"
    )
    said = tidy(jobs)
    assert (said["runs"], said["decisions"]) == (1, 2)
    assert {row["run_key"] for row in jobs.rows("SELECT run_key FROM makegood.job_runs")} == {"new", "old and running"}
    assert [row["entity_id"] for row in jobs.rows("SELECT entity_id FROM makegood.job_decisions")] == ["new"]


def test_tidy_forgets_keys_past_their_time_and_never_one_whose_effect_is_not_recorded(
    alone: tuple[Worker, Worker],
) -> None:
    jobs, admin = alone
    lease = jobs.do(jobs.started("order-1"), "charge")
    jobs.begin(lease, "reserve")
    admin.rows(
        "UPDATE makegood.idempotency_keys SET created_at = now() - interval '40 days', expires_at = now(),"
        " first_sent_at = now() - interval '40 days'"
    )
    assert tidy(jobs)["keys"] == 1
    assert [row["key"] for row in jobs.rows("SELECT key FROM makegood.idempotency_keys")] == ["reserve-order-1"]


def test_tidy_does_no_more_than_its_batch_of_anything(alone: tuple[Worker, Worker]) -> None:
    jobs, admin = alone
    for number in range(5):
        lease = jobs.started(f"order-{number}")
        hold(jobs, lease, step=None, attempt=None)
        release(jobs, lease)
        again = claim_again(jobs, lease)
        end(jobs, again)
        run = jobs.row("SELECT makegood.begin_run('job', %s, 'test', '{}', 60) AS id", str(number))["id"]
        jobs.rows("SELECT makegood.finish_run(%s)", run)
        decision = {"id": str(lease.id), "entity_id": "x", "state": "created", "decision": "resume", "reason": "x"}
        jobs.rows("SELECT makegood.record_decisions(%s, %s::jsonb)", run, json.dumps([decision]))
    admin.rows("UPDATE makegood.job_runs SET started_at = started_at - interval '91 days'")
    admin.rows("UPDATE makegood.job_decisions SET decided_at = decided_at - interval '91 days'")
    admin.rows(
        "UPDATE makegood.idempotency_keys SET created_at = now() - interval '40 days', expires_at = now(),"
        " first_sent_at = now() - interval '40 days'"
    )
    said = [tidy(jobs, batch=3) for _ in range(3)]
    assert [(row["resolved"], row["runs"], row["decisions"]) for row in said] == [(3, 3, 3), (2, 2, 2), (0, 0, 0)]
    assert [row["keys"] for row in said] == [3, 3, 3]  # of fifteen
