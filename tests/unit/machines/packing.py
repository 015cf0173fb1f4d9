"""Pools, nodes and pods for tests of packing."""

from collections.abc import Sequence
from typing import Any

import msgspec
from tests.unit.machines import scaling
from tests.unit.machines.scaling import NOW, at

from grange.api.kinds.machine import NODE_POOL_LABEL, Machine
from grange.api.kinds.node import Node, NodeSpec, NodeStatus
from grange.api.kinds.nodepool import NodePool, NodePoolSpec
from grange.api.kinds.pod import (
    Affinity,
    Container,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    TopologySpreadConstraint,
)
from grange.api.kinds.podgroup import GROUP_LABEL, PodGroup, PodGroupSpec
from grange.api.meta import Condition, LabelSelector, ObjectMeta
from grange.api.pod_requests import CPU
from grange.machines.catalogue import InstanceType
from grange.machines.scaling.capacity_memory import CapacityMemory
from grange.machines.scaling.instance_selector import ZONE_LABEL
from grange.machines.scaling.packing_hosts import ClusterState
from grange.machines.scaling.packing_options import PackedPool
from grange.machines.scaling.packing_scaler import PackingNodeScaler
from grange.machines.scaling_plan import MachineStart, ScalingPlan
from grange.placement.spread import HOSTNAME

SMALL = scaling.kind("small", "2", "8Gi", "0.1")
MIDDLE = scaling.kind("middle", "8", "32Gi", "0.38")
LARGE = scaling.kind("large", "32", "128Gi", "1.5")
UNSCHEDULABLE = Condition(type="PodScheduled", status="False", reason="Unschedulable")


def pool(name: str = "shared", **spec: Any) -> NodePool:
    wanted = NodePoolSpec(provider="simulated", **spec)
    return NodePool(metadata=ObjectMeta(name=name, uid=f"uid-{name}"), spec=wanted)


def pod(
    name: str,
    cpu: str = "1",
    memory: str = "1Gi",
    *,
    labels: dict[str, str] | None = None,
    group: str = "",
    node: str = "",
    created: float = 0.0,
    annotations: dict[str, str] | None = None,
    requests: dict[str, str] | None = None,
    **spec: Any,
) -> Pod:
    """A pod that the scheduler finds no node for, or one on a node."""
    spec.setdefault("tolerations", ())
    needs = ResourceRequirements(requests={"cpu": cpu, "memory": memory, **(requests or {})})
    named = {**(labels or {}), **({GROUP_LABEL: group} if group else {})}
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-{name}",
            creation_timestamp=at(created),
            labels=named,
            annotations=annotations or {},
        ),
        spec=PodSpec(containers=(Container(name="main", resources=needs),), node_name=node, **spec),
        status=PodStatus(phase="Running" if node else "Pending", conditions=(UNSCHEDULABLE,)),
    )


def node(name: str, cpu: str = "2", memory: str = "8Gi", **more: Any) -> Node:
    labels = {HOSTNAME: name, ZONE_LABEL: more.pop("zone", "z1"), **more.pop("labels", {})}
    ready = Condition(type="Ready", status="True" if more.pop("ready", True) else "False")
    return Node(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", labels=labels),
        spec=NodeSpec(**more),
        status=NodeStatus(
            allocatable={CPU: cpu, "memory": memory, "pods": "110"}, conditions=(ready,)
        ),
    )


def group(name: str, members: int, **spec: Any) -> PodGroup:
    meta = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}")
    return PodGroup(metadata=meta, spec=PodGroupSpec(min_member=members, **spec))


def booted(start: MachineStart, phase: str = "Creating") -> Machine:
    """The machine of an order, as its controller records it."""
    meta = ObjectMeta(name=start.name, uid=f"uid-{start.name}", annotations=dict(start.annotations))
    status = msgspec.structs.replace(Machine().status, phase=phase)
    return Machine(metadata=meta, spec=start.spec, status=status)


def plan(
    pods: Sequence[Pod] = (),
    machines: Sequence[Machine] = (),
    *,
    pools: Sequence[NodePool] | None = None,
    catalogue: Sequence[InstanceType] = (SMALL, MIDDLE, LARGE),
    capacity: CapacityMemory | None = None,
    template_hash: str = "",
    **cluster: Any,
) -> ScalingPlan:
    """The plan of the pools for a cluster."""
    memory = capacity or CapacityMemory()
    packed = [
        PackedPool(each, catalogue, memory, template_hash=template_hash)
        for each in pools or [pool()]
    ]
    scaler = PackingNodeScaler(packed, ClusterState(**cluster))
    return scaler.compute(machines, pods, now=NOW)


def types(found: ScalingPlan) -> list[str]:
    """Types of what is ordered, sorted."""
    return sorted(start.spec.instance_type for start in found.start)


def together(found: ScalingPlan) -> list[list[str]]:
    """Names of pods by machine that is ordered, sorted."""
    return sorted(
        sorted(name.removeprefix("default/") for name in start.pods) for start in found.start
    )


def reasons(found: ScalingPlan) -> dict[str, str]:
    return {skip.pod.removeprefix("default/"): skip.reason for skip in found.skip}


def apart(key: str = HOSTNAME, **labels: str) -> Affinity:
    """Not in one domain with pods of these labels."""
    term = PodAffinityTerm(topology_key=key, label_selector=LabelSelector(match_labels=labels))
    return Affinity(
        pod_anti_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,))
    )


def near(key: str = ZONE_LABEL, **labels: str) -> Affinity:
    """In one domain with pods of these labels."""
    term = PodAffinityTerm(topology_key=key, label_selector=LabelSelector(match_labels=labels))
    return Affinity(
        pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(term,))
    )


def even(key: str = ZONE_LABEL, *, hard: bool = True, **labels: str) -> TopologySpreadConstraint:
    """Spread evenly over domains."""
    return TopologySpreadConstraint(
        max_skew=1,
        topology_key=key,
        when_unsatisfiable="DoNotSchedule" if hard else "ScheduleAnyway",
        label_selector=LabelSelector(match_labels=labels),
    )


def of_pool(name: str = "shared") -> dict[str, str]:
    """Labels of a pool's nodes."""
    return {NODE_POOL_LABEL: name}
