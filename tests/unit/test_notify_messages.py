"""What a message says: a storm is one message, money is added up per currency, and hostile text stays on its line."""

from __future__ import annotations

from typing import Any

import pytest

from makegood.notify import GROUPS_MAX, SHOWN_MAX, TEXT_LENGTH_MAX, Message, write_messages

DASHBOARD = "http://dashboard.example"
EXPONENTS = {"EUR": 2, "JPY": 0, "KWD": 3}


def alert(number: int, **facts: Any) -> dict[str, Any]:
    payload = {
        **{"kind": "held_workflow", "entity_id": f"order-{number}", "workflow_type": "checkout", "state": "charging"},
        **{"step": "charge", "amount_minor": 1999, "currency": "EUR"},
        **{"error_type": "wrong_amount", "error": "asked for 1999, the answer says 2000"},
    }
    return {"id": number, "payload": payload | facts}


def write(*alerts: dict[str, Any]) -> list[Message]:
    return write_messages(alerts, DASHBOARD, EXPONENTS)


def write_one(*alerts: dict[str, Any]) -> Message:
    (message,) = write(*alerts)
    return message


def test_no_alert_is_no_message() -> None:
    assert write() == []


def test_one_alert_says_which_order_how_much_why_and_where_to_look() -> None:
    message = write_one(alert(7))
    assert message.ids == (7,)
    assert message.title == "An order is held: 19.99 EUR"
    assert message.body.splitlines() == [
        "1 × checkout, step charge, wrong_amount",
        "  order-7, 19.99 EUR: asked for 1999, the answer says 2000  http://dashboard.example/?order=order-7",
    ]


def test_storm_of_312_is_one_message_with_a_count_a_total_and_five_orders() -> None:
    message = write_one(*(alert(n) for n in range(312)))
    assert message.title == "312 orders are held: 6,236.88 EUR"
    assert message.ids == tuple(range(312))
    lines = message.body.splitlines()
    assert lines[0] == "312 × checkout, step charge, wrong_amount"
    assert [line.split(",")[0] for line in lines[1:-1]] == [f"  order-{n}" for n in range(SHOWN_MAX)]
    assert lines[-1] == "  and 307 more: makegood dlq list"


def test_storm_of_many_kinds_of_trouble_names_the_most_frequent_and_counts_the_rest() -> None:
    alerts = [alert(n, error_type=f"trouble-{min(n, 40)}") for n in range(60)]
    message = write_one(*alerts)
    lines = message.body.splitlines()
    assert lines[0] == "20 × checkout, step charge, trouble-40"
    assert sum(" × " in line for line in lines) == GROUPS_MAX
    assert lines[-1] == "and 31 for other reasons: makegood dlq list"
    assert len(message.ids) == 60


@pytest.mark.parametrize(
    ("amounts", "total"),
    [
        ([(1999, "EUR"), (1, "EUR")], "20.00 EUR"),
        ([(1999, "JPY"), (1, "JPY")], "2,000 JPY"),  # no decimals
        ([(1999, "KWD"), (1, "KWD")], "2.000 KWD"),  # three
        ([(5, "KWD"), (100, "JPY"), (250, "EUR")], "2.50 EUR, 100 JPY, 0.005 KWD"),  # never added to each other
        ([(None, None), (100, "EUR")], "1.00 EUR"),  # one that moves no money
        ([(2**62, "EUR"), (2**62, "EUR")], "92,233,720,368,547,758.08 EUR"),  # past what a float holds
    ],
)
def test_total_is_per_currency_with_its_own_decimals(amounts: list[tuple[Any, Any]], total: str) -> None:
    alerts = [alert(n, amount_minor=amount, currency=currency) for n, (amount, currency) in enumerate(amounts)]
    assert write_one(*alerts).title == f"{len(amounts)} orders are held: {total}"


def test_alerts_that_move_no_money_have_no_total() -> None:
    message = write_one(alert(1, amount_minor=None, currency=None))
    assert message.title == "An order is held"
    assert "order-1: asked" in message.body


def test_kinds_are_messages_of_their_own() -> None:
    messages = write(
        alert(1),
        alert(2, kind="held_compensation", step="ship"),
        alert(3),
        {"id": 4, "payload": {"kind": "provider_down", "provider": "payments", "since": "noon", "error": "HTTP 503"}},
        {"id": 5, "payload": {"kind": "something new", "entity_id": "order-5"}},
        {"id": 6, "payload": {}},
    )
    assert [(message.title, message.ids) for message in messages] == [
        ("2 orders are held: 39.98 EUR", (1, 3)),
        ("An undo is held: 19.99 EUR", (2,)),
        ("A provider is down", (4,)),
        ("An alert", (5,)),  # from a newer writer: said, never dropped
        ("An alert", (6,)),
    ]
    assert messages[2].body == f"payments, down since noon: HTTP 503\n{DASHBOARD}"


HOSTILE = [
    "order-1\norder-2, 0.00 EUR: all is well",
    "order-1\r\nBcc: everybody@example.com",
    "order-1\x1b[2J\x1b]0;title\x07",
    "order-1\u2028order-2",
    "order-1\u202e\u2066",
    "order-1\x00\x85\x9b",
    "order-1\t\v\f",
]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("field", ["entity_id", "error", "error_type", "step", "workflow_type"])
def test_hostile_text_stays_on_its_line(field: str, text: str) -> None:
    message = write_one(alert(1, **{field: text}))
    assert len(message.body.splitlines()) == 2
    assert all(c.isprintable() for c in message.body.replace("\n", ""))
    assert all(c.isprintable() for c in message.title)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("field", ["provider", "since", "error"])
def test_hostile_text_of_a_provider_stays_on_its_line(field: str, text: str) -> None:
    payload = {"kind": "provider_down", "provider": "payments", "since": "noon", "error": "HTTP 503", field: text}
    message = write_one({"id": 1, "payload": payload})
    assert len(message.body.splitlines()) == 2


@pytest.mark.parametrize(
    ("entity_id", "quoted"),
    [
        ("order/1 ?&x=y#z", "order%2F1%20%3F%26x%3Dy%23z"),
        ("../../admin", "..%2F..%2Fadmin"),
        ("a\nhttp://evil", "a%0Ahttp%3A%2F%2Fevil"),
        ("größe", "gr%C3%B6%C3%9Fe"),
    ],
)
def test_link_leads_to_the_order_whatever_it_is_called(entity_id: str, quoted: str) -> None:
    assert write_one(alert(1, entity_id=entity_id)).body.endswith(f"  {DASHBOARD}/?order={quoted}")


def test_endless_error_is_cut() -> None:
    body = write_one(alert(1, error="x" * 2000)).body
    assert "x" * (TEXT_LENGTH_MAX - 1) + "…" in body
    assert "x" * TEXT_LENGTH_MAX not in body


def finding(number: int, class_: str = "D08", **facts: Any) -> dict[str, Any]:
    return alert(number, **{"kind": "finding", "class": class_, "run_id": "run-1", **facts})


def test_storm_of_findings_is_one_message_by_class_with_money_and_one_link() -> None:
    storm = [finding(n) for n in range(200)] + [finding(200, "D22", amount_minor=5000, currency="JPY")]
    message = write_one(*storm)
    assert message.title == "201 differences between the provider's books and ours: 3,998.00 EUR, 5,000 JPY"
    lines = message.body.splitlines()
    assert lines[0] == "200 × D08 Duplicate charge, 3,998.00 EUR"
    assert lines[1] == "  order-0, 19.99 EUR"
    assert lines[6] == "  and 195 more: makegood reconcile findings --class D08"
    assert lines[7:9] == ["1 × D22 Over-refund, 5,000 JPY", "  order-200, 5,000 JPY"]
    assert lines[-1] == "http://dashboard.example/reconciliation?run=run-1"


def test_finding_without_money_or_with_a_hostile_name_stays_on_its_line() -> None:
    message = write_one(finding(1, entity_id="a\nb\x1b[2J", amount_minor=None, currency=None))
    assert message.body.splitlines()[:2] == ["1 × D08 Duplicate charge, no amount", "  a\\nb\\x1b[2J, -"]


@pytest.mark.parametrize(
    ("kind", "title"),
    [
        ("reconciliation_totals", "A reconciliation does NOT add up"),
        ("reconciliation_stale", "The provider's books are not complete"),
        ("reconciliation_missed", "Hourly reconciliations missed something"),
    ],
)
def test_reconciliation_that_is_in_doubt_says_why_and_links_to_its_report(kind: str, title: str) -> None:
    message = write_one(alert(1, kind=kind, run_id="run/1", error="EUR is off by 1"))
    assert message.title == title
    assert message.body == "EUR is off by 1  http://dashboard.example/reconciliation?run=run%2F1"
