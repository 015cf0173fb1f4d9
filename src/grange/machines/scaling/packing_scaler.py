"""Many pods a machine: which waiting pods fit what is there, and what to order for the others.

The order is Karpenter's: the largest pods first, each on what is there, then on machines that are planned
already, then on a new one of the heaviest pool. A planned machine stays every instance type that
holds its pods, so that it grows as long as any does; it is ordered with the cheapest of these, and
the others as alternatives. Unlike there planned machines are tried in the order in which they were
planned, which packs tighter, and pods that a machine was ordered for count on it first, so that
no restart orders it again.
"""

from collections.abc import Collection, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

from grange.api.kinds.machine import (
    PLANNED_LEASE_ANNOTATION,
    PLANNED_PODS_ANNOTATION,
    Machine,
    MachineOffering,
    MachineResources,
)
from grange.api.kinds.machinelease import MACHINE_LEASE
from grange.api.kinds.nodepool import SPOT_PREFERRED
from grange.api.kinds.pod import Pod, condition
from grange.api.kinds.queue import QUEUE_LABEL
from grange.api.pod_requests import Resources, pod_request
from grange.api.quantity import QuantityError
from grange.api.selectors import SelectorError
from grange.base.first_few import first_few
from grange.machines.scaling.instance_selector import CANDIDATES_MAX
from grange.machines.scaling.machine_specs import machine_name, machine_spec
from grange.machines.scaling.packing_bins import PackingBins, PlannedMachine
from grange.machines.scaling.packing_hosts import (
    ClusterState,
    hosts_of,
    node_domains,
    seen_rooms,
)
from grange.machines.scaling.packing_leases import reserve_machines
from grange.machines.scaling.packing_limits import PoolAllowance
from grange.machines.scaling.packing_options import MachineOptions, PackedPool
from grange.machines.scaling.packing_pods import (
    PackedPod,
    PodRules,
    is_daemon,
    occupies,
    packed_pod,
    selected_pool,
    waits_for_machine,
)
from grange.machines.scaling.packing_reasons import why_unplaced
from grange.machines.scaling.packing_standby import is_off, order_standby
from grange.machines.scaling.packing_topology import PackingTopology
from grange.machines.scaling.packing_units import PackingUnit, all_rules, units_of
from grange.machines.scaling.pod_needs import UnusableNeed
from grange.machines.scaling_plan import MachineStart, PodBinding, PodSkip, ScalingPlan
from grange.placement import podaffinity
from grange.placement.node_usage import asked_amounts
from grange.placement.podaffinity import Term
from grange.placement.ports_and_disks import NO_HOLDINGS, Holdings, held, host_ports

_OVER_QUOTA = "over quota of "
_NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class PackingResult:
    """Where pods went.

    Attributes:
        bins: hosts and planned machines with their pods.
        unplaced: units that fit nowhere.
        skips: pods that were not tried.
        known: names of all machines.
    """

    bins: PackingBins
    unplaced: Sequence[PackingUnit]
    skips: Sequence[PodSkip]
    known: Container[str] = ()


class _PlacedPod(NamedTuple):
    """What counts of a pod that has a node."""

    pod: Pod
    node: str
    namespace: str
    labels: tuple[tuple[str, str], ...]
    request: Resources | None
    ports: Holdings
    avoided: tuple[Term, ...]


class PackingNodeScaler:
    """Decides which machines the packed pools need. Pure: nothing is written or called.

    Args:
        pools: all packed pools: which one serves a pod is part of the decision.
        cluster: what else there is.
    """

    def __init__(self, pools: Sequence[PackedPool], cluster: ClusterState | None = None) -> None:
        self._pools = pools
        self._cluster = cluster or ClusterState()
        # Packing is repeated with other pods when machines are taken away in thought.
        self._options: tuple[object, MachineOptions] | None = None
        self._facts: dict[int, _PlacedPod] = {}

    def compute(
        self, nodes: Sequence[Machine], pods: Sequence[Pod], *, now: datetime
    ) -> ScalingPlan:
        """A plan for the pools; see ``ScalingAlgorithm``."""
        waiting = [pod for pod in pods if waits_for_machine(pod)]
        result = self.pack(nodes, pods, waiting, now=now)
        bins, occupied = result.bins, {occupies(pod) for pod in pods if not is_daemon(pod)}
        reserve, skip = reserve_machines(bins, self._cluster.leases, occupied)
        reserved = {each.machine for each in reserve}
        refused, stop = order_standby(bins, _free(bins, nodes, occupied | reserved), now)
        plan = self.plan_of(result, now)
        resume = [host.name for host in bins.hosts if host.stopped and host.name in reserved]
        return replace(
            plan,
            skip=(*plan.skip, *skip, *refused),
            stop=tuple(stop),
            resume=(*plan.resume, *resume),
            reserve=tuple(reserve),
        )

    # --- packing -------------------------------------------------------------------------------------

    def pack(
        self,
        nodes: Sequence[Machine],
        pods: Sequence[Pod],
        waiting: Sequence[Pod],
        *,
        now: datetime,
        keep_others: bool = False,
    ) -> PackingResult:
        """Put pods where they fit.

        Args:
            nodes: machines.
            pods: all pods; those on nodes count there.
            waiting: pods to place, whatever their conditions.
            now: wall time.
            keep_others: pods that select a pool that is not packed are skipped with a reason, not left out.
        """
        asking, skips = self._asking(waiting, keep_others=keep_others)
        placed = [pod for pod in pods if occupies(pod)]
        units, refused = units_of(asking, self._cluster.groups, placed)
        skips += [PodSkip(pod.name, pod.uid, reason) for pod, reason in refused]
        bins = self._bins(nodes, placed, units, now)
        self._honour_planned(bins, units)
        unplaced = self._place_all(bins, units)
        return PackingResult(bins, unplaced, skips, {node.metadata.name for node in nodes})

    def _asking(
        self, waiting: Iterable[Pod], *, keep_others: bool
    ) -> tuple[list[PackedPod], list[PodSkip]]:
        names = {pool.name for pool in self._pools}
        found: list[PackedPod] = []
        skips: list[PodSkip] = []
        for pod in waiting:
            if (selected := selected_pool(pod)) and selected not in names:
                # Of a pool whose machines are not shared.
                if keep_others:
                    skips.append(PodSkip(str(pod.key), pod.metadata.uid, f"no pool {selected}"))
                continue
            refusal = _over_quota(pod)
            pools = (selected,) if selected else ()
            if refusal:
                skips.append(PodSkip(str(pod.key), pod.metadata.uid, refusal, pools))
                continue
            try:
                found.append(packed_pod(pod))
            except UnusableNeed as error:
                skips.append(PodSkip(str(pod.key), pod.metadata.uid, str(error), pools))
        return found, skips

    def _bins(
        self,
        machines: Sequence[Machine],
        placed: Sequence[Pod],
        units: Sequence[PackingUnit],
        now: datetime,
    ) -> PackingBins:
        cluster = self._cluster
        scalars = {
            name
            for unit in units
            for pod in unit.pods
            for name, _ in asked_amounts(pod.request)
            if "/" in name or name.startswith(("hugepages-", "attachable-volumes-"))
        }
        options = self._options_for(machines, sorted(scalars), now)
        allowances = [PoolAllowance(pool, options, machines) for pool in options.pools]
        hosts = hosts_of(machines, cluster, options)
        bins: PackingBins

        def domains(rules: PodRules, key: str) -> frozenset[str]:
            return bins.domains(rules, key)

        topology = PackingTopology(cluster.namespaces, domains)
        bins = PackingBins(hosts, options, allowances, topology)
        self._count(bins, placed, units)
        return bins

    def _options_for(
        self, machines: Sequence[Machine], scalars: Sequence[str], now: datetime
    ) -> MachineOptions:
        seen = seen_rooms(machines, self._cluster.nodes)
        rooms = [
            (kind, room.cpu_milli, room.memory_bytes, room.pods) for kind, room in seen.items()
        ]
        key = (now, tuple(scalars), tuple(rooms))
        if self._options is None or self._options[0] != key:
            overhead = self._cluster.overhead
            made = MachineOptions(self._pools, scalars, overhead=overhead, seen=seen, now=now)
            self._options = (key, made)
        return self._options[1]

    def _fact(self, pod: Pod) -> _PlacedPod:
        found = self._facts.get(id(pod))
        if found is None:
            found = self._facts[id(pod)] = _placed_pod(pod)
        return found

    def _count(
        self, bins: PackingBins, placed: Sequence[Pod], units: Sequence[PackingUnit]
    ) -> None:
        """Count the pods that are on nodes already."""
        facts = [self._fact(pod) for pod in placed]
        bins.topology.prepare(all_rules(units), (term for each in facts for term in each.avoided))
        bins.topology.expect(pod for unit in units for pod in unit.pods)
        labels = {node.metadata.name: node_domains(node) for node in self._cluster.nodes}
        for each in facts:
            domains = labels.get(each.node, {})
            bins.topology.count(each.namespace, each.labels, each.avoided, domains)
            row = bins.row_of.get(each.node)
            if row is not None and each.request is not None:
                bins.occupy(row, each.request, each.ports)

    def _honour_planned(self, bins: PackingBins, units: Sequence[PackingUnit]) -> None:
        """Put pods on the machines that were ordered for them, if they still suit."""
        host_of = {
            uid: row for row, host in enumerate(bins.hosts) if host.booting for uid in host.planned
        }
        for unit in units if host_of else ():
            mark = bins.mark()
            placed: list[PackedPod] = []
            for pod in unit.pods:
                row = host_of.get(pod.uid)
                if row is not None and any(bins.place_on(row, pod, rules) for rules in pod.steps):
                    placed.append(pod)
            # Members of a gang that was ordered for as a whole count one by one, as they did then.
            if len(placed) < len(unit.pods) and not unit.enough(placed):
                bins.go_back(mark)
                placed = []
            unit.done(placed)

    def _place_all(self, bins: PackingBins, units: Sequence[PackingUnit]) -> list[PackingUnit]:
        """Place units until nothing fits any more, dropping preferences one at a time; those that are left."""
        limited = not all(allowance.unlimited for allowance in bins.allowances)
        # Where not all can be had, the more important ones get it.
        queue = sorted(
            (unit for unit in units if unit.pods),
            key=lambda unit: (
                -unit.priority if limited else 0,
                bins.topology.first_of(unit.pods[0]),
                unit.order,
            ),
        )
        position = {id(unit): at for at, unit in enumerate(queue)}
        parked: list[PackingUnit] = []  # only more room or fewer preferences help these
        while queue:
            left = [unit for unit in queue if not self._place(bins, unit)]
            progress = len(left) < len(queue)
            queue = [unit for unit in left if unit.depends]
            parked += [unit for unit in left if not unit.depends]
            if progress and queue:
                continue
            queue = sorted((*queue, *parked), key=lambda unit: position[id(unit)])
            parked = []
            if not bins.shrink() and not _relaxed(queue):
                return queue
        return []

    def _place(self, bins: PackingBins, unit: PackingUnit) -> bool:
        if len(unit.pods) == 1 and unit.needed == 1 and not unit.domain_key:
            pod = unit.pods[0]
            rules = unit.rules(pod)
            return bins.place(pod, rules, bins.topology.rules_of(rules).begun())
        for domain in self._domains(bins, unit):
            mark = bins.mark()
            placed = [pod for pod in unit.pods if bins.place(pod, unit.rules(pod, domain))]
            if unit.enough(placed):
                unit.domain = domain
                unit.done(placed)
                return not unit.pods
            bins.go_back(mark)
        return False

    def _domains(self, bins: PackingBins, unit: PackingUnit) -> Sequence[str]:
        """The domains in which a unit may be as a whole; ``("",)`` for anywhere."""
        key = unit.domain_key
        if not key:
            return ("",)
        if unit.domain:
            return (unit.domain,)
        if unit.placed_on:
            there = {node.metadata.name: node_domains(node) for node in self._cluster.nodes}
            fixed = {there.get(name, {}).get(key, "") for name in unit.placed_on}
            return sorted(fixed - {""})[:1]
        return sorted(bins.domains(unit.rules(unit.pods[0]), key))

    # --- the plan ------------------------------------------------------------------------------------

    def plan_of(self, result: PackingResult, now: datetime) -> ScalingPlan:
        """What to do so that pods get the places that they were put in."""
        bins = result.bins
        bind: list[PodBinding] = []
        resume: list[str] = []
        for host, pods in zip(bins.hosts, bins.taken, strict=True):
            if host.stopped and pods:
                resume.append(host.machine)
            reason = _why_host(booting=host.booting, stopped=host.stopped)
            for pod in pods:
                kept, where = pod.uid in host.planned, host.machine or host.name
                bind.append(PodBinding(pod.name, pod.uid, where, reason, kept=kept))
        start: list[MachineStart] = []
        for at, machine in enumerate(bins.planned):
            order = _order(bins, machine, result.known, f"{now.isoformat()}/{at}")
            start.append(order)
            bind += [
                PodBinding(pod.name, pod.uid, order.name, "ordered for it") for pod in machine.pods
            ]
        skip = [
            PodSkip(pod.name, pod.uid, *why_unplaced(bins, unit, pod))
            for unit in result.unplaced
            for pod in unit.pods
        ]
        return ScalingPlan(
            start=tuple(start),
            bind=tuple(bind),
            skip=(*result.skips, *skip),
            resume=tuple(resume),
        )


def _relaxed(units: Iterable[PackingUnit]) -> bool:
    """Drop one preference of each; whether there was any."""
    dropped = [unit.relax() for unit in units]
    return any(dropped)


def _order(
    bins: PackingBins, machine: PlannedMachine, known: Container[str], seed: str
) -> MachineStart:
    options = bins.options
    pool = options.pools[machine.pool]
    rows = [options.rows[int(row)] for row in machine.rows]
    if pool.pool.spec.spot == SPOT_PREFERRED:
        # Some room is left for what is on demand.
        spot = [row for row in rows if row.offering.spot]
        other = [row for row in rows if not row.offering.spot]
        most = CANDIDATES_MAX // 2 if other else CANDIDATES_MAX
        rows = [*spot[: max(most, CANDIDATES_MAX - len(other))], *other]
    candidates = [
        MachineOffering(
            row.kind.name, row.offering.zone, row.offering.spot, f"{row.offering.price}"
        )
        for row in rows[:CANDIDATES_MAX]
    ]
    zones = {each.zone for each in candidates}
    used = machine.used
    others = [f"{name}={n}" for name, n in zip(options.names[4:], used[4:], strict=True) if n]
    resources = MachineResources(
        cpu=f"{used[0]}m" if used[0] else "",
        memory=f"{used[1]}" if used[1] else "",
        gpu=",".join(others),
        volume_size=pool.pool.spec.volume.default_size,
    )
    spec = machine_spec(
        pool.pool,
        candidates,
        resources,
        zone=zones.pop() if len(zones) == 1 else "",
        boot_image=pool.boot_image,
        template_hash=pool.template_hash,
    )
    if (need := machine.lease) is not None:
        name = machine_name(pool.pool, known, need.uid, seed)
        annotations = {PLANNED_LEASE_ANNOTATION: need.uid}
        reason = f"{need.name} waits"
        return MachineStart(name, spec, reason=reason, lease_uid=need.uid, annotations=annotations)
    if not machine.pods:
        name = machine_name(pool.pool, known, "standby", seed)
        return MachineStart(name, spec, (), "", "standby")
    names = [pod.name for pod in machine.pods]
    shown = first_few(names, _NAMED_MAX)
    return MachineStart(
        machine_name(pool.pool, known, *(pod.uid for pod in machine.pods), seed),
        spec,
        tuple(names),
        "",
        f"{'pods' if len(names) > 1 else 'pod'} {shown} wait{'' if len(names) > 1 else 's'}",
        annotations={PLANNED_PODS_ANNOTATION: ",".join(pod.uid for pod in machine.pods)},
    )


def _free(
    bins: PackingBins, machines: Iterable[Machine], occupied: Collection[str]
) -> list[Machine]:
    """Machines that can take pods and have none, nor are any meant for them; and those being switched off.

    One that a MachineLease has is its holder's, pods or not.

    Args:
        bins: with all that has found a place.
        machines: of the pools.
        occupied: names of nodes that have pods or are kept for leases.
    """
    taken = {*occupied}
    taken |= {host.name for host in bins.hosts if MACHINE_LEASE in host.node.metadata.labels}
    taken |= {host.name for host, given in zip(bins.hosts, bins.taken, strict=True) if given}
    return [
        machine
        for machine in machines
        if machine.node not in taken and (machine.node in bins.row_of or is_off(machine))
    ]


def _why_host(*, booting: bool, stopped: bool) -> str:
    if stopped:
        return "switched on for it"
    return "fits the machine that boots" if booting else "fits the node"


def _placed_pod(pod: Pod) -> _PlacedPod:
    try:
        request = pod_request(pod.spec).resources
    except QuantityError:
        request = None  # the API server accepts none of these
    return _PlacedPod(
        pod,
        occupies(pod),
        pod.metadata.namespace,
        tuple(sorted(pod.metadata.labels.items())),
        request,
        held(NO_HOLDINGS, host_ports(pod.spec)),
        _anti_affinity(pod),
    )


def _anti_affinity(pod: Pod) -> tuple[Term, ...]:
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None:
        return ()
    try:
        return podaffinity.of_pod(pod).anti_affinity
    except SelectorError:
        return ()  # the API server accepts none of these


def _over_quota(pod: Pod) -> str:
    """Why no machine helps a pod: it waits for the quota of its queue. Empty if it does not."""
    if QUEUE_LABEL not in pod.metadata.labels:
        return ""
    found = condition(pod, "PodScheduled")
    message = "" if found is None else found.message
    return f"it waits for quota: {message}" if _OVER_QUOTA in message else ""
