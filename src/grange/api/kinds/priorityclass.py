"""PriorityClass: a name for how important pods are, and whether they may take others' places."""

from grange.api.meta import Document, Resource
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.status import Cause
from grange.api.validation.causes import Faults

PREEMPT, NEVER = "PreemptLowerPriority", "Never"
POLICIES = (PREEMPT, NEVER)
USER_MAX = 1_000_000_000
SYSTEM_PREFIX = "system-"
SYSTEM_CRITICAL_PRIORITY = 2_000_000_000
"""Pods of at least this priority are those that a cluster or a node needs."""
SYSTEM = {
    "system-cluster-critical": (
        SYSTEM_CRITICAL_PRIORITY,
        "For pods that the cluster needs, on any node.",
    ),
    "system-node-critical": (2_000_001_000, "For pods that their node cannot do without."),
}
"""The classes that are always there: value and description by name."""


class PriorityClass(Resource, frozen=True):
    """A priority class; the greater the value, the more important the pod."""

    value: int = 0
    global_default: bool = False
    description: str = ""
    preemption_policy: str = PREEMPT


def system_class(name: str) -> Document:
    """One of the classes that are always there, as a document."""
    value, description = SYSTEM[name]
    return {"metadata": {"name": name}, "value": value, "description": description}


def _default(document: Document) -> None:
    document.setdefault("preemptionPolicy", PREEMPT)


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    meta, value = document.get("metadata") or {}, document.get("value", 0)
    name = str(meta.get("name") or "")
    if name.startswith(SYSTEM_PREFIX):
        if name not in SYSTEM:
            message = f"names that begin with {SYSTEM_PREFIX} are reserved for the system"
            faults.forbidden("metadata.name", message)
        elif value != SYSTEM[name][0]:
            faults.forbidden("value", f"must be {SYSTEM[name][0]} for {name}")
        elif document.get("globalDefault"):
            faults.forbidden("globalDefault", "a class of the system cannot be the default")
    elif value > USER_MAX:
        faults.forbidden("value", f"must be at most {USER_MAX}: more is reserved for the system")
    policy = document.get("preemptionPolicy")
    if policy is not None and policy not in POLICIES:
        faults.not_supported("preemptionPolicy", policy, POLICIES)
    if old is not None:
        for field in ("value", "preemptionPolicy"):
            if document.get(field) != old.get(field):
                message = "may not be changed: pods carry it; make another class"
                faults.forbidden(field, message)
    return faults.causes


PRIORITYCLASS = KindInfo(
    group="scheduling.k8s.io",
    version="v1",
    kind="PriorityClass",
    plural="priorityclasses",
    view=PriorityClass,
    schema="io.k8s.api.scheduling.v1.PriorityClass",
    namespaced=False,
    short_names=("pc",),
    has_status=False,
    columns=(
        Column("Value", cells.integer("value"), "integer", "The greater, the more important."),
        Column(
            "Global-Default",
            cells.boolean("globalDefault"),
            "boolean",
            "Whether it is for pods that name none.",
        ),
        Column(
            "PreemptionPolicy",
            cells.text("preemptionPolicy", PREEMPT),
            description="Whether its pods may take the places of less important ones.",
        ),
    ),
    default=_default,
    validate=_validate,
)
