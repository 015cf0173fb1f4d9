"""What one plugin demands of nodes, in words: what each node lacks, and what would help.

A demand is asked about all rows of the node table at once (vectors) and puts into words only the few
rows that people get to read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from grange.placement.columns import Integers, Mask
from grange.scheduler.framework import Filter, Rule
from grange.scheduler.nodeinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot

Amounts: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change after which some nodes meet the demand.

    Attributes:
        text: completes "fits on these nodes if …", or "when …" for what happens to the cluster.
        rows: the nodes.
        cost: how much it asks of people; about 1 for giving up a wish.
        when: it happens to the cluster rather than being changed in the pod.
        change: makes the pod that it speaks of, so that it can be tried; None if it speaks of no
            change of the pod alone.
    """

    text: str
    rows: Integers
    cost: float
    when: bool = False
    change: Callable[[PodInfo], PodInfo] | None = None


def altered(info: PodInfo, **fields: Any) -> PodInfo:
    """The pod with other fields, and without what was worked out from those that it had."""
    return msgspec.structs.replace(info, **fields, signature=None, kin=None)


class PluginExplanation(Protocol):
    """One plugin's demand on nodes, for one pod.

    Attributes:
        lacks: by row, how many things are in the way; 0 where the demand is met.
        severity: by row, how far off the node is, 0 to 1 a thing; compares nodes that lack as many.
    """

    lacks: Integers
    severity: Amounts

    def missing(self, row: int) -> list[str]:
        """What is in the way on a node that does not meet it."""

    def changes(self, rows: Integers) -> list[Remedy]:
        """What would help on these rows, none of which meets it; the cheapest first."""


@dataclass(frozen=True, slots=True)
class ExplanationInputs:
    """What a demand is computed from.

    Attributes:
        pod: the pod.
        snapshot: the cluster.
        refused: by row, where the plugin refuses.
        filter: the plugin's filter, if it is one.
        rules: the plugin's rules about other nodes, in their order.
        concerns: of those rules, as the plugin numbers them.
    """

    pod: PodInfo
    snapshot: NodeInfoSnapshot
    refused: Mask
    filter: Filter | None = None
    rules: tuple[Rule, ...] = ()
    concerns: tuple[int, ...] = ()

    def name(self, row: int) -> str:
        """The node's name."""
        return self.snapshot.table.names[row]

    def label(self, row: int, key: str) -> str | None:
        """A label of the node."""
        column = self.snapshot.table.labels(key)
        number = int(column.ids[row])
        return column.values[number] if number >= 0 else None

    def nothing(self) -> Amounts:
        """No severity anywhere."""
        return np.zeros(len(self.refused), np.float64)


Explain = Callable[[ExplanationInputs], PluginExplanation]


class Plain:
    """The demand of a plugin that nobody puts into better words: its own reasons."""

    def __init__(self, inputs: ExplanationInputs) -> None:
        self._inputs = inputs
        self.lacks: Integers = inputs.refused.astype(np.int64)
        self.severity = inputs.nothing()

    def missing(self, row: int) -> list[str]:
        """The plugin's reasons."""
        inputs = self._inputs
        if inputs.filter is not None:
            rows = np.array([row], np.int64)
            found = inputs.filter.count_reasons(inputs.pod, inputs.snapshot.table, rows)
            return [reason.removeprefix("node(s) ") for reason, count in found if count]
        said = []
        for rule in inputs.rules:
            domain = int(inputs.snapshot.table.labels(rule.key).ids[row])
            if not rule.opens(domain):
                said.append(rule.reason(missing=domain < 0).removeprefix("node(s) "))
        return said

    def changes(self, rows: Integers) -> list[Remedy]:
        """Nothing is known."""
        return []
