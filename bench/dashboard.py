"""The dashboard's figures: what looking costs when much has happened, and when many look.

overview_growth     the overview's data, all periods from 15 minutes to 90 days, beside 2 million orders (12 million
                    transitions), over beside 100 thousand
order_growth        an order's page, likewise
plain_ratio         the lesser of two: the four published queries over the overview's data of the same period, and
                    the published timeline read without our index over an order's page; at 2 million
viewers_load        the server's time on statements with twenty viewers on live refresh, over with one; beside it, as
                    facts, transactions and the backends' time on a processor and waiting for one
first_paint_growth  from opening the address in a browser to four numbers on the screen, at 2 million over empty

Reads take milliseconds and are taken in turns; of each the least of some rounds counts, which other work on the machine
disturbs least. The browser's are medians.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.figures import Figure, Say, alternate, median_of
from bench.history import fill
from bench.pages import (
    PLAIN,
    open_browser,
    open_reader,
    paint_milliseconds,
    read_order,
    read_overview,
    run_published,
    serve,
    take_least,
)
from bench.scratch import Scratch, scratch_database
from bench.viewers import Load, tell_loads, watch_load
from dashboard.database import Reader
from dashboard.periods import PERIODS

FIGURES = ("overview_growth", "order_growth", "plain_ratio", "viewers_load", "first_paint_growth")
FEW, MANY = 100_000, 2_000_000
PLAIN_PERIOD = "24h"  # as published
VIEWERS = 20
WATCH_SECONDS = 40.0
ORDERS = [f"order-{n}" for n in range(5_000, FEW, 5_000)]  # there in both
BETWEEN_SECONDS = 6.0  # what one viewer has read must not serve the next


def measure(admin_url: str, jobs_url: str, home: Path, *, runs: int, only: Sequence[str], say: Say) -> list[Figure]:
    """The figures asked for, each from ``runs`` alternating runs over the same two databases."""
    with (
        scratch_database(admin_url, jobs_url) as many,
        scratch_database(admin_url, jobs_url) as few,
        scratch_database(admin_url, jobs_url) as empty,
    ):
        facts = {}
        for name, scratch, orders in (("few", few, FEW), ("many", many, MANY)):
            say(f"writing and counting {orders:,} orders with their transitions and attempts …")
            facts[name] = fill(scratch, orders)
        figures = list(measure_reads(many, few, runs, only, say))
        if {"viewers_load", "first_paint_growth"} & set(only):
            figures += measure_browser(many, empty, runs, only, say)
    for figure in figures:
        figure.facts["rows"] = facts
    return figures


def measure_reads(many: Scratch, few: Scratch, runs: int, only: Sequence[str], say: Say) -> Iterator[Figure]:
    with open_reader(many) as reader, open_reader(few) as other:
        if "overview_growth" in only:
            yield measure_overview(reader, other, runs, say)
        if "order_growth" in only:
            yield measure_order(reader, other, runs, say)
        if "plain_ratio" in only:
            yield measure_plain(many, reader, runs, say)


def measure_overview(many: Reader, few: Reader, runs: int, say: Say) -> Figure:
    say(f"overview_growth: milliseconds for the overview's data of all periods, {MANY:,} orders and {FEW:,}")
    taken = [{period: take_overview(many, few, period) for period in PERIODS} for _ in range(runs)]
    pairs = [tuple_of(each.values()) for each in taken]
    for number, (a, b) in enumerate(pairs, 1):
        say(f"  run {number} of {runs}: {a:,.1f} and {b:,.1f}")
    each = {period: [round(ms, 1) for ms in least] for period, least in taken[-1].items()}
    facts = {"many_ms": median_of(pairs, 0), "few_ms": median_of(pairs, 1), "many_and_few_ms_by_period": each}
    says = f"the overview's data for all periods beside {MANY:,} orders, over beside {FEW:,}"
    return Figure("overview_growth", says, [a / b for a, b in pairs], "at most", 1.3, facts)


def take_overview(many: Reader, few: Reader, period: str) -> list[float]:
    return take_least(lambda: read_overview(many, period), lambda: read_overview(few, period))


def tuple_of(pairs: Iterable[Sequence[float]]) -> tuple[float, float]:
    """Both sides, summed up."""
    first, second = zip(*pairs, strict=True)
    return sum(first), sum(second)


def measure_order(many: Reader, few: Reader, runs: int, say: Say) -> Figure:
    say(f"order_growth: milliseconds for the pages of {len(ORDERS)} orders, among {MANY:,} and {FEW:,}")
    pairs = [take_orders(many, few) for _ in range(runs)]
    for number, (a, b) in enumerate(pairs, 1):
        say(f"  run {number} of {runs}: {a:,.1f} and {b:,.1f}")
    facts = {"many_ms": median_of(pairs, 0), "few_ms": median_of(pairs, 1), "pages": len(ORDERS)}
    says = f"an order's page among {MANY:,} orders, over among {FEW:,}"
    return Figure("order_growth", says, [a / b for a, b in pairs], "at most", 1.3, facts)


def take_orders(many: Reader, few: Reader) -> tuple[float, float]:
    taken = (take_least(lambda o=o: read_order(many, o), lambda o=o: read_order(few, o), rounds=5) for o in ORDERS)  # type: ignore[misc]
    return tuple_of(taken)


def measure_plain(many: Scratch, reader: Reader, runs: int, say: Say) -> Figure:
    say(f"plain_ratio: milliseconds of the published queries and of the overview, {MANY:,} orders")

    def plain() -> float:
        return take_least(lambda: [run_published(many, name) for name in PLAIN], rounds=2)[0]

    pairs = alternate(runs, plain, lambda: take_least(lambda: read_overview(reader, PLAIN_PERIOD))[0], say)
    say("  and of the published timeline without our index, and of an order's page")
    stories = alternate(
        runs,
        lambda: take_least(lambda: run_published(many, "order_timeline", indexed=False), rounds=2)[0],
        lambda: take_least(lambda: read_order(reader, ORDERS[0]))[0],
        say,
    )
    facts = {
        "published_ms": median_of(pairs, 0),
        "overview_ms": median_of(pairs, 1),
        "published_timeline_ms": median_of(stories, 0),
        "order_ms": median_of(stories, 1),
        "overview_ratio": round(median_of(pairs, 0) / median_of(pairs, 1), 1),
        "order_ratio": round(median_of(stories, 0) / median_of(stories, 1), 1),
    }
    lesser = [min(p / o, q / s) for (p, o), (q, s) in zip(pairs, stories, strict=True)]
    says = f"published queries over our reads of the same, at {MANY:,} orders; the lesser of overview and order"
    return Figure("plain_ratio", says, lesser, "at least", 20, facts)


def measure_browser(many: Scratch, empty: Scratch, runs: int, only: Sequence[str], say: Say) -> Iterator[Figure]:
    with serve(many) as address:
        if "viewers_load" in only:
            with open_browser(modest=True) as browser:
                yield measure_viewers(browser, address, many, runs, say)
        if "first_paint_growth" in only:
            with serve(empty) as empty_address, open_browser() as browser:
                yield measure_paint(browser, address, empty_address, runs, say)


def measure_viewers(browser: Any, address: str, many: Scratch, runs: int, say: Say) -> Figure:
    say(f"viewers_load: the server's milliseconds on statements in {WATCH_SECONDS:.0f} s, {VIEWERS} viewers and one")

    loads: dict[int, list[Load]] = {VIEWERS: [], 1: []}

    def watch(viewers: int) -> float:
        loads[viewers].append(watch_load(browser, address, many, viewers, WATCH_SECONDS))
        return loads[viewers][-1].active_ms

    pairs = alternate(runs, lambda: watch(VIEWERS), lambda: watch(1), say)
    facts = {"seconds": WATCH_SECONDS, **tell_loads(list(zip(loads[VIEWERS], loads[1], strict=True)))}
    says = f"time the server spent on statements (pg_stat_database.active_time) with {VIEWERS} viewers over with one"
    return Figure("viewers_load", says, [a / b for a, b in pairs], "at most", 2, facts)


def measure_paint(browser: Any, address: str, empty_address: str, runs: int, say: Say) -> Figure:
    say(f"first_paint_growth: milliseconds to four numbers on the screen, {MANY:,} orders and none")
    for warm in (address, empty_address):
        paint_milliseconds(browser, warm)

    def paint(where: str) -> float:
        time.sleep(BETWEEN_SECONDS)
        return paint_milliseconds(browser, where)

    pairs = alternate(max(runs, 5), lambda: paint(address), lambda: paint(empty_address), say)
    facts = {"many_ms": median_of(pairs, 0), "empty_ms": median_of(pairs, 1)}
    says = f"from opening the address to four numbers in a browser, {MANY:,} orders over none"
    return Figure("first_paint_growth", says, [a / b for a, b in pairs], "at most", 1.5, facts)
