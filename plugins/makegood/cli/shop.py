"""``makegood shop``: customers for the shop in a box, and its faults on demand."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from makegood.cli import output
from makegood.cli.app import app
from makegood.errors import EXIT_DONE, EXIT_FOUND_WRONG, ConfigurationError, InputError

if TYPE_CHECKING:
    from sandbox.traffic.drive import Progress

shop = typer.Typer(help="The shop in a box: customers who order, and faults on demand.", no_args_is_help=True)
app.add_typer(shop, name="shop")

TakeOverAfter = Annotated[
    float,
    typer.Option("--take-over-after", min=0, help="Seconds that what a killed worker had is left to recovery."),
]
WEATHERS = ("calm", "stormy", "black-friday")


@shop.command(epilog="Example: makegood shop run --orders 200 --rate 20 --faults stormy")
def run(
    orders: Annotated[int, typer.Option("--orders", min=1, help="How many orders to place.")] = 50,
    rate: Annotated[float, typer.Option("--rate", min=0.01, max=1000, help="Orders per second, on average.")] = 5.0,
    faults: Annotated[str, typer.Option("--faults", help="calm, stormy or black-friday.")] = "calm",
    forever: Annotated[bool, typer.Option("--forever", help="Until stopped, whatever --orders says.")] = False,
    take_over_after: TakeOverAfter = 0.0,
    mishaps: Annotated[
        bool,
        typer.Option("--mishaps", help="Now and then, what only the provider's books tell: for reconcile to find."),
    ] = False,
    seed: Annotated[int, typer.Option("--seed", help="The same seed makes the same customers; 0 is by chance.")] = 0,
    json: output.JsonFlag = False,
) -> int:
    """Drive live checkouts, crashes included, until each is completed, undone or held. Exit 1 if one is not."""
    from makegood.local import where
    from makegood.settings import get_settings
    from sandbox.traffic.drive import Options, Traffic

    if faults not in WEATHERS:
        raise InputError(f"--faults is {faults!r}; it must be one of {', '.join(WEATHERS)}")
    url = where.database_url("jobs")
    asyncio.run(_register(url))
    options = Options(
        None if forever else orders,
        rate,
        faults,
        seed,
        take_over_after_seconds=take_over_after,
        api_key=get_settings().stripe_api_key.get_secret_value(),
        mishaps=mishaps,
    )
    with _Bar(None if forever or json else orders) as bar:
        traffic = Traffic(url, get_settings().shop_url, options, bar.show)
        signal.signal(signal.SIGTERM, traffic.stop)
        signal.signal(signal.SIGINT, traffic.stop)
        progress = traffic.run()
    return _report(progress, forever=forever, json=json)


@shop.command(epilog='Example: makegood shop say "the 3rd refund succeeds and then hangs"')
def say(
    text: Annotated[str, typer.Argument(help="One fault, in words.")],
    json: output.JsonFlag = False,
) -> int:
    """Add one fault to the running shop, in words."""
    import httpx

    from makegood.settings import get_settings
    from sandbox.client import ShopControl, ShopError

    url = get_settings().shop_url
    try:
        with ShopControl(url, timeout_seconds=5) as control:
            plan = control.say(text)
    except ShopError as error:
        raise InputError(str(error)) from error
    except httpx.TransportError as error:
        hint = "Start it with `make up`, or `makegood up --no-traffic`."
        raise ConfigurationError(f"the shop at {url} does not answer: {error}", hint=hint) from error
    output.show_json(plan) if json else output.say("The shop will.")
    return EXIT_DONE


@shop.command(hidden=True)
def worker(
    lease_seconds: Annotated[float, typer.Option("--lease-seconds")] = 45.0,
    take_over_after: TakeOverAfter = 0.0,
) -> int:
    """One worker process: takes what is due until SIGTERM, or until whoever started it is gone."""
    from makegood.local import where
    from makegood.logs import configure_logs
    from makegood.settings import get_settings

    configure_logs(get_settings().log_level)
    asyncio.run(_work(where.database_url("jobs"), lease_seconds, take_over_after_seconds=take_over_after))
    return EXIT_DONE


async def _work(url: str, lease_seconds: float, *, take_over_after_seconds: float) -> None:
    from makegood.engine.runner import open_runner
    from makegood.session import collecting_less
    from makegood.settings import get_settings
    from makegood.workflows import open_workflows

    settings = get_settings().model_copy(update={"lease_seconds": lease_seconds})
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    if not sys.stdin.isatty():
        loop.add_reader(sys.stdin.fileno(), _stop_at_end_of_input, stop)
    async with open_workflows(settings, url) as workflows, open_runner(url, workflows, settings) as runner:
        with collecting_less():
            await runner.work(stop, take_over_after_seconds=take_over_after_seconds)


def _stop_at_end_of_input(stop: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 1024):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stop.set()


async def _register(url: str) -> None:
    from makegood.engine.runner import open_runner
    from makegood.settings import get_settings
    from makegood.workflows import open_workflows

    settings = get_settings()
    async with open_workflows(settings, url) as workflows, open_runner(url, workflows, settings):
        pass


class _Bar:
    """A progress bar on a terminal; nothing otherwise."""

    def __init__(self, orders: int | None) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[ends]}"),
        )
        self._bar = Progress(*columns, console=output.people, disable=orders is None or not output.people.is_terminal)
        self._task = self._bar.add_task("orders", total=orders, ends="")

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, progress: Progress) -> None:
        ends = "  ".join(f"{state} {n}" for state, n in sorted(progress.ended.items()))
        crashes = f"  {progress.crashes} crashes" if progress.crashes else ""
        self._bar.update(self._task, completed=sum(progress.ended.values()), ends=ends + crashes)


def _report(progress: Progress, *, forever: bool, json: bool) -> int:
    ended = sum(progress.ended.values())
    document: dict[str, Any] = {"placed": progress.placed, "crashes": progress.crashes, "ended": dict(progress.ended)}
    if json:
        output.show_json(document)
    elif not forever:
        parts = ", ".join(f"{n} {state}" for state, n in sorted(progress.ended.items())) or "none ended"
        output.page.print(f"{progress.placed} orders placed, {progress.crashes} worker crashes: {parts}.")
    unfinished = 0 if forever else progress.placed - ended
    if unfinished:
        output.say(f"{unfinished} orders have not ended; see `makegood timeline`.", style="bold red")
    return EXIT_FOUND_WRONG if unfinished else EXIT_DONE
