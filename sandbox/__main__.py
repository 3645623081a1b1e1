"""``python -m sandbox`` runs the shop in the foreground. Exit 0 stopped, 2 bad arguments, 3 cannot start."""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import stat
import sys
from pathlib import Path

from sandbox.fault_presets import PRESETS, make_preset
from sandbox.server import HOST, bind, run
from sandbox.shop import Options, Shop
from sandbox.store import Store, StoreError

EXIT_NOT_READY = 3
EXAMPLES = """\
example:
  python -m sandbox --port 9900 --data .makegood/shop --faults stormy --seed 7
  curl -u sk_test_shop: http://127.0.0.1:9900/v1/payment_intents -d amount=1999 -d currency=usd \\
       -d payment_method=pm_card_visa -d confirm=true -d 'metadata[order_id]=order-7'
  curl http://127.0.0.1:9900/control/orders/order-7
"""


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.exit_with_stdin and not stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode):
        parser.error("--exit-with-stdin needs a pipe on standard input, whose closing it waits for")
    try:
        listener = bind(options.port, options.address)
    except OSError as error:
        where = f"{options.address}:{options.port}"
        return _fail(f"cannot listen on {where}: {error.strerror}; choose another with --port")
    try:
        store = Store(options.data, options.sync)
    except StoreError as error:
        listener.close()
        return _fail(f"{error}; choose another with --data")
    make_plan = functools.partial(make_preset, options.faults, options.seed)
    shop = Shop(store, Options(options.key_age_seconds, options.latency_ms, make_plan))
    try:
        asyncio.run(run(shop, listener, exit_with_stdin=options.exit_with_stdin))
    finally:
        store.close()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sandbox",
        description="The shop in a box: payments as Stripe's, inventory and shipping, with faults on demand.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--port", type=_port, default=9900, help="0 picks a free one (default 9900)")
    add("--address", default=HOST, help="where it listens; anybody who reaches it may order (default loopback)")
    add("--data", type=Path, required=True, help="the folder of its durable log, made if it is not there")
    add(
        "--key-age-seconds",
        type=_positive,
        default=86_400.0,
        help="idempotency keys are forgotten after (default a day)",
    )
    add("--faults", choices=sorted(PRESETS), default="calm", help="the weather to start with (default calm)")
    add("--seed", type=int, default=0, help="which faults strike, given the order of requests (default 0)")
    add("--latency-ms", type=_positive, default=0.0, help="each request takes at least this long (default 0)")
    add(
        "--sync",
        choices=("full", "normal"),
        default="full",
        help="a commit survives a power cut, or only a kill",
    )
    add(
        "--exit-with-stdin",
        action="store_true",
        help="stop when standard input closes, so as not to outlive a parent",
    )
    return parser


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65_535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 up")
    return number


def _fail(message: str) -> int:
    print(f"error: {message}", file=sys.stderr)
    return EXIT_NOT_READY


if __name__ == "__main__":
    sys.exit(main())
