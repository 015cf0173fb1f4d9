"""Fragmentation of a node's GPUs with regard to a workload, after Weng et al., USENIX ATC 2023, §3.

A target workload M is a set of classes of pods, each with a share p of all pods. What is left of a node's
GPUs is *fragmented* for a class as far as no pod of the class could use it:

    F(m) = Σ left                       if the node cannot run a pod of class m at all (too little
                                        CPU, too few devices), or m asks for no GPU;
    F(m) = Σ left over devices with less than m asks of each   otherwise.

    F(M) = Σ p(m) · F(m)

All of it in whole numbers: p is the number of pods of the class, and F(M) a sum of thousandths of
devices times pods.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from grange.api.gpus import WHOLE
from grange.placement import devices
from grange.placement.columns import Integers
from grange.placement.devices import Free
from grange.placement.loads import Load

_REMEMBERED = 200_000


@dataclass(frozen=True, slots=True)
class PodKind:
    """Pods of a workload that ask for the same.

    Attributes:
        cpu_milli: thousandths of a CPU.
        gpu_milli: thousandths of devices, 0 for none.
        number: how many there are, positive.
    """

    cpu_milli: int
    gpu_milli: int
    number: int


class TargetWorkload:
    """A target workload.

    Args:
        kinds: at least one.

    Attributes:
        number: how many pods it has.
    """

    def __init__(self, kinds: Sequence[PodKind]) -> None:
        self.number = sum(kind.number for kind in kinds)
        found = {(min(item.gpu_milli, WHOLE), max(1, item.gpu_milli // WHOLE)) for item in kinds}
        # Demands as what is asked of each device, and of how many devices.
        self._demands = sorted(pair for pair in found if pair[0])
        # For each demand, how many pods have it and ask for at most the n-th of these CPUs.
        self._cpus = np.asarray(sorted({item.cpu_milli for item in kinds}), np.int64)
        numbers = np.zeros((len(self._cpus) + 1, len(self._demands)), np.int64)
        for item in kinds:
            if item.gpu_milli:
                pair = (min(item.gpu_milli, WHOLE), max(1, item.gpu_milli // WHOLE))
                rank = int(np.searchsorted(self._cpus, item.cpu_milli)) + 1
                numbers[rank, self._demands.index(pair)] += item.number
        self._numbers: Integers = numbers.cumsum(axis=0)
        self._lists: list[list[int]] = self._numbers.tolist()
        self._remember = lru_cache(_REMEMBERED)(self._usable)

    def rank(self, cpu_left: int) -> int:
        """Which classes find enough CPU; a number for ``fragmentation``."""
        return int(np.searchsorted(self._cpus, cpu_left, side="right"))

    def fragmentation(self, rank: int, left: Free) -> int:
        """F(M) of a node, times the number of pods."""
        return self.number * sum(left) - self._remember(rank, tuple(sorted(left)))

    def of_load(self, load: Load) -> int:
        """F(M) of a node with this load, times the number of pods."""
        cpu = load.allocatable.cpu_milli - load.usage.cpu_milli
        left = devices.free(load.allocatable, load.usage.devices)
        return self.fragmentation(self.rank(cpu), left)

    def _usable(self, rank: int, left: Free) -> int:
        total = 0
        for (each, count), number in zip(self._demands, self._lists[rank], strict=True):
            if number:
                enough = [item for item in left if item >= each]
                if len(enough) >= count:
                    total += number * sum(enough)
        return total
