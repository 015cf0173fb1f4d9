"""The scaling algorithm of shared machines: 10,000 mixed pods, 500 instance types in three zones.

The mix is that of Karpenter's own benchmark: a sixth each of plain pods, of pods that spread over zones
and over hosts, that are near others in a zone and on a host, and that avoid each other. What the packing
costs is compared, for plain pods, with Karpenter's order and with first-fit-decreasing into the one type that
suits that best. Alone: ``python -m bench.packing``.
"""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

import numpy as np

from grange.api import timestamps
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
from grange.api.meta import Condition, LabelSelector, ObjectMeta
from grange.api.pod_requests import pod_request
from grange.base.rng import Stream
from grange.machines.catalogue import InstanceType, Offering
from grange.machines.scaling.capacity_memory import CapacityMemory
from grange.machines.scaling.instance_selector import ZONE_LABEL
from grange.machines.scaling.packing_options import PODS_MAX, PackedPool
from grange.machines.scaling.packing_scaler import PackingNodeScaler
from grange.machines.scaling_plan import ScalingPlan
from grange.placement.columns import Integers
from grange.placement.spread import HOSTNAME

PODS = 10_000
TYPES = 500
NOW = datetime(2026, 1, 1, tzinfo=UTC)
_ZONES = ("z1", "z2", "z3")
_SIZES = (1, 2, 4, 8, 16, 32, 48, 64, 96)
_RATIOS = (2, 4, 8)
_SINGLE_TYPES = 20
_WAITS = (Condition(type="PodScheduled", status="False", reason="Unschedulable"),)


def catalogue() -> list[InstanceType]:
    """Families with 2, 4 or 8 GiB for each of 1 to 96 processors, each generation a little cheaper."""
    types = []
    for at in range(TYPES):
        cpus, ratio = _SIZES[at % len(_SIZES)], _RATIOS[at // len(_SIZES) % len(_RATIOS)]
        factor = 100 - at // (len(_SIZES) * len(_RATIOS))
        price = Decimal(cpus * (300 + 40 * ratio) * factor) / 1_000_000
        offerings = tuple(
            Offering(zone, spot, price / (3 if spot else 1))
            for zone in _ZONES
            for spot in (False, True)
        )
        capacity = {"cpu": f"{cpus}", "memory": f"{cpus * ratio}Gi"}
        types.append(InstanceType(f"t{at}", capacity, offerings=offerings))
    return types


def _labels(at: int) -> dict[str, str]:
    """Seven apps of each kind, but groups of ten for one host."""
    return {"app": f"a{at // 60}" if at % 6 == 4 else f"a{at % 7}"}


def _selected(at: int) -> LabelSelector:
    return LabelSelector(match_labels=_labels(at))


def _near(at: int, key: str, *, anti: bool = False) -> Affinity:
    terms = (PodAffinityTerm(topology_key=key, label_selector=_selected(at)),)
    rules = PodAffinity(required_during_scheduling_ignored_during_execution=terms)
    return Affinity(pod_anti_affinity=rules) if anti else Affinity(pod_affinity=rules)


def _even(at: int, key: str) -> tuple[TopologySpreadConstraint, ...]:
    return (
        TopologySpreadConstraint(
            max_skew=1,
            topology_key=key,
            when_unsatisfiable="DoNotSchedule",
            label_selector=_selected(at),
        ),
    )


def pods(*, mixed: bool) -> list[Pod]:
    """Pods of 0.1 to 4 processors and 0.1 to 16 GiB."""
    rng = Stream(1, "bench.packing")
    made = []
    for at in range(PODS):
        requests = {"cpu": f"{rng.integer(100, 4000)}m", "memory": f"{rng.integer(128, 16_384)}Mi"}
        kind = at % 6 if mixed else 0
        spread = {1: _even(at, ZONE_LABEL), 2: _even(at, HOSTNAME)}.get(kind, ())
        affinity = {3: _near(at, ZONE_LABEL), 4: _near(at, HOSTNAME)}.get(kind)
        if kind == 5 and at % 100 == 5:
            affinity = _near(at, HOSTNAME, anti=True)
        container = Container(name="main", resources=ResourceRequirements(requests={**requests}))
        made.append(
            Pod(
                metadata=ObjectMeta(
                    name=f"p{at}",
                    namespace=f"ns{kind}",
                    uid=f"p{at}",
                    labels=_labels(at),
                    creation_timestamp=timestamps.rfc3339(timestamps.shift(NOW, -(at % 100))),
                ),
                spec=PodSpec(
                    containers=(container,), topology_spread_constraints=spread, affinity=affinity
                ),
                status=PodStatus(phase="Pending", conditions=_WAITS),
            )
        )
    return made


def _planned(wanted: Sequence[Pod], types: Sequence[InstanceType]) -> tuple[ScalingPlan, float]:
    pool = NodePool(
        metadata=ObjectMeta(name="batch", uid="batch"), spec=NodePoolSpec(provider="none")
    )
    scaler = PackingNodeScaler([PackedPool(pool, types, CapacityMemory())])
    started = time.process_time()
    plan = scaler.compute([], wanted, now=NOW)
    return plan, time.process_time() - started


def _cost(plan: ScalingPlan) -> float:
    return sum(float(start.spec.candidates[0].price_per_hour) for start in plan.start)


# --- what it is compared with --------------------------------------------------------------------------


def _sizes(wanted: Sequence[Pod]) -> list[Integers]:
    found = [pod_request(pod.spec).resources for pod in wanted]
    found.sort(key=lambda need: (-need.cpu_milli, -need.memory_bytes))
    return [np.asarray([need.cpu_milli, need.memory_bytes, 1], np.int64) for need in found]


def _rooms(types: Sequence[InstanceType]) -> Integers:
    rows = [
        [int(kind.capacity["cpu"]) * 1000, int(kind.capacity["memory"][:-2]) << 30, PODS_MAX]
        for kind in types
    ]
    return np.asarray(rows, np.int64)


def _price(kind: InstanceType) -> float:
    return min(float(each.price) for each in kind.offerings if not each.spot)


def karpenter_cost(wanted: Sequence[Pod], types: Sequence[InstanceType]) -> float:
    """Largest pods first, each on the planned machine with the fewest pods; the cheapest type last."""
    rooms, prices = _rooms(types), [_price(kind) for kind in types]
    used: list[Integers] = []
    for size in _sizes(wanted):
        for at in sorted(range(len(used)), key=lambda each: used[each][2]):
            if (rooms >= used[at] + size).all(axis=1).any():
                used[at] = used[at] + size
                break
        else:
            used.append(size)
    return sum(
        min(prices[row] for row in np.flatnonzero((rooms >= total).all(axis=1))) for total in used
    )


def first_fit_cost(wanted: Sequence[Pod], types: Sequence[InstanceType]) -> float:
    """First-fit-decreasing into one type: the one of the best value that makes it cheapest."""
    sizes = _sizes(wanted)
    total = sum(sizes)
    rooms = _rooms(types)
    # So much would it cost if nothing were left over.
    ideal = [_price(kind) * float((total / rooms[at])[:2].max()) for at, kind in enumerate(types)]
    best = sorted(range(len(types)), key=lambda at: ideal[at])[:_SINGLE_TYPES]
    return min(_price(types[at]) * _first_fit(sizes, rooms[at]) for at in best)


def _first_fit(sizes: Sequence[Integers], room: Integers) -> float:
    left: Integers = np.tile(room, (len(sizes), 1))
    number = 0
    for size in sizes:
        if not (room >= size).all():
            return float("inf")
        fits = (left[: number + 1] >= size).all(axis=1)
        at = int(fits.argmax())
        left[at] -= size
        number = max(number, at + 1)
    return float(number)


def measure() -> dict[str, float]:
    """Pods decided in a second of CPU, and what the packing costs, in percent of others."""
    types = catalogue()
    mixed, mixed_s = _planned(pods(mixed=True), types)
    plain = pods(mixed=False)
    plan, plain_s = _planned(plain, types)
    assert not plan.skip
    assert len(mixed.bind) + len(mixed.skip) == PODS
    cost = _cost(plan)
    return {
        "packed_mixed_per_s": PODS / mixed_s,
        "packed_plain_per_s": PODS / plain_s,
        "packed_skipped": len(mixed.skip),
        "cost_of_karpenter_percent": 100 * cost / karpenter_cost(plain, types),
        "cost_of_first_fit_percent": 100 * cost / first_fit_cost(plain, types),
    }


if __name__ == "__main__":
    print(json.dumps(measure(), indent=2))
