"""What the doctor asks the services: whose their ports are, and whether they are well."""

from __future__ import annotations

from collections.abc import Iterator

from makegood.local import airflow, ports
from makegood.local.check import Check, fail, ok, warn
from makegood.local.lifecycle import Environment
from makegood.local.service import Service
from makegood.local.supervisor import ServiceStatus, State
from makegood.settings import Settings


def check_services(environment: Environment) -> Iterator[Check]:
    statuses = {status.name: status for status in environment.supervisor.status(environment.services)}
    for service in environment.services:
        yield check_service(service, statuses[service.name])
    yield from check_left_out(environment.settings)


def check_left_out(settings: Settings) -> Iterator[Check]:
    """Without Airflow nothing runs the jobs, unless an Airflow of your own does."""
    if reason := airflow.why_left_out(settings):
        yield warn("airflow", f"left out: {reason}", "Do that, or run the jobs from an Airflow of yours.")


def check_service(service: Service, status: ServiceStatus) -> Check:
    """A stopped service is worth a word, not an alarm: it may be meant."""
    if status.state is State.RUNNING:
        return ok(service.name, f"running {service.address or ''}".strip())
    if status.state is State.UNHEALTHY:
        todo = f"Look at {status.log}, then run `make up`: it is started anew."
        return fail(service.name, f"process {status.pid} runs but is not well", todo, blocks=False)
    if service.port is not None and not ports.is_free(service.port):
        detail = f"port {service.port} is taken by {ports.describe_holder(service.port)}"
        return fail(service.name, detail, f"Stop that process, or set {service.port_setting} to another port.")
    return warn(service.name, "stopped", f"Run `make up`; its log is {status.log}.")
