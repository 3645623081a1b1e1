"""Which folder and which database, from the settings alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from makegood.errors import ConfigurationError
from makegood.local import where
from makegood.local.reach import describe
from makegood.settings import get_settings

OWN = "postgresql://me:secret@db.example:5433/shop"


@pytest.fixture(autouse=True)
def own_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    for name in ("MAKEGOOD_DATABASE_URL", "MAKEGOOD_DATABASE_ADMIN_URL", "MAKEGOOD_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


def test_home_is_the_nearest_one_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert where.find_home() == tmp_path / ".makegood"
    (tmp_path / ".makegood").mkdir()
    (tmp_path / "deep" / "down").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "down")
    assert where.find_home() == tmp_path / ".makegood"


def test_home_that_is_set_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".makegood").mkdir()
    monkeypatch.setenv("MAKEGOOD_HOME", "elsewhere")
    assert where.find_home() == tmp_path / "elsewhere"


def test_own_server_serves_every_role(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAKEGOOD_DATABASE_URL", OWN)
    assert where.database_url("jobs") == where.database_url("read") == where.admin_url() == OWN


def test_own_admin_url_is_for_migrations_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAKEGOOD_DATABASE_URL", OWN)
    monkeypatch.setenv("MAKEGOOD_DATABASE_ADMIN_URL", OWN.replace("me", "dba"))
    assert where.database_url() == OWN
    assert where.admin_url() == OWN.replace("me", "dba")


def test_embedded_server_that_is_down_says_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match="not running") as caught:
        where.database_url()
    assert "make up" in str(caught.value.hint)


def test_description_never_shows_a_password() -> None:
    assert describe(OWN) == "db.example:5433/shop"
    with pytest.raises(ConfigurationError, match="MAKEGOOD_DATABASE_URL") as caught:
        describe("postgresql://me:secret@db:not-a-port:/%zz")
    assert "secret" not in str(caught.value)
