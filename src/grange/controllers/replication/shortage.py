"""Why there is no eligible node for some replicas, in words: so many nodes for each reason."""

from collections import Counter
from collections.abc import Container, Iterable

from grange.api.kinds.node import Node
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import drained_nodes
from grange.controllers.replication.scheduling import Demand

_SHOWN = 5


def reasons(
    controller: ReplicationController,
    nodes: Iterable[Node],
    *,
    occupied: Container[str],
    eligible: Container[str],
) -> str:
    """The reasons, most frequent first.

    Args:
        controller: whose replicas.
        nodes: all there are.
        occupied: names of nodes that have a pod of it.
        eligible: names of nodes where its pods may run, drained ones included.

    Raises:
        SelectorError, msgspec.ValidationError: its spec cannot be read.
    """
    demand, drained = Demand.of(controller), drained_nodes(controller)
    spread = controller.spec.placement == "OnePerNode"
    found: Counter[tuple[str, str]] = Counter()
    total = 0
    for node in nodes:
        name, total = node.metadata.name, total + 1
        if name in drained:
            mark = f"drained by rc drain-node {controller.metadata.name}"
            found["is " + mark, "are " + mark] += 1
        elif obstacle := demand.obstacle(node):
            found[obstacle] += 1
        elif name not in eligible:
            found["is not given by the machine pool", "are not given by the machine pool"] += 1
        elif spread and name in occupied:
            found["has a pod already (OnePerNode)", "have a pod already (OnePerNode)"] += 1
    if not total:
        return "there is no node"
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:_SHOWN]
    return ", ".join(f"{count} {one if count == 1 else many}" for (one, many), count in ranked)
