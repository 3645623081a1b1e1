"""Tries again the undos that are owed, every minute, until each is done or held for a person.

An undo (a refund, a release, a cancelled shipment) is owed from the moment a workflow fails for good. It is tried more
patiently than the way forward and never dropped.

| task | what it does |
|---|---|
| `begin` | opens a run and sorts the undos that are due into batches |
| `compensate` | one instance per batch, in the pool `makegood_compensations` |
| `alert` | tells people what needs them, also after a failure |
| `finish` | adds up the run and updates the asset `makegood://compensated/`, if it acted on anything |
| `fail_the_run` | skipped when all went well; otherwise it turns the run red |

**By hand:** *Trigger* opens a form. It starts as a dry run, which only counts (see `counts` in the XCom of `begin`);
switch *Dry run* off to act. Scheduled runs always act, with the form's other defaults.

**Safe to repeat:** a run may be stopped, cleared or repeated at any point. A refund carries the same key each time, so
the provider makes it once, and what one run leaves the next one finds.

**Red?** The task's log says why and what to do; *What it touched* on the task leads to the orders. See
`docs/runbook.md`.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset, dag, get_current_context

from makegood_wiring import asked, batch_task, close, every_minute, hand_on, makegood_task, part

COMPENSATED = Asset("makegood_compensated", uri="makegood://compensated")


@dag(**every_minute(doc_md=__doc__, tags=["compensation"]))
def retry_compensations() -> None:
    @makegood_task()
    def begin() -> list[dict[str, Any]]:
        """Open a run and find its batches."""
        from makegood import jobs

        begun = jobs.begin_compensation(**asked(get_current_context()))
        hand_on(begun)
        return list(begun["batches"])

    @batch_task(pool="makegood_compensations")
    def compensate(job_run: str, batch: dict[str, Any]) -> dict[str, int]:
        """Try the undos of one batch."""
        from makegood import jobs

        return jobs.compensate_batch(job_run, batch, part("compensations"))

    begun = begin()
    close([compensate.partial(job_run=begun["run_id"]).expand(batch=begun)], COMPENSATED)


retry_compensations()
