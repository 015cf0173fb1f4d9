"""PodTopologySpread in words: how uneven it would get, and which skew would do."""

from collections.abc import Mapping
from functools import partial

import msgspec
import numpy as np

from grange.placement.columns import Integers
from grange.scheduler.explain.explanation import ExplanationInputs, Remedy, altered
from grange.scheduler.nodeinfo import PodInfo
from grange.scheduler.plugins.podtopologyspread import Skew


class Evenness:
    """No domain may exceed the emptiest one by more than each constraint allows."""

    def __init__(self, inputs: ExplanationInputs) -> None:
        self._inputs = inputs
        self._rules = [rule for rule in inputs.rules if isinstance(rule, Skew)]
        table = inputs.snapshot.table
        self._ids = [table.labels(rule.key).ids[table.all] for rule in self._rules]
        self.lacks: Integers = np.zeros(len(inputs.refused), np.int64)
        for rule, ids in zip(self._rules, self._ids, strict=True):
            self.lacks += ~rule.verdicts()[ids] & inputs.refused
        self.severity = inputs.nothing()

    def missing(self, row: int) -> list[str]:
        """Each constraint that does not hold."""
        said = []
        for rule, ids in zip(self._rules, self._ids, strict=True):
            domain, key = int(ids[row]), rule.key
            if domain < 0:
                said.append(f"no label {key}, by which the pod is spread")
            elif not rule.opens(domain):
                value = self._inputs.label(row, key)
                have, least = rule.count(domain), rule.least
                said.append(
                    f"{key} {value} has {have} such pods, the emptiest domain {least}: "
                    f"maxSkew is {rule.constraint.max_skew}"
                )
        return said

    def changes(self, rows: Integers) -> list[Remedy]:
        """Allow as much more as the nearest domain needs."""
        limits: dict[str, int] = {}
        left = rows
        for rule, ids in zip(self._rules, self._ids, strict=True):
            mine = ids[left]
            inside = mine >= 0
            left, mine = left[inside], mine[inside]
            if not len(left):
                return []
            skews = rule.domains.counts[mine] + rule.constraint.of_itself - rule.least
            allowed = max(int(skews.min()), rule.constraint.max_skew)
            if allowed > rule.constraint.max_skew:
                limits[rule.key] = max(allowed, limits.get(rule.key, 0))
            left = left[skews <= allowed]
        if not limits or not len(left):
            return []
        told = " and ".join(f"maxSkew over {key} ≥ {limit}" for key, limit in limits.items())
        return [Remedy(told, left, 0.65, change=partial(_skewed, limits=limits))]


def _skewed(info: PodInfo, limits: Mapping[str, int]) -> PodInfo:
    """The pod with at least so large a skew over each of these keys."""
    spread = tuple(
        msgspec.structs.replace(item, max_skew=max(item.max_skew, limits.get(item.key, 0)))
        if item.hard
        else item
        for item in info.spread
    )
    return altered(info, spread=spread)
