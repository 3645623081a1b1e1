"""`makegood recover`, `compensate` and `dlq` as a person runs them: a process, a real database, a real shop."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from checkouts import NOWHERE, check_out, get_row, get_undone, let_stick, open_checkouts, order, pass_time
from database_worker import open_database
from databases import DatabaseUrls
from sweeps import count_states, read_decisions, read_runs, read_tables, stick, surroundings

from makegood.engine.runner import Start
from makegood.local.postgres import EmbeddedPostgres
from makegood.settings import Settings
from sandbox.client import ShopControl, ShopProcess

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def makegood(database: Any, settings: Settings, tmp_path: Path) -> Run:
    """Runs one command against the test's database and shop."""
    return runs_in(surroundings(database, settings, tmp_path), tmp_path)


def runs_in(environment: dict[str, str], folder: Path) -> Run:
    def run(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "makegood.cli", *arguments],
            env=environment | changes,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def read(shown: subprocess.CompletedProcess[str]) -> Any:
    """The one JSON document on stdout; nothing else is there."""
    document = json.loads(shown.stdout)
    assert shown.stdout.count("\n") == 1
    return document


@pytest.fixture
def held(database: Any, settings: Settings, shop: ShopControl) -> None:
    """order-1 cannot be shipped, and its refund was tried too often while the provider did badly."""
    hold_refund(database, settings, shop)


def hold_refund(database: Any, settings: Settings, shop: ShopControl) -> None:
    shop.set_faults({"rules": [{"operation": "refund", "fault": "error_503"}]})
    asyncio.run(check_out(database, settings, order(**NOWHERE)))
    assert get_undone(database) == {"reserve": "succeeded", "charge": "held"}
    shop.clear_faults()


@pytest.fixture
def lied_to(database: Any, settings: Settings, shop: ShopControl) -> None:
    """order-1, order-2 and order-3: the answer to the charge was another amount."""
    shop.set_faults({"rules": [{"operation": "charge", "fault": "wrong_amount"}]})
    asyncio.run(check_out(database, settings, *(order(f"order-{n}") for n in (1, 2, 3))))
    assert count_states(database) == {"held": 3}
    shop.clear_faults()


# Help, and what cannot be


COMMANDS = [
    ["recover"],
    ["compensate"],
    ["compensate", "retry"],
    ["compensate", "settle"],
    ["dlq", "list"],
    ["dlq", "show"],
    ["dlq", "release"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_an_example_and_needs_no_database(makegood: Run, command: list[str]) -> None:
    shown = makegood(*command, "--help", MAKEGOOD_DATABASE_URL="postgresql://127.0.0.1:1/none")
    assert shown.returncode == 0
    assert f"Example: makegood {' '.join(command)}" in shown.stdout
    assert "--json" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "exit_code", "message"),
    [
        (["recover", "--older-than", "soon"], 2, "--older-than is 'soon'"),
        (["recover", "--older-than", "-5m"], 2, "--older-than"),
        (["recover", "--older-than", "5 minutes"], 2, "--older-than is '5 minutes'"),
        (["recover", "--older-than", "9" * 400], 2, "older than"),
        (["recover", "--older-than", "99999999d"], 2, "older than"),
        (["recover", "--limit", "0"], 2, "--limit"),
        (["recover", "--limit", "1000001"], 2, "the limit is 1000001"),
        (["recover", "--limit", "all"], 2, "--limit"),
        (["recover", "--type", "cruise"], 2, "unknown workflow type 'cruise'; known are: checkout"),
        (["compensate", "--older-than", "soon"], 2, "--older-than is 'soon'"),
        (["compensate", "--limit", "0"], 2, "--limit"),
        (["compensate", "--type", "cruise"], 2, "unknown workflow type 'cruise'"),
        (["compensate", "retry", "order-9", "--reason", "x"], 1, "there is no checkout of order-9"),
        (["compensate", "retry", "order-1", "--reason", " "], 2, "an action needs who acts"),
        (["compensate", "retry", "order-1"], 2, "--reason"),
        (
            ["compensate", "settle", "order-9", "--step", "charge", "--proof", "x", "--reason", "x"],
            1,
            "order-9 owes no",
        ),
        (["compensate", "settle", "order-1", "--step", "swim", "--proof", "x", "--reason", "x"], 1, "step 'swim'"),
        (["compensate", "settle", "order-1", "--step", "charge", "--proof", " ", "--reason", "x"], 2, "proof"),
        (["compensate", "settle", "order-1", "--step", "charge", "--proof", "x" * 501, "--reason", "x"], 2, "proof"),
        (["compensate", "settle", "order-1", "--step", "charge", "--proof", "x", "--reason", ""], 2, "why"),
        (["dlq", "list", "--state", "lost"], 2, "--state is 'lost'; it must be one of parked"),
        (["dlq", "list", "--limit", "0"], 2, "--limit"),
        (["dlq", "show", "order-9"], 1, "there is no dead letter of order-9"),
        (["dlq", "release", "--reason", "x"], 2, "nothing to release"),
        (["dlq", "release", "--signature", "nothing like it", "--reason", "x"], 2, "nothing to release"),
        (["dlq", "release", "order-1", "--reason", ""], 2, "an action needs who acts"),
        (["dlq", "release", "order-1", "--reason", "x", "--as", "k" * 201], 2, "1 to 200 characters"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else None,
)
def test_what_cannot_be_is_refused_by_name_and_changes_nothing(
    held_once: tuple[DatabaseUrls, Run], arguments: list[str], exit_code: int, message: str
) -> None:
    database, makegood = held_once
    before = read_tables(database, "workflow_types", "workflow_states", "workflow_edges")
    shown = makegood(*arguments, "--json")
    assert shown.returncode == exit_code, shown
    assert message in read(shown)["error"]["message"]
    assert "Traceback" not in shown.stderr
    assert read_tables(database, "workflow_types", "workflow_states", "workflow_edges") == before


@pytest.fixture(scope="module")
def held_once(
    server: EmbeddedPostgres, shop_process: ShopProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[DatabaseUrls, Run]]:
    """One database for all that change nothing, with order-1 held on its way back."""
    folder, url = tmp_path_factory.mktemp("held"), shop_process.url
    with open_database(server) as name, ShopControl(url) as shop:
        shop.reset()
        database = DatabaseUrls(*(server.url(role, name) for role in ("postgres", "makegood_jobs", "makegood_read")))
        settings = Settings(home=folder, stripe_api_base=url, inventory_url=url, shipping_url=url)
        hold_refund(database, settings, shop)
        yield database, runs_in(surroundings(database, settings, folder), folder)


@pytest.mark.parametrize(
    "arguments",
    [
        ["recover"],
        ["recover", "--dry-run"],
        ["compensate"],
        ["compensate", "retry", "order-1", "--reason", "x"],
        ["compensate", "settle", "order-1", "--step", "charge", "--proof", "x", "--reason", "x"],
        ["dlq", "list"],
        ["dlq", "show", "order-1"],
        ["dlq", "release", "order-1", "--reason", "x"],
    ],
    ids=" ".join,
)
def test_database_that_is_down_is_exit_3_and_says_what_to_do(makegood: Run, arguments: list[str]) -> None:
    address = "postgresql://makegood:canary4711@127.0.0.1:1/none"
    shown = makegood(*arguments, "--json", MAKEGOOD_DATABASE_URL=address)
    assert shown.returncode == 3
    error = read(shown)["error"]
    assert error["type"] == "DatabaseUnavailable"
    assert "127.0.0.1:1/none" in error["message"]
    assert error["hint"]
    assert "canary4711" not in shown.stdout + shown.stderr


# recover


def test_recover_with_nothing_to_do_is_exit_0(makegood: Run, shop: ShopControl) -> None:
    shown = makegood("recover")
    assert (shown.returncode, shown.stdout) == (0, "recover: nothing to do.\n")


def test_recover_tells_what_it_did(database: Any, settings: Settings, shop: ShopControl, makegood: Run) -> None:
    stick(database, settings, shop, {"order-1": None, "order-2": "reserve"})
    shown = makegood("recover")
    assert shown.returncode == 0
    assert [line.split() for line in shown.stdout.splitlines()] == [["2", "found"], ["2", "taken"], ["2", "completed"]]
    (run,) = read_runs(database)
    assert run["triggered_by"].startswith("command:")


def test_recover_json_is_one_document_and_logs_are_elsewhere(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    stick(database, settings, shop, {"order-1": "charge"})
    shown = makegood("recover", "--json", MAKEGOOD_LOG_LEVEL="DEBUG")
    document = read(shown)
    assert document["counts"] == {"due": 1, "taken": 1, "resume": 1, "completed": 1}
    assert document["decisions"] == []
    assert document["run_id"] == str(read_runs(database)[0]["id"])


def test_recover_that_has_to_hold_one_is_exit_1_and_says_where_to_look(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    stick(database, settings, shop, {"order-1": None, "order-2": None})
    shop.set_faults({"rules": [{"operation": "charge", "fault": "wrong_amount", "order_id": "order-2"}]})
    shown = makegood("recover")
    assert shown.returncode == 1
    assert "HELD for a person" in shown.stdout
    assert "makegood dlq list" in shown.stderr
    assert count_states(database) == {"completed": 1, "held": 1}


def test_recover_dry_run_says_what_and_why_and_changes_nothing(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    stick(database, settings, shop, {"order-1": None, "order-2": "charge"})
    makegood("recover", "--dry-run")  # makes this command's types known
    before = read_tables(database, "job_runs")
    shown = makegood("recover", "--dry-run")
    assert shown.returncode == 0
    assert "step 'charge' was never begun: it begins now" in shown.stdout
    assert "attempt 2 of 8 under the same key" in shown.stdout
    assert "A dry run: nothing was changed." in shown.stderr
    document = read(makegood("recover", "--dry-run", "--json"))
    assert {one["order"]: one["decision"] for one in document["decisions"]} == {
        **{"order-1": "resume", "order-2": "resume"},
    }
    assert read_tables(database, "job_runs") == before


@pytest.mark.parametrize(("age", "taken"), [("1", 1), ("90s", 1), ("9m", 1), ("0.1h", 1), ("11m", 0), ("1d", 0)])
def test_recover_by_age_takes_what_is_as_old(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run, age: str, taken: int
) -> None:
    stick(database, settings, shop, {"order-1": None})  # ten minutes
    database.rows("UPDATE makegood.workflow_executions SET deadline_at = now() + interval '1 hour'")
    assert read(makegood("recover", "--older-than", age, "--json"))["counts"].get("taken", 0) == taken


def test_recover_with_a_limit_and_a_type_takes_no_more(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    stick(database, settings, shop, {f"order-{n}": None for n in range(3)})
    document = read(makegood("recover", "--limit", "2", "--type", "checkout", "--json"))
    assert document["counts"]["taken"] == 2


def test_recover_with_a_wrong_address_for_alerts_is_exit_3(makegood: Run, shop: ShopControl) -> None:
    shown = makegood("recover", "--json", MAKEGOOD_NOTIFY_URLS="nonsense://canary4711")
    assert shown.returncode == 3
    assert "MAKEGOOD_NOTIFY_URLS: address 1 (nonsense://…)" in read(shown)["error"]["message"]
    assert "canary4711" not in shown.stdout + shown.stderr


# compensate


def test_compensate_undoes_what_is_due(database: Any, settings: Settings, shop: ShopControl, makegood: Run) -> None:
    stick(database, settings, shop, {"order-1": "release", "order-2": "refund"})
    dry = makegood("compensate", "--dry-run")
    assert "undo of step 'reserve': attempt 2 of 20" in dry.stdout
    assert count_states(database) == {"compensating": 2}
    shown = makegood("compensate")
    assert shown.returncode == 0
    assert [line.split() for line in shown.stdout.splitlines()] == [["2", "found"], ["2", "taken"], ["2", "undone"]]
    assert makegood("compensate").stdout == "compensate: nothing to do.\n"


def test_compensate_that_has_to_hold_one_is_exit_1(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    stick(database, settings, shop, {"order-1": "refund"})
    shop.set_faults({"rules": [{"operation": "refund", "fault": "refused"}]})
    shown = makegood("compensate", "--json")
    assert (shown.returncode, read(shown)["counts"]["held"]) == (1, 1)


def test_compensate_retry_of_a_held_undo_tries_it_now(
    database: Any, held: None, shop: ShopControl, makegood: Run
) -> None:
    shown = makegood("compensate", "retry", "order-1", "--reason", "the provider is back", "--as", "kim")
    assert (shown.returncode, shown.stdout) == (0, "order-1 is compensated now.\n")
    assert shop.order("order-1")["counts"]["refund"] == 1
    (action,) = database.rows("SELECT actor, action, reason FROM makegood.operator_actions")
    assert action == {"actor": "kim", "action": "release", "reason": "the provider is back"}
    again = makegood("compensate", "retry", "order-1", "--reason", "once more", "--json")
    assert (again.returncode, read(again)) == (
        0,
        {"order": "order-1", "verdict": "finished", "state": "compensated"},
    )


def test_compensate_retry_that_fails_again_is_exit_1_and_held_again(
    database: Any, held: None, shop: ShopControl, makegood: Run
) -> None:
    shop.set_faults({"rules": [{"operation": "refund", "fault": "refused"}]})
    shown = makegood("compensate", "retry", "order-1", "--reason", "try", "--json")
    assert (shown.returncode, read(shown)["state"]) == (1, "held")
    (letter,) = database.rows("SELECT state, redrives FROM makegood.dead_letters")
    assert letter == {"state": "parked", "redrives": 1}


def test_compensate_retry_of_a_waiting_undo_does_not_wait(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    stick(database, settings, shop, {"order-1": "refund"})
    database.rows("UPDATE makegood.workflow_executions SET next_attempt_at = now() + interval '1 hour'")
    database.rows("UPDATE makegood.compensations SET next_attempt_at = now() + interval '1 hour'")
    shown = makegood("compensate", "retry", "order-1", "--reason", "now", "--json")
    assert (shown.returncode, read(shown)) == (
        0,
        {"order": "order-1", "verdict": "hastened", "state": "compensated"},
    )


def test_compensate_retry_of_an_order_that_owes_no_undo_lets_nothing_go(
    database: Any, lied_to: None, shop: ShopControl, makegood: Run
) -> None:
    """Held on its way forward: to try its undo must not send it further forward."""
    before = read_tables(database, "workflow_types", "workflow_states", "workflow_edges")
    shown = makegood("compensate", "retry", "order-1", "--reason", "x", "--json")
    assert shown.returncode == 1
    assert "order-1 owes no undo: it is charging" in read(shown)["error"]["message"]
    assert read_tables(database, "workflow_types", "workflow_states", "workflow_edges") == before


def test_compensate_settle_ends_the_order_without_a_refund(
    database: Any, held: None, shop: ShopControl, makegood: Run
) -> None:
    given = ["--step", "charge", "--proof", "re_123", "--reason", "by hand", "--as", "kim"]
    shown = makegood("compensate", "settle", "order-1", *given)
    assert (shown.returncode, shown.stdout) == (0, "The undo of step charge of order-1 is settled.\n")
    again = makegood("compensate", "settle", "order-1", *given, "--json")
    assert (again.returncode, read(again)["verdict"]) == (0, "done")
    assert makegood("compensate").returncode == 0
    assert get_row(database)["current_state"] == "compensated"
    assert "refund" not in shop.order("order-1")["counts"]
    (action,) = database.rows("SELECT actor, details FROM makegood.operator_actions")
    assert (action["actor"], action["details"]["proof"], action["details"]["amount_minor"]) == ("kim", "re_123", 1999)


def test_compensate_settle_while_a_worker_has_it_is_exit_1(
    database: Any, settings: Settings, shop: ShopControl, makegood: Run
) -> None:
    stick(database, settings, shop, {"order-1": "refund"})
    database.rows("SELECT makegood.claim_workflows('worker', 60, 10)", role="jobs")
    given = ["--step", "charge", "--proof", "re_123", "--reason", "by hand"]
    shown = makegood("compensate", "settle", "order-1", *given)
    assert shown.returncode == 1
    assert "A worker has order-1 right now" in shown.stdout


# dlq


def test_dlq_list_of_nothing_is_exit_0(makegood: Run) -> None:
    shown = makegood("dlq", "list")
    assert (shown.returncode, shown.stdout) == (0, "No dead letters are parked.\n")
    assert read(makegood("dlq", "list", "--json")) == {"state": "parked", "groups": []}


def test_dlq_list_groups_by_what_went_wrong_and_is_exit_1(lied_to: None, makegood: Run) -> None:
    shown = makegood("dlq", "list")
    assert shown.returncode == 1
    assert "checkout charging wrong_amount" in shown.stdout
    (group,) = read(makegood("dlq", "list", "--json"))["groups"]
    assert (group["letters"], group["source"], sorted(group["orders"])) == (
        *(3, "workflow", ["order-1", "order-2", "order-3"]),
    )
    assert makegood("dlq", "list", "--state", "redriving").returncode == 0


def test_dlq_show_has_everything_that_was_kept(lied_to: None, makegood: Run) -> None:
    shown = makegood("dlq", "show", "order-2")
    assert shown.returncode == 0
    assert "wrong_amount" in shown.stdout
    (letter,) = read(makegood("dlq", "show", "order-2", "--json"))["letters"]
    assert (letter["state"], letter["source"], letter["redrives"]) == ("parked", "workflow", 0)
    story = letter["story"]
    assert story["workflow"]["entity_id"] == "order-2"
    assert [hop["to_state"] for hop in story["transitions"]] == ["created", "charging"]
    assert story["attempts"][0]["error_type"] == "wrong_amount"


def test_dlq_release_of_orders_lets_the_next_run_take_them(
    database: Any, lied_to: None, shop: ShopControl, makegood: Run
) -> None:
    shown = makegood("dlq", "release", "order-1", "order-2", "--reason", "looked into it", "--as", "kim")
    assert shown.returncode == 0
    assert shown.stdout.splitlines() == ["order-1 was held and is due now.", "order-2 was held and is due now."]
    again = makegood("dlq", "release", "order-1", "--reason", "again", "--json")
    assert read(again)["released"] == [{"order": "order-1", "verdict": "due", "state": "charging"}]
    assert makegood("recover").returncode == 0
    assert count_states(database) == {"completed": 2, "held": 1}
    assert shop.order("order-1")["counts"]["charge"] == 1  # found again under its key, not made again
    makegood("compensate")  # any run tidies up
    assert [group["letters"] for group in read(makegood("dlq", "list", "--state", "resolved", "--json"))["groups"]] == [
        2
    ]
    actions = database.rows("SELECT DISTINCT actor, reason FROM makegood.operator_actions")
    assert actions == [{"actor": "kim", "reason": "looked into it"}]


def test_dlq_release_of_a_group_lets_all_of_it_go(database: Any, lied_to: None, makegood: Run) -> None:
    (group,) = read(makegood("dlq", "list", "--json"))["groups"]
    shown = makegood("dlq", "release", "--signature", group["signature"], "--reason", "all of them", "--json")
    assert shown.returncode == 0
    assert sorted(one["order"] for one in read(shown)["released"]) == ["order-1", "order-2", "order-3"]
    assert database.rows("SELECT 1 FROM makegood.workflow_executions WHERE held_at IS NOT NULL") == []


def test_dlq_release_with_one_that_does_not_exist_releases_the_others_and_is_exit_1(
    database: Any, lied_to: None, makegood: Run
) -> None:
    shown = makegood("dlq", "release", "order-1", "order-9", "order-2", "--reason", "x", "--json")
    assert shown.returncode == 1
    assert {one["order"]: one["verdict"] for one in read(shown)["released"]} == {
        **{"order-1": "released", "order-9": "unknown", "order-2": "released"},
    }
    assert get_row(database, "order-2")["held_at"] is None
    said = makegood("dlq", "release", "order-9", "--reason", "x")
    assert (said.returncode, "there is no checkout of order-9" in said.stdout) == (1, True)


# Hostile text


HOSTILE = "order-[red]x[/red]-[/]-\x1b[31mred\x1b]0;title\x07-\u202e\x9b"


def check_harmless(*shown: subprocess.CompletedProcess[str]) -> None:
    for one in shown:
        text = one.stdout + one.stderr
        assert not {"\x07", "\u202e", "\x9b"} & set(text)
        assert "\x1b[31mred" not in text
        assert "\x1b]" not in text


@pytest.fixture
def hostile(database: Any, settings: Settings, shop: ShopControl) -> None:
    async def run() -> None:
        async with open_checkouts(database.jobs, settings) as runner:
            await runner.start([Start("checkout", HOSTILE, {"note": HOSTILE}, 1999, "EUR")], triggered_by=HOSTILE)
        let_stick(database)
        pass_time(database)

    asyncio.run(run())


def test_hostile_text_is_shown_and_none_of_it_obeyed(database: Any, hostile: None, makegood: Run) -> None:
    terminal = {"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "dumb"}
    dry = makegood("recover", "--dry-run", **terminal)
    assert "order-[red]x[/red]-[/]-" in dry.stdout
    parked = makegood("recover", **terminal)  # it has no payment method
    listed = makegood("dlq", "list", **terminal)
    assert "order-[red]x[/red]-[/]-" in listed.stdout
    shown = makegood("dlq", "show", HOSTILE, **terminal)
    assert "order-[red]x[/red]-[/]-" in shown.stdout
    released = makegood("dlq", "release", HOSTILE, "--reason", HOSTILE, "--as", HOSTILE, **terminal)
    assert "order-[red]x[/red]-[/]-" in released.stdout
    missing = [
        makegood("dlq", "show", HOSTILE + "?", **terminal),
        makegood("dlq", "release", HOSTILE + "?", "--reason", "x", **terminal),
        makegood("compensate", "retry", HOSTILE, "--reason", "x", **terminal),
        makegood("compensate", "settle", HOSTILE, "--step", HOSTILE, "--proof", "x", "--reason", "x", **terminal),
        makegood("recover", "--type", HOSTILE, **terminal),
        makegood("recover", "--older-than", HOSTILE, **terminal),
    ]
    assert [one.returncode for one in (dry, parked, listed, shown, released)] == [0, 1, 1, 0, 0]
    assert [one.returncode for one in missing] == [1, 1, 1, 1, 2, 2]
    check_harmless(dry, parked, listed, shown, released, *missing)
    assert all("Traceback" not in one.stderr for one in missing)


def test_hostile_text_in_json_is_what_it_was(database: Any, hostile: None, makegood: Run) -> None:
    (decision,) = read(makegood("recover", "--dry-run", "--json"))["decisions"]
    assert decision["order"] == HOSTILE
    makegood("recover")
    (letter,) = read(makegood("dlq", "show", HOSTILE, "--json"))["letters"]
    assert letter["story"]["workflow"]["context"] == {"note": HOSTILE}
    assert read_decisions(database)[HOSTILE][0] == "park"  # its context has nothing to charge with
