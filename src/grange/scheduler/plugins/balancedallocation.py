"""NodeResourcesBalancedAllocation: rather where CPU and memory end up evenly used."""

from collections.abc import Hashable

from grange.api.pod_requests import CPU, MEMORY
from grange.placement import allocation
from grange.placement.columns import Integers, NodeTable, Rows
from grange.scheduler.framework import CycleState, Normalise, Plugin, Scope
from grange.scheduler.nodeinfo import NodeInfo, PodInfo
from grange.scheduler.plugin_args import (
    ConfigSection,
    PluginArgs,
    configured,
    no_resource_twice,
    refusal,
    resource_name,
)

_NAME = "NodeResourcesBalancedAllocation"


class Resource(ConfigSection, frozen=True, kw_only=True):
    """A resource to balance; they all count alike."""

    name: str
    weight: int = 1

    def __post_init__(self) -> None:
        """Refuse a weight that would have no meaning."""
        resource_name(self.name)
        if self.weight != 1:
            raise ValueError(refusal("weight", "must be 1: balance knows no weights"))


class Args(PluginArgs, frozen=True, kw_only=True):
    """As NodeResourcesBalancedAllocationArgs."""

    resources: tuple[Resource, ...] = (Resource(name=CPU), Resource(name=MEMORY))

    def __post_init__(self) -> None:
        """Refuse a resource that is there twice."""
        no_resource_twice([item.name for item in self.resources])


class _Balanced:
    scope = Scope.LOAD
    normalise = Normalise.NONE

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names

    def applies(self, pod: PodInfo) -> bool:
        """Not to pods that ask for none of them."""
        return any(allocation.asked(name, pod.request, nonzero=False) for name in self._names)

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """75 leaves the balance as it is."""
        return allocation.balanced(self._names, pod.request, node.allocatable, node.usage)

    def score_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Integers:
        """75 leaves the balance as it is."""
        return allocation.balanced_rows(self._names, pod.request, table, rows)


def make(args: Args) -> Plugin:
    """The plugin with these arguments."""
    balanced = tuple(item.name for item in args.resources) or (CPU, MEMORY)

    def signature(pod: PodInfo) -> Hashable:
        return tuple([allocation.asked(name, pod.request, nonzero=False) for name in balanced])

    return Plugin(
        _NAME,
        score=_Balanced(balanced),
        weight=1,
        signature=signature,
        configure=configured(_NAME, Args, make),
    )


PLUGIN = make(Args())
