"""``makegood recover``: what the DAG ``recover_stuck_workflows`` does, without Airflow."""

from __future__ import annotations

from makegood.cli import job, output
from makegood.cli.app import app


@app.command(epilog="Example: makegood recover --older-than 10m --dry-run")
def recover(
    dry_run: job.DryRun = False,
    limit: job.Limit = None,
    older_than: job.OlderThan = None,
    workflow_type: job.WorkflowType = None,
    json: output.JsonFlag = False,
) -> int:
    """Find orders stuck between two steps and take them on. Exit 1 when one is held for a person.

    Stuck is what made no progress until its step's deadline and what no worker has; --older-than asks for another age.
    """
    from makegood import jobs
    from makegood.logs import configure_logs
    from makegood.settings import get_settings

    configure_logs(get_settings().log_level)
    options = jobs.check_options(job.parse_duration(older_than), workflow_type, limit)
    return job.run_job(
        lambda tell: jobs.recover(options, triggered_by=f"command:{job.whoami()}", dry_run=dry_run, tell=tell),
        title="recover",
        dry_run=dry_run,
        json=json,
    )
