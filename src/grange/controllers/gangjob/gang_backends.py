"""Which backend places a job's gang: the object that each has for it, and its state.

A backend is one entry of ``BACKENDS``. Pure: the shell creates, updates and deletes the objects.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import msgspec

from grange.api import names, quantity
from grange.api.kinds import PODDISRUPTIONBUDGET, PODGROUP, podgroup, volcano
from grange.api.kinds.podgroup import GROUP_LABEL
from grange.api.kinds.volcano import VOLCANO_PODGROUP
from grange.api.meta import Document, OwnerReference, Resource, controller_of
from grange.api.scheme import AnyKind
from grange.controllers.gangjob.adapter import JobLabels
from grange.controllers.gangjob.job_names import gen_labels
from grange.controllers.gangjob.model import GangBackend, GangState, JobModel, JobRole

Amounts = dict[str, int | float | str]

_NO_PRIORITIES: Mapping[str, int] = {}
_NO_PARTS: Mapping[str, int] = {}
_DEFAULT_QUEUE = "default"  # Volcano's; it refuses groups without a queue
_NOT_ADMITTED = frozenset({"", "Pending"})
_PLACED = frozenset({podgroup.SCHEDULED, podgroup.RUNNING, podgroup.FINISHED})


@dataclass(frozen=True, slots=True)
class GangObjects:
    """One backend.

    Attributes:
        kind: of the object that stands for the gang.
        name: of that object.
        spec: of that object, by the job and the values of the PriorityClasses.
        state: the object's state, with spec and status.
        absent: the state while there is no object, by the job.
        scheduler: ``schedulerName`` of the pods; empty: as the template has it.
        labels: of the pods, by the name of the object.
        annotations: of the pods, by the name of the object and the role.
        updated: fields of the spec that follow the job's; all others stay as they were created.
    """

    kind: AnyKind
    name: Callable[[JobModel], str]
    spec: Callable[[JobModel, JobLabels, Mapping[str, int]], Document]
    state: Callable[[Document], GangState]
    absent: Callable[[JobModel], GangState] = lambda _: GangState()
    scheduler: str = ""
    labels: Callable[[str], dict[str, str]] = lambda _: {}
    annotations: Callable[[str, JobRole], dict[str, str]] = lambda _, __: {}
    updated: tuple[str, ...] = ("minMember", "minResources")


def quorum(model: JobModel) -> int:
    """So many members are placed together, or none.

    A role that waits for another is not one of them: its pods come when the other's run, and those
    would wait for it.
    """
    together = [role for role in model.roles if not role.depends_on]
    if model.scheduling.min_available is not None:
        return min(model.scheduling.min_available, sum(role.replicas for role in together))
    return sum(map(role_quorum, together))


def role_quorum(role: JobRole) -> int:
    """The members of a role that belong to the gang's quorum."""
    for number in (role.min_available, role.min_replicas):
        if number is not None:
            return number
    return role.replicas


def quorum_parts(model: JobModel) -> dict[str, int]:
    """By role, in lower case, how many of its members belong to the quorum, where that matters.

    A quorum of fewer than all could be made up of workers alone, unless each role has its own part.
    """
    policy = model.scheduling
    together = [role for role in model.roles if not role.depends_on]
    every = policy.min_available is None and any(
        role_quorum(role) < role.replicas for role in together
    )
    return {
        role.name.lower(): role_quorum(role) if every else role.min_available or 0
        for role in together
        if every or role.min_available is not None
    }


def min_resources(
    model: JobModel,
    priorities: Mapping[str, int] = _NO_PRIORITIES,
    parts: Mapping[str, int] = _NO_PARTS,
) -> Amounts:
    """What the quorum asks for: the containers' requests, of the most important roles first.

    A limit stands in for a request that is left out. Init containers do not count.

    Args:
        model: the job.
        priorities: values of the PriorityClasses by name.
        parts: so many of some roles are in the quorum in any case.

    Raises:
        quantity.QuantityError: an amount is no quantity.
    """
    if model.scheduling.min_resources:
        return dict(model.scheduling.min_resources)

    def priority(role: JobRole) -> int:
        return priorities.get((role.template.get("spec") or {}).get("priorityClassName") or "", 0)

    total: dict[str, Fraction] = {}
    spare = max(0, quorum(model) - sum(parts.values()))
    together = [role for role in model.roles if not role.depends_on]
    for role in sorted(together, key=priority, reverse=True):
        part = parts.get(role.name.lower(), 0)
        more = min(spare, role.replicas - part)
        spare -= more
        count = part + more
        for container in (role.template.get("spec") or {}).get("containers") or []:
            resources = container.get("resources") or {}
            asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
            for name, amount in asked.items():
                total[name] = total.get(name, Fraction(0)) + count * quantity.parse(amount)
    return {name: _formatted(name, amount) for name, amount in total.items() if amount}


def _formatted(name: str, amount: Fraction) -> str:
    if name == "cpu":
        return quantity.format_milli(-(-amount.numerator * 1000 // amount.denominator))
    if amount.denominator == 1 and amount % 1024 == 0:
        return quantity.format_binary(amount.numerator)
    return quantity.format_decimal(amount)


# --- the objects -----------------------------------------------------------------------------------


def _group_name(model: JobModel) -> str:
    """Another for a job of the same name: the former one's group may still be on its way out."""
    return names.shortened(model.name, names.digest(model.uid))


def _grange_spec(model: JobModel, labels: JobLabels, priorities: Mapping[str, int]) -> Document:
    policy = model.scheduling
    spec = _plugins_spec(model, labels, priorities)
    parts = quorum_parts(model)
    if _is_gated(model):
        spec["admission"] = podgroup.GATED
        spec["minResources"] = min_resources(model, priorities, parts)
    else:
        # Grange's scheduler tries the whole gang against the nodes: a sum adds nothing to that.
        spec["minResources"] = dict(policy.min_resources)
    spec["minParts"] = [
        {"matchLabels": {labels.role: role}, "minMember": count}
        for role, count in parts.items()
        if count
    ]
    spec["queue"] = policy.queue
    spec["priorityClassName"] = policy.priority_class
    if policy.topology_key:
        mode = podgroup.REQUIRED if policy.topology_required else podgroup.PREFERRED
        spec["topology"] = {"key": policy.topology_key, "mode": mode}
    return {key: value for key, value in spec.items() if value}


def _is_gated(model: JobModel) -> bool:
    """Whether no pods are created before the job's queue admits the gang."""
    return bool(model.scheduling.queue) and not names_other_scheduler(model)


def _plugins_spec(model: JobModel, labels: JobLabels, priorities: Mapping[str, int]) -> Document:
    spec: Document = {
        "minMember": max(1, quorum(model)),
        "minResources": min_resources(model, priorities),
        "scheduleTimeoutSeconds": model.scheduling.timeout_s,
    }
    return {key: value for key, value in spec.items() if value}


def _volcano_spec(model: JobModel, labels: JobLabels, priorities: Mapping[str, int]) -> Document:
    policy = model.scheduling
    spec: Document = {
        "minMember": max(1, quorum(model)),
        "minTaskMember": quorum_parts(model),
        "minResources": min_resources(model, priorities),
        "queue": policy.queue or _DEFAULT_QUEUE,
        "priorityClassName": policy.priority_class,
    }
    return {key: value for key, value in spec.items() if value}


def _budget_spec(model: JobModel, labels: JobLabels, priorities: Mapping[str, int]) -> Document:
    selector = {labels.job: gen_labels(labels, model.name)[labels.job]}
    return {"minAvailable": quorum(model), "selector": {"matchLabels": selector}}


# --- their states ---------------------------------------------------------------------------------


def _why(status: Document, kind: str) -> tuple[str, str]:
    for item in status.get("conditions") or ():
        if item["type"] == kind:
            return item.get("reason", ""), item.get("message", "")
    return "", ""


def _status(found: Document) -> Document:
    status: Document = found.get("status") or {}
    return status


def _plugins_state(found: Document) -> GangState:
    status = _status(found)
    reason, message = _why(status, podgroup.SCHEDULED_CONDITION)
    placed = status.get("phase") in _PLACED
    return GangState(exists=True, scheduled=placed, reason=reason, message=message)


def _grange_state(found: Document) -> GangState:
    present = _status(found).get("conditions") or ()
    gated = (found.get("spec") or {}).get("admission") == podgroup.GATED
    if not gated or any(
        item["type"] == podgroup.ADMITTED_CONDITION and item["status"] == "True" for item in present
    ):
        return replace(_plugins_state(found), used=_status(found).get("used") or {})
    reason, message = _why(_status(found), podgroup.ADMITTED_CONDITION)
    return GangState(exists=True, admitted=False, reason=reason, message=message)


def _grange_absent(model: JobModel) -> GangState:
    return _GROUP_NOT_CREATED if _is_gated(model) else GangState()


def _volcano_state(found: Document) -> GangState:
    status = _status(found)
    phase = status.get("phase", "")
    reason, message = _why(status, "Unschedulable")
    return GangState(
        exists=True,
        admitted=phase not in _NOT_ADMITTED,
        scheduled=phase in {"Running", "Completed"},
        reason=reason,
        message=message,
    )


def _budget_state(found: Document) -> GangState:
    status = _status(found)
    enough = 0 < status.get("desiredHealthy", 0) <= status.get("currentHealthy", 0)
    return GangState(exists=True, scheduled=enough)


_GROUP_NOT_CREATED = GangState(admitted=False, reason="PodGroupPending")

BACKENDS: dict[GangBackend, GangObjects] = {
    GangBackend.GRANGE: GangObjects(
        PODGROUP,
        _group_name,
        _grange_spec,
        _grange_state,
        absent=_grange_absent,
        scheduler="grange",
        labels=lambda group: {GROUP_LABEL: group},
        updated=("minMember", "minParts", "minResources", "scheduleTimeoutSeconds", "topology"),
    ),
    GangBackend.SCHEDULER_PLUGINS: GangObjects(
        PODGROUP,
        _group_name,
        _plugins_spec,
        _plugins_state,
        scheduler="scheduler-plugins-scheduler",
        labels=lambda group: {GROUP_LABEL: group},
        updated=("minMember", "minResources", "scheduleTimeoutSeconds"),
    ),
    GangBackend.VOLCANO: GangObjects(
        VOLCANO_PODGROUP,
        _group_name,
        _volcano_spec,
        _volcano_state,
        absent=lambda _: _GROUP_NOT_CREATED,
        scheduler="volcano",
        annotations=lambda group, role: {
            volcano.GROUP_ANNOTATION: group,
            volcano.TASK_ANNOTATION: role.name.lower(),
        },
        updated=("minMember", "minTaskMember", "minResources"),
    ),
    GangBackend.DISRUPTION_BUDGET: GangObjects(
        PODDISRUPTIONBUDGET,
        lambda model: model.name,
        _budget_spec,
        _budget_state,
        updated=("minAvailable",),
    ),
}
"""All but ``GangBackend.NONE``, which has no object."""


def gang_of(model: JobModel) -> GangObjects | None:
    """The backend of a job; None where nothing places its pods together."""
    return BACKENDS.get(model.scheduling.backend)


def gang_document(
    model: JobModel,
    labels: JobLabels,
    owner: OwnerReference,
    priorities: Mapping[str, int] = _NO_PRIORITIES,
) -> Document | None:
    """The object of a job's gang; None where it has none.

    Raises:
        quantity.QuantityError: an amount of a template is no quantity.
    """
    gang = gang_of(model)
    if gang is None:
        return None
    return {
        "apiVersion": gang.kind.api_version,
        "kind": gang.kind.kind,
        "metadata": {
            "name": gang.name(model),
            "namespace": model.namespace,
            "labels": gen_labels(labels, model.name),
            "ownerReferences": [msgspec.to_builtins(owner)],
        },
        "spec": gang.spec(model, labels, priorities),
    }


def gang_state(model: JobModel, found: Resource | None) -> GangState:
    """The state of a job's gang, by its object.

    Args:
        model: the job.
        found: the object of the gang's name, of whatever owner; None where there is none.
    """
    gang = gang_of(model)
    if gang is None:
        return GangState()
    owner = controller_of(found.metadata) if found is not None else None
    if found is None or found.metadata.deletion_timestamp or owner is None:
        return gang.absent(model)
    if owner.uid != model.uid:
        return gang.absent(model)
    return replace(gang.state(msgspec.to_builtins(found)), name=found.metadata.name)


def gang_patch(
    model: JobModel,
    labels: JobLabels,
    found: Resource,
    priorities: Mapping[str, int] = _NO_PRIORITIES,
) -> Document | None:
    """The merge patch by which the gang's object follows the job; None where it does already.

    The queue is never changed: what its pods use counts against it.
    """
    gang = gang_of(model)
    if gang is None:
        return None
    wanted = gang.spec(model, labels, priorities)
    document = {"metadata": {"name": found.metadata.name}, "spec": wanted}
    seen: Document = msgspec.to_builtins(msgspec.convert(document, type(found)))["spec"]
    known: Document = msgspec.to_builtins(found).get("spec") or {}
    changes = {
        field: wanted.get(field)
        for field in gang.updated
        if not _same(seen.get(field), known.get(field))
    }
    return {"spec": changes} if changes else None


def _same(wanted: object, known: object) -> bool:
    """Whether two values of a field mean the same: amounts may be written in other ways."""
    if isinstance(wanted, dict) and isinstance(known, dict):
        return wanted.keys() == known.keys() and all(
            _same(value, known[key]) for key, value in wanted.items()
        )
    if wanted == known:
        return True
    if not isinstance(wanted, str | int | float) or not isinstance(known, str | int | float):
        return False
    try:
        return quantity.parse(wanted) == quantity.parse(known)
    except quantity.QuantityError:
        return False


def decoration(model: JobModel, role: JobRole) -> tuple[dict[str, str], dict[str, str], str]:
    """Labels, annotations and ``schedulerName`` by which a role's pods belong to the gang.

    The name is empty where a template names another scheduler: then no template is changed.
    """
    gang = gang_of(model)
    if gang is None:
        return {}, {}, ""
    group = gang.name(model)
    scheduler = "" if names_other_scheduler(model) else gang.scheduler
    return gang.labels(group), gang.annotations(group, role), scheduler


def names_other_scheduler(model: JobModel) -> bool:
    """Whether a template names a scheduler that is not the backend's."""
    gang = gang_of(model)
    if gang is None or not gang.scheduler:
        return False
    named = {(role.template.get("spec") or {}).get("schedulerName") or "" for role in model.roles}
    return bool(named - {"", gang.scheduler})
