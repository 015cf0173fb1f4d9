"""Why nodes refuse a pod and what would help, as a plugin explains it.

An explanation covers all rows of the node table at once; text is made only for the few rows that are
shown. It changes nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from grange.placement.columns import Integers, Mask
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot

Amounts: TypeAlias = NDArray[np.float64]
_NO_ROWS: Integers = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change after which some nodes accept the pod.

    Attributes:
        text: completes "fits on these nodes if …", or "when …" for a change of the cluster.
        rows: the nodes.
        cost: how much it asks of users; about 1 for giving up a preference.
        when: the cluster changes rather than the pod.
        change: returns the changed pod, so that it can be tried; None if the pod alone does not
            change.
    """

    text: str
    rows: Integers
    cost: float
    when: bool = False
    change: Callable[[PodInfo], PodInfo] | None = None

    @classmethod
    def of_pod(cls, text: str, cost: float, change: Callable[[PodInfo], PodInfo]) -> "Remedy":
        """A change of the pod; the rows are filled in by the explanation."""
        return cls(text, _NO_ROWS, cost, change=change)

    @classmethod
    def of_cluster(cls, text: str, cost: float) -> "Remedy":
        """A change of the cluster; the rows are filled in by the explanation."""
        return cls(text, _NO_ROWS, cost, when=True)


def altered(info: PodInfo, **fields: Any) -> PodInfo:
    """The pod with other fields, and without what was derived from the old ones."""
    return msgspec.structs.replace(info, **fields, signature=None, known_label_set=None)


class PluginExplanation(Protocol):
    """Why one plugin refuses nodes, for one pod.

    Attributes:
        lacks: by row, the number of obstacles; 0 where the plugin accepts the node.
        severity: by row, the distance from acceptance, 0 to 1 an obstacle; compares nodes with
            equally many obstacles.
    """

    lacks: Integers
    severity: Amounts

    def missing(self, row: int) -> list[str]:
        """The obstacles on a refused node."""

    def changes(self, rows: Integers) -> list[Remedy]:
        """What would help on these rows, all of them refused; the cheapest first."""


@dataclass(frozen=True, slots=True)
class Refusals:
    """What an explanation is computed from; ``refused`` is by row."""

    pod: PodInfo
    snapshot: NodeInfoSnapshot
    refused: Mask

    def node(self, row: int) -> NodeInfo:
        """The entry of the row."""
        return self.snapshot.by_row[row]

    def label(self, row: int, key: str) -> str | None:
        """A label of the node."""
        column = self.snapshot.table.labels(key)
        number = int(column.ids[row])
        return column.values[number] if number >= 0 else None

    def one_each(self) -> Integers:
        """One obstacle on every refused node."""
        return self.refused.astype(np.int64)

    def no_severity(self) -> Amounts:
        """Equal distances everywhere."""
        return np.zeros(len(self.refused), np.float64)
