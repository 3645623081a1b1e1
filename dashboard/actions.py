"""What people do, the same on every page: a button, a form that shows the facts of this moment, and the verdict.

A page calls :func:`offer`. The form opens over the page and outside of what refreshes itself, so that it stays open.
Its token is made when it opens: sent twice, it acts once. Whether the person may is decided by the database, in the
transaction that acts; what is greyed out here is only a courtesy.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from dashboard import acting, facts, finding_facts, formats, identity, live, tables, verdicts
from dashboard.acting import Actor, Answer, Refused
from dashboard.data import now
from dashboard.database import Away
from dashboard.theme import badge_of

REASON_MAX, PROOF_MAX = 2000, 500
IGNORED_DAYS = (1, 7, 30, 90, 365)
EITHER = ("refuse", "refuse_refund")  # an operator, or an approver
ASKED = "asked"
ROLES = {"approve": "approver", "approve_refund": "approver"}  # everything else is an operator's


@dataclass
class Asked:
    """One form that was opened: what it is about, its token, and the answer once there is one.

    ``digest`` is of what was shown first: whatever is read later, nothing else is sent.
    """

    kind: str
    about: dict[str, Any]
    token: uuid.UUID = field(default_factory=uuid.uuid4)
    digest: str | None = None
    answer: Answer | None = None
    refused: Refused | None = None


@dataclass(frozen=True)
class Form:
    """How one kind of act looks and what it calls."""

    title: str
    button: str
    look: Callable[[dict[str, Any]], facts.Facts]
    send: Callable[[Actor, str, Asked, str, str], Answer]
    asks_proof: bool = False
    asks_days: bool = False


def offer(kind: str, label: str, key: str, icon: str, **about: Any) -> None:
    """A button that opens the form; greyed out, with the reason, for whoever may not."""
    why_not = may_not(kind)
    if st.button(label, key=key, icon=icon, disabled=why_not is not None, help=why_not):
        ask(kind, **about)


def ask(kind: str, **about: Any) -> None:
    """Opens the form over whatever page is shown."""
    st.session_state[ASKED] = Asked(kind, about)
    st.rerun()


def may_not(kind: str) -> str | None:
    """Why the person who looks may not do this, or None."""
    role, person = ROLES.get(kind, "operator"), identity.person()
    if person.may(role) or (kind in EITHER and person.may("approver")):
        return None
    if not person.login:
        return "Nobody is logged in here: looking is all there is. MAKEGOOD_DASHBOARD_LOGIN says how people log in."
    return f"This needs the role {role}, which you have not. makegood people grant gives it."


def explain_rights(kind: str = "release") -> None:
    """One line under greyed-out buttons, for who does not hover."""
    if why_not := may_not(kind):
        st.caption(why_not)


def show_asked() -> None:
    """The open form, if there is one; called once per page, after it."""
    asked: Asked | None = st.session_state.get(ASKED)
    if asked is None:
        return
    form = FORMS[asked.kind]

    @st.dialog(form.title, width="medium", on_dismiss=_close)
    def body() -> None:
        try:
            _draw(form, asked)
        except Away as away:
            live.show_away(away)

    body()


def _draw(form: Form, asked: Asked) -> None:
    if asked.answer is not None:
        _show_answer(asked)
        return
    found = form.look(asked.about)
    with st.container(key="facts"):
        for line in found.lines:
            st.text(formats.short(line, 600))
    if found.orders:
        with st.expander(formats.plural(len(found.orders), "order")):
            st.text("\n".join(formats.short(order, 150) for order in found.orders))
    st.text(found.will)
    if asked.refused:
        show_words("wrong", (asked.refused.why, asked.refused.todo))
    asked.digest = asked.digest or found.digest
    if not found.possible:
        _show_close(asked)
    elif found.digest != asked.digest:
        _show_changed(asked, found.digest)
    else:
        _show_form(form, asked)


def _show_changed(asked: Asked, digest: str | None) -> None:
    """What is above is not what was shown when the form opened: it is read before anything can be sent."""
    show_words("wrong", ("It is not what you were shown before, and nothing was sent. This is what it is now.",))
    st.button("I have read it", key=f"read-{asked.token}", on_click=_accept, args=(asked, digest))


def _accept(asked: Asked, digest: str | None) -> None:
    """The digest is that of the page on which the button stood."""
    asked.digest = digest


def _show_form(form: Form, asked: Asked) -> None:
    proof = ""
    with st.form(f"form-{asked.token}", border=False):
        if form.asks_proof:
            proof = st.text_input(
                "What shows it",
                max_chars=PROOF_MAX,
                key="proof",
                placeholder="The id of the refund, for example re_123",
            )
        if form.asks_days:
            days = st.selectbox("For how long", IGNORED_DAYS, index=1, format_func=_name_days, key="days")
            asked.about["days"] = days
        reason = st.text_input("Why", max_chars=REASON_MAX, key="reason", placeholder="Kept with what you do")
        sent = st.form_submit_button(form.button, type="primary")
    if not sent:
        return
    if not reason.strip():
        st.error("Say why: it is kept with what you do.", icon=":material/edit:")
    elif form.asks_proof and not proof.strip():
        st.error("Say what shows it, for example the id of the refund.", icon=":material/edit:")
    else:
        _send(form, asked, reason, proof)
        st.rerun(scope="fragment")


def _send(form: Form, asked: Asked, reason: str, proof: str) -> None:
    """The login is found anew: whoever has logged out meanwhile acts no more."""
    person = identity.identify()
    try:
        if person is None or not person.login:
            raise Refused("Nobody is logged in.", "Log in and try again.")  # noqa: TRY301 - said like any other refusal
        asked.answer, asked.refused = form.send(acting.actor(), person.login, asked, reason, proof), None
        tables.forget_ticks()
    except (Refused, identity.Stranger) as refused:
        asked.refused = refused if isinstance(refused, Refused) else Refused(str(refused))
    st.cache_data.clear()  # what was acted on is seen at once


def _show_answer(asked: Asked) -> None:
    order = str(asked.about.get("order", ""))
    verdict = verdicts.describe(asked.kind, asked.answer or {}, formats.short(order, 150), now(), live.zone())
    show_words(verdict.tone, verdict.sentences)
    _show_close(asked)


def show_words(tone: str, sentences: Sequence[str]) -> None:
    """As text: a reason or a name in it is somebody else's."""
    label, word = verdicts.TONES[tone]
    with st.container(border=True, key="verdict"):
        st.badge(label, color=badge_of(word))  # type: ignore[arg-type]
        for sentence in filter(None, sentences):
            st.text(sentence)


def _show_close(asked: Asked) -> None:
    if st.button("Close", key=f"close-{asked.token}"):
        _close()
        st.rerun()


def _close() -> None:
    st.session_state.pop(ASKED, None)


def _name_days(days: int) -> str:
    return formats.plural(days, "day")


def _order(asked: Asked) -> tuple[str, str]:
    return asked.about["workflow_type"], asked.about["order"]


FORMS = {
    "release": Form(
        "Let an order go on",
        "Let it go on",
        facts.look_at_order,
        lambda actor, login, asked, reason, _: actor.release(login, asked.token, *_order(asked), reason),
    ),
    "group": Form(
        "Let a group of orders go on",
        "Let them go on",
        facts.look_at_group,
        lambda actor, login, asked, reason, _: actor.release_group(login, asked.token, asked.about["items"], reason),
    ),
    "retry": Form(
        "Try an undo now",
        "Try it now",
        facts.look_at_undo,
        lambda actor, login, asked, reason, _: actor.retry_undo(login, asked.token, *_order(asked), reason),
    ),
    "settle": Form(
        "Settle an undo by hand",
        "It was done elsewhere",
        facts.look_at_settlement,
        lambda actor, login, asked, reason, proof: actor.settle(
            login, asked.token, *_order(asked), asked.about["step"], proof, reason
        ),
        asks_proof=True,
    ),
    "cancel": Form(
        "Cancel an order",
        "Undo the order",
        facts.look_at_cancel,
        lambda actor, login, asked, reason, _: actor.cancel(login, asked.token, *_order(asked), reason),
    ),
    "approve": Form(
        "Approve as the second person",
        "Approve",
        facts.look_at_request,
        lambda actor, login, asked, reason, _: actor.approve(
            login, asked.token, asked.about["id"], asked.digest or "", reason
        ),
    ),
    "refuse": Form(
        "Refuse a request",
        "Refuse",
        facts.look_at_request,
        lambda actor, login, asked, reason, _: actor.refuse(login, asked.token, asked.about["id"], reason),
    ),
    "carry_out": Form(
        "Carry out what was approved",
        "Carry it out",
        facts.look_at_approved,
        lambda actor, login, asked, reason, _: actor.carry_out(login, asked.token, asked.about["id"], reason),
    ),
    "acknowledge": Form(
        "Acknowledge a finding",
        "Acknowledge",
        finding_facts.look_at_acknowledging,
        lambda actor, login, asked, reason, _: actor.mark_finding(
            login, asked.token, asked.about["finding"], None, reason
        ),
    ),
    "ignore": Form(
        "Ignore a finding for a time",
        "Ignore",
        finding_facts.look_at_ignoring,
        lambda actor, login, asked, reason, _: actor.mark_finding(
            login, asked.token, asked.about["finding"], asked.about["days"], reason
        ),
        asks_days=True,
    ),
    "approve_refund": Form(
        "Approve a refund as the second person",
        "Approve",
        finding_facts.look_at_refund,
        lambda actor, login, asked, reason, _: actor.approve_refund(
            login, asked.token, asked.about["finding"], asked.digest or "", reason
        ),
    ),
    "refuse_refund": Form(
        "Refuse a refund",
        "Refuse",
        finding_facts.look_at_refusal,
        lambda actor, login, asked, reason, _: actor.refuse_refund(login, asked.token, asked.about["finding"], reason),
    ),
}
