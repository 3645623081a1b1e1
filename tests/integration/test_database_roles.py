"""Who may do what: every role, table and verb, asked of the server and tried."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import psycopg
import pytest
from database_worker import Worker, open_database, refused
from psycopg import sql

from makegood.local.postgres import EmbeddedPostgres

VERBS = {
    "SELECT": "SELECT * FROM makegood.{} LIMIT 1",
    "INSERT": "INSERT INTO makegood.{} DEFAULT VALUES",
    "UPDATE": "UPDATE makegood.{table} SET {column} = {column}",
    "DELETE": "DELETE FROM makegood.{}",
    "TRUNCATE": "TRUNCATE makegood.{} CASCADE",
}
# All writing is done by functions. A table that is added later is tried too.
MAY = {"makegood_jobs": {"SELECT"}, "makegood_read": {"SELECT"}, "makegood_act": set[str](), "stranger": set[str]()}
# All that the dashboard can do, and it can see nothing.
ACTS = {
    "act_release",
    "act_release_group",
    "act_retry_undo",
    "act_settle",
    "act_carry_out",
    "act_cancel",
    "act_give_approval",
    "act_refuse_approval",
    "act_mark_finding",
    "act_approve_remedy",
    "act_refuse_remedy",
}
DENIED = "42501"
# Everything a worker, a service in another language, or an operator's command calls.
API = {
    "register_workflow",
    "start_workflow",
    "start_workflows",
    "claim_workflows",
    "renew_leases",
    "pause_workflows",
    "reread_workflows",
    "move_workflows",
    "transition_workflow",
    "place_order",
    "put_provider_rows",
    "claim_sync",
    "plan_windows",
    "put_provider_page",
    "put_provider_updates",
    "fail_window",
    "release_sync",
    "find_open_rows",
    "find_payouts_to_read",
    "begin_import",
    "put_import_batch",
    "finish_import",
    "complete_import",
    "forget_sync",
    "put_payout_without_parts",
    "begin_steps",
    "finish_steps",
    "pause_steps",
    "compensate_workflows",
    "begin_compensations",
    "finish_compensations",
    "pause_compensations",
    "owed_compensations",
    "request_cancel",
    "timeline",
    "take_key",
    "answer_key",
    "give_up_key",
    "forget_keys",
    "release_workflow",
    "settle_compensation",
    "trip_breaker",
    "take_probe",
    "close_breaker",
    "return_probe",
    "open_breakers",
    "begin_run",
    "count_part",
    "expect_batches",
    "mark_batch",
    "finish_run",
    "record_decisions",
    "count_stuck",
    "tidy",
    "roll_up",
    "tidy_rollups",
    "take_messages",
    "publish_messages",
    "postpone_messages",
    "take_alerts",
    "publish_alerts",
    "postpone_alerts",
    "request_approval",
    "give_approval",
    "refuse_approval",
    "use_approval",
    "carry_out_remedy",
    "recheck_remedy",
    "list_remedies",
    "tell_books_again",
    "alert_no_remedies",
    "approve_remedy",
    "refuse_remedy",
    "acknowledge_finding",
    "ignore_finding",
    "switch_remedies",
    "set_remedy_policy",
    "set_remedy_caps",
    "grant_person",
    "revoke_person",
}


@pytest.fixture(scope="module")
def name(server: EmbeddedPostgres) -> Iterator[str]:
    with open_database(server) as name:
        yield name


@pytest.fixture(scope="module")
def admin(server: EmbeddedPostgres, name: str) -> Iterator[Worker]:
    with Worker(server.url("postgres", name)) as worker:
        worker.register()
        worker.start("order-1")
        yield worker


@pytest.fixture(scope="module")
def logins(server: EmbeddedPostgres, admin: Worker, name: str) -> Iterator[dict[str, Worker]]:
    """One connection per role; the stranger may log in and was granted nothing, so it has what PUBLIC has."""
    stranger, password = f"stranger_{secrets.token_hex(4)}", secrets.token_hex(16)
    admin.rows(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(sql.Identifier(stranger), sql.Literal(password)))
    as_stranger = psycopg.conninfo.make_conninfo(server.url("postgres", name), user=stranger, password=password)
    try:
        with (
            Worker(server.url("makegood_jobs", name)) as jobs,
            Worker(server.url("makegood_read", name)) as read,
            Worker(server.url("makegood_act", name)) as act,
            Worker(as_stranger) as other,
        ):
            yield {"makegood_jobs": jobs, "makegood_read": read, "makegood_act": act, "stranger": other}
    finally:
        admin.rows(sql.SQL("DROP ROLE {}").format(sql.Identifier(stranger)))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("role", MAY)
def test_role_with_each_verb_on_every_table_has_what_was_granted(
    admin: Worker, logins: dict[str, Worker], role: str, verb: str
) -> None:
    tables = admin.rows(
        "SELECT c.relname AS table, (SELECT attname FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0"
        " AND attgenerated = '' AND attidentity = '' ORDER BY attnum LIMIT 1) AS column"
        " FROM pg_class c WHERE relnamespace = 'makegood'::regnamespace AND relkind IN ('r', 'p', 'v')"
    )
    assert len(tables) >= 12
    allowed = {row["table"] for row in tables if is_allowed(logins[role], verb, row["table"], row["column"])}
    assert allowed == ({row["table"] for row in tables} if verb in MAY[role] else set())


def is_allowed(login: Worker, verb: str, table: str, column: str) -> bool:
    words = {"table": sql.Identifier(table), "column": sql.Identifier(column)}
    try:
        with login.connection.transaction(force_rollback=True):
            login.rows(sql.SQL(VERBS[verb]).format(words["table"], **words))
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.WrongObjectType):  # a view cannot be truncated
        return False
    return True


@pytest.mark.parametrize("role", MAY)
def test_role_making_something_in_the_schema_is_refused(logins: dict[str, Worker], role: str) -> None:
    with refused(DENIED):
        logins[role].rows("CREATE TABLE makegood.mine ()")


@pytest.mark.parametrize("role", MAY)
@pytest.mark.parametrize(
    "statement",
    [
        "SET ROLE makegood_owner",
        "SET session_replication_role = replica",
        "ALTER TABLE makegood.workflow_transitions DISABLE TRIGGER ALL",
        "DROP TABLE makegood.workflow_transitions",
        "ALTER FUNCTION makegood.new_id() RENAME TO mine",
        "SELECT nextval('makegood.workflow_transitions_id_seq')",
    ],
)
def test_role_reaching_for_the_owners_powers_is_refused(logins: dict[str, Worker], role: str, statement: str) -> None:
    with refused(DENIED):
        logins[role].rows(statement)


def executable_by(admin: Worker, role: str) -> set[str]:
    rows = admin.rows(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'makegood'::regnamespace"
        " AND has_function_privilege(%s, oid, 'EXECUTE')",
        role,
    )
    return {row["proname"] for row in rows}


def test_jobs_role_may_execute_every_function_of_the_interface(admin: Worker) -> None:
    assert executable_by(admin, "makegood_jobs") >= API


def test_read_role_may_execute_only_what_reads_and_what_counts(admin: Worker) -> None:
    """Counting changes no number, only what the next look at it costs."""
    reads = {
        "timeline",
        "duration_cell",
        "rollup_period",
        "rollup_tail",
        "metric_ends",
        "metric_attempts",
        "metric_stuck",
    }
    assert executable_by(admin, "makegood_read") == {*reads, "roll_up"}


def test_act_role_may_execute_only_what_people_do(admin: Worker) -> None:
    assert executable_by(admin, "makegood_act") == ACTS


def test_public_may_execute_nothing(admin: Worker) -> None:
    """Asked of the stored rights themselves; none stored would mean the default, which is everybody."""
    rows = admin.rows(
        "SELECT p.oid::regprocedure::text FROM pg_proc p"
        " LEFT JOIN LATERAL aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a ON a.grantee = 0"
        " WHERE p.pronamespace = 'makegood'::regnamespace AND a.grantee IS NOT NULL"
    )
    assert rows == []


def test_read_role_asking_for_a_cancel_is_refused(admin: Worker, logins: dict[str, Worker]) -> None:
    with refused(DENIED):
        logins["makegood_read"].cancel("order-1")
    assert admin.rows("SELECT 1 FROM makegood.operator_actions WHERE subject = 'order-1'") == []


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM makegood.release_workflow('checkout', 'order-1', 'eve', 'why not')",
        "SELECT * FROM makegood.settle_compensation('checkout', 'order-1', 'charge', 'eve', 'why not', 're_1')",
        "SELECT makegood.trip_breaker('payments', 'eve', 'down', 1, 1)",
        "SELECT makegood.close_breaker('payments', 'eve')",
        "SELECT * FROM makegood.take_alerts(1000, 86400)",
        "SELECT * FROM makegood.take_messages('send_confirmation', 1000, 86400)",
        "SELECT makegood.begin_run('job', 'key', 'eve', '{}', 60)",
        "SELECT * FROM makegood.tidy(0)",
        "SELECT makegood.give_approval(gen_random_uuid(), 'any', 'eve', 'why not')",
        "SELECT makegood.use_approval('refund', 'ch_1', 'any', 'eve')",
        "SELECT * FROM makegood.carry_out_remedy(gen_random_uuid(), gen_random_uuid(), '{}', 'eve')",
        "SELECT * FROM makegood.approve_remedy(gen_random_uuid(), 'eve', 'why not')",
        "SELECT makegood.switch_remedies(false, 'eve', 'why not')",
        "SELECT makegood.set_remedy_caps('live', 'EUR', '{}', 'eve', 'why not')",
        "SELECT * FROM makegood.grant_person('eve', '{operator}', 'eve', 'why not')",
        "SELECT makegood.require_role('eve', 'operator')",
        "SELECT makegood.end_act(gen_random_uuid(), '{}')",
    ],
)
@pytest.mark.parametrize("role", ["makegood_read", "makegood_act", "stranger"])
def test_role_that_only_looks_asking_for_an_action_is_refused(
    logins: dict[str, Worker], role: str, statement: str
) -> None:
    with refused(DENIED):
        logins[role].rows(statement)


def test_read_role_asking_for_a_timeline_is_answered(logins: dict[str, Worker]) -> None:
    found = logins["makegood_read"].row("SELECT timeline('order-1') AS story")["story"]
    assert [hop["to_state"] for hop in found["transitions"]] == ["created"]


def test_stranger_asking_for_a_timeline_is_refused(logins: dict[str, Worker]) -> None:
    with refused(DENIED):
        logins["stranger"].rows("SELECT makegood.timeline('order-1')")


def test_functions_with_the_owners_rights_have_a_fixed_search_path(admin: Worker) -> None:
    """Temporary objects last: otherwise a caller's own table or operator could stand in for ours."""
    rows = admin.rows(
        "SELECT p.oid::regprocedure::text AS name, p.proconfig FROM pg_proc p"
        " WHERE p.pronamespace = 'makegood'::regnamespace AND p.prosecdef"
    )
    assert len(rows) >= len(API) - 1
    unsafe = [row["name"] for row in rows if "search_path=pg_catalog, pg_temp" not in (row["proconfig"] or [])]
    assert unsafe == []


def test_caller_with_a_table_of_the_same_name_does_not_redirect_a_function(logins: dict[str, Worker]) -> None:
    jobs = logins["makegood_jobs"]
    with jobs.connection.transaction(force_rollback=True):
        jobs.rows("CREATE TEMPORARY TABLE workflow_executions (id uuid)")
        jobs.rows("SET LOCAL search_path = pg_temp, makegood")
        assert jobs.start("order-2") is not None
        assert jobs.rows("SELECT 1 FROM pg_temp.workflow_executions") == []


def test_audit_row_through_a_function_names_the_login_not_the_owner(admin: Worker, logins: dict[str, Worker]) -> None:
    jobs = logins["makegood_jobs"]
    jobs.start("order-3")
    jobs.cancel("order-3", "ann", "changed her mind")
    (action,) = admin.rows("SELECT * FROM makegood.operator_actions WHERE subject = 'order-3'")
    assert (action["actor"], action["database_role"]) == ("ann", "makegood_jobs")
