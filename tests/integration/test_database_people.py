"""People act through the dashboard's role: with the right they have at that moment, once per form, on the record."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from database_worker import Lease, Row, Worker, open_database, refused

from makegood.local.postgres import EmbeddedPostgres

NOT_ALLOWED, BAD_INPUT, REUSED, REWRITTEN = "MG020", "MG011", "MG007", "MG006"
HOUR = 3600.0
ITEMS = '[{{"workflow_type": "checkout", "entity_id": "x"}}]'


@pytest.fixture(scope="module")
def name(server: EmbeddedPostgres) -> Iterator[str]:
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
def act(server: EmbeddedPostgres, name: str) -> Iterator[Worker]:
    with Worker(server.url("makegood_act", name)) as worker:
        yield worker


@pytest.fixture
def ann(jobs: Worker) -> str:
    return person(jobs, "operator")


@pytest.fixture
def bob(jobs: Worker) -> str:
    return person(jobs, "approver")


@pytest.fixture
def held(jobs: Worker) -> Lease:
    return hold(jobs)


@pytest.fixture
def owing(jobs: Worker) -> Lease:
    """Charged, could not go on, and its refund is held."""
    lease = jobs.started(f"order-{uuid.uuid4()}")
    jobs.do(lease, "charge")
    jobs.begin(lease, "reserve")
    assert jobs.compensate(lease, ["charge"]) == "moved"
    assert jobs.begin_undo(lease, "charge")["verdict"] == "go"
    facts = {"attempt": 1, "outcome": "failed", "error_type": "refused", "error": "no such charge"}
    assert jobs.pause_undo(lease, "charge", hold_reason="the undo did not succeed", **facts) == "moved"
    return lease


def person(jobs: Worker, *roles: str) -> str:
    login = f"p{uuid.uuid4().hex[:8]}@example.com"
    jobs.rows("SELECT * FROM makegood.grant_person(%s, %s, 'root', 'a test')", login, list(roles))
    return login


def hold(jobs: Worker) -> Lease:
    lease = jobs.started(f"order-{uuid.uuid4()}")
    jobs.begin(lease, "charge")
    facts = {"step": "charge", "attempt": 1, "outcome": "unknown", "error_type": "wrong_amount", "error": "a lie"}
    assert jobs.pause(lease, hold_reason="asked for 1999, the answer says 2000", **facts) == "moved"
    return lease


def release(act: Worker, login: str, lease: Lease, token: uuid.UUID | None = None, reason: str = "it is mended") -> Row:
    statement = "SELECT makegood.act_release(%s, %s, 'checkout', %s, %s) AS said"
    return said(act, statement, login, token or uuid.uuid4(), lease.entity_id, reason)


def settle(act: Worker, login: str, lease: Lease, *, above: int = 10**9, proof: str = "re_1", token: Any = None) -> Row:
    statement = "SELECT makegood.act_settle(%s, %s, 'checkout', %s, 'charge', %s, 'by hand', %s, %s) AS said"
    return said(act, statement, login, token or uuid.uuid4(), lease.entity_id, proof, above, HOUR)


def said(act: Worker, statement: str, *parameters: Any) -> Row:
    found: Row = act.row(statement, *parameters)["said"]
    return found


def approve(act: Worker, login: str, approval: Row) -> str:
    statement = "SELECT makegood.act_give_approval(%s, %s, %s, %s, 'seen') AS said"
    return str(said(act, statement, login, uuid.uuid4(), approval["id"], approval["digest"])["verdict"])


def get_approval(admin: Worker, approval_id: str) -> Row:
    return admin.row("SELECT * FROM makegood.approvals WHERE id = %s", approval_id)


def actions_on(admin: Worker, lease: Lease) -> list[tuple[str, str]]:
    rows = admin.rows(
        "SELECT actor, action FROM makegood.operator_actions WHERE subject = %s ORDER BY id", lease.entity_id
    )
    return [(row["actor"], row["action"]) for row in rows]


def test_grant_adds_roles_and_leaves_its_line_in_the_audit(jobs: Worker, admin: Worker) -> None:
    login = person(jobs, "viewer")
    (row,) = jobs.rows("SELECT * FROM makegood.grant_person(%s, '{operator}', 'root', 'on call')", f" {login.upper()} ")
    assert (row["login"], row["roles"], row["disabled"]) == (login, ["operator", "viewer"], False)
    found = admin.rows("SELECT actor, reason, details FROM makegood.operator_actions WHERE subject = %s", login)
    assert [one["reason"] for one in found] == ["a test", "on call"]
    assert found[1]["details"]["roles"] == ["operator", "viewer"]


def test_revoke_of_everything_shuts_the_person_out_and_a_grant_lets_them_in(jobs: Worker, ann: str) -> None:
    (row,) = jobs.rows("SELECT * FROM makegood.revoke_person(%s, NULL, 'root', 'left')", ann)
    assert (row["roles"], row["disabled"]) == ([], True)
    (row,) = jobs.rows("SELECT * FROM makegood.grant_person(%s, '{viewer}', 'root', 'back')", ann)
    assert (row["roles"], row["disabled"]) == (["viewer"], False)


@pytest.mark.parametrize(
    ("statement", "state"),
    [
        ("SELECT makegood.grant_person('eve', '{king}', 'root', 'x')", BAD_INPUT),
        ("SELECT makegood.grant_person('eve', '{}', 'root', 'x')", BAD_INPUT),
        ("SELECT makegood.grant_person('eve', '{operator}', 'root', ' ')", BAD_INPUT),
        ("SELECT makegood.grant_person('', '{operator}', 'root', 'x')", "23514"),
        (r"SELECT makegood.grant_person(E'e\tve', '{operator}', 'root', 'x')", "23514"),
    ],
)
def test_grant_that_makes_no_sense_is_refused(jobs: Worker, statement: str, state: str) -> None:
    with refused(state):
        jobs.rows(statement)


def test_people_and_acts_cannot_be_deleted_or_rewritten(admin: Worker, act: Worker, ann: str, held: Lease) -> None:
    release(act, ann, held)
    for statement in (
        "DELETE FROM makegood.people",
        "DELETE FROM makegood.acts",
        "UPDATE makegood.acts SET login = 'eve'",
    ):
        with refused(REWRITTEN):
            admin.rows(statement)


def test_operator_releases_and_the_audit_names_the_person_and_the_role(
    act: Worker, admin: Worker, jobs: Worker, ann: str, held: Lease
) -> None:
    assert release(act, ann, held)["verdict"] == "released"
    assert jobs.read(held)["held_at"] is None
    (row,) = admin.rows("SELECT * FROM makegood.operator_actions WHERE subject = %s", held.entity_id)
    assert (row["actor"], row["action"], row["reason"], row["database_role"]) == (
        ann, "release", "it is mended", "makegood_act"
    )  # fmt: skip


@pytest.mark.parametrize("roles", [["viewer"], ["engineer"], ["approver"], ["viewer", "engineer", "approver"]])
def test_person_without_the_role_is_refused_and_nothing_happens(
    act: Worker, admin: Worker, jobs: Worker, held: Lease, roles: list[str]
) -> None:
    login = person(jobs, *roles)
    with refused(NOT_ALLOWED, "has not the role operator"):
        release(act, login, held)
    assert jobs.read(held)["held_at"] is not None
    assert actions_on(admin, held) == []


def test_stranger_and_nobody_are_refused(act: Worker, held: Lease) -> None:
    for login in ("eve@example.com", "", None):
        with refused(NOT_ALLOWED):
            release(act, login, held)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call",
    [
        "act_release('{0}', gen_random_uuid(), 'checkout', 'x', 'why')",
        f"act_release_group('{{0}}', gen_random_uuid(), '{ITEMS}', 'why', 9, 60)",
        "act_retry_undo('{0}', gen_random_uuid(), 'checkout', 'x', 'why')",
        "act_settle('{0}', gen_random_uuid(), 'checkout', 'x', 'charge', 're_1', 'why', 9, 60)",
        "act_carry_out('{0}', gen_random_uuid(), gen_random_uuid(), 'why', 60)",
        "act_cancel('{0}', gen_random_uuid(), 'checkout', 'x', 'why')",
        "act_give_approval('{0}', gen_random_uuid(), gen_random_uuid(), 'd', 'why')",
        "act_refuse_approval('{0}', gen_random_uuid(), gen_random_uuid(), 'why')",
    ],
)
def test_every_act_by_somebody_who_was_shut_out_is_refused(act: Worker, jobs: Worker, call: str) -> None:
    login = person(jobs, "viewer", "engineer", "operator", "approver")
    assert said(act, f"SELECT makegood.{call.format(login)} AS said")["verdict"] in {"unknown", "done"}
    jobs.rows("SELECT makegood.revoke_person(%s, NULL, 'root', 'left')", login)
    with refused(NOT_ALLOWED, "was shut out by root"):
        act.rows(f"SELECT makegood.{call.format(login)} AS said")


def test_revoke_waits_for_an_act_under_way_and_wins_over_the_next(
    server: EmbeddedPostgres, name: str, act: Worker, jobs: Worker, ann: str, held: Lease
) -> None:
    with Worker(server.url("makegood_jobs", name)) as root, ThreadPoolExecutor(1) as pool:
        with act.connection.transaction():
            assert release(act, ann, held)["verdict"] == "released"
            revoking = pool.submit(root.rows, "SELECT makegood.revoke_person(%s, NULL, 'root', 'left')", ann)
            jobs.wait_until_blocked(root)
        revoking.result(10)
    with refused(NOT_ALLOWED):
        release(act, ann, hold(jobs))


def test_act_that_meets_a_revoke_under_way_is_refused(
    server: EmbeddedPostgres, name: str, act: Worker, jobs: Worker, ann: str, held: Lease
) -> None:
    with Worker(server.url("makegood_jobs", name)) as root, ThreadPoolExecutor(1) as pool:
        with root.connection.transaction():
            root.rows("SELECT makegood.revoke_person(%s, NULL, 'root', 'left')", ann)
            acting = pool.submit(release, act, ann, held)
            jobs.wait_until_blocked(act)
        with refused(NOT_ALLOWED):
            acting.result(10)
    assert jobs.read(held)["held_at"] is not None


def test_form_sent_twice_acts_once_and_is_answered_the_same(act: Worker, admin: Worker, ann: str, held: Lease) -> None:
    token = uuid.uuid4()
    first, second = (release(act, ann, held, token) for _ in range(2))
    assert (first["verdict"], first["repeated"]) == ("released", False)
    assert (second["verdict"], second["repeated"], second["by"]) == ("released", True, ann)
    assert len(actions_on(admin, held)) == 1


def test_form_sent_twice_at_once_acts_once(
    server: EmbeddedPostgres, name: str, admin: Worker, ann: str, held: Lease
) -> None:
    token, door = uuid.uuid4(), threading.Barrier(4)

    def send(_: int) -> Row:
        with Worker(server.url("makegood_act", name)) as own:
            door.wait(10)
            return release(own, ann, held, token)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(send, range(4)))
    assert [one["verdict"] for one in answers] == ["released"] * 4
    assert sorted(one["repeated"] for one in answers) == [False, True, True, True]
    assert len(actions_on(admin, held)) == 1


def test_token_of_another_form_is_refused(act: Worker, jobs: Worker, ann: str, held: Lease) -> None:
    token = uuid.uuid4()
    release(act, ann, held, token)
    with refused(REUSED):
        release(act, ann, hold(jobs), token)
    with refused(REUSED):
        release(act, person(jobs, "operator"), held, token)


def test_second_operator_is_told_who_was_quicker_and_when(act: Worker, jobs: Worker, ann: str, held: Lease) -> None:
    release(act, ann, held)
    answer = release(act, person(jobs, "operator"), held)
    assert (answer["verdict"], answer["by"], answer["did"]) == ("due", ann, "release")
    assert answer["at"]


def test_act_without_a_reason_is_refused_and_its_form_can_be_sent_again(act: Worker, ann: str, held: Lease) -> None:
    token = uuid.uuid4()
    with refused(BAD_INPUT):
        release(act, ann, held, token, reason=" ")
    assert release(act, ann, held, token)["verdict"] == "released"


def release_group(act: Worker, login: str, leases: list[Lease], *, above: int, token: Any = None) -> Row:
    items = [{"workflow_type": "checkout", "entity_id": lease.entity_id} for lease in leases]
    statement = "SELECT makegood.act_release_group(%s, %s, %s::jsonb, 'mended', %s, %s) AS said"
    return said(act, statement, login, token or uuid.uuid4(), json.dumps(items), above, HOUR)


def test_group_is_released_as_a_whole_each_with_its_own_line(
    act: Worker, admin: Worker, jobs: Worker, ann: str
) -> None:
    group = [hold(jobs) for _ in range(3)]
    release(act, ann, group[0])
    answer = release_group(act, ann, [*group, group[1]], above=3)
    assert (answer["verdict"], answer["orders"], answer["counts"]) == ("done", 3, {"due": 1, "released": 2})
    assert all(actions_on(admin, lease) == [(ann, "release")] for lease in group)


@pytest.mark.parametrize("items", ["[]", "{}", json.dumps([{"entity_id": str(n)} for n in range(501)])])
def test_group_without_bounds_is_refused(act: Worker, ann: str, items: str) -> None:
    with refused(BAD_INPUT, "1 to 500 orders"):
        act.rows("SELECT makegood.act_release_group(%s, gen_random_uuid(), %s::jsonb, 'w', 9, 60)", ann, items)


def test_group_above_the_size_takes_two_people(act: Worker, admin: Worker, jobs: Worker, ann: str, bob: str) -> None:
    group = [hold(jobs) for _ in range(3)]
    asked = release_group(act, ann, group, above=2)
    assert asked["verdict"] == "needs_approval"
    assert jobs.read(group[0])["held_at"] is not None
    assert release_group(act, ann, group[:2], above=1)["verdict"] == "needs_approval"  # another list, another approval
    assert approve(act, bob, get_approval(admin, asked["approval_id"])) == "approved"
    statement = "SELECT makegood.act_carry_out(%s, gen_random_uuid(), %s, %s, %s) AS said"
    with refused("MG011", "who acts"):
        act.rows(statement, ann, asked["approval_id"], " ", HOUR)
    done = said(act, statement, ann, asked["approval_id"], "approved", HOUR)
    assert (done["verdict"], done["counts"]) == ("done", {"released": 3})
    released = [found for lease in group for found in actions_on(admin, lease) if found[1] == "release"]
    assert released == [(ann, "release")] * 3
    whys = admin.rows(
        "SELECT DISTINCT reason FROM makegood.operator_actions WHERE actor = %s AND action = 'release'", ann
    )
    assert [row["reason"] for row in whys] == ["approved"]
    assert (
        said(act, statement, ann, asked["approval_id"], "again", HOUR)["verdict"] == "needs_approval"
    )  # it is used up


def test_settlement_up_to_the_limit_takes_one_person(act: Worker, ann: str, owing: Lease) -> None:
    assert settle(act, ann, owing, above=1000)["verdict"] == "settled"
    again = settle(act, ann, owing, above=1000)
    assert (again["verdict"], again["by"], again["did"]) == ("done", ann, "settle")


def test_settlement_above_the_limit_takes_two_people(
    act: Worker, admin: Worker, jobs: Worker, ann: str, bob: str, owing: Lease
) -> None:
    asked = settle(act, ann, owing, above=999)
    assert (asked["verdict"], asked["asked"]) == ("needs_approval", "requested")
    assert jobs.row("SELECT state FROM makegood.compensations WHERE workflow_id = %s", owing.id)["state"] == "held"
    approval = get_approval(admin, asked["approval_id"])
    assert (approval["amount_minor"], approval["requested_by"]) == (1000, ann)
    assert "re_1" in approval["reason"]
    with refused(NOT_ALLOWED):  # an operator is no approver
        approve(act, ann, approval)
    jobs.rows("SELECT makegood.grant_person(%s, '{approver}', 'root', 'both')", ann)
    assert approve(act, ann, approval) == "self"
    assert approve(act, bob, {**approval, "digest": "0" * 64}) == "changed"
    assert approve(act, bob, approval) == "approved"
    assert settle(act, ann, owing, above=999, proof="re_2")["verdict"] == "needs_approval"  # not what was approved
    assert settle(act, ann, owing, above=999)["verdict"] == "settled"


def test_approval_of_an_order_that_a_worker_has_stays_for_later(
    act: Worker, admin: Worker, jobs: Worker, ann: str, bob: str, owing: Lease
) -> None:
    asked = settle(act, ann, owing, above=999)
    assert approve(act, bob, get_approval(admin, asked["approval_id"])) == "approved"
    admin.rows(
        "UPDATE makegood.workflow_executions SET lease_owner = 'w', lease_until = clock_timestamp() + interval '1 h',"
        " held_at = NULL, held_reason = NULL WHERE id = %s", owing.id,
    )  # fmt: skip
    with refused("MG021"):
        settle(act, ann, owing, above=999)
    assert get_approval(admin, asked["approval_id"])["state"] == "approved"


def test_settlement_of_what_is_answered_already_asks_for_no_second_person(
    act: Worker, admin: Worker, ann: str, owing: Lease
) -> None:
    """A worker's answer came late: there is nothing to approve, and nothing to do by hand."""
    admin.rows(
        "UPDATE makegood.idempotency_keys k SET status = 'known', response = '{\"outcome\": \"success\"}',"
        " first_sent_at = now() FROM makegood.compensations c"
        " WHERE c.workflow_id = %s AND c.step = 'charge' AND k.key = c.idempotency_key",
        owing.id,
    )
    assert settle(act, ann, owing, above=999)["verdict"] == "known"
    assert admin.rows("SELECT id FROM makegood.approvals WHERE subject = %s", owing.entity_id) == []


def test_undo_is_tried_now_and_what_owes_none_is_left_alone(
    act: Worker, jobs: Worker, ann: str, owing: Lease, held: Lease
) -> None:
    statement = "SELECT makegood.act_retry_undo(%s, gen_random_uuid(), 'checkout', %s, 'try') AS said"
    assert said(act, statement, ann, owing.entity_id)["verdict"] == "released"
    assert said(act, statement, ann, held.entity_id)["verdict"] == "no_undo"
    assert said(act, statement, ann, "nobody-1")["verdict"] == "unknown"
    assert jobs.read(held)["held_at"] is not None


def test_cancel_is_requested_once_and_the_second_sees_who(act: Worker, jobs: Worker, ann: str, held: Lease) -> None:
    statement = "SELECT makegood.act_cancel(%s, gen_random_uuid(), 'checkout', %s, 'she called') AS said"
    assert said(act, statement, ann, held.entity_id)["verdict"] == "requested"
    second = said(act, statement, person(jobs, "operator"), held.entity_id)
    assert (second["verdict"], second["by"], second["did"]) == ("already_requested", ann, "cancel")


def test_request_can_be_taken_back_by_whoever_asked(
    act: Worker, admin: Worker, ann: str, bob: str, owing: Lease
) -> None:
    asked = settle(act, ann, owing, above=0)
    statement = "SELECT makegood.act_refuse_approval(%s, gen_random_uuid(), %s, 'a slip') AS said"
    assert said(act, statement, ann, asked["approval_id"])["verdict"] == "refused"
    assert approve(act, bob, get_approval(admin, asked["approval_id"])) == "taken"
