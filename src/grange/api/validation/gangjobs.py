"""Rules of GangJobs: above all of their roles."""

from collections.abc import Iterable, Mapping
from typing import Any

from grange.api import job_frameworks, names
from grange.api.fields import entry, lookup
from grange.api.meta import Document
from grange.api.status import Cause
from grange.api.validation import gangjob_policies, job_updates, role_templates, run_policies
from grange.api.validation.causes import Faults

_FIELD = "replicaSpecs"
ROLES = f"spec.{_FIELD}"
_POLICY = "spec.runPolicy"

Roles = Mapping[str, dict[str, Any]]


def check(document: Document, old: Document | None) -> list[Cause]:
    """Every rule of a GangJob, for create (old is None) and update."""
    faults = Faults()
    spec = document.get("spec") or {}
    if old is not None and spec == old.get("spec"):  # as in every write of the status
        return []
    roles: Roles = spec.get("replicaSpecs") or {}
    before: Roles = (lookup(old, ROLES) or {}) if old else {}
    name = (document.get("metadata") or {}).get("name") or ""
    framework = spec.get("framework", job_frameworks.NAMES[0])
    if framework not in job_frameworks.NAMES:
        faults.not_supported("spec.framework", framework, job_frameworks.NAMES)
    if not roles:
        faults.required(ROLES, "name at least one role")
    else:
        _check_roles(name, roles, before, faults)
        _check_leader(roles, faults)
        _check_dependencies(roles, faults)
    run_policies.check(spec.get("runPolicy") or {}, _POLICY, _least_pods(roles), faults)
    gangjob_policies.check_success(spec.get("successPolicy"), roles, faults)
    gangjob_policies.check_failure(spec.get("failurePolicy") or {}, roles, faults)
    if old is not None:
        elastic = _elastic_names(roles) & _elastic_names(before)
        job_updates.check_update(document, old, _FIELD, elastic, faults)
    return faults.causes


def fixed_parts(document: Document) -> dict[str, Any]:
    """The parts of the spec that may not change while the job runs, by their paths."""
    spec = document["spec"]
    return job_updates.fixed_parts(spec, _FIELD, _elastic_names(spec.get(_FIELD) or {}))


def _elastic_names(roles: Roles) -> set[str]:
    return {name for name, role in roles.items() if is_elastic(role)}


def is_elastic(role: Mapping[str, Any]) -> bool:
    """Whether the number of the role's pods may change while the job runs."""
    return role.get("minReplicas") is not None or role.get("maxReplicas") is not None


def replicas_of(role: Mapping[str, Any]) -> int:
    """How many pods the role wants."""
    wanted: int = role.get("replicas", 1)
    return wanted


def _least_pods(roles: Roles) -> int:
    return sum(max(replicas_of(role), 0) for role in roles.values())


def _check_roles(job: str, roles: Roles, before: Roles, faults: Faults) -> None:
    total = 0
    for name, role in roles.items():
        path = entry(ROLES, name)
        faults.named(path, name, names.check_dns_label(name))
        replicas = replicas_of(role)
        if role_templates.check_replicas(replicas, f"{path}.replicas", faults):
            total += replicas
            _check_sizes(role, replicas, path, faults)
            most = max(replicas, role.get("maxReplicas") or 0)
            role_templates.check_pod_name(job, name, most, faults)
        _check_limits(role, replicas, path, faults)
        template = role.get("template")
        if not template:
            faults.required(f"{path}.template", "specify what the pods run")
        # An unchanged template was checked when it was written.
        elif template != (before.get(name) or {}).get("template"):
            role_templates.check_template(template, f"{path}.template", faults)
    role_templates.check_total(total, ROLES, faults)
    if total == 0 and not faults.causes:
        faults.invalid(ROLES, total, "must have one pod at least in all roles together")


def _check_sizes(role: Mapping[str, Any], replicas: int, path: str, faults: Faults) -> None:
    least, most = role.get("minReplicas"), role.get("maxReplicas")
    low, high = 1 if least is None else least, role_templates.REPLICAS_MAX if most is None else most
    if not 1 <= low <= role_templates.REPLICAS_MAX:
        message = f"must be between 1 and {role_templates.REPLICAS_MAX}"
        faults.invalid(f"{path}.minReplicas", least, message)
    elif not low <= high <= role_templates.REPLICAS_MAX:
        message = f"must be between minReplicas, {low}, and {role_templates.REPLICAS_MAX}"
        faults.invalid(f"{path}.maxReplicas", most, message)
    elif not low <= max(replicas, 1) <= high:
        message = f"must be between minReplicas, {low}, and maxReplicas, {high}"
        faults.invalid(f"{path}.replicas", replicas, message)
    quorum = role.get("minAvailable")
    bound = replicas if least is None else least
    if quorum is not None and not 0 <= quorum <= bound:
        of = "replicas" if least is None else "minReplicas"
        message = f"must be between 0 and {of}, {bound}"
        faults.invalid(f"{path}.minAvailable", quorum, message)


def _check_limits(role: Mapping[str, Any], replicas: int, path: str, faults: Faults) -> None:
    for field in ("backoffLimitPerIndex", "maxFailedIndexes"):
        run_policies.check_not_negative(dict(role), field, path, faults)
    failed = role.get("maxFailedIndexes")
    if failed is not None and role.get("backoffLimitPerIndex") is None:
        faults.required(f"{path}.backoffLimitPerIndex", "needed where maxFailedIndexes is given")
    if failed is not None and failed > max(replicas, 0):
        message = f"must be less than or equal to replicas, {replicas}"
        faults.invalid(f"{path}.maxFailedIndexes", failed, message)


def _check_leader(roles: Roles, faults: Faults) -> None:
    leaders = [name for name, role in roles.items() if role.get("leader")]
    for name in leaders[1:]:
        message = f'role "{leaders[0]}" is the leader already; a job has one at most'
        faults.forbidden(f"{entry(ROLES, name)}.leader", message)
    for name in leaders:
        if not roles[name].get("completes", True):
            message = "may not be false for the leader, whose end is the end of the job"
            faults.forbidden(f"{entry(ROLES, name)}.completes", message)
        if replicas_of(roles[name]) == 0:
            message = "must be 1 or more for the leader, whose end is the end of the job"
            faults.invalid(f"{entry(ROLES, name)}.replicas", 0, message)
    if not any(role.get("completes", True) for role in roles.values()):
        message = "one role has to complete, else the job has no end"
        faults.invalid(ROLES, sorted(roles), message)


def _check_dependencies(roles: Roles, faults: Faults) -> None:
    for name, role in roles.items():
        taken: set[str] = set()
        for index, item in enumerate(role.get("dependsOn") or ()):
            path = f"{entry(ROLES, name)}.dependsOn[{index}]"
            other = item.get("role", "")
            if other not in roles:
                faults.not_found(f"{path}.role", other)
            elif other in taken:
                faults.duplicate(f"{path}.role", other)
            elif item.get("condition") == "Complete" and not roles[other].get("completes", True):
                message = f'role "{other}" has completes: false and is never Complete'
                faults.invalid(f"{path}.condition", "Complete", message)
            taken.add(other)
    for name in in_cycle(roles):
        message = f'roles wait for each other: "{name}" depends on itself'
        faults.invalid(f"{entry(ROLES, name)}.dependsOn", name, message)


def dependencies_of(role: Mapping[str, Any]) -> list[str]:
    """The roles that a role waits for."""
    return [item.get("role", "") for item in role.get("dependsOn") or ()]


def in_cycle(roles: Roles) -> list[str]:
    """The roles that cannot begin, as they wait, perhaps through others, for themselves."""
    waiting = {name: {*dependencies_of(role)} & roles.keys() for name, role in roles.items()}
    while free := [name for name, needs in waiting.items() if not needs]:
        for name in free:
            del waiting[name]
        for needs in waiting.values():
            needs.difference_update(free)
    # What is left waits for a cycle or is part of one.
    return [name for name in waiting if _reaches(name, name, waiting)]


def _reaches(start: str, goal: str, waiting: Mapping[str, Iterable[str]]) -> bool:
    seen: set[str] = set()
    stack = [*waiting[start]]
    while stack:
        name = stack.pop()
        if name == goal:
            return True
        if name not in seen:
            seen.add(name)
            stack += waiting[name]
    return False
