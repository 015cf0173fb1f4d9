"""Plugins that are enabled at some extension points only."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grange.scheduler.domains import DomainRule
from grange.scheduler.framework import NodeCheck, Plugin, TopologyPlugin
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot


@dataclass(frozen=True, slots=True)
class _ExtensionPoint:
    """What a plugin does at a point of the configuration.

    Attributes:
        verb: completes "the plugin does not …".
        fields: of ``Plugin``, that are dropped where the point is disabled.
        also: further ones, any of which is enough to be enabled there.
    """

    verb: str
    fields: tuple[str, ...] = ()
    also: tuple[str, ...] = ()


# Stages that prepare or follow another one are part of that one here.
EXTENSION_POINTS: Mapping[str, _ExtensionPoint] = {
    "pre_enqueue": _ExtensionPoint("hold pods back", ("pre_enqueue",)),
    "queue_sort": _ExtensionPoint("sort the queue", ("queue_sort",)),
    "pre_filter": _ExtensionPoint("filter", ("pre_filter",), ("filter", "topology")),
    "filter": _ExtensionPoint("filter", ("filter",), ("topology",)),
    "post_filter": _ExtensionPoint("act when no node fits", ("post_filter",)),
    "pre_score": _ExtensionPoint("score", (), ("score", "topology")),
    "score": _ExtensionPoint("score", ("score",), ("topology",)),
    "reserve": _ExtensionPoint("reserve", ("reserve", "device_allocator")),
    "permit": _ExtensionPoint("permit", ("permit",)),
    "pre_bind": _ExtensionPoint("act before binding"),
    "bind": _ExtensionPoint("bind", ("bind",)),
    "post_bind": _ExtensionPoint("act after binding"),
}
"""By their names in ``component_config.Plugins``."""

# Where Kubernetes' plugin of the name does what is done at another point here, or is not needed.
_AS_ELSEWHERE: Mapping[str, frozenset[str]] = {
    "VolumeBinding": frozenset({"filter", "pre_score", "score", "reserve", "pre_bind"}),
}


class _ScoreOnly:
    """A plugin about other nodes that rules none out."""

    def __init__(self, whole: TopologyPlugin) -> None:
        self.concerns = whole.concerns
        self.score = whole.score
        self.explain = whole.explain
        self.ranking = whole.ranking

    def filter(self, pod: PodInfo, snapshot: NodeInfoSnapshot) -> NodeCheck | None:
        return None

    def rules(
        self, pod: PodInfo, snapshot: NodeInfoSnapshot, concerns: tuple[int, ...]
    ) -> Sequence[DomainRule]:
        return ()


def without(plugin: Plugin, point: str) -> Plugin:
    """The plugin without an extension point; one that does nothing there stays as it is."""
    changes: dict[str, Any] = dict.fromkeys(EXTENSION_POINTS[point].fields)
    if point == "filter":
        changes["topology"] = plugin.topology and _ScoreOnly(plugin.topology)
    if point == "score":
        changes["weight"] = 0
    return replace(plugin, **changes)


def what_it_lacks(plugin: Plugin, point: str) -> str:
    """What a plugin does not do that is enabled at a point; empty if it does, or need not."""
    here = EXTENSION_POINTS[point]
    does = any(getattr(plugin, field) is not None for field in (*here.fields, *here.also))
    return "" if does or point in _AS_ELSEWHERE.get(plugin.name, ()) else here.verb
