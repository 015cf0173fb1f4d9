"""PackingNodeScaler agrees with the slow reference, on random pods, nodes and pools."""

from typing import Any

from hypothesis import given, strategies as st
from tests.unit.machines.packing import LARGE, MIDDLE, SMALL, even, node, pod, pool
from tests.unit.machines.packing_reference import Reference
from tests.unit.machines.scaling import NOW

from grange.api.kinds.node import Taint
from grange.api.kinds.nodepool import NodePool, NodeTemplate
from grange.api.kinds.pod import (
    Affinity,
    NodeAffinity,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PreferredSchedulingTerm,
    SelectorRequirement,
    Toleration,
    WeightedPodAffinityTerm,
)
from grange.api.meta import LabelSelector
from grange.machines.scaling.capacity_memory import CapacityMemory
from grange.machines.scaling.instance_selector import ZONE_LABEL
from grange.machines.scaling.packing_hosts import ClusterState
from grange.machines.scaling.packing_options import PackedPool
from grange.machines.scaling.packing_scaler import PackingNodeScaler
from grange.placement.spread import HOSTNAME

apps = st.sampled_from(["a", "b", "c"])
keys = st.sampled_from([HOSTNAME, ZONE_LABEL])
taints = st.sampled_from(
    [(), (Taint(key="x", effect="NoSchedule"),), (Taint(key="x", effect="PreferNoSchedule"),)]
)


@st.composite
def terms(draw: st.DrawFn) -> PodAffinityTerm:
    return PodAffinityTerm(
        topology_key=draw(keys),
        label_selector=LabelSelector(match_labels={"app": draw(apps)}),
    )


@st.composite
def affinities(draw: st.DrawFn) -> Affinity:
    def group() -> PodAffinity | None:
        must = draw(st.lists(terms(), max_size=1))
        should = draw(st.lists(st.tuples(st.integers(1, 3), terms()), max_size=1))
        return PodAffinity(tuple(must), tuple(WeightedPodAffinityTerm(*each) for each in should))

    zones = draw(st.lists(st.sampled_from(["z1", "z2", "z9"]), max_size=2))
    liked = tuple(
        PreferredSchedulingTerm(
            weight=1 + at,
            preference=NodeSelectorTerm(
                (SelectorRequirement(key=ZONE_LABEL, operator="In", values=(zone,)),)
            ),
        )
        for at, zone in enumerate(zones)
    )
    return Affinity(
        node_affinity=NodeAffinity(preferred_during_scheduling_ignored_during_execution=liked),
        pod_affinity=group() if draw(st.booleans()) else None,
        pod_anti_affinity=group() if draw(st.booleans()) else None,
    )


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "cpu": draw(st.sampled_from(["100m", "500m", "1", "3", "12", "40"])),
        "memory": draw(st.sampled_from(["100Mi", "3Gi", "20Gi"])),
        "labels": {"app": draw(apps)},
    }
    if draw(st.booleans()):
        spec["affinity"] = draw(affinities())
    if draw(st.booleans()):
        hard = draw(st.booleans())
        spec["topology_spread_constraints"] = (even(draw(keys), hard=hard, app=draw(apps)),)
    if draw(st.booleans()):
        spec["node_selector"] = {ZONE_LABEL: draw(st.sampled_from(["z1", "z2"]))}
    if draw(st.booleans()):
        spec["tolerations"] = (Toleration(key="x", operator="Exists"),)
    return spec


@st.composite
def pools(draw: st.DrawFn) -> list[NodePool]:
    made = []
    for at in range(draw(st.integers(1, 2))):
        template = NodeTemplate(taints=draw(taints))
        spot = draw(st.sampled_from(["Never", "Preferred", "Always"]))
        made.append(pool(f"pool{at}", weight=10 - at, template=template, spot=spot))
    return made


@given(
    pools(),
    st.lists(specs(), min_size=1, max_size=12),
    st.lists(st.tuples(st.sampled_from(["z1", "z2"]), taints), max_size=3),
    st.lists(specs(), max_size=4),
)
def test_scaler_equals_its_reference(
    wanted: list[NodePool],
    waiting: list[dict[str, Any]],
    nodes: list[tuple[str, tuple[Taint, ...]]],
    running: list[dict[str, Any]],
) -> None:
    packed = [PackedPool(each, (SMALL, MIDDLE, LARGE), CapacityMemory()) for each in wanted]
    there = [
        node(f"n{at}", cpu="4", zone=zone, taints=tainted)
        for at, (zone, tainted) in enumerate(nodes)
    ]
    run = [
        pod(f"r{at}", node=f"n{at % len(there)}", **spec)
        for at, spec in enumerate(running)
        if there
    ]
    wait = [pod(f"p{at}", **spec) for at, spec in enumerate(waiting)]

    reference = Reference(packed, there, run, wait)
    reference.pack()
    scaler = PackingNodeScaler(packed, ClusterState(nodes=there))
    found = scaler.compute([], [*run, *wait], now=NOW)

    assert sorted(skip.pod for skip in found.skip) == sorted(reference.unplaced)
    kept = {place.name: place.names for place in reference.bins if not place.planned}
    for binding in found.bind:
        if binding.machine in kept:
            assert binding.pod in kept[binding.machine]
    ordered = [place for place in reference.bins if place.planned]
    assert [list(start.pods) for start in found.start] == [place.names for place in ordered]
    for start, place in zip(found.start, ordered, strict=True):
        ways = {(o.kind, o.zone, o.spot) for o in place.options}
        assert {(c.instance_type, c.zone, c.spot) for c in start.spec.candidates} == ways
        cheapest = place.options[0]
        assert (start.spec.instance_type, start.spec.spot) == (cheapest.kind, cheapest.spot)
