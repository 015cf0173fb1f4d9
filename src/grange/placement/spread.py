"""How evenly pods spread over domains: topology spread constraints, compiled, and their formulas."""

from math import log
from typing import Any, TypeVar

import msgspec
import numpy as np

from grange.api.kinds.pod import Pod, TopologySpreadConstraint
from grange.api.selectors import IN
from grange.placement.columns import Integers
from grange.placement.podaffinity import PodSelector, by_keys, requirements

N = TypeVar("N", int, Integers)

HOSTNAME = "kubernetes.io/hostname"


class Constraint(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """One constraint; equal values choose alike.

    Attributes:
        key: the node label whose values are the domains.
        hard: whether it rules nodes out (DoNotSchedule) or ranks them (ScheduleAnyway).
        max_skew: by how much a domain may exceed the emptiest one.
        selector: the pods that count, in the pod's own namespace; an empty one counts none.
        of_itself: whether the pod itself will count.
        min_domains: with fewer domains the emptiest one is taken to have none.
        honor_affinity, honor_taints: leave out nodes that the pod cannot use for that reason.
        lenient: nodes without the label are ranked by the other constraints, not left out.
    """

    key: str
    hard: bool
    max_skew: int
    selector: PodSelector
    of_itself: bool
    min_domains: int
    honor_affinity: bool
    honor_taints: bool
    lenient: bool = False


class DefaultConstraint(msgspec.Struct, frozen=True, gc=False):
    """A constraint of pods that state none and that a Service selects.

    Attributes:
        key, hard, max_skew, lenient: as of a ``Constraint``.
    """

    key: str
    max_skew: int
    hard: bool = False
    lenient: bool = False


SYSTEM_DEFAULTS = (
    DefaultConstraint(HOSTNAME, 3, lenient=True),
    DefaultConstraint("topology.kubernetes.io/zone", 5, lenient=True),
)


def _compile(item: TopologySpreadConstraint, pod: Pod) -> Constraint:
    labels = pod.metadata.labels
    wanted = requirements(item.label_selector)
    if wanted is not None:
        wanted += by_keys(item.match_label_keys, labels, IN)
    return Constraint(
        item.topology_key,
        item.when_unsatisfiable == "DoNotSchedule",
        item.max_skew,
        # An empty selector matches every pod but counts none.
        PodSelector(frozenset({pod.metadata.namespace}), None, wanted or None),
        wanted is not None and all(one.matches(labels) for one in wanted),
        item.min_domains or 1,
        item.node_affinity_policy != "Ignore",
        item.node_taints_policy == "Honor",
    )


def of_pod(pod: Pod) -> tuple[Constraint, ...]:
    """The pod's constraints, compiled.

    Raises:
        SelectorError: a selector's expression has no key or an unknown operator.
    """
    return tuple(_compile(item, pod) for item in pod.spec.topology_spread_constraints)


def weight(domains: int) -> float:
    """What one pod counts in a score, by the number of domains."""
    return log(domains + 2)


def rounded(number: Any) -> Any:
    """To the nearest integer, halves up; one number or many, not negative."""
    halves = np.asarray(2.0 * number).astype(np.int64)
    return (halves + 1) >> 1


def scaled(raw: N, least: int, most: int) -> N:
    """Raw scores, one or many, reversed into 0 to 100, 100 being best."""
    return 100 * (most + least - raw) // most if most else 0 * raw + 100
