"""What is there already: nodes, and machines that boot as the nodes that they will be."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from grange.api.kinds.machine import (
    DEDICATED_TAINT,
    PLANNED_PODS_ANNOTATION,
    STARTUP_TAINT,
    Machine,
)
from grange.api.kinds.node import Node, Taint, is_ready
from grange.api.kinds.pod import Pod
from grange.api.kinds.podgroup import PodGroup
from grange.api.machine_phases import MachinePhase
from grange.api.pod_requests import Resources, allocatable, pod_request
from grange.api.quantity import QuantityError
from grange.machines.catalogue import Offering
from grange.machines.scaling.lease_needs import LeaseNeed
from grange.machines.scaling.machine_facts import is_spot, type_of, zone_of
from grange.machines.scaling.node_match import nodes_of
from grange.machines.scaling.packing_options import MachineOptions, PackedPool, option_labels
from grange.placement import node_rules, taint_toleration
from grange.placement.node_usage import amount_of
from grange.placement.podaffinity import Namespaces
from grange.placement.spread import HOSTNAME

_P = MachinePhase
_BOOTING = frozenset({_P.CREATING, _P.CREATED, _P.STOPPED})
_PASSING = frozenset({STARTUP_TAINT, "node.kubernetes.io/not-ready"})
"""Taints of nodes that boot, which end by themselves."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What a decision about shared machines takes into account apart from machines and pods.

    Attributes:
        nodes: all of them, those of no machine, too.
        groups: PodGroups.
        namespaces: labels of each.
        daemons: a pod of each kind that every node gets.
        leases: that machines are to be made for.
    """

    nodes: Sequence[Node] = ()
    groups: Sequence[PodGroup] = ()
    namespaces: Namespaces = field(default_factory=dict)
    daemons: Sequence[Pod] = ()
    leases: Sequence[LeaseNeed] = ()

    def overhead(self, labels: Mapping[str, str], taints: Sequence[Taint]) -> Resources:
        """What daemons take of a node with these labels and taints."""
        total: dict[str, int] = {}
        cpu = memory = ephemeral = pods = 0
        for daemon in self.daemons:
            spec = daemon.spec
            if taint_toleration.first_untolerated(taints, spec.tolerations) is not None:
                continue
            if not node_rules.matches(node_rules.of_pod(spec), "", labels):
                continue
            need = pod_request(spec).resources
            cpu, memory = cpu + need.cpu_milli, memory + need.memory_bytes
            ephemeral, pods = ephemeral + need.ephemeral_bytes, pods + 1
            for name, amount in need.scalars.items():
                total[name] = total.get(name, 0) + amount
        return Resources(cpu, memory, ephemeral, pods, total)


@dataclass(slots=True)
class PackingHost:
    """A node, or a machine that will be one.

    Attributes:
        name: of the node.
        node: labels and taints that it has or will have.
        room: what pods can have, by column.
        machine: name of the machine of a packed pool that it is; empty for none.
        booting: it is not there yet.
        stopped: it has to be switched on first.
        planned: UIDs of the pods that it was ordered for.
    """

    name: str
    node: Node
    room: list[int]
    machine: str = ""
    booting: bool = False
    stopped: bool = False
    planned: frozenset[str] = frozenset()

    @property
    def order(self) -> tuple[bool, bool, str, str]:
        """Those that are there first, then those that boot, then those to be switched on.

        Of these the oldest: pods stay on a machine that was switched on for them, and the one that
        replaces it in standby is left free.
        """
        created = self.node.metadata.creation_timestamp or ""
        return (self.stopped, self.booting, created, self.name)


def hosts_of(
    machines: Iterable[Machine], cluster: ClusterState, options: MachineOptions
) -> list[PackingHost]:
    """What can take pods now or will, in the order in which it is tried."""
    pools = {pool.name: pool for pool in options.pools}
    nodes = {node.metadata.name: node for node in cluster.nodes}
    records = {machine.metadata.name: machine for machine in machines}
    own = nodes_of(records.values(), cluster.nodes)
    found: list[PackingHost] = []
    for name, machine in records.items():
        node = own.get(name)
        if node is not None:
            nodes.pop(node.metadata.name, None)
        pool = pools.get(machine.spec.pool)
        if pool is None or machine.is_ending:
            continue
        if machine.phase is _P.AVAILABLE:
            if node is not None and _serves(node):
                found.append(_host_of(node, options, machine, pool))
        elif machine.phase in _BOOTING:
            host = _booting(machine, node, pool, cluster, options)
            if host is not None:
                found.append(host)
    found += [_host_of(node, options) for node in nodes.values() if _serves(node)]
    return sorted(found, key=lambda host: host.order)


def seen_rooms(
    machines: Iterable[Machine], nodes: Iterable[Node]
) -> dict[tuple[str, str], Resources]:
    """What nodes of a pool and type really offer; of several the least of each resource."""
    records = {each.metadata.name: each for each in machines}
    found: dict[tuple[str, str], Resources] = {}
    for name, node in nodes_of(records.values(), nodes).items():
        kind = records[name].spec.pool, type_of(records[name])
        if not node.status.allocatable:
            continue
        try:
            offered = allocatable(node.status.allocatable)
        except QuantityError:
            continue
        found[kind] = _least(found.get(kind, offered), offered)
    return found


def node_domains(node: Node) -> dict[str, str]:
    """The labels of a node, with its name as its host."""
    return {HOSTNAME: node.metadata.name, **node.metadata.labels}


def _serves(node: Node) -> bool:
    """Whether the scheduler may use it for more than its present pods."""
    return (
        is_ready(node)
        and not node.spec.unschedulable
        and node.metadata.deletion_timestamp is None
        and all(taint.key != DEDICATED_TAINT for taint in node.spec.taints)
    )


def _host_of(
    node: Node,
    options: MachineOptions,
    machine: Machine | None = None,
    pool: PackedPool | None = None,
) -> PackingHost:
    try:
        room = options.node_vector(allocatable(node.status.allocatable))
    except QuantityError:
        room = [0] * len(options.names)
    startup = () if pool is None else pool.pool.spec.template.startup_taints
    return PackingHost(
        node.metadata.name,
        _without(node, startup),
        room,
        machine="" if machine is None else machine.metadata.name,
        planned=frozenset() if machine is None else _planned(machine),
    )


def _booting(
    machine: Machine,
    node: Node | None,
    pool: PackedPool,
    cluster: ClusterState,
    options: MachineOptions,
) -> PackingHost | None:
    """The node that a machine will be; None where its types are not in the catalogue any more."""
    kinds = {kind.name: kind for kind in pool.catalogue}
    ways = [(type_of(machine), Offering(zone_of(machine), is_spot(machine)))]
    if not machine.status.instance_type and machine.spec.candidates:
        ways = [
            (each.instance_type, Offering(each.zone, each.spot)) for each in machine.spec.candidates
        ]
    labels: dict[str, str] | None = None
    room: list[int] | None = None
    for name, offering in ways:
        kind = kinds.get(name)
        if kind is None:
            continue
        own = option_labels(pool.pool, kind, offering)
        labels = own if labels is None else {k: v for k, v in labels.items() if own.get(k) == v}
        total = options.room_of(pool.pool, kind, {})
        room = total if room is None else [min(a, b) for a, b in zip(room, total, strict=True)]
    if labels is None or room is None:
        return None
    # What is really there counts more, as far as it is there.
    labels = {**labels, **machine.spec.labels, **(node.metadata.labels if node is not None else {})}
    if node is not None and node.status.allocatable:
        room = options.node_vector(allocatable(node.status.allocatable))
    startup = {(taint.key, taint.effect) for taint in pool.pool.spec.template.startup_taints}
    taints = tuple(each for each in machine.spec.taints if (each.key, each.effect) not in startup)
    taken = options.vector(cluster.overhead(labels, taints))
    name = machine.node if node is None else node.metadata.name
    future = Node(
        metadata=msgspec.structs.replace(machine.metadata, labels={HOSTNAME: name, **labels}),
        spec=msgspec.structs.replace(Node().spec, taints=taints),
    )
    return PackingHost(
        name,
        future,
        [have - need for have, need in zip(room, taken, strict=True)],
        machine=machine.metadata.name,
        booting=True,
        stopped=machine.phase is _P.STOPPED,
        planned=_planned(machine),
    )


def _without(node: Node, startup: Sequence[Taint]) -> Node:
    """The node without taints that end by themselves."""
    ending = {(taint.key, taint.effect) for taint in startup}
    taints = tuple(
        each
        for each in node.spec.taints
        if each.key not in _PASSING and (each.key, each.effect) not in ending
    )
    if len(taints) == len(node.spec.taints):
        return node
    spec = msgspec.structs.replace(node.spec, taints=taints)
    return msgspec.structs.replace(node, spec=spec)


def _planned(machine: Machine) -> frozenset[str]:
    given = machine.metadata.annotations.get(PLANNED_PODS_ANNOTATION, "")
    return frozenset(filter(None, given.split(",")))


def _least(one: Resources, other: Resources) -> Resources:
    return Resources(
        min(one.cpu_milli, other.cpu_milli),
        min(one.memory_bytes, other.memory_bytes),
        min(one.ephemeral_bytes, other.ephemeral_bytes),
        min(one.pods, other.pods),
        {
            name: min(amount_of(one, name), amount_of(other, name))
            for name in {**one.scalars, **other.scalars}
        },
    )
