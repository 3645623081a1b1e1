"""Who may see and do what: no page without a login, masks for who has not the right, buttons that say why not."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from shops import Place
from streamlit.testing.v1 import AppTest

from dashboard import __main__ as program
from dashboard import acting, identity
from makegood.errors import ConfigurationError
from makegood.settings import Settings, get_settings

PAGES = ("overview", "order", "workflows", "dead_letters", "compensations", "reconciliation", "activity")
SECRET = "x" * 40
Enter = Callable[..., AppTest]


@pytest.fixture
def enter(look: Any, peopled: Place, monkeypatch: pytest.MonkeyPatch) -> Enter:
    """Opens a page as one of the demo's people, or as nobody."""

    def open_page(login: str | None, page: str = "overview", **parameters: str) -> AppTest:
        monkeypatch.setenv("MAKEGOOD_DASHBOARD_LOGIN", "demo")
        monkeypatch.setenv("MAKEGOOD_DATABASE_ACT_URL", peopled.act)
        monkeypatch.setattr(identity, "_demo_login", lambda: login)
        return look(peopled.read, page, **parameters)  # type: ignore[no-any-return]

    return open_page


def everything(app: AppTest) -> str:
    """All that reaches the browser, as far as a test sees it."""
    kinds: list[Any] = [app.text, app.markdown, app.caption, app.subheader, app.title, app.code, app.metric, app.error]
    words = [str(element.value) for kind in kinds for element in kind]
    return "\n".join([*words, *(frame.value.to_csv() for frame in app.dataframe)])


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("asked", [{}, {"order": "parked-1"}, {"signature": "x", "show": "held", "run": "y"}])
def test_page_opened_without_a_login_shows_no_data(page: str, asked: dict[str, str], enter: Enter) -> None:
    app = enter(None, page, **asked)
    assert not app.exception
    assert [title.value for title in app.title] == ["makegood"]
    assert not app.dataframe
    assert not app.metric
    assert "parked-" not in everything(app)
    assert [button.label for button in app.button] == [
        f"{role.capitalize()}: {what}" for role, what in identity.RIGHTS.items()
    ]


@pytest.mark.parametrize("page", PAGES)
def test_page_of_somebody_without_a_role_shows_no_data(page: str, enter: Enter) -> None:
    app = enter("stranger@example.com", page, order="parked-1")
    assert "nobody has given you a role" in app.error[0].value
    assert not app.dataframe
    assert "parked-" not in everything(app)


@pytest.mark.parametrize("page", PAGES)
def test_demo_says_so_on_every_page_and_shows_who_one_is(page: str, enter: Enter) -> None:
    for login in (None, "demo-viewer"):
        app = enter(login, page)
        assert "This is a demo" in app.warning[0].value
    assert "demo-viewer" in [text.value for text in app.sidebar.text]
    assert [button.label for button in app.sidebar.button] == ["Log out"]


@pytest.mark.parametrize("page", ["order", "dead_letters"])
@pytest.mark.parametrize("login", ["demo-viewer", "demo-operator", "demo-approver"])
def test_personal_data_is_hidden_from_who_has_not_the_right(page: str, login: str, enter: Enter) -> None:
    app = enter(login, page, order="parked-1")
    words = everything(app)
    assert "parked-1" in words
    assert "Brigitte" not in words
    assert "brigitte@example.com" not in words
    assert "Personal data is hidden" in words


def test_engineer_sees_personal_data(enter: Enter) -> None:
    words = everything(enter("demo-engineer", "order", order="parked-1"))
    assert '"name": "Brigitte"' in words
    assert "write to brigitte@example.com" in words


def test_without_a_login_configured_personal_data_is_hidden_and_nothing_can_be_done(look: Any, peopled: Place) -> None:
    app = look(peopled.read, "order", order="parked-1")
    assert "brigitte@example.com" not in everything(app)
    assert all(button.disabled for button in app.button if button.label.endswith("…"))
    assert "Nobody is logged in here" in everything(app)


@pytest.mark.parametrize(
    ("page", "labels"),
    [
        ("order", ["Let it go on…", "Cancel…"]),
        ("dead_letters", ["Let all 5 go on…"]),
        ("compensations", ["Try now…", "Settle by hand…"]),
    ],
)
def test_buttons_are_for_operators_and_say_why_not_to_others(page: str, labels: list[str], enter: Enter) -> None:
    for login, may in (
        ("demo-viewer", False),
        ("demo-engineer", False),
        ("demo-approver", False),
        ("demo-operator", True),
    ):
        app = enter(login, page, **({"order": "parked-2"} if page == "order" else {}))
        found = {button.label: button for button in app.button}
        assert [found[label].disabled for label in labels] == [not may] * len(labels)
        assert ("needs the role operator" in everything(app)) is not may


def test_form_shows_the_facts_and_wants_a_reason_before_it_acts(enter: Enter, peopled: Place) -> None:
    app = enter("demo-operator", "order", order="parked-3")
    next(button for button in app.button if button.label == "Let it go on…").click().run()
    words = everything(app)
    assert "parked-3, checkout, 19.99 EUR" in words
    assert "nothing is charged twice" in words
    submit = next(button for button in app.button if button.label == "Let it go on")
    submit.click().run()
    assert "Say why" in app.error[0].value
    (row,) = peopled.rows("SELECT held_at FROM makegood.workflow_executions WHERE entity_id = 'parked-3'")
    assert row["held_at"] is not None


@pytest.fixture
def acting_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An impatient actor of this test's own."""
    monkeypatch.setattr(acting, "WAIT_SECONDS", 1.0)
    monkeypatch.setattr(acting, "LOCK_SECONDS", 1)
    acting.actor.clear()  # type: ignore[attr-defined]
    yield
    acting.actor().close()
    acting.actor.clear()  # type: ignore[attr-defined]


def release_in(app: AppTest) -> AppTest:
    next(button for button in app.button if button.label == "Let it go on…").click().run()
    app.text_input(key="reason").input("it is fine now")
    return next(button for button in app.button if button.label == "Let it go on").click().run()


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        ("read-only", "The database is read-only: nothing was done."),
        ("locked", "Somebody else is at it right now."),
        ("away", "The database does not answer."),
    ],
)
def test_act_that_the_database_cannot_take_now_says_so_and_changes_nothing(
    trouble: str, told: str, enter: Enter, peopled: Place, monkeypatch: pytest.MonkeyPatch, acting_anew: None
) -> None:
    app = enter("demo-operator", "order", order="parked-4")
    with contextlib.ExitStack() as stack:
        if trouble == "locked":
            blocker = stack.enter_context(psycopg.connect(peopled.admin))
            blocker.execute("SELECT FROM makegood.workflow_executions WHERE entity_id = 'parked-4' FOR UPDATE")
        else:
            bad = {"read-only": {"options": "-c default_transaction_read_only=on"}, "away": {"port": 1}}[trouble]
            monkeypatch.setenv("MAKEGOOD_DATABASE_ACT_URL", make_conninfo(peopled.act, **bad))
            get_settings.cache_clear()
        words = everything(release_in(app))
    words += everything(app.run())  # where there is no browser, a form's own part is not drawn anew by itself
    assert told in words
    assert not app.exception
    query = "SELECT held_at IS NOT NULL AS held FROM makegood.workflow_executions WHERE entity_id = 'parked-4'"
    assert peopled.rows(query) == [{"held": True}]


@pytest.mark.parametrize(
    ("error", "calls"),
    [
        (psycopg.OperationalError("server closed the connection unexpectedly"), 2),
        (psycopg.InterfaceError("the connection is lost"), 2),
        (psycopg.errors.LockNotAvailable("somebody has it"), 1),
        (psycopg.errors.ReadOnlySqlTransaction("read-only"), 1),
    ],
)
def test_act_is_sent_again_once_and_only_when_its_answer_was_lost(
    error: Exception, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[tuple[object, ...]] = []

    def once(_: acting.Actor, function: str, parameters: tuple[object, ...]) -> dict[str, object]:
        sent.append((function, *parameters))
        if len(sent) == 1:
            raise error
        return {"verdict": "done"}

    monkeypatch.setattr(acting.Actor, "_once", once)
    actor = object.__new__(acting.Actor)  # without a pool
    answers = contextlib.nullcontext() if calls == 2 else pytest.raises(acting.Refused)
    with answers:
        assert actor.cancel("ann", uuid.uuid4(), "checkout", "order-1", "why") == {"verdict": "done"}
    assert len(sent) == calls
    assert len(set(sent)) == 1  # with the same token


def test_door_without_a_database_says_so_and_lets_nobody_in(
    look: Any, peopled: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAKEGOOD_DASHBOARD_LOGIN", "demo")
    monkeypatch.setattr(identity, "_demo_login", lambda: "demo-operator")
    app = look(make_conninfo(peopled.read, port=1, connect_timeout=1))
    assert "The database does not answer." in app.error[0].value
    assert not app.exception
    assert not app.metric
    assert not app.sidebar.button


def test_login_that_could_also_read_does_not_act(
    enter: Enter, peopled: Place, monkeypatch: pytest.MonkeyPatch, acting_anew: None
) -> None:
    app = enter("demo-operator", "order", order="parked-5")
    monkeypatch.setenv("MAKEGOOD_DATABASE_ACT_URL", peopled.jobs)
    get_settings.cache_clear()
    release_in(app)
    assert "may do more than act" in everything(app.run())
    (row,) = peopled.rows("SELECT held_at FROM makegood.workflow_executions WHERE entity_id = 'parked-5'")
    assert row["held_at"] is not None


@pytest.mark.parametrize("login", ["oidc", "proxy"])
def test_people_who_log_in_never_act_as_the_login_that_works(login: str, tmp_path: Path) -> None:
    write_auth(tmp_path / "secrets.toml", AUTH)
    found: dict[str, Any] = {"dashboard_login": login, "dashboard_secrets": tmp_path / "secrets.toml",
                             "dashboard_proxy_secret": SECRET}  # fmt: skip
    own = "postgresql://host/db"
    with pytest.raises(ConfigurationError, match="DATABASE_ACT_URL is not set"):
        program.check_login(Settings(**found, database_url=own), "127.0.0.1")
    program.check_login(Settings(**found, database_url=own, database_act_url=own), "127.0.0.1")
    program.check_login(Settings(**found, database_read_url=own), "127.0.0.1")  # nobody can act at all


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.7", "dashboard.example"])
def test_demo_that_others_could_reach_does_not_start(address: str) -> None:
    with pytest.raises(ConfigurationError, match="everybody is anybody"):
        program.check_login(Settings(dashboard_login="demo"), address)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "localhost", "127.0.0.2"])
def test_demo_on_loopback_starts(address: str) -> None:
    program.check_login(Settings(dashboard_login="demo"), address)


def test_login_is_the_demos_only_with_the_embedded_database() -> None:
    assert Settings().login == "demo"
    assert Settings(database_url="postgresql://host/db").login == "off"
    assert Settings(database_url="postgresql://host/db", dashboard_login="oidc").login == "oidc"


def test_proxy_without_a_secret_does_not_start() -> None:
    for secret in (None, "short"):
        with pytest.raises(ConfigurationError, match="PROXY_SECRET"):
            program.check_login(Settings(dashboard_login="proxy", dashboard_proxy_secret=secret), "0.0.0.0")
    program.check_login(Settings(dashboard_login="proxy", dashboard_proxy_secret=SECRET), "0.0.0.0")


AUTH = {
    "redirect_uri": "https://dashboard.example/oauth2callback",
    "cookie_secret": SECRET,
    "client_id": "makegood",
    "client_secret": "a secret",
    "server_metadata_url": "https://login.example/.well-known/openid-configuration",
}


def write_auth(file: Path, auth: dict[str, str]) -> Settings:
    file.write_text("[auth]\n" + "".join(f'{name} = "{value}"\n' for name, value in auth.items()))
    return Settings(dashboard_login="oidc", dashboard_secrets=file)


@pytest.mark.parametrize("text", [None, "", "= =", "auth = 'x'", "[auth]"])
def test_oidc_without_its_secrets_does_not_start(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "secrets.toml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigurationError, match="DASHBOARD_SECRETS"):
        program.check_login(Settings(dashboard_login="oidc", dashboard_secrets=file), "127.0.0.1")


@pytest.mark.parametrize("name", AUTH)
def test_oidc_that_lacks_any_of_what_a_login_needs_does_not_start(name: str, tmp_path: Path) -> None:
    for wrong in ({key: value for key, value in AUTH.items() if key != name}, {**AUTH, name: ""}):
        with pytest.raises(ConfigurationError, match=f"lacks .*{name}"):
            program.check_login(write_auth(tmp_path / "secrets.toml", wrong), "127.0.0.1")


@pytest.mark.parametrize("wrong", [{"cookie_secret": "short"}, {"redirect_uri": "dashboard.example"}])
def test_oidc_with_a_secret_or_an_address_of_no_use_does_not_start(wrong: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"lacks a {next(iter(wrong))}"):
        program.check_login(write_auth(tmp_path / "secrets.toml", {**AUTH, **wrong}), "127.0.0.1")


def test_oidc_with_all_it_needs_starts_and_is_served_where_people_come_back_to(tmp_path: Path) -> None:
    settings = write_auth(tmp_path / "secrets.toml", AUTH)
    program.check_login(settings, "127.0.0.1")
    assert program.find_hosts(settings, "127.0.0.1") == {"127.0.0.1", "localhost", "dashboard.example"}
    assert program.find_hosts(Settings(), "127.0.0.1") == {"127.0.0.1", "localhost"}


def test_process_of_the_dashboard_forgets_every_secret_it_does_not_need(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in (*program.NOT_OURS, "DATABASE_URL", "DATABASE_READ_URL", "DATABASE_ACT_URL"):
        monkeypatch.setenv(f"MAKEGOOD_{name}", "x")
    program.forget_secrets()
    left = {name for name in os.environ if name.startswith("MAKEGOOD_")} - {"MAKEGOOD_CI"}
    assert left == {"MAKEGOOD_DATABASE_READ_URL", "MAKEGOOD_DATABASE_ACT_URL"}


PROXY = Settings(dashboard_login="proxy", dashboard_proxy_secret=SECRET, dashboard_proxies="10.1.0.0/16, 192.0.2.7")
GOOD = {"X-Forwarded-User": ["Ann@Example.com"], identity.SECRET_HEADER: [SECRET]}


@pytest.mark.parametrize("peer", [None, "127.0.0.1", "::1", "10.1.2.3", "192.0.2.7"])
def test_proxy_that_is_declared_and_knows_the_secret_is_believed(peer: str | None) -> None:
    assert identity.believe_proxy(lambda name: GOOD.get(name, []), peer, PROXY) == "ann@example.com"


@pytest.mark.parametrize(
    ("headers", "peer"),
    [
        (GOOD, "192.0.2.8"),  # not declared
        (GOOD, "nonsense"),
        ({"X-Forwarded-User": ["ann"]}, None),  # somebody on loopback beside the proxy
        ({**GOOD, identity.SECRET_HEADER: ["y" * 40]}, None),
        ({**GOOD, identity.SECRET_HEADER: [SECRET, SECRET]}, None),  # one by the proxy, one by whoever came through it
        ({**GOOD, "X-Forwarded-User": ["ann", "root"]}, None),
    ],
)
def test_anybody_beside_the_proxy_is_a_stranger(headers: dict[str, list[str]], peer: str | None) -> None:
    with pytest.raises(identity.Stranger):
        identity.believe_proxy(lambda name: headers.get(name, []), peer, PROXY)


def test_proxy_that_names_nobody_or_nonsense_logs_nobody_in() -> None:
    for names in ([], [""], ["\x00"], ["x" * 300]):
        headers = {**GOOD, "X-Forwarded-User": names}
        assert not identity.believe_proxy(lambda name, found=headers: found.get(name, []), None, PROXY)  # type: ignore[misc]


KNOWN: dict[str, object] = {"is_logged_in": True, "email": " Ann@Example.com", "sub": "1234", "email_verified": True}


def test_identity_provider_is_believed_when_it_has_verified_the_address() -> None:
    settings = Settings(dashboard_login="oidc")
    for told in (True, "true", "True"):
        assert identity.believe_provider({**KNOWN, "email_verified": told}, settings) == "ann@example.com"
    assert identity.believe_provider({**KNOWN, "is_logged_in": False}, settings) is None
    for wrong in ({"email": None}, {"email": ["ann"]}, {"email": ""}):
        with pytest.raises(identity.Stranger):
            identity.believe_provider({**KNOWN, **wrong}, settings)
    by_number = Settings(dashboard_login="oidc", dashboard_login_claim="sub")
    assert identity.believe_provider({**KNOWN, "email_verified": False}, by_number) == "1234"


@pytest.mark.parametrize("told", [False, "false", "False", "", "0", 0, None, "yes", [True]])
@pytest.mark.parametrize("trusting", [False, True])
def test_address_that_its_provider_has_not_verified_is_nobodys(told: object, trusting: bool) -> None:
    with pytest.raises(identity.Stranger, match="verified"):
        identity.believe_provider(
            {**KNOWN, "email_verified": told}, Settings(dashboard_login="oidc", dashboard_trust_email=trusting)
        )


def test_address_of_a_provider_that_never_says_is_believed_only_by_a_setting() -> None:
    silent = {name: value for name, value in KNOWN.items() if name != "email_verified"}
    with pytest.raises(identity.Stranger, match="verified"):
        identity.believe_provider(silent, Settings(dashboard_login="oidc"))
    trusting = Settings(dashboard_login="oidc", dashboard_trust_email=True)
    assert identity.believe_provider(silent, trusting) == "ann@example.com"


LOCAL = {"Host": "127.0.0.1:8501", "Origin": "http://127.0.0.1:8501", "User-Agent": "x"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        LOCAL,
        {"Host": "localhost:8501", "Origin": "http://localhost:8501"},
        {"host": "[::1]:8501", "origin": "http://[::1]:8501"},
    ],
)
def test_demo_is_for_a_browser_on_this_machine(headers: dict[str, str]) -> None:
    assert not identity.is_relayed(headers)


@pytest.mark.parametrize(
    "more",
    [
        {"X-Forwarded-For": "203.0.113.7"},
        {"x-forwarded-host": "demo.example"},
        {"Forwarded": "for=203.0.113.7"},
        {"Via": "1.1 caddy"},
        {"X-Real-IP": "203.0.113.7"},
        {"Cf-Connecting-Ip": "203.0.113.7"},
        {"Host": "demo.example"},
        {"Origin": "https://demo.example"},  # a proxy that changes the host alone
        {"Origin": "http://192.168.1.7"},  # this machine's, and anybody's in the same network
        {"Origin": "null"},
    ],
)
def test_demo_behind_a_proxy_on_this_machine_lets_nobody_in(
    more: dict[str, str], look: Any, peopled: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert identity.is_relayed({**LOCAL, **more})
    monkeypatch.setenv("MAKEGOOD_DASHBOARD_LOGIN", "demo")
    monkeypatch.setattr(identity, "is_relayed", lambda _: True)
    app = look(peopled.read)
    assert "comes through a proxy" in app.error[0].value
    assert not app.metric
    assert not app.button
