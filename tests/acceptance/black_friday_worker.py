"""One server of the Black Friday story, as a process that can be killed: both jobs, again and again.

    python black_friday_worker.py DATABASE_URL SHOP_URL

The story's clock is ten times faster: refunds are given up after 1.5 s instead of 15, shipping is waited for
for 2 s, an order is stuck after 1 s. Nothing else differs from what is deployed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import sys

from makegood.engine.definitions import Workflow
from makegood.engine.runner import Runner, open_runner
from makegood.errors import TransientError
from makegood.jobs import run_compensation, run_recovery
from makegood.runs.model import Options
from makegood.settings import Settings
from makegood.workflows import open_workflows

REFUND_SECONDS = 1.5
PAUSE_SECONDS = 0.2


def make_settings(shop_url: str) -> Settings:
    return Settings(
        stripe_api_base=shop_url,
        inventory_url=shop_url,
        shipping_url=shop_url,
        calls_at_once=64,  # so that many refunds are under way when the provider stops answering
        stuck_after_seconds=1,
        lease_seconds=6,
        breaker_wait_seconds=0.5,
        breaker_wait_seconds_max=2,
        forward_wait_seconds=0.2,
        forward_wait_seconds_max=2,
        undo_wait_seconds=0.5,
        undo_wait_seconds_max=2,
    )


def hurry(workflow: Workflow) -> Workflow:
    steps = [dataclasses.replace(s, timeout_seconds=REFUND_SECONDS, patience_seconds=2) for s in workflow.steps]
    return dataclasses.replace(workflow, steps=steps)


async def sweep_for_ever(runner: Runner) -> None:
    while True:
        for job in (run_recovery, run_compensation):
            with contextlib.suppress(TransientError):  # the database is away: the next run finds it again
                await job(runner, Options(limit=1000), triggered_by="story")
        await asyncio.sleep(PAUSE_SECONDS)


async def main(url: str, shop_url: str) -> None:
    settings = make_settings(shop_url)
    async with open_workflows(settings) as known:
        workflows = {name: hurry(workflow) for name, workflow in known.items()}
        async with open_runner(url, workflows, settings) as runner:
            await sweep_for_ever(runner)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
