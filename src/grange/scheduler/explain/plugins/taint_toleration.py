"""TaintToleration in words."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np

from grange.api.kinds.node import Taint
from grange.api.kinds.pod import Toleration
from grange.placement import taints
from grange.placement.columns import Integers
from grange.scheduler.explain.explanation import ExplanationInputs, Remedy, altered
from grange.scheduler.nodeinfo import PodInfo

# What the cluster says of itself; tolerating it would help nobody.
_STATES = {
    "node.kubernetes.io/not-ready": "Ready again",
    "node.kubernetes.io/unreachable": "reachable again",
    "node.kubernetes.io/memory-pressure": "out of memory pressure",
    "node.kubernetes.io/disk-pressure": "out of disk pressure",
    "node.kubernetes.io/pid-pressure": "out of PID pressure",
    "node.kubernetes.io/network-unavailable": "on the network",
    "node.kubernetes.io/unschedulable": "uncordoned",
}


def _told(taint: Taint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


class Tainted:
    """Every hard taint of the node must be tolerated."""

    def __init__(self, inputs: ExplanationInputs) -> None:
        self._numbers = inputs.snapshot.table.taint_set
        tolerations = inputs.pod.pod.spec.tolerations
        self._open = [
            [
                item
                for item in found
                if item.effect in taints.HARD and not taints.tolerated(tolerations, item)
            ]
            for found in inputs.snapshot.table.taint_sets
        ]
        by_set = np.fromiter(map(len, self._open), np.int64, len(self._open))
        self.lacks: Integers = np.where(
            inputs.refused, by_set[self._numbers[: len(inputs.refused)]], 0
        ).astype(np.int64)
        self.severity = inputs.nothing()

    def missing(self, row: int) -> list[str]:
        """The taints that are not tolerated."""
        return [f"taint {_told(item)}" for item in self._open[int(self._numbers[row])]]

    def changes(self, rows: Integers) -> list[Remedy]:
        """Tolerate them; where a node says how it is by a taint, wait for it to be well."""
        found = []
        numbers = self._numbers[rows]
        for number in np.unique(numbers).tolist():
            mine, items = rows[numbers == number], self._open[number]
            found.extend(_remedies(items, mine))
        merged: dict[str, Remedy] = {}
        for item in found:
            before = merged.get(item.text)
            if before is not None:
                rows_of_both = np.concatenate([before.rows, item.rows])
                merged[item.text] = replace(item, rows=rows_of_both)
            else:
                merged[item.text] = item
        return sorted(merged.values(), key=lambda item: (item.cost, -len(item.rows)))


def _remedies(items: Sequence[Taint], rows: Integers) -> list[Remedy]:
    states = list(dict.fromkeys(_STATES[item.key] for item in items if item.key in _STATES))
    others = [item for item in items if item.key not in _STATES]
    if not others:
        return [Remedy(f"they are {' and '.join(states)}", rows, 0.65, when=True)]
    if states:
        return []  # two things of different kinds; what is missing says enough
    word = "taint" if len(others) == 1 else "taints"
    told = " and ".join(_told(item) for item in others)
    change = partial(_tolerating, items=others)
    return [Remedy(f"it tolerates {word} {told}", rows, 0.5 + 0.1 * len(others), change=change)]


def _tolerating(info: PodInfo, items: Sequence[Taint]) -> PodInfo:
    """The pod with a toleration more for each taint."""
    more = tuple(Toleration(key=item.key, value=item.value, effect=item.effect) for item in items)
    spec = info.pod.spec
    spec = msgspec.structs.replace(spec, tolerations=(*spec.tolerations, *more))
    return altered(info, pod=msgspec.structs.replace(info.pod, spec=spec))
