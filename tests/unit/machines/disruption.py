"""A cluster of shared machines for tests of disruption, in which decisions are carried out at once."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from tests.unit.machines import packing
from tests.unit.machines.packing import LARGE, MIDDLE, SMALL
from tests.unit.machines.scaling import NOW

from grange.api import timestamps
from grange.api.kinds.machine import Machine, MachineSpec, MachineStatus
from grange.api.kinds.node import Node
from grange.api.kinds.nodepool import NodePool, PoolDisruption, PoolDisruptionBudget
from grange.api.kinds.pod import Pod
from grange.api.kinds.poddisruptionbudget import PodDisruptionBudget
from grange.api.meta import ObjectMeta, OwnerReference
from grange.machines.catalogue import InstanceType
from grange.machines.disruption.disruption_plan import DisruptionDecision, DisruptionPlan
from grange.machines.disruption.machine_disruptor import MachineDisruptor
from grange.machines.scaling.capacity_memory import CapacityMemory
from grange.machines.scaling.packing_hosts import ClusterState
from grange.machines.scaling.packing_options import PackedPool, option_labels
from grange.machines.scaling.packing_scaler import PackingNodeScaler

OLD = -10_000.0
ANY = PoolDisruptionBudget(nodes="100%")


def pool(name: str = "shared", **disruption: Any) -> NodePool:
    spec = {key: disruption.pop(key) for key in ("standby", "spot", "weight") if key in disruption}
    disruption.setdefault("budgets", (ANY,))
    return packing.pool(name, disruption=PoolDisruption(**disruption), **spec)


def owned(pod: Pod) -> Pod:
    """The pod with a controller that would replace it."""
    owner = OwnerReference("v1", "ReplicationController", "rc", "uid-rc", controller=True)
    meta = msgspec.structs.replace(pod.metadata, owner_references=(owner,))
    return msgspec.structs.replace(pod, metadata=meta)


class World:
    """Machines with their nodes, and pods."""

    def __init__(
        self,
        *pools: NodePool,
        catalogue: Sequence[InstanceType] = (SMALL, MIDDLE, LARGE),
        budgets: Sequence[PodDisruptionBudget] = (),
    ) -> None:
        self.pools = [
            PackedPool(each, catalogue, CapacityMemory(), "image-2", "hash-2")
            for each in pools or (pool(),)
        ]
        self.budgets = budgets
        self.now = NOW
        self.machines: dict[str, Machine] = {}
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}

    def machine(
        self,
        name: str,
        kind: InstanceType = SMALL,
        *,
        of: str = "shared",
        since: float = OLD,
        annotations: dict[str, str] | None = None,
        ready: bool = True,
        spot: bool = False,
        **spec: Any,
    ) -> None:
        """An available machine with its node."""
        offering = next(each for each in kind.offerings if each.spot == spot)
        created = timestamps.rfc3339(self.now + timedelta(seconds=since))
        wanted = MachineSpec(
            pool=of,
            provider="simulated",
            instance_type=kind.name,
            **{"boot_image": "image-2", "template_hash": "hash-2", **spec},
        )
        status = MachineStatus(
            phase="Available",
            instance_type=kind.name,
            zone=offering.zone,
            spot=spot,
            price_per_hour=f"{offering.price}",
            available_time=created,
        )
        meta = ObjectMeta(
            name=name,
            uid=f"uid-{name}",
            resource_version="7",
            creation_timestamp=created,
            annotations=annotations or {},
        )
        self.machines[name] = Machine(metadata=meta, spec=wanted, status=status)
        owner = next(each.pool for each in self.pools if each.name == of)
        self.nodes[name] = packing.node(
            name,
            kind.capacity["cpu"],
            kind.capacity["memory"],
            zone=offering.zone,
            ready=ready,
            labels=option_labels(owner, kind, offering),
        )

    def pod(self, name: str, node: str = "", cpu: str = "1", **more: Any) -> None:
        """A pod with a controller, on a node or waiting."""
        more.setdefault("created", OLD)
        bare = more.pop("bare", False)
        made = packing.pod(name, cpu, node=node, **more)
        self.pods[name] = made if bare else owned(made)

    @property
    def cluster(self) -> ClusterState:
        return ClusterState(nodes=[*self.nodes.values()])

    @property
    def disruptor(self) -> MachineDisruptor:
        return MachineDisruptor(self.pools, self.cluster, self.budgets)

    def look(self, start_after: str = "") -> DisruptionPlan:
        return self.disruptor.decide(
            [*self.machines.values()],
            [*self.pods.values()],
            now=self.now,
            start_after=start_after,
        )

    def decide(self) -> DisruptionDecision | None:
        return self.look().decision

    def validate(self, decision: DisruptionDecision) -> DisruptionDecision | None:
        return self.disruptor.validate(
            decision.reason,
            decision.names,
            [*self.machines.values()],
            [*self.pods.values()],
            now=self.now,
        )

    @property
    def price(self) -> float:
        return sum(float(each.status.price_per_hour) for each in self.machines.values())

    def carry_out(self, decision: DisruptionDecision) -> None:
        """Replace and end machines, and let a scheduler place their pods again."""
        kinds = {kind.name: kind for kind in self.pools[0].catalogue}
        for start in decision.replacements:
            spec = start.spec
            self.machine(
                start.name, kinds[spec.instance_type], of=spec.pool, since=0, spot=spec.spot
            )
        for name in decision.names:
            del self.machines[name], self.nodes[name]
        for name, pod in self.pods.items():
            if pod.spec.node_name in decision.names:
                self.pods[name] = _moved(pod, "")
        self.schedule()

    def schedule(self) -> None:
        """Place what waits; the test fails where it fits nothing that is there."""
        scaler = PackingNodeScaler(self.pools, self.cluster)
        plan = scaler.compute([*self.machines.values()], [*self.pods.values()], now=self.now)
        assert not any(start.pods for start in plan.start)
        assert not plan.skip
        place = plan.bindings
        for name, pod in self.pods.items():
            if not pod.spec.node_name:
                self.pods[name] = _moved(pod, place[pod.metadata.uid])

    def later(self, seconds: float) -> datetime:
        self.now += timedelta(seconds=seconds)
        return self.now


def _moved(pod: Pod, node: str) -> Pod:
    spec = msgspec.structs.replace(pod.spec, node_name=node)
    status = msgspec.structs.replace(pod.status, phase="Running" if node else "Pending")
    return msgspec.structs.replace(pod, spec=spec, status=status)
