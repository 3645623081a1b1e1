"""Who looks, and what they may do. Without a login no page is drawn; with one, the database says the roles.

What a page shows goes by roles that are a few seconds old at most. What a person does goes by none of this: the
function that acts reads the role itself, in its own transaction.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import streamlit as st

from dashboard import data, masking
from dashboard.database import Away
from makegood.settings import Settings, get_settings

SECRET_HEADER = "X-Makegood-Proxy-Secret"  # noqa: S105 - its name
RIGHTS = {
    "viewer": "looks",
    "engineer": "looks, and sees personal data",
    "operator": "acts",
    "approver": "is the second person",
}
DEMO = {f"demo-{role}": what for role, what in RIGHTS.items()}
COOKIE = "makegood_demo"
# What a proxy or a tunnel adds. One on this machine comes from loopback, and anybody may be behind it.
RELAYED = ("forwarded", "via", "x-forwarded", "x-real-ip", "x-client-ip", "true-client-ip", "cf-")
LOGIN_MAX = 200
_CHOSEN, _KNOWN = "demo-login", "person"


@dataclass(frozen=True)
class Person:
    """``login`` is empty where nobody logs in; ``roles`` are what the database says."""

    login: str
    roles: tuple[str, ...] = ()

    def may(self, role: str) -> bool:
        return role in self.roles

    @property
    def may_look(self) -> bool:
        """Any role looks; where nobody logs in, everybody does."""
        return not self.login or bool(self.roles)


class Stranger(Exception):
    """Somebody whose login is not to be believed; the text is for the page, in our own words."""


def identify() -> Person | None:
    """Who looks, or None when nobody has logged in yet. May raise Stranger, or Away before the first answer."""
    settings = get_settings()
    if settings.login == "off":
        return _remember(Person(""))
    login = find_login(settings)
    if not login:
        st.session_state.pop(_KNOWN, None)
        return None
    try:
        return _remember(Person(login, tuple(data.get_roles(login))))
    except Away:
        known: Person | None = st.session_state.get(_KNOWN)
        if known is None or known.login != login:
            raise
        return known  # the page itself says that the database is away, and comes back


def is_still_here() -> bool:
    """Whether whoever opened the page may go on looking: asked at each refresh, for a right may be gone by now."""
    try:
        found = identify()
    except Stranger:
        return False
    return found is not None and found.may_look


def person() -> Person:
    """Who looks at the page that is being drawn; nobody with any right, where that is not known."""
    found: Person = st.session_state.get(_KNOWN, Person(""))
    return found


def seen_text(text: str) -> str:
    """A text as the person who looks may see it."""
    return text if person().may("engineer") else masking.mask_text(text)


def seen_story(document: dict[str, Any]) -> dict[str, Any]:
    """An order's story as the person who looks may see it."""
    if person().may("engineer"):
        return document
    masked: dict[str, Any] = masking.mask_document(document, get_settings().mask_fields)
    return masked


def find_login(settings: Settings) -> str | None:
    if settings.login == "demo":
        return _demo_login()
    if settings.login == "proxy":
        return believe_proxy(st.context.headers.get_all, st.context.ip_address, settings)
    return believe_provider(dict(st.user), settings)


def believe_proxy(headers: Callable[[str], Sequence[str]], peer: str | None, settings: Settings) -> str | None:
    """The login that a trusted proxy names; ``peer`` is None on loopback. Everybody else is a stranger."""
    secret = settings.dashboard_proxy_secret
    told = headers(SECRET_HEADER)
    if not _is_declared(peer, settings.dashboard_proxies):
        raise Stranger("This address is not the proxy's. Come through the proxy that people log in to.")
    if (
        secret is None
        or len(told) != 1
        or not hmac.compare_digest(told[0].encode(), secret.get_secret_value().encode())
    ):
        raise Stranger("This did not come through the proxy that people log in to.")
    names = headers(settings.dashboard_user_header)
    if len(names) > 1:
        raise Stranger("The proxy names more than one person.")
    return _clean(names[0]) if names else None


def believe_provider(user: dict[str, object], settings: Settings) -> str | None:
    """The login in what an identity provider says; an address it has not verified is anybody's."""
    claim = settings.dashboard_login_claim
    if not user.get("is_logged_in"):
        return None
    name = user.get(claim)
    if not isinstance(name, str) or not _clean(name):
        raise Stranger(f"The identity provider does not say who you are: there is no claim {claim}.")
    verified = str(user.get("email_verified", settings.dashboard_trust_email)).lower()  # some send text
    if claim == "email" and verified != "true":
        raise Stranger("The identity provider does not say that your e-mail address is verified.")
    return _clean(name)


def log_in(login: str) -> None:
    """Demo only."""
    st.session_state[_CHOSEN] = login


def log_out() -> None:
    if get_settings().login == "oidc":
        st.logout()
    st.session_state[_CHOSEN] = ""
    st.session_state.pop(_KNOWN, None)


def _demo_login() -> str | None:
    """One of the demo's people, by a click or by the cookie that a click left; nobody from another machine."""
    if st.context.ip_address is not None or is_relayed(st.context.headers):
        raise Stranger("The demo's people are for this machine only, and for nobody who comes through a proxy.")
    chosen = st.session_state.get(_CHOSEN)
    name = st.context.cookies.get(COOKIE) if chosen is None else chosen
    return name if name in DEMO else None


def is_relayed(headers: Mapping[str, str]) -> bool:
    """Whether a browser elsewhere may have asked: somebody passed it on, or the page has another machine's name."""
    told = {name.lower(): value for name, value in headers.items()}
    named = [told.get("origin") or "//localhost", f"//{told.get('host') or 'localhost'}"]
    return any(name.startswith(RELAYED) for name in told) or not all(map(_is_of_this_machine, named))


def _is_of_this_machine(address: str) -> bool:
    try:
        host = urlsplit(address).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _remember(found: Person) -> Person:
    st.session_state[_KNOWN] = found
    return found


def _is_declared(peer: str | None, proxies: Sequence[str]) -> bool:
    """Loopback, or one of the declared addresses or networks."""
    if peer is None:
        return True
    try:
        address = ipaddress.ip_address(peer)
        return address.is_loopback or any(address in ipaddress.ip_network(one, strict=False) for one in proxies)
    except ValueError:
        return False


def _clean(name: str) -> str:
    return name.strip().lower() if len(name) <= LOGIN_MAX and name.isprintable() else ""
