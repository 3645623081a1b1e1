"""Compares the provider's charges with the orders every hour, and says what differs; once a night it looks at all.

The first run after two in the morning (UTC, `MAKEGOOD_RECONCILE_FULL_HOUR`) is full, and checks that the hourly ones
missed nothing; a full run that was missed or failed is made up for by the next one. All others look at what changed.

| task | what it does |
|---|---|
| `begin` | opens a run and decides whether it is incremental, full, or one window |
| `sync` | fetches what is new at the provider, in the pool `makegood_reconciliation` |
| `match` | compares both sides, opens and closes findings; if `sync` failed it says that the source is stale |
| `remedies` | puts right what the policy allows, else says what it would do; nothing where the source is stale |
| `report` | writes the report; its link *Report* leads to it |
| `alert` | tells people what needs them, also after a failure |
| `finish` | adds up the run and updates the asset `makegood://reconciled/` |
| `fail_the_run` | skipped when all went well; otherwise it turns the run red |

**By hand:** *Trigger* opens a form: a kind, or a window from and until, and which classes are put right. It starts as a
dry run, which fetches, compares and reports, and only says what it would put right; switch *Dry run* off to act.
Scheduled runs act, as far as the policy lets them: by default it lets them do nothing (`makegood reconcile policy`).

**Safe to repeat:** a run may be stopped, cleared or repeated at any point. A refund carries the same key each time, so
the provider makes it once; a fetch goes on at the page where it was.

**Red?** The task's log says why and what to do. Findings do not make a run red: they are in the report, and large ones
are told at once. See `docs/runbook.md`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import Asset, Param, TriggerRule, dag, get_current_context
from airflow.sdk.exceptions import AirflowSkipException

from makegood_wiring import close, every_hour, hand_on, makegood_task, report_task, whose

RECONCILED = Asset("makegood_reconciled", uri="makegood://reconciled")
POOL = "makegood_reconciliation"
# The first fetch of a large account takes hours; an hourly one takes seconds.
SYNC_TIMEOUT = timedelta(hours=3)
MATCH_TIMEOUT = timedelta(hours=1)
REMEDIES_TIMEOUT = timedelta(minutes=30)
LIMIT_MAX = 10_000
TIME = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}"  # as the form's calendar writes it; Airflow itself does not look
CLASSES = [f"D{number:02d}" for number in range(1, 33)]


def form() -> dict[str, Param]:
    """The fields a person fills in to reconcile by hand."""
    return {
        "dry_run": Param(
            True,
            type="boolean",
            title="Dry run",
            description="Compare and report, and only say what would be put right. Switch it off to act, as far as the"
            " policy allows.",
        ),
        "kind": Param(
            "auto",
            enum=["auto", "incremental", "full"],
            title="Kind",
            description="auto: what changed, and everything once a night. Left alone when a window is given.",
        ),
        "since": Param(
            None,
            type=["null", "string"],
            format="date-time",
            pattern=TIME,
            title="From",
            description="Only orders and charges from this time on. Give both ends, or neither.",
        ),
        "until": Param(
            None,
            type=["null", "string"],
            format="date-time",
            pattern=TIME,
            title="Until",
            description="And before this time.",
        ),
        "classes": Param(
            [],
            type="array",
            items={"type": "string", "enum": CLASSES},
            title="Classes",
            description="Put right only these, one per line, for example D08. Empty: all that the policy allows.",
        ),
        "limit": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            maximum=LIMIT_MAX,
            title="At most (remedies)",
            description=f"Put right at most so many, 1 to {LIMIT_MAX:,}. Empty: as the settings say.",
        ),
    }


def asked() -> dict[str, Any]:
    """What the run is asked to do, from the form; a scheduled one has the form's defaults and may act."""
    context = get_current_context()
    params = context["params"]
    return {name: params[name] for name in ("kind", "since", "until", "classes", "limit")} | whose(context)


def the_run() -> str:
    """The run that ``begin`` opened; without one there is nothing to do."""
    run_id = get_current_context()["ti"].xcom_pull(task_ids="begin", key="run_id")
    if run_id is None:
        raise AirflowSkipException("begin failed, so there is no run")
    return str(run_id)


@dag(**every_hour(doc_md=__doc__, tags=["reconciliation"], params=form()))
def reconcile_charges() -> None:
    @makegood_task()
    def begin() -> str:
        """Open a run; the same one however often this is repeated."""
        from makegood import reconciling

        begun = reconciling.begin_reconciliation(**asked())
        hand_on(begun)
        return str(begun["kind"])

    @makegood_task(pool=POOL, execution_timeout=SYNC_TIMEOUT)
    def sync() -> dict[str, int]:
        """Fetch what is new at the provider."""
        from makegood import reconciling

        return reconciling.sync_charges(the_run())

    @makegood_task(pool=POOL, execution_timeout=MATCH_TIMEOUT, trigger_rule=TriggerRule.ALL_DONE)
    def match() -> dict[str, int]:
        """Compare both sides, also when nothing could be fetched: that is a finding, too."""
        from makegood import reconciling

        return reconciling.match_run(the_run())

    @makegood_task(pool=POOL, execution_timeout=REMEDIES_TIMEOUT)
    def remedies() -> dict[str, int]:
        """Put right what the policy allows."""
        from makegood import reconciling

        return reconciling.remedy_run(the_run())

    @report_task(trigger_rule=TriggerRule.ALL_DONE)
    def report() -> dict[str, Any]:
        """Write the report, whatever became of the remedies."""
        from makegood import reconciling

        return reconciling.report_run(the_run())

    stages = [sync(), match(), remedies(), report()]
    begin() >> stages[0] >> stages[1] >> stages[2] >> stages[3]
    close(stages, RECONCILED, also_idle=True)


reconcile_charges()
