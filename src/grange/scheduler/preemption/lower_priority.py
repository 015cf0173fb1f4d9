"""How much of each node's load pods of lower priority make up: sums by row, kept current.

They show at once, for all nodes, where a pod cannot fit even without any less important pod. That is a
bound only: it looks at amounts, so the nodes that it leaves still have to be tried.
"""

from collections.abc import Iterable

import numpy as np

from grange.api.pod_requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, PodRequest
from grange.base.bounded import BoundedDict
from grange.placement.columns import Integers, Mask, Rows
from grange.placement.node_usage import asked_amounts
from grange.placement.resource_fit import TOO_MANY_PODS, insufficient
from grange.scheduler.snapshot import NodeInfoSnapshot

_LEVELS_MAX = 16
_SUMMED = (CPU, MEMORY, EPHEMERAL_STORAGE)


class _Level:
    """Sums over the pods whose priority is below a bound."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.layout = -1
        self.position = -1
        self.pods: Integers = np.zeros(0, np.int64)
        self.amounts: dict[str, Integers] = {}


class LowerPriority:
    """The sums of one snapshot, by priority."""

    def __init__(self, snapshot: NodeInfoSnapshot) -> None:
        self._snapshot = snapshot
        self._levels: BoundedDict[int, _Level] = BoundedDict(_LEVELS_MAX)

    def may_fit(self, request: PodRequest, priority: int) -> Mask:
        """By row, whether the pod might fit with all pods of lower priority gone, if any is there."""
        rows = self._snapshot.table.all
        mask = self.any_on(rows, priority)
        for _, short in self.shortages(request, priority, rows):
            mask &= ~short
        return mask

    def any_on(self, rows: Rows, priority: int) -> Mask:
        """Whether any pod on each of these rows has a lower priority."""
        mask: Mask = self._level(priority).pods[rows] > 0
        return mask

    def shortages(self, request: PodRequest, priority: int, rows: Rows) -> list[tuple[str, Mask]]:
        """What these rows lack, as a reason, and which, with all pods of lower priority gone."""
        table, level = self._snapshot.table, self._level(priority)
        total, used = table.amounts(PODS, rows)
        found: list[tuple[str, Mask]] = [(TOO_MANY_PODS, used - level.pods[rows] >= total)]
        for name, amount in asked_amounts(request.resources):
            if name in level.amounts:
                total, used = table.amounts(name, rows)
                short = total - used + level.amounts[name][rows] < amount
                found.append((insufficient(name), short))
        return found

    def any_below(self, priority: int) -> bool:
        """Whether any pod on any node has a lower priority."""
        return bool(np.any(self._level(priority).pods > 0))

    def amounts_below(self, name: str, priority: int) -> Integers:
        """By row, how much of a resource pods of lower priority use at most."""
        level = self._level(priority)
        if name == PODS:
            return level.pods
        if name in level.amounts:
            return level.amounts[name]
        offered, _ = self._snapshot.table.amounts(name, self._snapshot.table.all)
        return np.where(level.pods > 0, offered, 0)  # not summed: perhaps all of it

    def _level(self, priority: int) -> _Level:
        snapshot = self._snapshot
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = _Level(priority)
        touched = snapshot.touched.since(level.position)
        if level.layout != snapshot.layout or touched is None:
            size = snapshot.table.size
            level.pods = np.zeros(size, np.int64)
            level.amounts = {name: np.zeros(size, np.int64) for name in _SUMMED}
            self._sum(level, range(size))
        else:
            self._sum(level, dict.fromkeys(touched))
        level.layout, level.position = snapshot.layout, snapshot.touched.position
        return level

    def _sum(self, level: _Level, rows: Iterable[int]) -> None:
        by_row, bound = self._snapshot.by_row, level.bound
        cpus, memories, storages = [level.amounts[name] for name in _SUMMED]
        for row in rows:
            cpu = memory = ephemeral = pods = 0
            for info in by_row[row].pods:
                if info.priority < bound:
                    need = info.request.resources
                    cpu += need.cpu_milli
                    memory += need.memory_bytes
                    ephemeral += need.ephemeral_bytes
                    pods += 1
            cpus[row], memories[row], storages[row], level.pods[row] = cpu, memory, ephemeral, pods
