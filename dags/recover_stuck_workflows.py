"""Finds workflows that stopped between two steps and drives them on, every minute.

A workflow is stuck when it is neither finished nor held for a person and has passed its step's deadline.

| task | what it does |
|---|---|
| `begin` | opens a run and sorts what is stuck into batches, by the provider that is called next |
| `batches_…` | the batches of one provider; skipped when it has none |
| `recover_…` | one instance per batch, in the provider's pool `makegood_…`: a slow provider delays only itself |
| `alert` | tells people what needs them, also after a failure |
| `finish` | adds up the run and updates the asset `makegood://recovered/`, if it acted on anything |
| `fail_the_run` | skipped when all went well; otherwise it turns the run red |

**By hand:** *Trigger* opens a form. It starts as a dry run, which only counts (see `counts` in the XCom of `begin`);
switch *Dry run* off to act. Scheduled runs always act, with the form's other defaults.

**Safe to repeat:** a run may be stopped, cleared or repeated at any point. An order is never charged, refunded or
shipped twice, and what one run leaves the next one finds.

**Red?** The task's log says why and what to do; *What it touched* on the task leads to the orders. See
`docs/runbook.md`.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import Asset, dag, get_current_context
from airflow.sdk.exceptions import DownstreamTasksSkipped

from makegood_wiring import asked, batch_task, close, every_minute, hand_on, makegood_task, part

PROVIDERS = ("payments", "inventory", "shipping", "other")
RECOVERED = Asset("makegood_recovered", uri="makegood://recovered")


@dag(**every_minute(doc_md=__doc__, tags=["recovery"]))
def recover_stuck_workflows() -> None:
    @makegood_task()
    def begin() -> None:
        """Open a run and find its batches; providers without any are skipped and cost no process."""
        from makegood import jobs

        context = get_current_context()
        begun = jobs.begin_recovery(**asked(context))
        hand_on(begun)
        context["ti"].xcom_push(key="batches", value=begun["batches"])
        idle = [provider for provider in PROVIDERS if not begun["batches"][provider]]
        raise DownstreamTasksSkipped(tasks=[f"batches_{provider}" for provider in idle])  # type: ignore[no-untyped-call]

    @makegood_task()
    def batches_of(provider: str, batches: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
        """The batches of one provider: Airflow maps over nothing but what a task returns."""
        return batches[provider]

    @batch_task()
    def recover(job_run: str, provider: str, batch: dict[str, Any]) -> dict[str, int]:
        """Drive one batch on, as far as its workflows go."""
        from makegood import jobs

        return jobs.recover_batch(job_run, batch, part(provider))

    begun = begin()
    recovered = []
    for provider in PROVIDERS:
        batches = batches_of.override(task_id=f"batches_{provider}")(provider, begun["batches"])
        task = recover.override(task_id=f"recover_{provider}", pool=f"makegood_{provider}")
        recovered.append(task.partial(job_run=begun["run_id"], provider=provider).expand(batch=batches))
    close(recovered, RECOVERED)


recover_stuck_workflows()
