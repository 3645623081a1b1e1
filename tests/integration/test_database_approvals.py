"""Two people: what one asked for another one allows, exactly that, in time, and it is done once."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from database_worker import Worker, digest, refused
from databases import DatabaseUrls

DIGEST = digest("D08 ch_1 1000 EUR").hex()
OTHER = digest("D08 ch_1 9999 EUR").hex()
GUARD = "MG012"


@pytest.fixture
def ann(database: DatabaseUrls) -> Iterator[Worker]:
    with Worker(database.jobs, "ann") as worker:
        yield worker


def ask(worker: Worker, *, by: str = "ann", digest: str = DIGEST, valid_seconds: float = 3600) -> uuid.UUID:
    return asking(worker, by=by, digest=digest, valid_seconds=valid_seconds)["id"]


def asking(worker: Worker, *, by: str = "ann", digest: str = DIGEST, valid_seconds: float = 3600) -> dict[str, Any]:
    return worker.row(
        "SELECT * FROM makegood.request_approval('refund', 'ch_1', %s, 1000, 'EUR', %s, 'charged twice', %s)",
        *(digest, by, valid_seconds),
    )


def give(worker: Worker, approval: uuid.UUID, *, by: str = "ben", digest: str = DIGEST) -> str:
    statement = "SELECT makegood.give_approval(%s, %s, %s, 'looked at both charges') AS verdict"
    return str(worker.row(statement, approval, digest, by)["verdict"])


def refuse(worker: Worker, approval: uuid.UUID, *, by: str = "ben") -> str:
    return str(worker.row("SELECT makegood.refuse_approval(%s, %s, 'no') AS verdict", approval, by)["verdict"])


def use(worker: Worker, *, digest: str = DIGEST, subject: str = "ch_1") -> bool:
    statement = "SELECT makegood.use_approval('refund', %s, %s, 'remedy') AS used"
    return bool(worker.row(statement, subject, digest)["used"])


def expire(database: DatabaseUrls) -> None:
    """Only by the hand of the one who can take the guard away: nobody can move an expiry otherwise."""
    database.rows("ALTER TABLE makegood.approvals DISABLE TRIGGER approvals_keep_what_was_shown")
    database.rows(
        "UPDATE makegood.approvals SET requested_at = requested_at - interval '2 days',"
        " expires_at = clock_timestamp() - interval '1 second'"
    )
    database.rows("ALTER TABLE makegood.approvals ENABLE ALWAYS TRIGGER approvals_keep_what_was_shown")


def audit(worker: Worker) -> list[tuple[str, str]]:
    rows = worker.rows("SELECT actor, action FROM makegood.operator_actions ORDER BY id")
    return [(row["actor"], row["action"]) for row in rows]


def test_approval_by_a_second_person_is_used_once(ann: Worker) -> None:
    approval = ask(ann)
    assert give(ann, approval) == "approved"
    assert [use(ann), use(ann)] == [True, False]
    assert audit(ann) == [
        ("ann", "request approval"),
        ("ben", "approve"),
        ("remedy", "use approval"),
    ]


def test_request_without_an_approval_is_not_used(ann: Worker) -> None:
    ask(ann)
    assert use(ann) is False


@pytest.mark.parametrize("name", ["ann", "Ann", " ann", "ANN  "])
def test_approval_by_the_asker_is_refused_however_the_name_is_written(ann: Worker, name: str) -> None:
    approval = ask(ann)
    assert give(ann, approval, by=name) == "self"
    assert use(ann) is False


def test_approval_by_the_asker_around_the_function_is_refused_by_the_table(database: DatabaseUrls, ann: Worker) -> None:
    approval = ask(ann)
    with Worker(database.admin) as admin, refused("23514", "approvals_by_a_second_person"):
        admin.rows(
            "UPDATE makegood.approvals SET state = 'approved', approved_by = 'Ann ', approved_at = clock_timestamp(),"
            " approval_reason = 'mine' WHERE id = %s",
            approval,
        )


def test_request_made_again_is_the_same_request(ann: Worker) -> None:
    first, again = asking(ann), asking(ann, by="cem")
    assert (first["verdict"], again["verdict"], again["id"]) == ("requested", "existing", first["id"])
    assert audit(ann) == [("ann", "request approval")]


def test_approval_of_something_else_than_was_shown_is_refused(ann: Worker) -> None:
    approval = ask(ann)
    assert give(ann, approval, digest=OTHER) == "changed"
    assert give(ann, approval) == "approved"
    assert use(ann, digest=OTHER) is False
    assert use(ann, subject="ch_2") is False


def test_approval_given_twice_is_taken(ann: Worker) -> None:
    approval = ask(ann)
    assert [give(ann, approval), give(ann, approval, by="cem")] == ["approved", "taken"]


def test_approval_after_its_use_asked_for_again_is_a_new_request(ann: Worker) -> None:
    """A replay of the old one finds nothing; what is asked for anew needs a second person anew."""
    approval = ask(ann)
    give(ann, approval)
    use(ann)
    assert give(ann, approval, by="cem") == "taken"
    again = asking(ann)
    assert again["verdict"] == "requested"
    assert use(ann) is False


def test_approval_that_nobody_knows_is_unknown(ann: Worker) -> None:
    assert give(ann, uuid.uuid4()) == "unknown"
    assert refuse(ann, uuid.uuid4()) == "unknown"


def test_request_past_its_time_is_not_approved(database: DatabaseUrls, ann: Worker) -> None:
    approval = ask(ann)
    expire(database)
    assert give(ann, approval) == "expired"
    assert asking(ann)["verdict"] == "requested"


def test_approval_past_its_time_is_not_used(database: DatabaseUrls, ann: Worker) -> None:
    give(ann, ask(ann))
    expire(database)
    assert use(ann) is False
    assert asking(ann)["verdict"] == "requested"


@pytest.mark.parametrize("by", ["ann", "ben"])
def test_approval_taken_back_before_its_use_is_not_used(ann: Worker, by: str) -> None:
    approval = ask(ann)
    give(ann, approval)
    assert refuse(ann, approval, by=by) == "refused"
    assert use(ann) is False
    assert refuse(ann, approval) == "taken"


@pytest.mark.parametrize(
    "change",
    [
        "digest = repeat('0', 64)",
        "amount_minor = 999999",
        "currency = 'USD'",
        "subject = 'ch_2'",
        "action = 'something else'",
        "requested_by = 'cem'",
        "reason = 'another one'",
        "expires_at = expires_at + interval '1 year'",
        "approved_by = 'cem'",
        "state = 'requested', approved_by = NULL, approved_at = NULL, approval_reason = NULL",
    ],
)
def test_approval_edited_after_it_was_given_is_refused_even_for_the_owner(
    database: DatabaseUrls, ann: Worker, change: str
) -> None:
    give(ann, ask(ann))
    with Worker(database.admin) as admin:
        admin.rows("SET session_replication_role = replica")
        with refused(GUARD):
            admin.rows(f"UPDATE makegood.approvals SET {change}")


def test_request_edited_before_it_is_approved_is_refused(database: DatabaseUrls, ann: Worker) -> None:
    ask(ann)
    with Worker(database.admin) as admin, refused(GUARD):
        admin.rows("UPDATE makegood.approvals SET amount_minor = 1")


def test_approval_written_as_given_without_a_request_is_refused(database: DatabaseUrls) -> None:
    with Worker(database.admin) as admin, refused(GUARD):
        admin.rows(
            "INSERT INTO makegood.approvals (id, action, subject, digest, requested_by, requested_at, reason,"
            " expires_at, approved_by, approved_at, approval_reason, state) VALUES (gen_random_uuid(), 'refund',"
            " 'ch_1', %s, 'ann', clock_timestamp(), 'x', clock_timestamp() + interval '1 hour', 'ben',"
            " clock_timestamp(), 'y', 'approved')",
            DIGEST,
        )


@pytest.mark.parametrize("statement", ["DELETE FROM makegood.approvals", "TRUNCATE makegood.approvals"])
def test_approvals_once_written_are_kept(database: DatabaseUrls, ann: Worker, statement: str) -> None:
    ask(ann)
    with Worker(database.admin) as admin, refused("MG006"):
        admin.rows(statement)


def test_approval_used_in_a_transaction_that_fails_is_not_used(ann: Worker) -> None:
    give(ann, ask(ann))
    with ann.connection.transaction(force_rollback=True):
        assert use(ann)
    assert use(ann)


def at_once(database: DatabaseUrls, count: int, act: Any) -> list[Any]:
    """The same at the same time, each over a connection of its own."""
    answers: list[Any] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        with Worker(database.jobs, f"person-{number}") as worker:
            start.wait()
            answers.append(act(worker))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def test_approval_given_by_many_at_once_is_given_by_one(database: DatabaseUrls, ann: Worker) -> None:
    approval = ask(ann)
    verdicts = at_once(database, 8, lambda worker: give(worker, approval, by=worker.name))
    assert Counter(verdicts) == {"approved": 1, "taken": 7}


def test_approval_used_by_many_at_once_is_used_by_one(database: DatabaseUrls, ann: Worker) -> None:
    give(ann, ask(ann))
    assert Counter(at_once(database, 8, use)) == {True: 1, False: 7}


def test_request_made_by_many_at_once_is_one_request(database: DatabaseUrls, ann: Worker) -> None:
    rows = at_once(database, 8, lambda worker: asking(worker, by=worker.name))
    assert Counter(row["verdict"] for row in rows) == {"requested": 1, "existing": 7}
    assert len({row["id"] for row in rows}) == 1


def test_refusal_that_comes_while_it_is_used_finds_it_taken(database: DatabaseUrls, ann: Worker) -> None:
    approval = ask(ann)
    give(ann, approval)
    answers: list[str] = []
    with Worker(database.jobs, "ben") as ben:
        with ann.connection.transaction():
            assert use(ann)
            waiting = threading.Thread(target=lambda: answers.append(refuse(ben, approval)))
            waiting.start()
            with Worker(database.jobs) as third:
                third.wait_until_blocked(ben)
        waiting.join()
    assert answers == ["taken"]


@pytest.mark.parametrize("valid_seconds", [0, -1, 1e9])
def test_request_with_an_endless_or_no_validity_is_refused(ann: Worker, valid_seconds: float) -> None:
    with refused("MG011"):
        ask(ann, valid_seconds=valid_seconds)


def test_request_tells_a_second_person(ann: Worker) -> None:
    ask(ann)
    (alert,) = ann.rows("SELECT payload FROM makegood.outbox WHERE topic = 'alert'")
    assert alert["payload"]["kind"] == "approval_requested"
    assert alert["payload"]["amount_minor"] == 1000
