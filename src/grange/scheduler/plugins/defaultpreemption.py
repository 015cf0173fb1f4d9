"""DefaultPreemption: evicts pods of lower priority for a pod without a feasible node."""

from grange.scheduler.framework import Plugin
from grange.scheduler.plugin_args import PluginArgs, configurable, refusal, within
from grange.scheduler.preemption.evaluator import Evaluator
from grange.scheduler.preemption.victim_selection import CandidateSettings

_NAME = "DefaultPreemption"
_MANY = 2**31 - 1


class DefaultPreemptionArgs(PluginArgs, frozen=True, kw_only=True):
    """As DefaultPreemptionArgs."""

    min_candidate_nodes_percentage: int = 10
    min_candidate_nodes_absolute: int = 100

    def __post_init__(self) -> None:
        within("minCandidateNodesPercentage", self.min_candidate_nodes_percentage, 0, 100)
        within("minCandidateNodesAbsolute", self.min_candidate_nodes_absolute, 0, _MANY)
        if not self.min_candidate_nodes_percentage and not self.min_candidate_nodes_absolute:
            message = "may not be 0 when minCandidateNodesPercentage is, too"
            raise ValueError(refusal("minCandidateNodesAbsolute", message))


def make(args: DefaultPreemptionArgs) -> Plugin:
    """The plugin with these arguments."""
    settings = CandidateSettings(
        args.min_candidate_nodes_percentage, args.min_candidate_nodes_absolute
    )
    return Plugin(_NAME, post_filter=lambda handle: Evaluator(handle, settings))


PLUGIN = configurable(DefaultPreemptionArgs, make)
