"""NodeResourcesBalancedAllocation: prefers nodes where resources end up evenly used."""

from grange.api.pod_requests import CPU, MEMORY, PodRequest
from grange.placement import allocation
from grange.placement.columns import Integers, NodeTable, Rows
from grange.placement.loads import Load
from grange.scheduler.framework import Plugin
from grange.scheduler.node_plugin import LOAD, NodeScore
from grange.scheduler.plugin_args import (
    ConfigSection,
    PluginArgs,
    configurable,
    no_resource_twice,
    refusal,
    resource_name,
)
from grange.scheduler.podinfo import PodInfo


class BalancedResource(ConfigSection, frozen=True, kw_only=True):
    """A resource to balance; they all count alike."""

    name: str
    weight: int = 1

    def __post_init__(self) -> None:
        resource_name(self.name)
        if self.weight != 1:
            raise ValueError(refusal("weight", "must be 1: balance has no weights"))


class BalancedAllocationArgs(PluginArgs, frozen=True, kw_only=True):
    """As NodeResourcesBalancedAllocationArgs."""

    resources: tuple[BalancedResource, ...] = (
        BalancedResource(name=CPU),
        BalancedResource(name=MEMORY),
    )

    def __post_init__(self) -> None:
        no_resource_twice([item.name for item in self.resources])


class BalancedAllocation(NodeScore[PodRequest, Load]):
    """Compares requests with what is in use; 75 leaves the balance as it is."""

    name = "NodeResourcesBalancedAllocation"
    attribute = LOAD

    def __init__(self, resources: tuple[str, ...]) -> None:
        self._resources = resources

    def demand(self, pod: PodInfo) -> PodRequest:
        return pod.request

    def applies(self, pod: PodInfo) -> bool:
        """Not to pods that ask for none of the resources: they balance nothing."""
        return any(self.signature(pod))

    def signature(self, pod: PodInfo) -> tuple[int, ...]:
        asked, request = allocation.asked, pod.request
        return tuple([asked(name, request, nonzero=False) for name in self._resources])

    def score_value(self, demand: PodRequest, value: Load) -> int:
        return allocation.balanced(self._resources, demand, value.allocatable, value.usage)

    def score_rows(self, pod: PodInfo, table: NodeTable, rows: Rows) -> Integers:
        return allocation.balanced_rows(self._resources, pod.request, table, rows)


def make(args: BalancedAllocationArgs) -> Plugin:
    """The plugin with these arguments."""
    score = BalancedAllocation(tuple(item.name for item in args.resources) or (CPU, MEMORY))
    return score.plugin()


PLUGIN = configurable(BalancedAllocationArgs, make)
