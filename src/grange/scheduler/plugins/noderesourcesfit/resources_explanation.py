"""What is short on a node, and which requests would fit."""

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
import numpy as np

from grange.api import quantity
from grange.api.pod_requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, PodRequest
from grange.base.plurals import counted
from grange.placement.columns import Integers
from grange.placement.node_usage import amount_of, asked_amounts
from grange.scheduler.plugin_explanation import Refusals, Remedy, altered
from grange.scheduler.podinfo import PodInfo

_BYTES = frozenset({MEMORY, EPHEMERAL_STORAGE})
_GIB, _MIB = 2**30, 2**20


def format_amount(name: str, amount: int) -> str:
    """An amount as users write it, rounded down: rounded up it would not fit."""
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


def with_requests(info: PodInfo, limits: Mapping[str, int]) -> PodInfo:
    """The pod with these requests."""
    need = info.request.resources
    resources = msgspec.structs.replace(
        need,
        cpu_milli=limits.get(CPU, need.cpu_milli),
        memory_bytes=limits.get(MEMORY, need.memory_bytes),
        ephemeral_bytes=limits.get(EPHEMERAL_STORAGE, need.ephemeral_bytes),
        scalars={name: limits.get(name, amount) for name, amount in need.scalars.items()},
    )
    return altered(info, request=msgspec.structs.replace(info.request, resources=resources))


class ResourcesExplanation:
    """By resource, what the pod needs and what is left.

    Args:
        request: what the plugin counts of the pod's requests.
    """

    def __init__(self, refusals: Refusals, request: PodRequest) -> None:
        table, refused = refusals.snapshot.table, refusals.refused
        self._need = {PODS: 1, **dict(asked_amounts(request.resources))}
        self._total: dict[str, Integers] = {}
        self._free: dict[str, Integers] = {}
        self.lacks: Integers = np.zeros(len(refused), np.int64)
        self.severity = refusals.no_severity()
        for name, amount in self._need.items():
            total, used = table.amounts(name, table.all)
            free = total - used
            self._total[name], self._free[name] = total, free
            short = (free < amount) & refused
            self.lacks += short
            self.severity[short] += (amount - np.maximum(free[short], 0)) / amount
        # A refusal without a shortage here still is one obstacle.
        self.lacks[refused & (self.lacks == 0)] = 1

    def missing(self, row: int) -> list[str]:
        """Each shortage: what the pod needs and what is left."""
        found = []
        for name, amount in self._need.items():
            free, total = int(self._free[name][row]), int(self._total[name][row])
            if free >= amount:
                continue
            if name == PODS:
                found.append(f"no room for more than {counted(total, 'pod')}")
                continue
            if total == 0:
                have = "the node has none"
            elif amount > total:
                have = f"the whole node has {format_amount(name, total)}"
            else:
                have = f"{format_amount(name, free)} of {format_amount(name, total)} left"
            found.append(f"{name}: wants {format_amount(name, amount)}, {have}")
        return found or ["resources"]

    def covered(self, row: int, pods: Sequence[PodInfo]) -> bool:
        """Whether enough would be left without these pods of the node."""
        for name, need in self._need.items():
            freed = len(pods)
            if name != PODS:
                freed = sum(amount_of(info.request.resources, name) for info in pods)
            if int(self._free[name][row]) + freed < need:
                return False
        return True

    def changes(self, rows: Integers) -> list[Remedy]:
        """Lower requests: for each set of resources that are short together, the smallest cut."""
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
        """The smallest cut after which a node of the group accepts the pod, and all that do then."""
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
        parts = [f"{name} ≤ {format_amount(name, limit)}" for name, limit in limits.items()]
        change = partial(with_requests, limits=limits)
        return Remedy(" and ".join(parts), rows[fits], float(cut.min()), change=change)
