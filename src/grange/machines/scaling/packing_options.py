"""Every way to get a shared machine, as rows of hypothetical nodes.

A row is an offering of an instance type to a pool. The rows of the heaviest pool come first, and of
one pool the cheapest, so that of rows that suit, the first is the one to take.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from grange.api import quantity
from grange.api.kinds.machine import NODE_POOL_LABEL
from grange.api.kinds.node import Node, NodeSpec, Taint
from grange.api.kinds.nodepool import SPOT_ALWAYS, SPOT_NEVER, SPOT_PREFERRED, NodePool
from grange.api.meta import ObjectMeta
from grange.api.pod_requests import Resources, allocatable
from grange.api.quantity import QuantityError
from grange.machines.catalogue import InstanceType, Offering
from grange.machines.scaling.capacity_memory import CapacityMemory
from grange.machines.scaling.instance_selector import InstanceSelector, MachineChoice, labels_of
from grange.machines.scaling.packing_pods import PodRules
from grange.placement import kernels, taint_toleration
from grange.placement.columns import ABSENT, Ids, Integers, Mask, NodeTable
from grange.placement.node_usage import amount_of

PODS_MAX = 110
"""Pods of a node whose type names no number; what kubelets have by default."""

UNLIMITED = 2**62


@dataclass(frozen=True, slots=True)
class PackedPool:
    """A pool of shared machines, and what its provider has.

    Attributes:
        pool: which.
        catalogue: of its provider.
        capacity: what could not be had lately.
        boot_image: of new machines.
        template_hash: of the pool's present template.
    """

    pool: NodePool
    catalogue: Sequence[InstanceType]
    capacity: CapacityMemory
    boot_image: str = ""
    template_hash: str = ""

    @property
    def name(self) -> str:
        """Of the pool."""
        return self.pool.metadata.name


@dataclass(frozen=True, slots=True)
class MachineOption:
    """One row.

    Attributes:
        pool: for which pool.
        kind: which type.
        offering: where, and for how much.
        refusal: why it cannot be had now; empty if it may be tried.
    """

    pool: PackedPool
    kind: InstanceType
    offering: Offering
    refusal: str = ""


Overhead = Callable[[Mapping[str, str], Sequence[Taint]], Resources]
"""What the pods of every node's equipment take of a node with these labels and taints."""


class MachineOptions:
    """The rows.

    Args:
        pools: heaviest first or not: they are sorted.
        resources: names beyond ``cpu``, ``memory``, ``ephemeral-storage`` and ``pods`` that count.
        overhead: see there.
        seen: what nodes of a pool and type really have, where that is less than the catalogue has.
        now: wall time.

    Attributes:
        rows: see there.
        names: of the resources, in the order of the columns of ``room``.
        room: what pods can have on each row.
        pool_of: index into ``pools`` of each row.
        available: which rows may be tried now.
        pools: sorted, the heaviest first.
    """

    def __init__(
        self,
        pools: Sequence[PackedPool],
        resources: Sequence[str],
        *,
        overhead: Overhead,
        seen: Mapping[tuple[str, str], Resources],
        now: datetime,
    ) -> None:
        self.names = ("cpu", "memory", "ephemeral-storage", "pods", *resources)
        self.pools = sorted(pools, key=lambda each: (-each.pool.spec.weight, each.name))
        self.rows: list[MachineOption] = []
        self._table = NodeTable()
        room: list[list[int]] = []
        pool_of: list[int] = []
        for at, pool in enumerate(self.pools):
            for option in _of_pool(pool, now):
                labels = option_labels(pool.pool, option.kind, option.offering)
                taints = pool.pool.spec.template.taints
                self._table.put_node(
                    Node(
                        # No node can have such a name, so no rule about names selects it.
                        metadata=ObjectMeta(name=f"/{len(self.rows)}", labels=labels),
                        spec=NodeSpec(taints=taints),
                    ),
                    Resources(),
                )
                self.rows.append(option)
                pool_of.append(at)
                total = self.room_of(pool.pool, option.kind, seen)
                taken = self.vector(overhead(labels, taints))
                room.append([have - need for have, need in zip(total, taken, strict=True)])
        self.room: Integers = np.asarray(room, np.int64).reshape(len(room), len(self.names))
        self.pool_of: Ids = np.asarray(pool_of, np.int32)
        self.available: Mask = np.asarray([not row.refusal for row in self.rows], np.bool_)
        self._values: dict[str, tuple[Ids, list[str]]] = {}

    def room_of(
        self, pool: NodePool, kind: InstanceType, seen: Mapping[tuple[str, str], Resources]
    ) -> list[int]:
        """What pods can have on a node of a type, by column."""
        given = allocatable(kind.room)
        total = self.vector(given)
        # The column of pods: a vector of a request has one there.
        total[3] = given.pods or PODS_MAX
        if not given.ephemeral_bytes:
            total[2] = _bytes(pool.spec.volume.default_size)
        real = seen.get((pool.metadata.name, kind.name))
        if real is not None:
            total = [
                min(have, found) for have, found in zip(total, self.node_vector(real), strict=True)
            ]
        return total

    def vector(self, request: Resources) -> list[int]:
        """A pod's request, or the sum of some, by column; pods count as they are given."""
        plain = [request.cpu_milli, request.memory_bytes, request.ephemeral_bytes, request.pods]
        return [*plain, *(request.scalars.get(name, 0) for name in self.names[4:])]

    def node_vector(self, offered: Resources) -> list[int]:
        """What a node offers, by column."""
        return [offered.pods if name == "pods" else amount_of(offered, name) for name in self.names]

    def matching(self, rules: PodRules) -> Mask:
        """The rows whose labels suit a pod."""
        return kernels.matches(self._table, self._table.all, rules.nodes)

    def tolerated(self, rules: PodRules) -> Mask:
        """The rows whose taints do not keep a pod away."""
        mask: Mask = kernels.untainted(self._table, self._table.all, rules.tolerations)
        if rules.avoids:
            avoided = [
                bool(taint_toleration.count_intolerable_preferences(taints, rules.tolerations))
                for taints in (pool.pool.spec.template.taints for pool in self.pools)
            ]
            if any(avoided):
                mask &= ~np.asarray(avoided, np.bool_)[self.pool_of]
        return mask

    def values(self, key: str) -> tuple[Ids, list[str]]:
        """The number of each row's value of a label (``ABSENT`` for none), and the values."""
        found = self._values.get(key)
        if found is None:
            column = self._table.labels(key)
            found = self._values[key] = (column.ids[: len(self.rows)], column.values)
        return found

    def value(self, key: str, row: int) -> str | None:
        """A row's value of a label."""
        ids, values = self.values(key)
        return None if ids[row] == ABSENT else values[ids[row]]


def option_labels(pool: NodePool, kind: InstanceType, offering: Offering) -> dict[str, str]:
    """The labels of a pool's node."""
    own = {NODE_POOL_LABEL: pool.metadata.name}
    return {**pool.spec.template.labels, **labels_of(kind, offering), **own}


def choices_of(pool: NodePool, catalogue: Sequence[InstanceType]) -> list[MachineChoice]:
    """Every offering that a pool may use, the cheapest first."""
    spec = pool.spec
    markets = {SPOT_NEVER: (False,), SPOT_ALWAYS: (True,)}.get(spec.spot, (True, False))
    choices = InstanceSelector(catalogue, spec).choices(Resources(), most=UNLIMITED)
    return [choice for choice in choices if choice.offering.spot in markets]


def _of_pool(pool: PackedPool, now: datetime) -> list[MachineOption]:
    found = [
        MachineOption(
            pool,
            choice.instance_type,
            choice.offering,
            pool.capacity.refusal(
                choice.instance_type.name,
                choice.offering.zone,
                spot=choice.offering.spot,
                now=now,
            )
            or "",
        )
        for choice in choices_of(pool.pool, pool.catalogue)
    ]
    if pool.pool.spec.spot == SPOT_PREFERRED:
        found.sort(key=lambda option: not option.offering.spot)
    return found


def _bytes(size: str) -> int:
    try:
        return quantity.value(size) if size else UNLIMITED
    except QuantityError:
        return UNLIMITED
