"""Queue of grange.dev: how much the gangs and pods of one party may use at a time.

A queue has no namespace. Gangs name it in ``spec.queue``, pods by the label ``grange.dev/queue``.
Queues of one cohort lend each other what they do not use.
"""

import msgspec

from grange.api import names, schema_builder
from grange.api.meta import Condition, Document, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.status import Cause
from grange.api.validation.causes import Faults
from grange.api.validation.resources import check_amounts

QUEUE_LABEL = "grange.dev/queue"
"""Label of a pod outside any group: whose quota it counts against."""

Amounts = dict[str, int | float | str]


class QueueSpec(View, frozen=True):
    """What is granted.

    Attributes:
        capacity: quantities by resource; what is not named is not limited.
        cohort: queues of the same cohort lend each other unused capacity; empty for none.
        borrowing_limit: how much above ``capacity`` may be borrowed; a resource that is not named
            is limited by what the cohort has left.
    """

    capacity: Amounts = msgspec.field(default_factory=dict)
    cohort: str = ""
    borrowing_limit: Amounts = msgspec.field(default_factory=dict)


class QueueStatus(View, frozen=True):
    """What is: usage of the resources that are limited, and who waits."""

    observed_generation: int = 0
    used: Amounts = msgspec.field(default_factory=dict)
    admitted: int = 0
    pending: int = 0
    conditions: tuple[Condition, ...] = ()


class Queue(Resource, frozen=True):
    """Resources that the pods of its name may use together."""

    spec: QueueSpec = msgspec.field(default_factory=QueueSpec)
    status: QueueStatus = msgspec.field(default_factory=QueueStatus)


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    spec = document.get("spec") or {}
    capacity = spec.get("capacity") or {}
    limits = spec.get("borrowingLimit") or {}
    cohort = spec.get("cohort") or ""
    check_amounts(capacity, "spec.capacity", faults)
    check_amounts(limits, "spec.borrowingLimit", faults)
    if cohort:
        faults.named("spec.cohort", cohort, names.check_dns_subdomain(cohort))
    elif limits:
        message = "may only be set together with spec.cohort: without one there is no lender"
        faults.forbidden("spec.borrowingLimit", message)
    for name in limits:
        if name not in capacity:
            message = "may only name resources of spec.capacity: others are not limited"
            faults.forbidden(f"spec.borrowingLimit.{name}", message)
    return faults.causes


_NAME = "dev.grange.v1alpha1.Queue"

QUEUE = KindInfo(
    group="grange.dev",
    version="v1alpha1",
    kind="Queue",
    plural="queues",
    view=Queue,
    schema=_NAME,
    definitions=schema_builder.definitions(
        _NAME,
        "grange.dev",
        "v1alpha1",
        "How much the gangs and pods of one party may use at a time.",
        spec={
            "capacity": schema_builder.amounts(
                "What may be used; what is not named is not limited."
            ),
            "cohort": schema_builder.named("Queues of a cohort lend each other unused capacity."),
            "borrowingLimit": schema_builder.amounts("How much above capacity may be borrowed."),
        },
        status={
            "observedGeneration": {
                "type": "integer",
                "format": "int64",
                "description": "The generation that this status is about.",
            },
            "used": schema_builder.amounts("What is used of the resources that are limited."),
            "admitted": schema_builder.whole("Pods that count against it."),
            "pending": schema_builder.whole("Gangs and pods that wait for it."),
            "conditions": schema_builder.conditions(),
        },
        required=("capacity",),
    ),
    namespaced=False,
    categories=("grange",),
    columns=(
        Column("Cohort", cells.text("spec.cohort"), description="With whom it shares."),
        Column("CPU", cells.text("spec.capacity.cpu"), description="CPUs that may be used."),
        Column("Used", cells.text("status.used.cpu"), description="CPUs in use."),
        Column(
            "Admitted",
            cells.integer("status.admitted"),
            type="integer",
            description="Pods that count against it.",
        ),
        Column(
            "Pending",
            cells.integer("status.pending"),
            type="integer",
            description="Who waits for it.",
        ),
    ),
    validate=_validate,
)
