"""LeasePolicy: the rules by which waiting MachineLeases are granted; one for the cluster, ``default``."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from grange.api import names, schema_builder
from grange.api.kinds.machinelease import POOL_LABEL
from grange.api.meta import Document, Resource, View
from grange.api.printing import cells
from grange.api.scheme import Column, KindInfo
from grange.api.status import Cause
from grange.api.validation.causes import Faults

POLICY_NAME = "default"
"""The only LeasePolicy that has an effect."""

FIRST_FIT = "FirstFit"
BACKFILL = "Backfill"
STRICT = "StrictFIFO"


class LeasePolicySpec(View, frozen=True):
    """The rules.

    Attributes:
        order: ``Backfill``: a later lease goes first if that does not delay the first blocked one
            beyond its estimate. ``StrictFIFO``: none goes before a blocked one of its pools.
            ``FirstFit``: whatever fits goes.
        aging_seconds: a lease that waits for so long goes before others of its priority, and lets
            nothing go before it that could delay it.
        paused: nothing more is granted.
        draining_pools: of these nothing more is granted.
        max_granted: leases that are granted at a time; None: no limit.
        namespace_weights: shares of the granted machines that namespaces get; 1 where not named.
        semaphores: named limits: how many leases that name one may be granted at a time.
        default_pools: pool of a component of a TestSession that names none, by role.
        replication_pools: their machines are taken by leases for ReplicationControllers whose pods move.
    """

    order: str = BACKFILL
    aging_seconds: int = 600
    paused: bool = False
    draining_pools: tuple[str, ...] = ()
    max_granted: int | None = None
    namespace_weights: dict[str, int] = msgspec.field(default_factory=dict)
    semaphores: dict[str, int] = msgspec.field(default_factory=dict)
    default_pools: dict[str, str] = msgspec.field(default_factory=dict)
    replication_pools: tuple[str, ...] = ()


class LeasePolicy(Resource, frozen=True):
    """How waiting leases are granted."""

    spec: LeasePolicySpec = msgspec.field(default_factory=LeasePolicySpec)


def _validate(document: Document, old: Document | None) -> list[Cause]:
    faults = Faults()
    spec = document.get("spec") or {}
    for field, least in (("agingSeconds", 0), ("maxGranted", 1)):
        value = spec.get(field)
        if isinstance(value, int) and value < least:
            faults.invalid(f"spec.{field}", value, f"must be greater than or equal to {least}")
    for field, least in (("namespaceWeights", 1), ("semaphores", 0)):
        for key, value in (spec.get(field) or {}).items():
            faults.named(f"spec.{field}", key, names.check_dns_label(key))
            if value < least:
                message = f"must be greater than or equal to {least}"
                faults.invalid(f"spec.{field}[{key}]", value, message)
    for role, pool in (spec.get("defaultPools") or {}).items():
        faults.named(f"spec.defaultPools[{role}]", pool, names.check_label_value(pool))
    for index, pool in enumerate(spec.get("replicationPools") or []):
        field = f"spec.replicationPools[{index}]"
        faults.named(field, pool, names.check_label_value(pool) if pool else "must not be empty")
    return faults.causes


def _review(document: Document, old: Document | None, now: datetime) -> Iterable[str]:
    name = (document.get("metadata") or {}).get("name") or ""
    if old is None and name != POLICY_NAME:
        yield f'metadata.name: only the LeasePolicy "{POLICY_NAME}" has an effect'


_NAME = "dev.grange.v1alpha1.LeasePolicy"
_COUNTS = {"type": "integer", "format": "int32"}

LEASEPOLICY = KindInfo(
    group="grange.dev",
    version="v1alpha1",
    kind="LeasePolicy",
    plural="leasepolicies",
    view=LeasePolicy,
    schema=_NAME,
    definitions=schema_builder.definitions(
        _NAME,
        "grange.dev",
        "v1alpha1",
        "The rules by which waiting MachineLeases are granted.",
        spec={
            "order": schema_builder.text(
                "Backfill: a later lease goes first if that does not delay the first blocked one "
                "beyond its estimate. StrictFIFO: none goes before a blocked one of its pools. "
                "FirstFit: whatever fits goes.",
                enum=[BACKFILL, STRICT, FIRST_FIT],
                default=BACKFILL,
            ),
            "agingSeconds": schema_builder.whole(
                "A lease that waits for so long goes before others of its priority, and lets nothing "
                "go before it that could delay it.",
                default=600,
                **{schema_builder.RULED: {"minimum": 0}},
            ),
            "paused": schema_builder.flag("Nothing more is granted."),
            "drainingPools": schema_builder.several(
                {"type": "string"},
                "Pools of which nothing more is granted.",
                **{"x-kubernetes-list-type": "set"},
            ),
            "maxGranted": schema_builder.whole(
                "Leases that are granted at a time; no limit by default.",
                **{schema_builder.RULED: {"minimum": 1}},
            ),
            "namespaceWeights": {
                "type": "object",
                "description": "Shares of the granted machines that namespaces get; 1 by default.",
                "additionalProperties": _COUNTS,
            },
            "semaphores": {
                "type": "object",
                "description": "How many leases that name the limit may be granted at a time.",
                "additionalProperties": _COUNTS,
            },
            "defaultPools": {
                "type": "object",
                "description": "Pool of components of TestSessions that name none, by role; "
                f"a value of the node label {POOL_LABEL}.",
                "additionalProperties": {"type": "string"},
            },
            "replicationPools": schema_builder.several(
                {"type": "string"},
                "Pools whose machines ReplicationControllers take by leases when their pods move; "
                "other pods of ReplicationControllers are not placed there.",
                **{"x-kubernetes-list-type": "set"},
            ),
        },
    ),
    namespaced=False,
    has_status=False,
    categories=("grange",),
    columns=(
        Column("Order", cells.text("spec.order", BACKFILL), description="Who goes first."),
        Column(
            "Paused",
            cells.boolean("spec.paused"),
            type="boolean",
            description="Whether nothing is granted.",
        ),
    ),
    validate=_validate,
    review=_review,
)
