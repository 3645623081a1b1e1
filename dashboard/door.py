"""The door of every page: who is it, may they look, and who they are in the sidebar. Nothing is read before."""

from __future__ import annotations

import streamlit as st

from dashboard import identity, live
from dashboard.database import Away
from makegood.settings import get_settings

LOUD = "**This is a demo.** Everybody at this machine can be anybody with one click. It is served to this machine only."
FOR_REAL = "For real people, MAKEGOOD_DASHBOARD_LOGIN is oidc or proxy, and makegood people grant says who may do what."
TRY_AGAIN_SECONDS = 3.0
ROLES = {"viewer": "gray", "engineer": "violet", "operator": "primary", "approver": "orange"}


def let_in() -> bool:
    """Whether the page may be drawn; if not, what is missing has been said."""
    demo = get_settings().login == "demo"
    if demo:
        st.warning(LOUD, icon=":material/campaign:")
    try:
        person = identity.identify()
    except identity.Stranger as stranger:
        show_refusal(str(stranger))
        return False
    except Away as away:
        live.show_away(away)
        _try_again()
        return False
    if person is None:
        show_login(demo=demo)
        return False
    show_person(person)
    if not person.may_look:
        show_refusal("You are logged in, and nobody has given you a role yet.")
        st.text(f"Somebody with the command line can run: makegood people grant {person.login} viewer --reason …")
    return person.may_look


def show_login(*, demo: bool) -> None:
    st.title("makegood", anchor=False)
    st.text("Finds orders stuck between two steps and makes them good.")
    if not demo:
        if st.button("Log in", type="primary", icon=":material/login:"):
            st.login()
        return
    st.subheader("Who are you?", anchor=False)
    for login, what in identity.DEMO.items():
        label = f"{login.removeprefix('demo-').capitalize()}: {what}"
        if st.button(label, key=login, icon=":material/person:", width=380):
            identity.log_in(login)
            st.rerun()
    st.caption(FOR_REAL)


def show_refusal(why: str) -> None:
    st.title("makegood", anchor=False)
    st.error(f"**You cannot come in.** {why}", icon=":material/block:")
    if identity.person().login and get_settings().login == "oidc":
        st.button("Log in as somebody else", on_click=identity.log_out)


def show_person(person: identity.Person) -> None:
    if not person.login:
        return
    with st.sidebar:
        with st.container(key="who"):
            st.text(person.login)
            with st.container(horizontal=True, gap="small"):
                for role in person.roles:
                    st.badge(role, color=ROLES[role], help=identity.RIGHTS[role])  # type: ignore[arg-type]
            if not person.roles:
                st.caption("no role yet")
        if get_settings().login == "proxy":
            st.caption("You are logged in by the proxy; log out there.")
        elif st.button("Log out", icon=":material/logout:", key="log-out"):
            identity.log_out()
            _keep_cookie("")
            st.rerun()
        if get_settings().login == "demo":
            _keep_cookie(person.login)


def _keep_cookie(login: str) -> None:
    """So that a link opened anew needs no second click. A name of the demo's own list, and never a secret."""
    age = 43200 if login in identity.DEMO else 0
    cookie = f"{identity.COOKIE}={login if age else ''}; max-age={age}; path=/; samesite=strict"
    st.html(f"<script>document.cookie = '{cookie}'</script>", unsafe_allow_javascript=True)


@st.fragment(run_every=TRY_AGAIN_SECONDS)
def _try_again() -> None:
    """Comes back by itself once the database does."""
    try:
        identity.identify()
    except Away:
        return
    st.rerun()
