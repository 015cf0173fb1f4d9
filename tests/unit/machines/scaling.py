"""Pools, machines and pods for tests of scaling."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from grange.api import timestamps
from grange.api.kinds.machine import (
    NODE_POOL_LABEL,
    Machine,
    MachinePlacement,
    MachineResources,
    MachineSpec,
    MachineStatus,
)
from grange.api.kinds.nodepool import NodePool, NodePoolSpec, PoolTimeouts, StandbyNodeSpec
from grange.api.kinds.pod import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from grange.api.meta import ObjectMeta
from grange.machines.catalogue import InstanceType, Offering
from grange.machines.scaling.binding_scaler import BindingNodeScaler
from grange.machines.scaling.capacity_memory import CapacityMemory
from grange.machines.scaling.instance_selector import INSTANCE_TYPE_LABEL, ZONE_LABEL
from grange.machines.scaling.pod_needs import PodNeed
from grange.machines.scaling_plan import ScalingPlan

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
POOL = "batch"


def at(seconds: float) -> str:
    return timestamps.rfc3339_micro(NOW + timedelta(seconds=seconds))


def kind(name: str, cpu: str = "2", memory: str = "4Gi", price: str = "0.1") -> InstanceType:
    """A type that can be had in two zones, on demand and, at a third, as spot."""
    offerings = [
        Offering(zone, spot, Decimal(price) / (3 if spot else 1))
        for zone in ("z1", "z2")
        for spot in (False, True)
    ]
    return InstanceType(name, {"cpu": cpu, "memory": memory}, offerings=tuple(offerings))


A, B = kind("A"), kind("B", "8", "16Gi", "0.4")


def pool(standby: Sequence[StandbyNodeSpec] = (), **spec: Any) -> NodePool:
    spec.setdefault("timeouts", PoolTimeouts(idle_seconds=0))
    wanted = NodePoolSpec(provider="simulated", mode="Dedicated", standby=tuple(standby), **spec)
    return NodePool(metadata=ObjectMeta(name=POOL, uid="pool"), spec=wanted)


def pod(
    name: str,
    instance_type: str = "A",
    *,
    zone: str = "",
    requests: dict[str, str] | None = None,
    phase: str = "Pending",
    priority: int = 0,
    created: float = 0.0,
    deleted: bool = False,
    **annotations: str,
) -> Pod:
    selector = {NODE_POOL_LABEL: POOL}
    if instance_type:
        selector[INSTANCE_TYPE_LABEL] = instance_type
    if zone:
        selector[ZONE_LABEL] = zone
    resources = ResourceRequirements(requests={**(requests or {})})
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-{name}",
            creation_timestamp=at(created),
            deletion_timestamp=at(0) if deleted else None,
            annotations={
                f"grange.dev/{key.replace('_', '-')}": value for key, value in annotations.items()
            },
        ),
        spec=PodSpec(
            containers=(Container(name="main", resources=resources),),
            node_selector=selector,
            priority=priority,
        ),
        status=PodStatus(phase=phase),
    )


def machine(
    name: str,
    instance_type: str = "A",
    phase: str = "Available",
    *,
    bound: str = "",
    zone: str = "",
    spot: bool = False,
    created: float = -100.0,
    version: str = "1",
    **resources: Any,
) -> Machine:
    resources.setdefault("volume_size", "5Gi")
    return Machine(
        metadata=ObjectMeta(
            name=name, uid=f"uid-{name}", resource_version=version, creation_timestamp=at(created)
        ),
        spec=MachineSpec(
            pool=POOL,
            provider="simulated",
            instance_type=instance_type,
            spot=spot,
            placement=MachinePlacement(zone=zone),
            resources=MachineResources(**resources),
        ),
        status=MachineStatus(
            phase=phase,
            zone=zone,
            bound_pod_uid=f"uid-{bound}" if bound else "",
            bound_pod_name=f"default/{bound}" if bound else "",
            available_time=at(created),
        ),
    )


def ended(given: Machine) -> Machine:
    return msgspec.structs.replace(given, spec=msgspec.structs.replace(given.spec, terminate=True))


def plan(
    pods: Sequence[Pod] = (),
    nodes: Sequence[Machine] = (),
    *,
    of: NodePool | None = None,
    capacity: CapacityMemory | None = None,
    catalogue: Sequence[InstanceType] = (A, B),
    cordoned: Sequence[str] = (),
    requested: Sequence[PodNeed] = (),
) -> ScalingPlan:
    scaler = BindingNodeScaler(
        of or pool(),
        catalogue,
        capacity or CapacityMemory(),
        cordoned=cordoned,
        requested=requested,
    )
    return scaler.compute(nodes, pods, now=NOW)


def started(found: ScalingPlan) -> list[tuple[str, bool]]:
    """Type and market of what is ordered."""
    return [(start.spec.instance_type, start.spec.spot) for start in found.start]


def stopped(found: ScalingPlan) -> list[str]:
    return [stop.name for stop in found.stop if not stop.park]


def bound(found: ScalingPlan) -> dict[str, str]:
    """Machine by pod; ``new`` for one that is ordered."""
    new = {start.name for start in found.start}
    return {
        binding.pod.removeprefix("default/"): "new" if binding.machine in new else binding.machine
        for binding in found.bind
    }
