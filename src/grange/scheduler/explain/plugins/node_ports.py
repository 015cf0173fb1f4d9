"""NodePorts in words."""

from collections.abc import Collection
from functools import partial

import numpy as np

from grange.placement import ports
from grange.placement.columns import Integers
from grange.placement.ports import HostPort
from grange.scheduler.explain.explanation import ExplanationInputs, Remedy, altered
from grange.scheduler.nodeinfo import PodInfo


def _told(port: HostPort) -> str:
    return f"{port.port}/{port.protocol}"


def _without(info: PodInfo, taken: Collection[HostPort]) -> PodInfo:
    """The pod without these ports."""
    return altered(info, ports=tuple(item for item in info.ports if item not in taken))


class HostPorts:
    """Nobody else may hold the host ports."""

    def __init__(self, inputs: ExplanationInputs) -> None:
        self._inputs = inputs
        self.lacks: Integers = inputs.refused.astype(np.int64)
        self.severity = inputs.nothing()

    def _taken(self, row: int) -> list[HostPort]:
        used = self._inputs.snapshot.table.ports(row)
        return [item for item in self._inputs.pod.ports if ports.conflict(used, (item,))]

    def missing(self, row: int) -> list[str]:
        """Each port that is taken, and by whom."""
        said = []
        entry = self._inputs.snapshot.node_info_map[self._inputs.name(row)]
        for port in self._taken(row):
            holder = next(
                (
                    info
                    for info in entry.pods
                    if ports.conflict(dict.fromkeys(info.ports, 1), (port,))
                ),
                None,
            )
            whose = f" is held by pod {holder.pod.key}" if holder is not None else " is taken"
            said.append(f"host port {_told(port)}{whose}")
        return said or ["host ports"]

    def changes(self, rows: Integers) -> list[Remedy]:
        """Give the ports up; that their holders end is found elsewhere."""
        taken = {port: None for row in rows[:64].tolist() for port in self._taken(row)}
        told = ", ".join(_told(port) for port in taken)
        change = partial(_without, taken=taken)
        text = f"it does without host port {told}"
        return [Remedy(text, rows, 0.9, change=change)] if taken else []
