"""With the database away, slow, read-only or of another version a page says so, without a stack."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from shops import Place

from dashboard import database
from makegood.local import ports

PAGES = ("overview", "order", "workflows", "dead_letters", "compensations", "reconciliation", "activity")


def name_of(place: Place) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(place.admin)["dbname"])


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "WAIT_SECONDS", 1.0)
    monkeypatch.setattr(database, "STATEMENT_SECONDS", 1)


@pytest.mark.parametrize("page", PAGES)
def test_page_without_a_database_says_so_and_nothing_of_its_address(page: str, look: Any, normal: Place) -> None:
    app = look(make_conninfo(normal.read, port=ports.choose_port(), connect_timeout=1), page)
    assert not app.exception
    (error,) = app.error
    assert "The database does not answer." in error.value
    assert not re.search(r"127\.0\.0\.1|passfile|Traceback|psycopg", error.value)


def test_page_comes_back_by_itself_once_the_database_is_there(look: Any, normal: Place) -> None:
    """The same session, the same pool: nothing is started anew."""
    app = look(normal.read)
    name = name_of(normal)
    elsewhere = make_conninfo(normal.admin, dbname="postgres")
    with psycopg.connect(elsewhere, autocommit=True) as connection:
        connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')  # type: ignore[arg-type]
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        try:
            database_forgets()
            assert "does not answer" in app.run().error[0].value
        finally:
            connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')  # type: ignore[arg-type]
    # A look that comes while the pool pauses between two attempts is told to wait; the page looks every few seconds.
    deadline = time.monotonic() + 3 * database.GIVE_UP_SECONDS
    while app.run().error and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not app.error
    assert len(app.metric) == 4


def database_forgets() -> None:
    import streamlit as st

    st.cache_data.clear()


READ_BY_PAGES = "workflow_executions, dead_letters, compensations, reconciliation_runs, job_runs, operator_actions"


@pytest.mark.parametrize("page", PAGES)
def test_page_of_a_slow_database_gives_up_in_time_and_comes_back(page: str, look: Any, normal: Place) -> None:
    with psycopg.connect(normal.admin, options="-c search_path=makegood") as blocker:
        blocker.execute(f"LOCK TABLE {READ_BY_PAGES} IN ACCESS EXCLUSIVE MODE")  # type: ignore[arg-type]
        app = look(normal.read, page)
    assert "took longer than 1 seconds" in app.error[0].value
    assert not app.exception
    database_forgets()
    app.run()
    assert not app.error
    assert not app.exception


def test_trend_that_takes_too_long_leaves_the_numbers_alone(look: Any, normal: Place) -> None:
    with psycopg.connect(normal.admin) as blocker:
        blocker.execute("LOCK TABLE makegood.rollup_stuck IN ACCESS EXCLUSIVE MODE")
        app = look(normal.read)
    assert not app.error
    assert app.metric[2].value == "0"


@pytest.mark.parametrize("page", PAGES)
def test_page_of_a_read_only_database_says_that_nothing_moves_and_shows_what_there_is(
    page: str, look: Any, normal: Place
) -> None:
    with read_only(normal):
        app = look(normal.read, page)
    assert "read-only" in app.warning[0].value
    assert not app.error
    assert not app.exception
    assert len(app.metric) == (4 if page == "overview" else 0)
    assert not look(normal.read, page).warning


@contextlib.contextmanager
def read_only(place: Place) -> Iterator[None]:
    name = name_of(place)
    place.rows(f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
    try:
        yield
    finally:
        with psycopg.connect(make_conninfo(place.admin, dbname="postgres"), autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{name}" RESET default_transaction_read_only')  # type: ignore[arg-type]


def test_login_that_is_read_only_itself_makes_no_database_read_only(look: Any, normal: Place) -> None:
    """Somebody made sure that the dashboard's own login never writes; everybody else still does."""
    login = f'ALTER ROLE makegood_read IN DATABASE "{name_of(normal)}"'
    normal.rows(f"{login} SET default_transaction_read_only = on")
    try:
        by_role = look(normal.read)
    finally:
        normal.rows(f"{login} RESET default_transaction_read_only")
    by_address = look(make_conninfo(normal.read, options="-c default_transaction_read_only=on"))
    for app in (by_role, by_address):
        assert not [warning.value for warning in app.warning]
        assert len(app.metric) == 4


def test_server_that_becomes_read_only_is_noticed_by_a_session_that_is_open(look: Any, normal: Place) -> None:
    app = look(normal.read)
    assert not app.warning
    deadline = time.monotonic() + 30
    try:
        normal.rows("ALTER SYSTEM SET default_transaction_read_only = on")
        normal.rows("SELECT pg_reload_conf()")
        while not app.warning and time.monotonic() < deadline:
            time.sleep(0.2)
            database_forgets()
            app.run()
        assert "read-only" in app.warning[0].value
    finally:
        with psycopg.connect(normal.admin, autocommit=True) as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
            connection.execute("SELECT pg_reload_conf()")
            standing = "SELECT FROM pg_settings WHERE name = 'default_transaction_read_only' AND reset_val = 'on'"
            while connection.execute(standing).fetchone() and time.monotonic() < deadline:
                time.sleep(0.05)


def test_page_of_a_database_without_tables_says_what_to_run(look: Any, normal: Place) -> None:
    app = look(make_conninfo(normal.admin, dbname="postgres"))
    assert "makegood db migrate" in app.error[0].value


def test_session_of_whatever_login_can_only_read_as_the_reading_role(look: Any, empty: Place) -> None:
    for url in (empty.read, empty.admin):
        look(url)
        reader = database.Reader()
        try:
            with reader._pool.connection() as connection:
                (row,) = connection.execute("SELECT current_user AS who").fetchall()
                assert row["who"] == "makegood_read"
                with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                    connection.execute("CREATE TABLE makegood.x ()")
        finally:
            reader.close()


def test_every_read_has_a_line_of_why_and_changes_nothing() -> None:
    files = sorted((database.sql_folder() / "queries" / "dashboard").glob("*.sql"))
    assert len(files) > 20
    for path in files:
        text = path.read_text()
        assert text.startswith("-- ")
        statement = re.sub(r"--.*", "", text)
        assert not re.search(r"\b(INSERT|UPDATE|DELETE|TRUNCATE|FOR SHARE)\b", statement, flags=re.I)
