"""Settings: each wrong one is named with what it should be, and no secret is ever shown."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from makegood.errors import EXIT_NOT_READY, ConfigurationError
from makegood.settings import Settings, get_settings


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MAKEGOOD_SHOP_PORT", "0"),
        ("MAKEGOOD_SHOP_PORT", "65536"),
        ("MAKEGOOD_SHOP_PORT", "http"),
        ("MAKEGOOD_STUCK_AFTER_SECONDS", "-1"),
        ("MAKEGOOD_STUCK_AFTER_SECONDS", "five minutes"),
        ("MAKEGOOD_LEASE_SECONDS", "0"),
        ("MAKEGOOD_LEASE_SECONDS", "nan"),
        ("MAKEGOOD_LEASE_SECONDS", "inf"),  # a lease that never ends is an order that is never recovered
        ("MAKEGOOD_CLAIM_BATCH", "0"),
        ("MAKEGOOD_CLAIM_BATCH", "5001"),
        ("MAKEGOOD_CLAIM_BATCH", "1.5"),
        ("MAKEGOOD_CALLS_AT_ONCE", "0"),
        ("MAKEGOOD_KEY_WINDOW_HOURS", "25"),  # Stripe has forgotten by then
        ("MAKEGOOD_CONTEXT_BYTES_MAX", "65537"),  # the database would refuse it
        ("MAKEGOOD_FORWARD_WAIT_SECONDS", "0"),
        ("MAKEGOOD_FORWARD_WAIT_SECONDS", "soon"),
        ("MAKEGOOD_FORWARD_WAIT_SECONDS_MAX", "86401"),
        ("MAKEGOOD_UNDO_WAIT_SECONDS", "-1"),
        ("MAKEGOOD_UNDO_WAIT_SECONDS_MAX", "inf"),  # an undo that never comes again
        ("MAKEGOOD_BREAKER_FAILURES", "0"),  # nobody would ever be called
        ("MAKEGOOD_BREAKER_WAIT_SECONDS", "0"),
        ("MAKEGOOD_BREAKER_WAIT_SECONDS_MAX", "nan"),
        ("MAKEGOOD_RECOVERY_LIMIT", "0"),
        ("MAKEGOOD_RECOVERY_LIMIT", "1000001"),
        ("MAKEGOOD_JOB_SECONDS_MAX", "9"),
        ("MAKEGOOD_ORPHANED_AFTER_SECONDS", "0"),
        ("MAKEGOOD_KEEP_DAYS", "0"),  # a run would be gone before anybody could look at it
        ("MAKEGOOD_DASHBOARD_URL", "dashboard"),
        ("MAKEGOOD_NOTIFY_URLS", "kim@example.com"),
        ("MAKEGOOD_NOTIFY_URLS", "slack://token/channel kim@example.com"),  # the second of two
        ("MAKEGOOD_LOG_LEVEL", "CHATTY"),
        ("MAKEGOOD_STRIPE_API_BASE", "api.stripe.com"),
        ("MAKEGOOD_INVENTORY_URL", "ftp://inventory"),
        ("MAKEGOOD_SHIPPING_URL", "http://"),
        ("MAKEGOOD_DATABASE_URL", "not an address"),
        ("MAKEGOOD_DATABASE_URL", "mysql://host/db"),
        ("MAKEGOOD_DATABASE_ADMIN_URL", "postgresql://host:port/db"),
    ],
)
def test_wrong_setting_is_named(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError) as refused:
        get_settings()
    assert str(refused.value).startswith(f"{name}: ")
    assert refused.value.exit_code == EXIT_NOT_READY
    assert refused.value.hint


def test_two_wrong_settings_are_both_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAKEGOOD_SHOP_PORT", "x")
    monkeypatch.setenv("MAKEGOOD_CLAIM_BATCH", "y")
    with pytest.raises(ConfigurationError, match=r"MAKEGOOD_SHOP_PORT: .*MAKEGOOD_CLAIM_BATCH: .*it is 'y'"):
        get_settings()


@pytest.mark.parametrize(
    "value",
    [
        "postgresql://user:hunter2@host:port/db",
        "postgresql://user:hunter2%zz@host/db",
        "user hunter2",
        "password=hunter2 bogus=1",
    ],
)
def test_database_address_that_cannot_be_read_does_not_show_its_password(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("MAKEGOOD_DATABASE_URL", value)
    with pytest.raises(ConfigurationError) as refused:
        get_settings()
    chain = [refused.value, refused.value.__cause__, refused.value.hint]
    assert "hunter2" not in " ".join(map(repr, chain))
    assert "MAKEGOOD_DATABASE_URL" in str(refused.value)


@pytest.mark.parametrize(
    "value",
    [
        "postgresql://user:pw@host:5432/db?sslmode=disable",
        "postgres://host/db",
        "host=127.0.0.1 dbname=db user=me",
        "postgresql:///db?host=/var/run/postgresql",
    ],
)
def test_database_address_in_any_form_that_libpq_reads_is_taken(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("MAKEGOOD_DATABASE_URL", value)
    found = get_settings().database_url
    assert found is not None
    assert found.get_secret_value() == value


def test_undo_that_is_less_patient_than_the_way_forward_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAKEGOOD_FORWARD_WAIT_SECONDS_MAX", "120")
    monkeypatch.setenv("MAKEGOOD_UNDO_WAIT_SECONDS_MAX", "119")
    with pytest.raises(
        ConfigurationError, match=r"MAKEGOOD_UNDO_WAIT_SECONDS_MAX is 119; .*at least .*\(120\)"
    ) as refused:
        get_settings()
    assert refused.value.exit_code == EXIT_NOT_READY
    get_settings.cache_clear()
    monkeypatch.setenv("MAKEGOOD_UNDO_WAIT_SECONDS_MAX", "120")
    assert get_settings().undo_wait_seconds_max == 120


@pytest.mark.parametrize(
    ("value", "addresses"),
    [
        ("", []),
        ("mailto://a@example.com", ["mailto://a@example.com"]),
        ("slack://t/c, json://host/x", ["slack://t/c", "json://host/x"]),
        (" slack://t/c ,\n\tjson://host/x ", ["slack://t/c", "json://host/x"]),  # as people write lists
    ],
)
def test_addresses_for_alerts_are_separated_by_spaces_or_commas(
    monkeypatch: pytest.MonkeyPatch, value: str, addresses: list[str]
) -> None:
    monkeypatch.setenv("MAKEGOOD_NOTIFY_URLS", value)
    assert [address.get_secret_value() for address in get_settings().notify_urls] == addresses


def test_address_for_alerts_that_is_none_does_not_show_its_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAKEGOOD_NOTIFY_URLS", "slack://hunter2/channel,hunter2@example.com")
    with pytest.raises(ConfigurationError) as refused:
        get_settings()
    chain = [refused.value, refused.value.__cause__, refused.value.hint]
    assert "hunter2" not in " ".join(map(repr, chain))


def test_secrets_are_not_shown_by_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAKEGOOD_STRIPE_API_KEY", "sk_live_hunter2")
    monkeypatch.setenv("MAKEGOOD_NOTIFY_URLS", "mailto://user:hunter2@example.com")
    monkeypatch.setenv("MAKEGOOD_DATABASE_URL", "postgresql://user:hunter2@host/db")
    settings = get_settings()
    assert "hunter2" not in f"{settings!r} {settings} {settings.model_dump()} {settings.model_dump_json()}"


def test_empty_variable_means_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "DATABASE_ADMIN_URL", "STRIPE_API_BASE", "INVENTORY_URL", "SHIPPING_URL"):
        monkeypatch.setenv(f"MAKEGOOD_{name}", "")
    settings = get_settings()
    assert settings.embedded
    assert (settings.stripe_api_base, settings.inventory_url, settings.shipping_url) == (None, None, None)


def test_modules_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAKEGOOD_WORKFLOWS", " shop.subscriptions , ,shop.rentals,")
    assert get_settings().workflows == ("shop.subscriptions", "shop.rentals")


@pytest.mark.parametrize("level", ["DEBUG", "info", "Warning"])
def test_log_level_is_taken_in_any_case(monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    monkeypatch.setenv("MAKEGOOD_LOG_LEVEL", level)
    assert get_settings().log_level == level.upper()


def test_defaults_are_those_of_the_design() -> None:
    settings = Settings()
    assert (settings.stuck_after_seconds, settings.shop_port, settings.key_window_hours) == (300, 9900, 20)
    assert settings.shop_url == "http://127.0.0.1:9900"  # never the real Stripe by accident
    assert settings.lease_seconds > 30  # the longest step
    assert settings.undo_wait_seconds_max > settings.forward_wait_seconds_max  # promise 7: more patiently
    assert settings.notify_urls == ()
