"""Databases that are filled once and only looked at, and a way to open a page on each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import shops
import streamlit as st
from shops import Place
from streamlit.testing.v1 import AppTest

import dashboard
from dashboard import data
from makegood.local.postgres import EmbeddedPostgres
from makegood.settings import get_settings
from sandbox.client import ShopControl, ShopProcess

ROUTER = Path(dashboard.__file__).with_name("streamlit_app.py")
SECONDS_MAX = 30

Look = Callable[..., AppTest]


@pytest.fixture(scope="session")
def empty(server: EmbeddedPostgres) -> Iterator[Place]:
    with shops.open_place(server) as place:
        yield place


def _filled(
    fill: Callable[..., None], server: EmbeddedPostgres, shop: ShopProcess, folder: pytest.TempPathFactory
) -> Iterator[Place]:
    with shops.open_place(server) as place, ShopControl(shop.url) as control:
        control.reset()
        fill(place, shops.make_settings(shop.url, folder.mktemp("home")), control)
        yield place


@pytest.fixture(scope="session")
def normal(
    server: EmbeddedPostgres, shop_process: ShopProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    yield from _filled(shops.ordinary_day, server, shop_process, tmp_path_factory)


@pytest.fixture(scope="session")
def disaster(
    server: EmbeddedPostgres, shop_process: ShopProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    yield from _filled(shops.disaster, server, shop_process, tmp_path_factory)


@pytest.fixture(scope="session")
def hostile(
    server: EmbeddedPostgres, shop_process: ShopProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    yield from _filled(shops.hostile, server, shop_process, tmp_path_factory)


@pytest.fixture(scope="session")
def peopled(
    server: EmbeddedPostgres, shop_process: ShopProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    yield from _filled(shops.parked, server, shop_process, tmp_path_factory)


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Iterator[Look]:
    """Opens a page on a database, as somebody who may only read."""

    def open_page(url: str, page: str = "overview", **parameters: str) -> AppTest:
        monkeypatch.setenv("MAKEGOOD_DATABASE_URL", url)
        forget()
        app = AppTest.from_file(str(ROUTER), default_timeout=SECONDS_MAX)
        if page != "overview":
            app.switch_page(f"app_pages/{page}.py")
        for name, value in parameters.items():
            app.query_params[name] = value
        return app.run()

    yield open_page
    forget()


def forget() -> None:
    """What one test has read is not another one's."""
    st.cache_data.clear()
    data.reader().close()
    data.reader.clear()  # type: ignore[attr-defined]
    get_settings.cache_clear()
