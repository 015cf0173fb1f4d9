"""The scaling algorithm of dedicated pools: 10,000 waiting pods, with and without 10,000 machines.

Pods name their instance type or are given the cheapest that holds them, of 500 types in three zones;
machines of one type are at any point of their boot. Alone: ``python -m bench.machines``.
"""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

from grange.api import timestamps
from grange.api.kinds.machine import NODE_POOL_LABEL, Machine, MachineSpec, MachineStatus
from grange.api.kinds.nodepool import DEDICATED, NodePool, NodePoolSpec
from grange.api.kinds.pod import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from grange.api.meta import ObjectMeta
from grange.machines.catalogue import InstanceType, Offering
from grange.machines.scaling.binding_scaler import BindingNodeScaler
from grange.machines.scaling.capacity_memory import CapacityMemory
from grange.machines.scaling.instance_selector import INSTANCE_TYPE_LABEL, ZONE_LABEL

PODS = MACHINES = 10_000
TYPES = 500
NOW = datetime(2026, 1, 1, tzinfo=UTC)
_ZONES = ("z1", "z2", "z3")
_PHASES = ("Creating", "Created", "Available")


def catalogue() -> list[InstanceType]:
    """Types of 1 to 100 processors with 2, 4 or 8 GiB for each, in three zones and two markets."""
    types = []
    for at in range(TYPES):
        cpus = 1 + at % 100
        price = Decimal(cpus) / 20 + Decimal(at) / 10_000
        offerings = tuple(
            Offering(zone, spot, price / (3 if spot else 1))
            for zone in _ZONES
            for spot in (False, True)
        )
        capacity = {"cpu": f"{cpus}", "memory": f"{cpus * (2 << at % 3)}Gi"}
        types.append(InstanceType(f"t{at}", capacity, offerings=offerings))
    return types


def pod(at: int) -> Pod:
    """One of 630 shapes; every other names its type."""
    selector = {NODE_POOL_LABEL: "batch"}
    if at % 2:
        selector[INSTANCE_TYPE_LABEL] = "t0"
    if at % 3:
        selector[ZONE_LABEL] = _ZONES[at % 3]
    requests = {"cpu": f"{250 * (1 + at % 7)}m", "memory": f"{256 * (1 + at % 5)}Mi"}
    container = Container(name="main", resources=ResourceRequirements(requests={**requests}))
    return Pod(
        metadata=ObjectMeta(
            name=f"p{at}",
            namespace="default",
            uid=f"p{at}",
            creation_timestamp=timestamps.rfc3339(timestamps.shift(NOW, -(at % 100))),
        ),
        spec=PodSpec(containers=(container,), node_selector=selector, priority=at % 3),
        status=PodStatus(phase="Pending"),
    )


def machine(at: int) -> Machine:
    """A machine that is bound to no pod."""
    created = timestamps.rfc3339(timestamps.shift(NOW, -(at % 50)))
    zone = _ZONES[at % 3]
    return Machine(
        metadata=ObjectMeta(name=f"m{at}", uid=f"m{at}", creation_timestamp=created),
        spec=MachineSpec(pool="batch", provider="none", instance_type="t0"),
        status=MachineStatus(phase=_PHASES[at % 3], zone=zone, available_time=created),
    )


def _decided_ms(nodes: Sequence[Machine], pods: Sequence[Pod], types: list[InstanceType]) -> float:
    spec = NodePoolSpec(provider="none", mode=DEDICATED)
    pool = NodePool(metadata=ObjectMeta(name="batch", uid="batch"), spec=spec)
    scaler = BindingNodeScaler(pool, types, CapacityMemory())
    started = time.process_time()
    plan = scaler.compute(nodes, pods, now=NOW)
    elapsed = (time.process_time() - started) * 1e3
    assert len(plan.bind) == PODS
    return elapsed


def measure() -> dict[str, float]:
    """Milliseconds of CPU of one decision."""
    types, pods = catalogue(), [pod(at) for at in range(PODS)]
    nodes = [machine(at) for at in range(MACHINES)]
    return {
        "binding_ms": _decided_ms(nodes, pods, types),
        "binding_empty_ms": _decided_ms([], pods, types),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
