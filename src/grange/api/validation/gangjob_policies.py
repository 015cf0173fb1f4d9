"""Rules of a GangJob's success and failure policies: above all, that they can ever apply."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from grange.api import index_ranges, names
from grange.api.fields import entry
from grange.api.validation.causes import Faults
from grange.api.validation.run_policies import check_not_negative

ROLES = "spec.replicaSpecs"
RULES_MAX = 20
VALUES_MAX = 255
_SUCCESS = "spec.successPolicy"
_FAILURE = "spec.failurePolicy"
_DISRUPTION_TARGET = "DisruptionTarget"
IN_PLACE = "RestartPodInPlace"
_CRITERIA = ("roles", "onReasons", "onExitCodes", "onPodConditions")

Roles = Mapping[str, dict[str, Any]]


def check_success(policy: dict[str, Any] | None, roles: Roles, faults: Faults) -> None:
    """The rules of ``successPolicy``, where there is one."""
    if policy is None:
        return
    targets = _check_targets(policy.get("roles"), f"{_SUCCESS}.roles", roles, faults)
    for index, name in enumerate(policy.get("roles") or ()):
        if name in roles and not roles[name].get("completes", True):
            message = "has completes: false and never succeeds"
            faults.invalid(f"{_SUCCESS}.roles[{index}]", name, message)
    if not policy.get("roles"):
        leaders = [name for name, role in roles.items() if role.get("leader")]
        targets = leaders or [n for n, role in roles.items() if role.get("completes", True)]
    sizes = [max(roles[name].get("replicas", 1), 0) for name in targets]
    available = sum(sizes)
    if text := policy.get("indexes"):
        try:
            wanted = index_ranges.parse(text)
        except index_ranges.InvalidIndexRanges as error:
            faults.invalid(f"{_SUCCESS}.indexes", text, str(error))
            return
        if sizes and max(wanted) >= max(sizes):
            message = (
                f"no targeted role has an index {max(wanted)}: the largest is {max(sizes) - 1}"
            )
            faults.invalid(f"{_SUCCESS}.indexes", text, message)
            return
        available = sum(len([index for index in wanted if index < size]) for size in sizes)
    count = policy.get("count")
    if count is not None and not 1 <= count <= available:
        message = f"must be between 1 and the number of targeted indexes, {available}"
        faults.invalid(f"{_SUCCESS}.count", count, message)


def check_failure(policy: dict[str, Any], roles: Roles, faults: Faults) -> None:
    """The rules of ``failurePolicy``."""
    check_not_negative(policy, "maxRestarts", _FAILURE, faults)
    rules = policy.get("rules") or ()
    if len(rules) > RULES_MAX:
        faults.too_long(f"{_FAILURE}.rules", f"must have at most {RULES_MAX} items")
    named: set[str] = set()
    known: dict[bytes, int] = {}
    for index, rule in enumerate(rules[:RULES_MAX]):
        path = f"{_FAILURE}.rules[{index}]"
        if name := rule.get("name"):
            faults.named(f"{path}.name", name, names.check_qualified_name(name))
            if name in named:
                faults.duplicate(f"{path}.name", name)
            named.add(name)
        _check_rule(rule, path, roles, faults)
        if rule.get("action") == IN_PLACE:
            _check_in_place(rule, path, rules[:index], roles, faults)
        criteria = msgspec.json.encode([rule.get(field) or None for field in _CRITERIA])
        first = known.setdefault(criteria, index)
        if first != index:
            message = f"never applies: rule {first} matches the same failures"
            faults.invalid(path, rule.get("action"), message)


def _check_rule(rule: dict[str, Any], path: str, roles: Roles, faults: Faults) -> None:
    targets = _check_targets(rule.get("roles"), f"{path}.roles", roles, faults)
    if not any(rule.get(field) for field in _CRITERIA):
        message = f"specify which failures it is about: one of {', '.join(_CRITERIA)}"
        faults.required(path, message)
    for index, reason in enumerate(rule.get("onReasons") or ()):
        if not reason:
            faults.required(f"{path}.onReasons[{index}]")
    codes = rule.get("onExitCodes")
    if codes is not None:
        containers = [container_names(roles[name]) for name in targets]
        check_exit_codes(codes, f"{path}.onExitCodes", containers, faults)
        if targets and all(roles[name].get("restartPolicy") == "Always" for name in targets):
            message = "never applies: with restartPolicy Always containers are restarted in place"
            faults.invalid(f"{path}.onExitCodes", codes.get("values"), message)
    for index, item in enumerate(rule.get("onPodConditions") or ()):
        kind = item.get("type", "")
        at = f"{path}.onPodConditions[{index}].type"
        faults.named(at, kind, names.check_qualified_name(kind))
    if rule.get("action") == "FailIndex":
        for name in targets:
            if roles[name].get("backoffLimitPerIndex") is None:
                at = f"{entry(ROLES, name)}.backoffLimitPerIndex"
                faults.required(at, f"needed by the action FailIndex of {path}")


def _check_in_place(
    rule: dict[str, Any],
    path: str,
    earlier: Sequence[dict[str, Any]],
    roles: Roles,
    faults: Faults,
) -> None:
    """Nodes carry the rule out, and they know exit codes alone."""
    if rule.get("onExitCodes") is None:
        faults.required(f"{path}.onExitCodes", f"needed by the action {IN_PLACE}")
        return
    for field in ("onReasons", "onPodConditions"):
        if rule.get(field):
            message = f"may not be given with the action {IN_PLACE}: nodes look at exit codes alone"
            faults.forbidden(f"{path}.{field}", message)
    targets = [name for name in rule.get("roles") or roles if name in roles]
    for number, other in enumerate(earlier):
        if _decides_alone(other) and not {*targets}.isdisjoint(other.get("roles") or roles):
            message = (
                f"never applies: rule {number} precedes it and is about more than exit codes, which "
                "are all that nodes look at; put this rule first"
            )
            faults.invalid(path, IN_PLACE, message)
            return
    wanted = rule["onExitCodes"].get("containerName")
    for name in targets:
        for container in _containers(roles[name]):
            own = container.get("restartPolicyRules") and wanted in (None, "", container["name"])
            if own:
                message = f"containers with restartPolicyRules may not have the action {IN_PLACE}"
                faults.forbidden(f"{entry(ROLES, name)}.template", f"{message} of {path}")


def _decides_alone(rule: dict[str, Any]) -> bool:
    """Whether the rule may decide about a failure by what only the controller sees.

    A rule about disruptions does not: a pod that is disrupted ends in any case.
    """
    conditions = rule.get("onPodConditions") or ()
    if conditions:
        return any(item.get("type") != _DISRUPTION_TARGET for item in conditions)
    return bool(rule.get("onReasons")) or rule.get("onExitCodes") is None


def _check_targets(
    named: Sequence[str] | None, path: str, roles: Roles, faults: Faults
) -> list[str]:
    """The roles that a policy names, or all of them."""
    if not named:
        return [*roles]
    for index, name in enumerate(named):
        if name not in roles:
            faults.not_found(f"{path}[{index}]", name)
        elif name in named[:index]:
            faults.duplicate(f"{path}[{index}]", name)
    return [name for name in dict.fromkeys(named) if name in roles]


def container_names(role: Mapping[str, Any]) -> set[str]:
    """The names of the containers of a role's pods."""
    return {item.get("name", "") for item in _containers(role)}


def _containers(role: Mapping[str, Any]) -> list[dict[str, Any]]:
    spec = (role.get("template") or {}).get("spec") or {}
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def check_exit_codes(
    codes: dict[str, Any], path: str, containers: Collection[Collection[str]], faults: Faults
) -> None:
    """Exit codes of a rule: ascending, of failures, and of a container that there is.

    Args:
        codes: has passed its schema.
        path: of the codes.
        containers: names of the containers of each role that the rule is about.
        faults: where they are added.
    """
    values = codes.get("values") or []
    if not values:
        faults.required(f"{path}.values", "name one exit code at least")
    if len(values) > VALUES_MAX:
        faults.too_long(f"{path}.values", f"must have at most {VALUES_MAX} items")
    for index, value in enumerate(values[:VALUES_MAX]):
        at = f"{path}.values[{index}]"
        if not 0 <= value <= VALUES_MAX:
            faults.invalid(at, value, f"must be between 0 and {VALUES_MAX}, inclusive")
        elif value == 0 and codes.get("operator", "In") == "In":
            faults.invalid(at, value, "must not be 0 for the In operator: 0 is no failure")
        elif value in values[:index]:
            faults.duplicate(at, value)
    name = codes.get("containerName")
    if name and containers and not any(name in group for group in containers):
        faults.not_found(f"{path}.containerName", name)
