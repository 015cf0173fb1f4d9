"""Rules of how a job is run: limits, its manager, and the scheduling of its pods."""

from typing import Any

from grange.api import names
from grange.api.validation.causes import Faults
from grange.api.validation.resources import check_amounts

MANAGER = "grange.dev/gangjob-controller"
"""The value of ``managedBy`` that names our own controller."""

MANAGER_MAX = 63
_NOT_NEGATIVE = "must be greater than or equal to 0"


def check(policy: dict[str, Any], path: str, pods: int, faults: Faults) -> None:
    """The rules of ``runPolicy``.

    Args:
        policy: has passed its schema.
        path: of the policy.
        pods: how many pods the job has at least when all of its roles run.
        faults: where they are added.
    """
    for field in ("ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit"):
        check_not_negative(policy, field, path, faults)
    check_manager(policy.get("managedBy"), f"{path}.managedBy", faults)
    scheduling = policy.get("schedulingPolicy")
    if scheduling:
        _check_scheduling(scheduling, f"{path}.schedulingPolicy", pods, faults)


def check_not_negative(holder: dict[str, Any], field: str, path: str, faults: Faults) -> None:
    """A number that is zero or more, where it is given."""
    value = holder.get(field)
    if value is not None and value < 0:
        faults.invalid(f"{path}.{field}", value, _NOT_NEGATIVE)


def check_manager(manager: str | None, path: str, faults: Faults) -> None:
    """The name of a controller, ``domain/name``, where it is given."""
    if manager is None:
        return
    if len(manager) > MANAGER_MAX:
        faults.too_long(path, f"may not be more than {MANAGER_MAX} bytes")
    elif "/" not in manager or names.check_qualified_name(manager) is not None:
        message = f"must be a domain-prefixed name like {MANAGER}"
        faults.invalid(path, manager, message)


def _check_scheduling(policy: dict[str, Any], path: str, pods: int, faults: Faults) -> None:
    least = policy.get("minAvailable")
    if least is not None and not 1 <= least <= max(pods, 1):
        message = f"must be between 1 and the number of pods, {pods}"
        faults.invalid(f"{path}.minAvailable", least, message)
    check_amounts(policy.get("minResources") or {}, f"{path}.minResources", faults)
    timeout = policy.get("scheduleTimeoutSeconds")
    if timeout is not None and timeout < 1:
        message = "must be greater than or equal to 1; leave it out to wait without a limit"
        faults.invalid(f"{path}.scheduleTimeoutSeconds", timeout, message)
    for field in ("queue", "priorityClass"):
        if value := policy.get(field):
            faults.named(f"{path}.{field}", value, names.check_dns_subdomain(value))
    topology = policy.get("topology")
    if topology is not None:
        key = topology.get("key") or ""
        if not key:
            faults.required(f"{path}.topology.key", "name a label of nodes")
        else:
            faults.named(f"{path}.topology.key", key, names.check_qualified_name(key))
