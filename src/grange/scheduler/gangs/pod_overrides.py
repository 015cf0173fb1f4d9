"""Pods with one demand or toleration more, as a gang's pods are decided: some domains only, reserved nodes.

An override changes what the engine is asked, not the pod: the pod that is assumed and bound is the
one that the user made.
"""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from grange.api.kinds.node import Node, Taint
from grange.api.kinds.pod import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    PodSpec,
    Toleration,
)
from grange.api.meta import SelectorRequirement
from grange.placement import node_rules
from grange.scheduler.framework import Profiles
from grange.scheduler.podinfo import PodInfo

RESERVED_TAINT = "grange.dev/reserved-for"
"""Taint that nodes have inside the scheduler, and nowhere else, while they are reserved."""

_ANYTHING = Toleration(operator="Exists")
_TOLERATION = Toleration(key=RESERVED_TAINT, operator="Exists")


def override_all(
    profiles: Profiles, pods: Sequence[PodInfo], override: Callable[[PodInfo], PodInfo]
) -> list[PodInfo]:
    """The pods with an override, which is worked out once for those of one signature."""
    made: dict[int, PodInfo] = {}
    found = []
    for info in pods:
        number = profiles.sign(info)
        if number not in made:
            made[number] = override(info)
            profiles.sign(made[number])
        found.append(_like(info, made[number]))
    return found


def within_domains(
    profiles: Profiles, pods: Sequence[PodInfo], key: str, values: tuple[str, ...]
) -> Sequence[PodInfo]:
    """The pods as if they demanded nodes whose label has one of these values; none demands nothing."""
    if not values:
        return pods
    return override_all(profiles, pods, partial(_within, key=key, values=values))


def _within(info: PodInfo, key: str, values: tuple[str, ...]) -> PodInfo:
    wanted = SelectorRequirement(key=key, operator="In", values=values)
    spec = info.pod.spec
    affinity = spec.affinity or Affinity()
    node = affinity.node_affinity or NodeAffinity()
    must = node.required_during_scheduling_ignored_during_execution
    # Terms are alternatives, so each gets the demand; an empty one matches nothing as it is.
    if must is None:
        narrowed: tuple[NodeSelectorTerm, ...] = (NodeSelectorTerm(match_expressions=(wanted,)),)
    else:
        narrowed = tuple(
            msgspec.structs.replace(term, match_expressions=(*term.match_expressions, wanted))
            if term.match_expressions or term.match_fields
            else term
            for term in must.node_selector_terms
        )
    node = msgspec.structs.replace(
        node,
        required_during_scheduling_ignored_during_execution=NodeSelector(
            node_selector_terms=narrowed
        ),
    )
    affinity = msgspec.structs.replace(affinity, node_affinity=node)
    return _with(info, msgspec.structs.replace(spec, affinity=affinity))


def past_reservations(info: PodInfo) -> PodInfo:
    """The pod as if it tolerated nodes that are reserved for a gang."""
    spec = info.pod.spec
    return _with(info, msgspec.structs.replace(spec, tolerations=(*spec.tolerations, _TOLERATION)))


def on_closed_nodes(info: PodInfo) -> PodInfo:
    """The pod as if it tolerated every taint, and nodes that are cordoned."""
    return _with(info, msgspec.structs.replace(info.pod.spec, tolerations=(_ANYTHING,)))


def reserved(node: Node, name: str) -> Node:
    """The node as if it were tainted for a gang of this name."""
    bare = unreserved(node)
    taint = Taint(key=RESERVED_TAINT, value=name, effect="NoSchedule")
    spec = msgspec.structs.replace(bare.spec, taints=(*bare.spec.taints, taint))
    return msgspec.structs.replace(bare, spec=spec)


def unreserved(node: Node) -> Node:
    """The node as it is."""
    taints = tuple(taint for taint in node.spec.taints if taint.key != RESERVED_TAINT)
    if len(taints) == len(node.spec.taints):
        return node
    spec = msgspec.structs.replace(node.spec, taints=taints)
    return msgspec.structs.replace(node, spec=spec)


def _with(info: PodInfo, spec: PodSpec) -> PodInfo:
    return msgspec.structs.replace(
        info,
        pod=msgspec.structs.replace(info.pod, spec=spec),
        affinity=node_rules.of_pod(spec),
        signature=None,
    )


def _like(info: PodInfo, overridden: PodInfo) -> PodInfo:
    """The pod with the override of another one of its signature."""
    spec = msgspec.structs.replace(
        info.pod.spec,
        affinity=overridden.pod.spec.affinity,
        tolerations=overridden.pod.spec.tolerations,
    )
    return msgspec.structs.replace(
        info,
        pod=msgspec.structs.replace(info.pod, spec=spec),
        affinity=overridden.affinity,
        signature=overridden.signature,
    )
