"""A plan of faults from its JSON and back, or a PlanError that names the rule and the field at fault."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from sandbox.faults import ANY, APPLIES_TO, FAULTS, HANG_SECONDS_MAX, OPERATIONS, FaultPlan, Rule
from sandbox.store import Json

RULES_MAX = 1000
RULE_NAMES = tuple(item.name for item in fields(Rule))
COUNTED = ("seen", "fired")  # shown beside each rule, and ignored when a shown plan is set again


class PlanError(ValueError):
    """The plan cannot be; the message says why."""


@dataclass(frozen=True)
class Bound:
    low: float
    high: float
    whole: bool = False

    def read(self, value: Any, what: str) -> Any:
        right = isinstance(value, int if self.whole else int | float) and not isinstance(value, bool)
        if not right or not self.low <= value <= self.high:
            kind = "a whole number" if self.whole else "a number"
            raise PlanError(f"{what} must be {kind} from {self.low:g} to {self.high:g}")
        return value if self.whole else float(value)


PLAN_BOUNDS = {
    "seed": Bound(-(2**63), 2**63, whole=True),
    "hang_seconds": Bound(0, HANG_SECONDS_MAX),
    "drip_seconds": Bound(0, HANG_SECONDS_MAX),
    "retry_after_seconds": Bound(0, 3600, whole=True),
}
NTH = Bound(1, 10**12, whole=True)
RULE_BOUNDS = {"probability": Bound(0, 1), "nth": NTH, "from_nth": NTH, "to_nth": NTH, "times": NTH}


def parse_plan(document: Json) -> FaultPlan:
    _refuse_unknown(document, ("rules", *PLAN_BOUNDS), "the plan")
    rules = document.get("rules", [])
    if not isinstance(rules, list) or len(rules) > RULES_MAX:
        raise PlanError(f"rules must be a list of at most {RULES_MAX}")
    plan = FaultPlan([parse_rule(rule, f"rule {number}") for number, rule in enumerate(rules, 1)])
    return replace(plan, **_read_numbers(document, PLAN_BOUNDS, "the plan"))


def parse_rule(document: Any, where: str) -> Rule:
    if not isinstance(document, dict):
        raise PlanError(f'{where} must be an object: {{"operation": "refund", "fault": "timeout_after"}}')
    given = {name: value for name, value in document.items() if name not in COUNTED}
    _refuse_unknown(given, RULE_NAMES, where)
    rule = Rule(
        operation=_read_choice(given, "operation", (*OPERATIONS, ANY), where),
        fault=_read_choice(given, "fault", tuple(FAULTS), where),
        order_id=_read_order(given, where),
        **_read_numbers(given, RULE_BOUNDS, where),
    )
    _check_rule(rule, where)
    return rule


def add_rule(plan: FaultPlan, rule: Rule) -> None:
    if len(plan.rules) >= RULES_MAX:
        raise PlanError(f"a plan has at most {RULES_MAX} rules")
    plan.add(rule)


def show_plan(plan: FaultPlan) -> Json:
    """The plan as JSON, with how many requests each rule was for and how many it struck."""
    rules = []
    for index, rule in enumerate(plan.rules):
        given = {name: getattr(rule, name) for name in RULE_NAMES if getattr(rule, name) is not None}
        rules.append(given | dict(zip(COUNTED, plan.count(index), strict=True)))
    return {**{name: getattr(plan, name) for name in PLAN_BOUNDS}, "rules": rules}


def _check_rule(rule: Rule, where: str) -> None:
    if rule.operation != ANY and rule.operation not in APPLIES_TO.get(rule.fault, OPERATIONS):
        raise PlanError(f"{where}: {rule.fault} says nothing about {rule.operation}")
    if rule.nth is not None and (rule.from_nth is not None or rule.to_nth is not None):
        raise PlanError(f"{where}: give nth, or from_nth and to_nth, not both")
    if rule.to_nth is not None and (rule.from_nth or 1) > rule.to_nth:
        raise PlanError(f"{where}: from_nth is after to_nth")


def _refuse_unknown(document: Json, known: tuple[str, ...], where: str) -> None:
    unknown = sorted(set(document) - set(known))
    if unknown:
        raise PlanError(f"{where} has no field {unknown[0]!r}; the fields are {', '.join(known)}")


def _read_choice(document: Json, name: str, choices: tuple[str, ...], where: str) -> str:
    value = document.get(name)
    if not isinstance(value, str) or value not in choices:
        raise PlanError(f"{where}: {name} must be one of {', '.join(choices)}")
    return value


def _read_numbers(document: Json, bounds: dict[str, Bound], where: str) -> dict[str, Any]:
    given = {name: value for name, value in document.items() if name in bounds and value is not None}
    return {name: bounds[name].read(value, f"{where}: {name}") for name, value in given.items()}


def _read_order(document: Json, where: str) -> str | None:
    value = document.get("order_id")
    if value is not None and (not isinstance(value, str) or not value):
        raise PlanError(f"{where}: order_id must be a string that is not empty")
    return value
