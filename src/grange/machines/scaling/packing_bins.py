"""Hosts and planned machines that pods are put on, one pod at a time, with the way back.

A planned machine is every row of the options that holds its pods; each pod may rule out some of them. What
it becomes is decided last, so that it grows as long as any type holds it all.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from grange.api.pod_requests import Resources
from grange.machines.scaling.lease_needs import LeaseNeed
from grange.machines.scaling.packing_hosts import PackingHost, node_domains
from grange.machines.scaling.packing_limits import PoolAllowance
from grange.machines.scaling.packing_options import MachineOptions
from grange.machines.scaling.packing_pods import PackedPod, PodRules
from grange.machines.scaling.packing_topology import PackingTopology, TopologyRules
from grange.placement import kernels, taint_toleration
from grange.placement.columns import ABSENT, Integers, Mask, NodeTable
from grange.placement.ports_and_disks import NO_HOLDINGS, Holdings, conflict, held
from grange.placement.spread import HOSTNAME

_GROWTH = 256


@dataclass(slots=True, eq=False)
class PlannedMachine:
    """A machine to order.

    Attributes:
        pool: index of its pool.
        host: a name that stands for its own until it has one.
        rows: of options that it may become, the one to take first.
        used: what its pods request, by column.
        pods: that it is for.
        ports: of the host that they use.
        charge: what it counts against the limits of its pool.
        lease: that it is for; None for none.
    """

    pool: int
    host: str
    rows: Integers
    used: Integers
    charge: Integers
    pods: list[PackedPod] = field(default_factory=list)
    ports: Holdings = field(default_factory=lambda: NO_HOLDINGS)
    lease: LeaseNeed | None = None


@dataclass(slots=True, eq=False)
class RulesView:
    """What pods of equal rules may use.

    Attributes:
        hosts: mask over hosts.
        rows: of options that match and can be had now.
        topology: see there.
        refused: planned machines that cannot suit, since rows only become fewer.
    """

    hosts: Mask
    rows: Integers
    mask: Mask
    topology: TopologyRules
    refused: Mask


class _Placing:
    """A pod that is placed: its rules, what it needs, and the room that its place must have."""

    __slots__ = ("need", "pod", "room", "rules", "view")

    def __init__(
        self,
        pod: PackedPod,
        rules: PodRules,
        view: RulesView,
        need: Integers,
        room: Integers | None = None,
    ) -> None:
        self.pod = pod
        self.rules = rules
        self.view = view
        self.need = need
        self.room = need if room is None else room


class PackingBins:
    """The bins.

    Args:
        hosts: what is there, in the order in which it is tried.
        options: what can be ordered.
        allowances: of the pools, in the order of the options' pools.
        topology: counts of domains; its groups are fixed later, before the first pod.
    """

    def __init__(
        self,
        hosts: Sequence[PackingHost],
        options: MachineOptions,
        allowances: Sequence[PoolAllowance],
        topology: PackingTopology,
    ) -> None:
        self.hosts = hosts
        self.options = options
        self.allowances = allowances
        self.topology = topology
        self.planned: list[PlannedMachine] = []
        self.row_of = {host.name: at for at, host in enumerate(hosts)}
        self.taken: list[list[PackedPod]] = [[] for _ in hosts]
        self._table = NodeTable()
        for host in hosts:
            self._table.put_node(host.node, Resources())
        width = len(options.names)
        self._free: Integers = np.asarray([host.room for host in hosts], np.int64)
        self._free = self._free.reshape(len(hosts), width)
        self._ports: list[Holdings] = [NO_HOLDINGS] * len(hosts)
        self._domains = [node_domains(host.node) for host in hosts]
        self._left: Integers = np.zeros((_GROWTH, width), np.int64)  # of the largest row of each
        self._views: dict[PodRules, RulesView] = {}
        self._needs: dict[int, tuple[Resources, Integers]] = {}
        self._undo: list[Callable[[], None]] = []
        # Views and requests that fitted nowhere: bins only become fuller, until something is undone.
        self._failed: set[tuple[int, int]] = set()

    # --- what is known of pods -----------------------------------------------------------------------

    def need(self, request: Resources) -> Integers:
        """A request by column."""
        found = self._needs.get(id(request))
        if found is None:
            vector = self.options.vector(request)
            vector[3] = 1
            found = self._needs[id(request)] = (request, np.asarray(vector, np.int64))
        return found[1]

    def view(self, rules: PodRules) -> RulesView:
        """What pods of these rules may use."""
        found = self._views.get(rules)
        if found is None:
            mask = self.options.matching(rules) & self.options.tolerated(rules)
            mask &= self.options.available
            found = self._views[rules] = RulesView(
                self.host_mask(rules),
                np.flatnonzero(mask),
                mask,
                self.topology.rules_of(rules),
                np.zeros(len(self._left), np.bool_),
            )
        if len(found.refused) < len(self._left):
            found.refused = np.concatenate(
                [found.refused, np.zeros(len(self._left) - len(found.refused), np.bool_)]
            )
        return found

    def host_mask(self, rules: PodRules) -> Mask:
        """The hosts whose labels and taints suit a pod."""
        table = self._table
        mask: Mask = kernels.matches(table, table.all, rules.nodes)
        mask &= kernels.untainted(table, table.all, rules.tolerations)
        if rules.avoids:
            avoided = [
                bool(taint_toleration.count_intolerable_preferences(taints, rules.tolerations))
                for taints in table.taint_sets
            ]
            if any(avoided):
                mask &= ~np.asarray(avoided, np.bool_)[table.taint_set[table.all]]
        return mask

    def occupy(self, row: int, request: Resources, ports: Holdings) -> None:
        """Count a pod that is on a host already."""
        self._free[row] -= self.need(request)
        if ports:
            self._ports[row] = held(self._ports[row], ports)

    # --- placing -------------------------------------------------------------------------------------

    def place_on(self, host: int, pod: PackedPod, rules: PodRules) -> bool:
        """Put a pod on a host, if it fits there."""
        view = self.view(rules)
        if not view.hosts[host]:
            return False
        return self._on_host(host, _Placing(pod, rules, view, self.need(pod.request)))

    def place(self, pod: PackedPod, rules: PodRules, with_it: Resources | None = None) -> bool:
        """Put a pod somewhere, if it fits anywhere.

        Args:
            pod: which.
            rules: of its steps, or narrower.
            with_it: what all pods request, itself included, that will have to follow it to its host;
                a place that holds them all is preferred.
        """
        view, need = self.view(rules), self.need(pod.request)
        shape = (id(view), id(pod.request))
        if shape in self._failed:
            return False
        if with_it is not None:
            room = np.asarray(self.options.vector(with_it), np.int64)
            if self._put_first(_Placing(pod, rules, view, need, room)):
                return True
        placed = self._put_first(_Placing(pod, rules, view, need))
        if not placed and not view.topology.matters:
            self._failed.add(shape)
        return placed

    def _put_first(self, what: _Placing) -> bool:
        return self._on_hosts(what) or self._on_planned(what) or self._on_new(what)

    def _on_hosts(self, what: _Placing) -> bool:
        if not len(self.hosts):
            return False
        fits = what.view.hosts & (self._free >= what.room).all(axis=1)
        return any(self._on_host(int(row), what) for row in np.flatnonzero(fits))

    def _on_host(self, row: int, what: _Placing) -> bool:
        ports, wanted, topology = self._ports[row], what.rules.ports, what.view.topology
        if not (self._free[row] >= what.need).all() or conflict(ports, wanted):
            return False
        domains = self._domains[row]
        if topology.matters and not topology.allows_host(domains.get):
            return False
        self._free[row] -= what.need
        self.taken[row].append(what.pod)
        if wanted:
            self._ports[row] = held(ports, wanted)
        topology.count(domains.get, 1)

        def undo() -> None:
            self._free[row] += what.need
            self.taken[row].pop()
            self._ports[row] = ports
            topology.count(domains.get, -1)

        self._undo.append(undo)
        return True

    def _on_planned(self, what: _Placing) -> bool:
        number = len(self.planned)
        if not number:
            return False
        fits = (self._left[:number] >= what.room).all(axis=1) & ~what.view.refused[:number]
        return any(self._on_one(int(at), what) for at in np.flatnonzero(fits))

    def _on_one(self, at: int, what: _Placing) -> bool:
        machine, options, view = self.planned[at], self.options, what.view
        if not view.topology.allows(HOSTNAME, machine.host):
            return False
        rows = machine.rows[view.mask[machine.rows]]
        if not len(rows):
            view.refused[at] = True
            return False
        rows = rows[(options.room[rows] >= machine.used + what.room).all(axis=1)]
        if not len(rows) or conflict(machine.ports, what.rules.ports):
            return False
        rows = self._narrowed(rows, view.topology)
        if not len(rows) or self._loses_spot(machine.rows, rows):
            return False
        self._put(machine, at, what, rows)
        return True

    def _loses_spot(self, before: Integers, after: Integers) -> bool:
        """Whether spot machines, which are preferred, were possible until now."""
        rows = self.options.rows
        return rows[before[0]].offering.spot and not rows[after[0]].offering.spot

    def _on_new(self, what: _Placing) -> bool:
        view, host = what.view, f"/{len(self.planned)}"
        if not view.topology.allows(HOSTNAME, host):
            return False
        rows = view.rows[(self.options.room[view.rows] >= what.room).all(axis=1)]
        while len(rows):
            pool = int(self.options.pool_of[rows[0]])
            own = self.options.pool_of[rows] == pool
            usable = self._narrowed(self.allowances[pool].within(rows[own]), view.topology)
            if len(usable):
                self._add(pool, host, usable)
                self._put(self.planned[-1], len(self.planned) - 1, what, usable)
                return True
            rows = rows[~own]
        return False

    def _add(self, pool: int, host: str, rows: Integers) -> None:
        allowance = self.allowances[pool]
        machine = PlannedMachine(
            pool, host, rows, np.zeros_like(self.options.room[0]), allowance.charge(rows)
        )
        allowance.take(machine.charge)
        allowance.count(1)
        if len(self.planned) == len(self._left):
            more = np.zeros((_GROWTH, self._left.shape[1]), np.int64)
            self._left = np.concatenate([self._left, more])
            for view in self._views.values():
                view.refused = np.concatenate([view.refused, np.zeros(_GROWTH, np.bool_)])
        self.planned.append(machine)

        def undo() -> None:
            self.planned.pop()
            allowance.take(-machine.charge)
            allowance.count(-1)

        self._undo.append(undo)

    def _put(self, machine: PlannedMachine, at: int, what: _Placing, rows: Integers) -> None:
        topology, wanted = what.view.topology, what.rules.ports
        before = (machine.rows, machine.used, machine.ports)
        left = self._left[at].copy()
        machine.pods.append(what.pod)
        machine.used = machine.used + what.need
        if wanted:
            machine.ports = held(machine.ports, wanted)
        self._become(machine, rows)
        self._left[at] = self.options.room[rows].max(axis=0) - machine.used
        domain_of = self._domain_of(machine)
        topology.count(domain_of, 1)

        def undo() -> None:
            topology.count(domain_of, -1)
            machine.pods.pop()
            rows_before, machine.used, machine.ports = before
            self._become(machine, rows_before)
            self._left[at] = left
            for each in self._views.values():
                each.refused[at] = False

        self._undo.append(undo)

    def _become(self, machine: PlannedMachine, rows: Integers) -> None:
        """Set the rows that a machine can become, and what it counts."""
        machine.rows = rows
        allowance = self.allowances[machine.pool]
        if allowance.limited:
            allowance.take(-machine.charge)
            machine.charge = allowance.charge(rows)
            allowance.take(machine.charge)

    def _narrowed(self, rows: Integers, topology: TopologyRules) -> Integers:
        """Of rows those of one domain of each label that matters: the emptiest, then the cheapest."""
        for key in topology.keys if len(rows) else ():
            ids, values = self.options.values(key)
            numbers = ids[rows]
            best: tuple[int, int] | None = None
            chosen = ABSENT
            for number, first in zip(*np.unique(numbers, return_index=True), strict=True):
                domain = None if number == ABSENT else values[number]
                if not topology.allows(key, domain):
                    continue
                rank = (topology.crowd(key, domain), int(first))
                if best is None or rank < best:
                    best, chosen = rank, int(number)
            if best is None:
                return rows[:0]
            rows = rows[numbers == chosen]
        return rows

    def _domain_of(self, machine: PlannedMachine) -> Callable[[str], str | None]:
        row = int(machine.rows[0])

        def domain_of(key: str) -> str | None:
            return machine.host if key == HOSTNAME else self.options.value(key, row)

        return domain_of

    def add_empty(self, pool: int, rows: Integers, lease: LeaseNeed | None = None) -> str:
        """Plan a machine without pods that becomes one of some rows of a pool; why not, or empty.

        Args:
            pool: index of the pool.
            rows: of the options.
            lease: that it is for; None for none.
        """
        usable = self.allowances[pool].within(rows)
        if not len(usable):
            return self.allowances[pool].refusal(rows)
        self._add(pool, f"/{len(self.planned)}", usable)
        self.planned[-1].lease = lease
        self._become(self.planned[-1], self.allowances[pool].cheap(usable))
        return ""

    # --- going back, and making room -----------------------------------------------------------------

    def mark(self) -> int:
        """Where to go back to."""
        return len(self._undo)

    def go_back(self, mark: int) -> None:
        """Undo all that was placed since."""
        if len(self._undo) > mark:
            self._failed.clear()
        while len(self._undo) > mark:
            self._undo.pop()()

    def shrink(self) -> bool:
        """Let machines of limited pools become no larger than they must; whether that left anything.

        Until then each counts as the largest that it could become.
        """
        freed = False
        self._failed.clear()
        for at, machine in enumerate(self.planned):
            allowance = self.allowances[machine.pool]
            if not allowance.limited:
                continue
            rows = allowance.cheap(machine.rows)
            if len(rows) < len(machine.rows):
                before = machine.charge
                self._become(machine, rows)
                self._left[at] = self.options.room[rows].max(axis=0) - machine.used
                freed |= bool((machine.charge < before).any())
        self._undo.clear()  # what was placed before stays
        return freed

    def domains(self, rules: PodRules, key: str) -> frozenset[str]:
        """The values of a label among hosts and rows that suit a pod by their labels."""
        mask = self.host_mask(rules)
        found = {self._domains[row].get(key) for row in np.flatnonzero(mask)}
        rows = np.flatnonzero(self.options.matching(rules) & self.options.tolerated(rules))
        ids, values = self.options.values(key)
        found |= {values[number] for number in np.unique(ids[rows]) if number != ABSENT}
        return frozenset(value for value in found if value is not None)
