"""What the tests ask of Airflow, each in a process of its own: importing Airflow changes logging and more for good.

python inside_airflow.py describe recover_stuck_workflows    prints one JSON document as its last line
"""

from __future__ import annotations

import copy
import json
import sys
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

DAGS = Path(__file__).parents[2] / "dags"


def parse(dag_id: str) -> Any:
    """The bag of one DAG's file, read as the DAG processor and the task runner do."""
    from airflow.dag_processing.dagbag import BundleDagBag

    return BundleDagBag(DAGS / f"{dag_id}.py", bundle_path=DAGS, bundle_name="dags-folder")


def discover() -> dict[str, Any]:
    """Which files of the folder Airflow takes for DAGs."""
    from airflow.dag_processing.dagbag import BundleDagBag

    bag = BundleDagBag(DAGS, bundle_path=DAGS, bundle_name="dags-folder")
    files = sorted(stat.file for stat in bag.dagbag_stats)
    return {"dags": sorted(bag.dags), "files": files, "errors": bag.import_errors}


def describe(dag_id: str) -> dict[str, Any]:
    """How long one file takes to read, what came with it, and every setting that keeps its runs safe."""
    # The processor forks from a parent that has imported Airflow, so that is not the file's to answer for.
    import airflow.dag_processing.dagbag
    import airflow.sdk
    import airflow.settings

    airflow.settings.prepare_syspath_for_config_and_plugins()
    began = time.perf_counter()
    bag = parse(dag_id)
    seconds = time.perf_counter() - began
    dag = bag.dags[dag_id]
    return {
        "seconds": seconds,
        "errors": bag.import_errors,
        "warnings": [str(warning) for warnings in bag.captured_warnings.values() for warning in warnings],
        "library": sorted(name for name in sys.modules if name == "makegood" or name.startswith("makegood.")),
        "doc": dag.doc_md,
        "tags": sorted(dag.tags),
        "catchup": dag.catchup,
        "max_active_runs": dag.max_active_runs,
        "dagrun_timeout": dag.dagrun_timeout.total_seconds(),
        "schedule": getattr(dag.schedule, "expression", dag.schedule),
        "start_date": dag.start_date,
        "tasks": {task.task_id: _describe_task(task) for task in dag.tasks},
    }


def _describe_task(task: Any) -> dict[str, Any]:
    return {
        "pool": task.pool,
        "owner": task.owner,
        "retries": task.retries,
        "policy": type(task.retry_policy).__name__,
        "timeout": task.execution_timeout.total_seconds(),
        "trigger_rule": task.trigger_rule.value,
        "upstream": sorted(task.upstream_task_ids),
        "mapped": task.is_mapped,
        "links": [link.name for link in task.operator_extra_links],
        "outlets": [alias.name for alias in task.outlets],
        "doc": task.doc_md,
    }


def decide() -> dict[str, Any]:
    """What the retry policy says to each error of the library, and to one that nobody foresaw."""
    import makegood_wiring
    from makegood import errors

    policy = makegood_wiring.RetryWhatMayPass()
    classes = [thing for thing in vars(errors).values() if isinstance(thing, type) and issubclass(thing, Exception)]
    raised = [*(cls("it is so", hint="do so") for cls in classes), ValueError("it is so")]
    decisions = {type(error).__name__: policy.evaluate(error, 1, 3) for error in raised}
    return {
        name: [decision.action.value, decision.retry_delay and decision.retry_delay.total_seconds(), decision.reason]
        for name, decision in decisions.items()
    }


def ask() -> dict[str, Any]:
    """What the jobs are asked to do by runs of each kind that were given nothing."""
    from airflow.utils.types import DagRunType

    import makegood_wiring

    params = {name: param.value for name, param in makegood_wiring.form().items()}
    asked = {}
    for run_type in DagRunType:
        user = "alice" if run_type == DagRunType.MANUAL else None
        dag_run = SimpleNamespace(dag_id="a_dag", run_id="a_run", run_type=run_type, triggering_user_name=user)
        asked[run_type.value] = makegood_wiring.asked({"params": params, "dag_run": dag_run})  # type: ignore[typeddict-item]
    return asked


def judge(dag_id: str, forms: str) -> list[str | None]:
    """For each filled-in form what is wrong with it, judged as Airflow does when somebody triggers the DAG."""
    from airflow.sdk.exceptions import ParamValidationError
    from airflow.serialization.serialized_objects import DagSerialization

    dag = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(parse(dag_id).dags[dag_id]))
    verdicts: list[str | None] = []
    for conf in json.loads(forms):
        try:
            dag.params.deep_merge(conf).validate()
        except (ParamValidationError, ValueError) as error:
            verdicts.append(str(error).splitlines()[0])
        else:
            verdicts.append(None)
    return verdicts


def plugins() -> dict[str, Any]:
    """What Airflow loads from the plugins folder, and under which names: first as its servers do, then as a worker."""
    from airflow import plugins_manager, settings
    from airflow.sdk import plugins_manager as worker_plugins_manager

    loaded, errors = plugins_manager._get_plugins()
    worker_plugins_manager._get_plugins()
    below = str(settings.PLUGINS_FOLDER)
    return {
        "plugins": [plugin.name for plugin in loaded if str(plugin.source).startswith("$PLUGINS_FOLDER")],
        "errors": errors,
        "modules": sorted(
            name for name, module in sys.modules.items() if str(getattr(module, "__file__", "")).startswith(below)
        ),
        "views": plugins_manager._get_ui_plugins()[0],
    }


def run(dag_id: str, scenarios: str) -> dict[str, Any]:
    """How a whole DAG run goes in each scenario, with jobs that do as it says."""
    import fake_jobs

    import makegood
    import makegood_wiring

    for name in ("jobs", "reconciling"):
        sys.modules[f"makegood.{name}"] = fake_jobs
        setattr(makegood, name, fake_jobs)
    makegood_wiring.TRANSIENT_WAIT = timedelta(milliseconds=50)  # its length is tested elsewhere
    return {name: _run_one(dag_id, copy.deepcopy(scenario)) for name, scenario in json.loads(scenarios).items()}


def _run_one(dag_id: str, scenario: dict[str, Any]) -> dict[str, Any]:
    import fake_jobs
    from airflow.models.asset import AssetEvent
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    fake_jobs.play(scenario)
    # Read anew each time, as every task's process does: a form once filled in stays in the DAG object.
    dag_run = parse(dag_id).dags[dag_id].test(run_conf=scenario.get("form"))
    with create_session() as session:
        instances = dag_run.get_task_instances(session=session)
        xcoms = session.scalars(select(XComModel).where(XComModel.run_id == dag_run.run_id)).all()
        events = session.scalars(select(AssetEvent).where(AssetEvent.source_run_id == dag_run.run_id)).all()
        return {
            "run_id": dag_run.run_id,
            "state": dag_run.state,
            "states": _by_instance(instances, lambda instance: instance.state),
            "tries": _by_instance(instances, lambda instance: instance.try_number),
            "names": _by_instance(instances, lambda instance: instance.rendered_map_index),
            "xcoms": [[xcom.task_id, xcom.key, xcom.value] for xcom in xcoms],
            "events": [[event.uri, event.extra] for event in events],
            "calls": list(fake_jobs.calls),
            # Last: reading a link closes the session.
            "links": _by_instance(instances, lambda instance: _links(instance, session)),
        }


def _by_instance(instances: Any, fact: Any) -> dict[str, Any]:
    """``recover_payments[0]`` for a mapped instance, the task's id for any other."""
    named = {f"{i.task_id}[{i.map_index}]" if i.map_index >= 0 else i.task_id: fact(i) for i in instances}
    return dict(sorted(named.items()))


def _links(instance: Any, session: Any) -> dict[str, str | None]:
    """The links beside a task instance, through the function behind Airflow's page."""
    from airflow.api_fastapi.core_api.routes.public.extra_links import get_extra_links
    from airflow.models.dagbag import DBDagBag

    place = (instance.dag_id, instance.run_id, instance.task_id)
    return get_extra_links(*place, session=session, dag_bag=DBDagBag(), map_index=instance.map_index).extra_links


if __name__ == "__main__":
    question = {function.__name__: function for function in (discover, describe, decide, ask, judge, plugins, run)}
    sys.path.append(str(DAGS))  # as Airflow does before it reads a DAG
    print(json.dumps(question[sys.argv[1]](*sys.argv[2:]), default=str))
