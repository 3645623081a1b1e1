"""Reports for the tests, as the database would answer: an empty one, an ordinary one, a disaster."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from makegood.reconciliation.classes import NAMES
from makegood.reconciliation.report import Report
from makegood.reconciliation.report_rows import make_report

NOW = datetime(2026, 11, 18, 16, 2, 30, tzinfo=UTC)
EXPONENTS = {"EUR": 2, "USD": 2, "JPY": 0, "KWD": 3}
RUN_ID = "019a0000-0000-7000-8000-000000000001"

Document = dict[str, Any]


def totals_rows(currency: str, buckets: Mapping[str, tuple[int, int]]) -> list[Document]:
    """Buckets as (charges, minor units); the provider's is their sum unless it is given."""
    whole = (sum(n for n, _ in buckets.values()), sum(minor for _, minor in buckets.values()))
    return [
        {"currency": currency, "bucket": bucket, "charges": charges, "amount_minor": minor}
        for bucket, (charges, minor) in {"provider": whole, **buckets}.items()
    ]


def finding_row(number: int, class_: str = "D08", **changes: Any) -> Document:
    row = {
        "id": f"019a0000-0000-7000-8000-{number:012d}",
        "class": class_,
        "state": "open",
        "order_id": f"order-{number}",
        "charge_id": f"ch_{number:06d}",
        "unit": f"order:order-{number}",
        "amount_at_risk_minor": 1999,
        "currency": "EUR",
        "remedy": "refund",
        "first_seen_at": (NOW - timedelta(hours=number % 50)).isoformat(),
        "last_seen_at": NOW.isoformat(),
        "runs_seen": 3,
        "reopened": 0,
        "is_new": number % 4 == 0,
        "also": None,
    }
    return row | changes


def standings_of(findings: Sequence[Document]) -> list[Document]:
    found: dict[tuple[Any, ...], Document] = {}
    for one in findings:
        key = (one["class"], one["currency"] or "", one["state"], one["remedy"])
        empty = {"class": one["class"], "currency": one["currency"], "state": one["state"], "remedy": one["remedy"]}
        row = found.setdefault(key, {**empty, "findings": 0, "new": 0, "at_risk_minor": 0, "oldest": NOW.isoformat()})
        row["findings"] += 1
        row["new"] += one["is_new"]
        row["at_risk_minor"] += one["amount_at_risk_minor"]
        row["oldest"] = min(row["oldest"], one["first_seen_at"])
    return [found[key] for key in sorted(found)]


def document(
    *, totals: Sequence[Document] = (), findings: Sequence[Document] = (), shown: int | None = None, **run: Any
) -> Document:
    began = NOW - timedelta(minutes=2)
    facts = {
        "id": RUN_ID,
        "kind": "incremental",
        "state": "matched",
        "terms": {},
        "watermark": (NOW - timedelta(minutes=4)).isoformat(),
        "stale": None,
        "looked_at": sum(row["charges"] for row in totals if row["bucket"] == "provider"),
        "opened": sum(one["is_new"] for one in findings),
        "closed": 2,
        "missed": None,
        "error": None,
        "started_at": began.isoformat(),
        "finished_at": (began + timedelta(seconds=41)).isoformat(),
    }
    ages = [0] * 6
    for one in findings:
        hours = (NOW - datetime.fromisoformat(one["first_seen_at"])).total_seconds() / 3600
        ages[sum(hours >= limit for limit in (1, 6, 24, 72, 168))] += 1
    return {
        "run": facts | run,
        "job": {"triggered_by": "airflow:scheduled", "parameters": {"dry_run": False}, "state": "done", "parts": {}},
        "written_at": NOW.isoformat(),
        "exponents": EXPONENTS,
        "totals": list(totals),
        "standings": standings_of(findings),
        "ages": [{"band": band, "findings": n} for band, n in enumerate(ages) if n],
        "changes": [],
        "trend": trend(),
        "findings": list(findings)[:shown],
    }


def trend(count: int = 48) -> list[Document]:
    chance = random.Random(4)
    return [
        {
            "id": f"run-{back}",
            "kind": "full" if back % 24 == 0 else "incremental",
            "state": "matched",
            "started_at": (NOW - timedelta(hours=back)).isoformat(),
            "looked_at": 1200,
            "opened": chance.choice([0, 0, 1, 2, 5, 14 if back == 9 else 0]),
            "closed": chance.choice([0, 1, 1, 3]),
            "stale": back == 20,
        }
        for back in range(count, 0, -1)
    ]


def empty() -> Report:
    return make_report(document() | {"trend": []})


def ordinary() -> Report:
    totals = [
        *totals_rows("EUR", {"matched": (11_204, 91_822_431), "pending": (312, 2_204_118), "D08": (4, 15_996)}),
        *totals_rows("JPY", {"matched": (310, 4_021_500), "pending": (12, 120_300), "D01": (1, 9_800)}),
        *totals_rows("KWD", {"matched": (88, 9_912_340), "D10": (1, 12_500)}),
    ]
    findings = [
        finding_row(1, "D08", amount_at_risk_minor=7_998),
        finding_row(4, "D08", amount_at_risk_minor=7_998),
        finding_row(2, "D01", currency="JPY", amount_at_risk_minor=9_800, order_id="order-77"),
        finding_row(3, "D10", currency="KWD", amount_at_risk_minor=2_500, remedy="human", state="acknowledged"),
        finding_row(26, "D04", amount_at_risk_minor=12_000, remedy="wait"),
        finding_row(30, "D24", amount_at_risk_minor=45_000, remedy="record", state="ignored"),
    ]
    made = document(totals=totals, findings=findings)
    made["job"]["parts"] = {
        "sync": {"charges": 1204, "refunds": 31, "disputes": 1},
        "match": {"looked_at": 1204, "opened": 3, "closed": 2},
        "remedies": {"would_refund": 2, "would_correct": 1},
    }
    return make_report(made)


def disaster() -> Report:
    """Every class at once, thousands of them, a source that is stale, and totals that are off by a cent."""
    chance = random.Random(7)
    classes = [class_ for class_ in NAMES if class_ not in ("D12", "D28", "D32")]
    findings = [
        finding_row(
            number,
            chance.choice(classes),
            currency=chance.choice(list(EXPONENTS)),
            amount_at_risk_minor=int(10 ** chance.uniform(0, 7)),
            remedy=chance.choice(["human", "refund", "record"]),
            state=chance.choice(["open", "open", "open", "acknowledged", "remedying"]),
            first_seen_at=(NOW - timedelta(hours=10 ** chance.uniform(-1, 2.6))).isoformat(),
            reopened=chance.choice([0, 0, 0, 2]),
        )
        for number in range(3000)
    ]
    buckets = {class_: (chance.randrange(1, 400), chance.randrange(100, 10**7)) for class_ in classes}
    totals = [
        *totals_rows("EUR", {"matched": (21_204, 91_822_431), "pending": (9_312, 2_204_118), **buckets}),
        *totals_rows("JPY", {"matched": (310, 4_021_500)}),
    ]
    totals[0]["amount_minor"] += 1
    return make_report(
        document(
            totals=totals,
            findings=findings,
            shown=1000,
            kind="full",
            stale="charges of stripe: the fetch ended early (401 Unauthorized); complete up to 2026-11-18 04:00",
            missed=17,
        )
    )
