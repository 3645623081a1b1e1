"""What every DAG of makegood has in common: limits, retry rules, the form, and how a run is closed.

A DAG file begins a run (``begin``), maps over its batches, and hands both to `close`. Nothing of the library is
imported here or there before a task runs, so that reading the files stays quick and needs no database.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import (
    Asset,
    AssetAlias,
    BaseOperatorLink,
    CronTriggerTimetable,
    Param,
    RetryDecision,
    RetryPolicy,
    TriggerRule,
    get_current_context,
)
from airflow.sdk.bases.decorator import DecoratedOperator, task_decorator_factory
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from makegood_plugin import ReportOfTheRun, WhatItTouched

if TYPE_CHECKING:
    from airflow.sdk import Context, XComArg

Decorator = Callable[[Callable[..., Any]], Any]

# Begin, alert and finish: a pool of their own, so that neither other teams' DAGs nor a provider that hangs can keep
# them waiting.
POOL_HOUSEKEEPING = "makegood_housekeeping"

# A batch takes nothing new after MAKEGOOD_JOB_SECONDS_MAX (ten minutes) and ends by itself; this is for one that hangs.
BATCH_TIMEOUT = timedelta(minutes=12)
HOUSEKEEPING_TIMEOUT = timedelta(minutes=2)
# How Airflow's page names an instance: "checkout 3" says more than its number.
BATCH_NAME = "{{ task.op_kwargs['batch'].get('workflow_type') or 'batch' }} {{ ti.map_index }}"
# While a run lasts no other starts, so it must end; what it leaves undone the next one finds. By then the library
# calls a run abandoned, too.
DAGRUN_TIMEOUT = timedelta(minutes=20)
# An hourly job's run may take longer than its hour, as the first fetch of a large account does; the next one waits.
HOURLY_TIMEOUT = timedelta(hours=6)

RETRIES = 3
# A database that restarts is back in seconds, and the next run is a minute away.
TRANSIENT_WAIT = timedelta(seconds=10)
# Nobody foresaw the error, so it may be a bug: not in a hurry.
UNFORESEEN_WAIT = timedelta(seconds=30)

LIMIT_MAX = 100_000
OLDER_THAN_MINUTES_MAX = 525_600  # a year


class RetryWhatMayPass(RetryPolicy):
    """A transient error is tried again shortly, every other error of ours fails at once, a foreign one is retried.

    Airflow's own rules name classes that they import when the file is read; this one imports when something failed.
    What the error says to do is in the reason, which Airflow logs.
    """

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        from makegood.errors import MakegoodError, TransientError

        if not isinstance(exception, MakegoodError):
            return RetryDecision.default()
        reason = f"{type(exception).__name__}: {exception.hint or exception}"
        if isinstance(exception, TransientError):
            return RetryDecision.retry(TRANSIENT_WAIT, reason)
        return RetryDecision.fail(reason)


class MakegoodOperator(DecoratedOperator, PythonOperator):
    """A Python task with a link to what it touched.

    The link belongs to the class: Airflow makes a mapped task anew in the worker and would lose it otherwise.
    """

    template_fields: Sequence[str] = ("op_args", "op_kwargs")
    custom_operator_name = "@makegood_task"
    operator_extra_links: tuple[BaseOperatorLink, ...] = (WhatItTouched(),)

    def __init__(self, *, python_callable: Any, op_args: Any, op_kwargs: Any, **kwargs: Any) -> None:
        upstream = {"python_callable": python_callable, "op_args": op_args, "op_kwargs": op_kwargs}
        super().__init__(kwargs_to_upstream=upstream, **upstream, **kwargs)


class ReportOperator(MakegoodOperator):
    """The same, with a link to the report besides."""

    custom_operator_name = "@report_task"
    operator_extra_links = (WhatItTouched(), ReportOfTheRun())


def makegood_task(**kwargs: Any) -> Decorator:
    """Like Airflow's ``@task()``, with the link, and a result that is kept as one value."""
    return task_decorator_factory(multiple_outputs=False, decorated_operator_class=MakegoodOperator, **kwargs)


def report_task(**kwargs: Any) -> Decorator:
    return task_decorator_factory(multiple_outputs=False, decorated_operator_class=ReportOperator, **kwargs)


def batch_task(**kwargs: Any) -> Decorator:
    """A task that is mapped over batches, with room for a whole one; its instances are named for what they hold."""
    return makegood_task(execution_timeout=BATCH_TIMEOUT, map_index_template=BATCH_NAME, **kwargs)


def every_minute(*, doc_md: str | None, tags: Sequence[str]) -> dict[str, Any]:
    """The settings of a DAG that runs each minute."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return safely(doc_md=doc_md, tags=tags, params=form(), timeout=DAGRUN_TIMEOUT) | {
        "schedule": "* * * * *",
        "start_date": start,
    }


def every_hour(*, doc_md: str | None, tags: Sequence[str], params: dict[str, Param]) -> dict[str, Any]:
    """The settings of a DAG that runs each hour, and at once where it is new: nobody waits an hour for a first look.

    It has no start date: with one, Airflow would wait for the next full hour.
    """
    return safely(doc_md=doc_md, tags=tags, params=params, timeout=HOURLY_TIMEOUT) | {
        "schedule": CronTriggerTimetable("0 * * * *", timezone="UTC", run_immediately=True),
    }


def safely(*, doc_md: str | None, tags: Sequence[str], params: dict[str, Param], timeout: timedelta) -> dict[str, Any]:
    """What keeps every DAG's runs safe: never twice at once, no catching up on what was missed, an end, retries."""
    return {
        "catchup": False,
        "max_active_runs": 1,
        "dagrun_timeout": timeout,
        "doc_md": doc_md,
        "tags": ["makegood", *tags],
        "params": params,
        "default_args": {
            "owner": "makegood",
            "pool": POOL_HOUSEKEEPING,
            "execution_timeout": HOUSEKEEPING_TIMEOUT,
            "retries": RETRIES,
            "retry_delay": UNFORESEEN_WAIT,
            "retry_policy": RetryWhatMayPass(),
        },
    }


def form() -> dict[str, Param]:
    """The fields a person fills in to run a job by hand."""
    return {
        "dry_run": Param(
            True,
            type="boolean",
            title="Dry run",
            description="Only look and count; change nothing. Switch it off to act. Scheduled runs always act.",
        ),
        "older_than_minutes": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            maximum=OLDER_THAN_MINUTES_MAX,
            title="Older than (minutes)",
            description="Only what made no progress for this many minutes. Empty: each step's own deadline.",
        ),
        "workflow_type": Param(
            None,
            type=["null", "string"],
            maxLength=100,
            title="Workflow type",
            description="Only this type, for example checkout. Empty: all types.",
        ),
        "limit": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            maximum=LIMIT_MAX,
            title="At most (workflows)",
            description=f"Stop after this many, 1 to {LIMIT_MAX:,}; the next run goes on. Empty: as the settings say.",
        ),
    }


def asked(context: Context) -> dict[str, Any]:
    """What a job is asked to do, from the form; a scheduled run has no form and acts.

    The key is the same however often the task is tried or cleared, so that it begins one run.
    """
    params = context["params"]
    minutes = params["older_than_minutes"]
    return {
        "older_than_seconds": None if minutes is None else minutes * 60,
        "workflow_type": params["workflow_type"] or None,
        "limit": params["limit"],
        **whose(context),
    }


def whose(context: Context) -> dict[str, Any]:
    """Whether it acts, the key that is the same for the same run, and who started it."""
    dag_run = context["dag_run"]
    return {
        "dry_run": is_dry(context),
        "key": f"{dag_run.dag_id}/{dag_run.run_id}",
        "triggered_by": ":".join(filter(None, ("airflow", dag_run.run_type.value, dag_run.triggering_user_name))),
    }


def is_dry(context: Context) -> bool:
    """Whether this run only looks: never a scheduled one, any other unless the form says to act."""
    return bool(context["params"]["dry_run"]) and context["dag_run"].run_type.value != "scheduled"


def hand_on(begun: dict[str, Any]) -> None:
    """Later tasks, and the links, find the run and what there was to do beside the batches."""
    task_instance = get_current_context()["ti"]
    for key in ("run_id", "counts"):
        task_instance.xcom_push(key=key, value=begun[key])


def part(name: str) -> str:
    """This task instance's name within the run; the same on every try, and the one `jobs.name_batches` gave it."""
    return f"{name}-{get_current_context()['ti'].map_index}"


def close(batches: Sequence[XComArg], outlet: Asset, *, also_idle: bool = False) -> None:
    """Whatever became of the batches, alerts go out and the run is finished; it is red if any task failed.

    Alerts go out even when ``begin`` failed: then nothing is made good, which people should hear of. The asset is
    updated by a run that acted on something, and with ``also_idle`` by every run: what follows is not started each
    minute for nothing.
    """
    # An outlet of its own would be updated by every success; through an alias it is when the task says so.
    updates = AssetAlias(f"{outlet.name}_updates")

    @makegood_task(trigger_rule=TriggerRule.ALL_DONE)
    def alert() -> dict[str, int]:
        """Tell people what needs them."""
        from makegood import jobs

        return jobs.send_alerts()

    @makegood_task(trigger_rule=TriggerRule.ALL_DONE, outlets=[updates])
    def finish() -> dict[str, int]:
        """Add up the run and tell the DAGs that follow what it did; skipped when no run began."""
        from makegood import jobs

        context = get_current_context()
        run_id = context["ti"].xcom_pull(task_ids="begin", key="run_id")
        if run_id is None:
            raise AirflowSkipException("begin failed, so there is no run to finish")
        totals = jobs.finish_run(run_id)
        acted = not is_dry(context) and totals.get("taken", 0) > totals.get("wait", 0)
        if acted or also_idle:
            extra = {"run_id": run_id, "dry_run": is_dry(context), **totals}
            context["outlet_events"][updates].add(outlet, extra=extra)
        return totals

    @makegood_task(trigger_rule=TriggerRule.ONE_FAILED, retries=0)
    def fail_the_run() -> None:
        """Turn the DAG run red when a task failed; skipped otherwise.

        Airflow colours a run by its last tasks only, and those succeed after a failed batch.
        """
        raise AirflowFailException("a task of this run failed: see the red ones")

    alerted, finished = alert(), finish()
    list(batches) >> alerted >> finished
    [*batches, alerted, finished] >> fail_the_run()
