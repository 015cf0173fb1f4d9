"""DotProduct: the node whose free resources are least in line with what the pod asks for.

Score = S · (1 - ½ · Σ free(r) · asked(r) / largest(r)²) over CPU and GPU. The alignment of free and
asked amounts is Tetris' (Grandl et al., SIGCOMM 2014), which takes the largest; as a packing heuristic
Weng et al., USENIX ATC 2023, §6.1, take the smallest, which fills nodes up.
"""

from grange.placement import packing
from grange.placement.loads import Load
from grange.placement.packing import LARGEST, SCALE
from grange.scheduler.node_attributes import LOAD
from grange.scheduler.node_plugin import NodeScore
from grange.scheduler.podinfo import PodInfo


class DotProduct(NodeScore[tuple[int, int], Load]):
    """Compares CPU and GPU requests with what is left."""

    name = "DotProduct"
    attribute = LOAD
    scale = SCALE

    def demand(self, pod: PodInfo) -> tuple[int, int]:
        """Thousandths of CPUs and GPUs."""
        return packing.asked(pod.request)

    def score_value(self, demand: tuple[int, int], value: Load) -> int:
        """The smaller the product, the better."""
        products = [
            SCALE * min(max(0, left), most) * min(want, most) // (2 * most * most)
            for left, want, most in zip(packing.left(value), demand, LARGEST, strict=True)
        ]
        return SCALE - sum(products)


PLUGIN = DotProduct().plugin()
