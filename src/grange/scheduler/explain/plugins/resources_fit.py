"""NodeResourcesFit in words: what is short where, and how little less would do."""

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
import numpy as np

from grange.api import quantity
from grange.api.pod_requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from grange.placement.columns import Integers, NodeTable
from grange.scheduler.explain.explanation import ExplanationInputs, Remedy, altered
from grange.scheduler.nodeinfo import PodInfo

_BYTES = frozenset({MEMORY, EPHEMERAL_STORAGE})
_GIB, _MIB = 2**30, 2**20


def shown(name: str, amount: int) -> str:
    """An amount as people write it: rounded down where it would not be short otherwise."""
    amount = max(0, amount)
    if name == CPU:
        return f"{amount / 1000:.3f}".rstrip("0").rstrip(".")
    if name in _BYTES or name.startswith("hugepages-"):
        for unit, suffix in ((_GIB, "Gi"), (_MIB, "Mi")):
            if amount >= unit:
                if amount % unit == 0:
                    return f"{amount // unit}{suffix}"
                hundredths = amount * 100 // unit
                return f"{hundredths / 100:.2f}".rstrip("0").rstrip(".") + suffix
        return quantity.format_binary(amount)
    return str(amount)


def _column(table: NodeTable, name: str) -> tuple[Integers, Integers]:
    size = table.size
    match name:
        case "cpu":
            return table.cpu_total[:size], table.cpu_used[:size]
        case "memory":
            return table.memory_total[:size], table.memory_used[:size]
        case "ephemeral-storage":
            return table.ephemeral_total[:size], table.ephemeral_used[:size]
        case "pods":
            return table.pods_total[:size], table.pods_used[:size]
        case _:
            column = table.scalars.get(name)
            if column is None:
                nothing = np.zeros(size, np.int64)
                return nothing, nothing
            return column.total[:size], column.used[:size]


def _request(info: PodInfo, name: str) -> int:
    need = info.request.resources
    match name:
        case "cpu":
            return need.cpu_milli
        case "memory":
            return need.memory_bytes
        case "ephemeral-storage":
            return need.ephemeral_bytes
        case "pods":
            return 1
        case _:
            return need.scalars.get(name, 0)


def _asking(info: PodInfo, limits: Mapping[str, int]) -> PodInfo:
    """The pod with these amounts instead of its own."""
    need = info.request.resources
    resources = msgspec.structs.replace(
        need,
        cpu_milli=limits.get(CPU, need.cpu_milli),
        memory_bytes=limits.get(MEMORY, need.memory_bytes),
        ephemeral_bytes=limits.get(EPHEMERAL_STORAGE, need.ephemeral_bytes),
        scalars={name: limits.get(name, amount) for name, amount in need.scalars.items()},
    )
    return altered(info, request=msgspec.structs.replace(info.request, resources=resources))


class Amount:
    """Enough of everything must be left."""

    def __init__(self, inputs: ExplanationInputs) -> None:
        need = inputs.pod.request.resources
        wanted = {
            PODS: 1,
            CPU: need.cpu_milli,
            MEMORY: need.memory_bytes,
            EPHEMERAL_STORAGE: need.ephemeral_bytes,
            **need.scalars,
        }
        self._need = {name: amount for name, amount in wanted.items() if amount > 0}
        self._total: dict[str, Integers] = {}
        self._free: dict[str, Integers] = {}
        self.lacks: Integers = np.zeros(len(inputs.refused), np.int64)
        self.severity = inputs.nothing()
        for name, amount in self._need.items():
            total, used = _column(inputs.snapshot.table, name)
            free = total - used
            self._total[name], self._free[name] = total, free
            short = (free < amount) & inputs.refused
            self.lacks += short
            self.severity[short] += (amount - np.maximum(free[short], 0)) / amount
        # What another rule of the plugin refuses still counts as one thing.
        self.lacks[inputs.refused & (self.lacks == 0)] = 1

    def missing(self, row: int) -> list[str]:
        """Each shortage: what is wanted, what is left."""
        said = []
        for name, amount in self._need.items():
            free, total = int(self._free[name][row]), int(self._total[name][row])
            if free >= amount:
                continue
            if name == PODS:
                said.append(f"no room for more than {total} pods")
            elif total == 0:
                said.append(f"{name}: wants {shown(name, amount)}, the node has none")
            elif amount > total:
                said.append(
                    f"{name}: wants {shown(name, amount)}, the whole node has {shown(name, total)}"
                )
            else:
                left = f"{shown(name, free)} of {shown(name, total)} left"
                said.append(f"{name}: wants {shown(name, amount)}, {left}")
        return said or ["resources"]

    def covered(self, row: int, pods: Sequence[PodInfo]) -> bool:
        """Whether there would be enough without these pods of the node."""
        for name, need in self._need.items():
            free = int(self._free[name][row]) + sum(_request(info, name) for info in pods)
            if free < need:
                return False
        return True

    def changes(self, rows: Integers) -> list[Remedy]:
        """Ask for less: of each set of things that are short together, the least less."""
        names = [name for name in self._need if name != PODS]
        rows = rows[self._free[PODS][rows] > 0]
        short = np.stack([self._free[name][rows] < self._need[name] for name in names or [PODS]])
        found: dict[str, Remedy] = {}
        sets, of_row = np.unique(short, axis=1, return_inverse=True)
        of_row = of_row.reshape(-1)
        for at in range(sets.shape[1]):
            lacking = [name for name, lacks in zip(names, sets[:, at], strict=False) if lacks]
            mine = rows[of_row == at]
            remedy = self._less(lacking, mine, rows) if lacking else None
            if remedy is not None:
                found.setdefault(remedy.text, remedy)
        return sorted(found.values(), key=lambda item: (item.cost, -len(item.rows)))

    def _less(self, names: list[str], group: Integers, rows: Integers) -> Remedy | None:
        """So much less that one node of the group does; and whoever else does then."""
        cut = np.zeros(len(group), np.float64)
        possible = np.ones(len(group), np.bool_)
        for name in names:
            free, need = self._free[name][group], self._need[name]
            cut += (need - free) / need
            possible &= free > 0
        if not possible.any():
            return None
        cut[~possible] = np.inf
        best = int(group[int(np.argmin(cut))])
        limits = {name: int(self._free[name][best]) for name in names}
        fits = np.ones(len(rows), np.bool_)
        for name, need in self._need.items():
            fits &= self._free[name][rows] >= limits.get(name, need)
        told = " and ".join(f"{name} ≤ {shown(name, limit)}" for name, limit in limits.items())
        change = partial(_asking, limits=limits)
        return Remedy(told, rows[fits], float(cut.min()), change=change)
