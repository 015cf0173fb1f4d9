"""What of a job with several roles may change: that depends on whether it runs."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from grange.api.fields import entry, lookup
from grange.api.job_status import FINISHED_TYPES
from grange.api.meta import Document
from grange.api.validation.causes import Faults

IMMUTABLE = "field is immutable"
FINISHED = "the job is finished; create another one"
_POLICY = "spec.runPolicy"


@dataclass(frozen=True, slots=True)
class Mutability:
    """Which fields of a job may change in one of its states.

    Attributes:
        policy: of ``runPolicy``.
        role: of a role.
        elastic_role: of an elastic role.
        finished: whether the state is the last one.
    """

    policy: tuple[str, ...]
    role: tuple[str, ...] = ()
    elastic_role: tuple[str, ...] = ()
    finished: bool = False

    def refusal(self, field: str, when_stopped: Collection[str]) -> str:
        """Why a field may not change, and what to do."""
        if self.finished:
            return FINISHED
        if field in when_stopped:
            elastic = ", or of an elastic role" if field == "replicas" else ""
            return f"may change only while the job is suspended and has no pods{elastic}"
        return IMMUTABLE


_ROLE = ("replicas", "minReplicas", "maxReplicas", "minAvailable", "template")
_ALWAYS = ("suspend", "ttlSecondsAfterFinished", "activeDeadlineSeconds")
_RUNNING = Mutability(policy=_ALWAYS, elastic_role=("replicas",))
_STOPPED = Mutability(
    policy=(*_ALWAYS, "schedulingPolicy", "backoffLimit", "cleanPodPolicy"),
    role=_ROLE,
    elastic_role=_ROLE,
)
_FINISHED = Mutability(policy=("ttlSecondsAfterFinished",), finished=True)


def is_finished(document: Document) -> bool:
    """Whether the job has succeeded or failed."""
    conditions = lookup(document, "status.conditions") or ()
    return any(
        item.get("type") in FINISHED_TYPES and item.get("status") == "True" for item in conditions
    )


def is_stopped(document: Document) -> bool:
    """Whether the job is suspended and has no pods, so that what they are made of may change."""
    statuses = lookup(document, "status.replicaStatuses") or {}
    active = any(item.get("active") for item in statuses.values())
    return bool(lookup(document, f"{_POLICY}.suspend")) and not active


def check_update(
    document: Document, old: Document, field: str, elastic: Collection[str], faults: Faults
) -> None:
    """What may change: depends on whether the job is finished, is stopped, or runs.

    Args:
        document: as it would be stored.
        old: as it is stored.
        field: of ``spec``, where the roles are.
        elastic: names of the elastic roles.
        faults: where they are added.
    """
    gates = _RUNNING
    if is_finished(old):
        gates = _FINISHED
    elif is_stopped(old):
        gates = _STOPPED
    spec, was = document.get("spec") or {}, old.get("spec") or {}
    for name in changed(spec, was, (field, "runPolicy")):
        faults.forbidden(f"spec.{name}", IMMUTABLE)
    policy, policy_was = spec.get("runPolicy") or {}, was.get("runPolicy") or {}
    for name in changed(policy, policy_was, gates.policy):
        faults.forbidden(f"{_POLICY}.{name}", gates.refusal(name, _STOPPED.policy))
    roles, roles_was = spec.get(field) or {}, was.get(field) or {}
    for role in sorted(roles.keys() ^ roles_was.keys()):
        faults.forbidden(entry(f"spec.{field}", role), "roles may not be added or removed")
    for role in sorted(roles.keys() & roles_was.keys()):
        mutable = gates.elastic_role if role in elastic else gates.role
        for name in changed(roles[role], roles_was[role], mutable):
            message = gates.refusal(name, _STOPPED.role)
            faults.forbidden(f"{entry(f'spec.{field}', role)}.{name}", message)


def fixed_parts(spec: Document, field: str, elastic: Collection[str]) -> dict[str, Any]:
    """The parts of a spec that may not change while the job runs, by their paths.

    Args:
        spec: of the job.
        field: of ``spec``, where the roles are.
        elastic: names of the elastic roles.
    """
    parts = {f"spec.{name}": spec[name] for name in spec if name not in (field, "runPolicy")}
    parts[_POLICY] = _without(spec.get("runPolicy") or {}, _RUNNING.policy)
    for name, role in (spec.get(field) or {}).items():
        mutable = _RUNNING.elastic_role if name in elastic else _RUNNING.role
        parts[entry(f"spec.{field}", name)] = _without(role, mutable)
    return {path: part for path, part in parts.items() if part}


def _without(part: Document, fields: Collection[str]) -> Document:
    return {name: value for name, value in part.items() if name not in fields}


def changed(new: Mapping[str, Any], old: Mapping[str, Any], mutable: Collection[str]) -> list[str]:
    """The fields that differ and are not among those that may."""
    fields = sorted({*new, *old} - {*mutable})
    return [field for field in fields if new.get(field) != old.get(field)]
