"""BestFit: the node that would have least left.

Score = S · (1 - ½ · left(cpu) / 128 CPUs - ½ · left(gpu) / 8 GPUs), where left is what the node would
have free with the pod on it. As in Weng et al., USENIX ATC 2023, §6.1 (the classic heuristic of vector
bin packing), where both resources count alike and are measured by the largest node.
"""

from grange.placement import packing
from grange.placement.loads import Load
from grange.placement.packing import LARGEST, SCALE
from grange.scheduler.node_attributes import LOAD
from grange.scheduler.node_plugin import NodeScore
from grange.scheduler.podinfo import PodInfo


class BestFit(NodeScore[tuple[int, int], Load]):
    """Compares CPU and GPU requests with what is left."""

    name = "BestFit"
    attribute = LOAD
    scale = SCALE

    def demand(self, pod: PodInfo) -> tuple[int, int]:
        """Thousandths of CPUs and GPUs."""
        return packing.asked(pod.request)

    def score_value(self, demand: tuple[int, int], value: Load) -> int:
        """The less is left, the better."""
        shares = [
            SCALE * min(max(0, left - want), most) // (2 * most)
            for left, want, most in zip(packing.left(value), demand, LARGEST, strict=True)
        ]
        return SCALE - sum(shares)


PLUGIN = BestFit().plugin()
