"""Machines by pool and by lease, as the marks on their nodes show them."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import islice

from grange.api.kinds.machinelease import MACHINE_LEASE, STATE_ANNOTATION, pool_of
from grange.api.kinds.node import Node
from grange.placement.lease_model import MachineCounts
from grange.placement.machine_pools import is_usable

PODS_NAMED = 3
"""Of so many busy machines of a pool a pod is named."""


@dataclass(frozen=True, slots=True)
class PoolMachine:
    """A machine.

    Attributes:
        usable: ready, not cordoned, and not about to be taken away.
        busy: it is not free, though no lease has it.
        pod: one of the pods of others that are on it; empty for none.
        lease: uid of the lease that has it; empty for none.
        state: ``Leased``, ``Dirty`` or empty, as its annotation has it.
    """

    node: str
    pool: str
    usable: bool
    busy: bool
    lease: str
    state: str
    pod: str = ""


def machine_of(node: Node, *, pod: str = "", avoided: bool = False) -> PoolMachine:
    """The machine that a node is."""
    meta = node.metadata
    return PoolMachine(
        node=meta.name,
        pool=pool_of(node),
        usable=is_usable(node),
        busy=bool(pod) or avoided,
        lease=lease_of(node),
        state=meta.annotations.get(STATE_ANNOTATION, ""),
        pod=pod,
    )


def lease_of(node: Node) -> str:
    """The uid of the lease that has the node; a label or a taint alone count, too."""
    if uid := node.metadata.labels.get(MACHINE_LEASE):
        return uid
    return next((taint.value for taint in node.spec.taints if taint.key == MACHINE_LEASE), "")


class MachineTable:
    """All machines, and which of them are being claimed."""

    def __init__(self) -> None:
        self._machines: dict[str, PoolMachine] = {}
        self._pools: defaultdict[str, dict[str, PoolMachine]] = defaultdict(dict)
        self._leases: defaultdict[str, dict[str, PoolMachine]] = defaultdict(dict)
        self._claimed: dict[str, str] = {}
        self._usable: defaultdict[str, set[str]] = defaultdict(set)  # names by pool
        self._free: defaultdict[str, set[str]] = defaultdict(set)
        self._pods: defaultdict[str, dict[str, str]] = defaultdict(dict)  # by pool and node

    def put(self, machine: PoolMachine) -> None:
        """A machine is as it is now."""
        self.remove(machine.node)
        self._machines[machine.node] = machine
        if machine.pool:
            self._pools[machine.pool][machine.node] = machine
        if machine.lease:
            self._leases[machine.lease][machine.node] = machine
        self._judge(machine)

    def remove(self, node: str) -> None:
        """A machine is gone."""
        old = self._machines.pop(node, None)
        if old is None:
            return
        for names in (self._usable, self._free):
            names[old.pool].discard(node)
        self._pods[old.pool].pop(node, None)
        for group, key in ((self._pools, old.pool), (self._leases, old.lease)):
            group[key].pop(node, None)
            if not group[key]:
                del group[key]

    def claim(self, node: str, lease: str) -> None:
        """A machine is being given to a lease, and is not free until ``settle``."""
        self._claimed[node] = lease
        self._judge_again(node)

    def settle(self, node: str) -> None:
        """Whether the machine is free follows from its marks again."""
        self._claimed.pop(node, None)
        self._judge_again(node)

    def settle_all(self) -> None:
        """No machine is being claimed."""
        for node in list(self._claimed):
            self.settle(node)

    def get(self, node: str) -> PoolMachine | None:
        """The machine of a node."""
        return self._machines.get(node)

    def of(self, lease: str) -> list[PoolMachine]:
        """The machines that bear marks of a lease, by name."""
        found = self._leases.get(lease) or {}
        return [found[name] for name in sorted(found)]

    def leases(self) -> list[str]:
        """Uids of leases that have machines."""
        return sorted(self._leases)

    def free(self, pool: str) -> list[str]:
        """Names of the machines of a pool that can be granted."""
        return sorted(self._free.get(pool, ()))

    def counts(self, pool: str) -> MachineCounts | None:
        """How many machines a pool has; None for no pool."""
        found = self._pools.get(pool)
        if not found:
            return None
        pods = self._pods[pool]
        named = tuple(islice(pods.values(), PODS_NAMED))
        free, usable = len(self._free[pool]), len(self._usable[pool])
        return MachineCounts(free, usable, len(found), len(pods), named)

    def states(self) -> dict[tuple[str, str], int]:
        """How many machines there are by pool and state: free, leased, dirty, busy, unusable."""
        found: defaultdict[tuple[str, str], int] = defaultdict(int)
        for pool, machines in self._pools.items():
            for machine in machines.values():
                found[pool, self._state(machine)] += 1
        return found

    def _judge_again(self, node: str) -> None:
        if (machine := self._machines.get(node)) is not None:
            self._judge(machine)

    def _judge(self, machine: PoolMachine) -> None:
        """Count a machine where it belongs: a change costs the same in a pool of any size."""
        state = self._state(machine)
        if state == "busy" and machine.pod:
            self._pods[machine.pool][machine.node] = machine.pod
        else:
            self._pods[machine.pool].pop(machine.node, None)
        is_free = state == "free"
        for names, belongs in ((self._usable, machine.usable), (self._free, is_free)):
            (set.add if belongs else set.discard)(names[machine.pool], machine.node)

    def _state(self, machine: PoolMachine) -> str:
        if machine.lease or machine.node in self._claimed:
            return machine.state.lower() or "leased"
        if not machine.usable:
            return "unusable"
        return "busy" if machine.busy else "free"
