"""Which nodes a controller may use, and how it allocates more.

``NodeScheduler`` is the controller's view of placement: it names eligible nodes, allocates further ones and
releases them. It does not bind pods. ``NodeSelectorScheduler`` knows the nodes that exist; a pool of machines
can implement the same protocol.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Protocol

import msgspec

from grange.api.kinds import node as nodes
from grange.api.kinds.node import Node
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.transfer_status import drained_nodes
from grange.base.bounded import BoundedDict
from grange.base.errors import GrangeError
from grange.base.plurals import counted
from grange.controllers.shared import pod_identity
from grange.placement.node_demand import Demand

_REMEMBERED = 4096  # distinct demands


class AllocationRefused(GrangeError):
    """No further nodes can be provided: report the shortage and continue with the existing ones."""


EligibleNodes = Callable[[ReplicationController], Sequence[str]]
"""Names of the eligible nodes of any controller at one moment, sorted.

Raises:
    SelectorError, msgspec.ValidationError: the controller's spec cannot be read.
"""


class NodeScheduler(Protocol):
    """What the replication controller needs to know about nodes."""

    async def eligible_nodes(self) -> EligibleNodes:
        """The eligible nodes of now, used ones included, of any controller.

        Empty is a valid answer: nothing will be placed.

        Raises:
            GrangeError: nothing is known of the nodes.
        """

    async def allocate_nodes(
        self, controller: ReplicationController, count: int, *, request_id: str
    ) -> Sequence[str]:
        """Provide so many more nodes, which ``eligible_nodes`` then includes.

        The same request id returns the same nodes.

        Raises:
            AllocationRefused: there are none.
        """

    async def allocated_nodes(self, controller: ReplicationController) -> Sequence[str]:
        """Names of the nodes that were allocated for the controller and not released."""

    async def deallocate_nodes(
        self, controller: ReplicationController, names: Sequence[str]
    ) -> None:
        """Release nodes that the controller no longer uses; unknown ones are ignored.

        Raises:
            AllocationRefused: nodes are not allocated here.
        """


def placement_facts(node: Node) -> tuple[object, ...]:
    """Everything about a node that eligibility depends on; equal facts mean equal answers."""
    return (
        node.metadata.labels,
        node.metadata.deletion_timestamp is None,
        node.spec.unschedulable,
        [(taint.key, taint.value, taint.effect) for taint in node.spec.taints],
        nodes.is_ready(node),
    )


class NodeSelectorScheduler:
    """Eligibility from the nodes that exist; nodes cannot be allocated.

    Results are cached by demand until ``nodes_changed``: ten thousand controllers have few distinct demands.
    """

    def __init__(self, nodes_: Callable[[], Iterable[Node]]) -> None:
        self._nodes = nodes_
        self._answers: BoundedDict[bytes, tuple[str, ...]] = BoundedDict(_REMEMBERED)

    def nodes_changed(self) -> None:
        """Clear the cache; call when the placement facts of any node changed."""
        self._answers.clear()

    async def eligible_nodes(self) -> EligibleNodes:
        """The eligible nodes of now."""
        return self._eligible

    def _eligible(self, controller: ReplicationController) -> Sequence[str]:
        spec = controller.spec.template.get("spec") or {}
        about_nodes = [spec.get(key) for key in ("nodeSelector", "affinity", "tolerations")]
        question = msgspec.json.encode(
            [controller.spec.node_selector, about_nodes], order="deterministic"
        )
        answer = self._answers.get(question)
        if answer is None:
            demand = Demand.of(controller)
            answer = tuple(sorted(n.metadata.name for n in self._nodes() if demand.accepts(n)))
            self._answers[question] = answer
        return answer

    async def allocate_nodes(
        self, controller: ReplicationController, count: int, *, request_id: str
    ) -> Sequence[str]:
        """Raise: label nodes so that the node selector matches them, or add nodes."""
        more = counted(count, "more node")
        raise AllocationRefused(
            f"{controller.key}: {more} wanted, but nodes are not allocated here: "
            "label nodes to match spec.nodeSelector or add nodes"
        )

    async def allocated_nodes(self, controller: ReplicationController) -> Sequence[str]:
        """None."""
        return ()

    async def deallocate_nodes(
        self, controller: ReplicationController, names: Sequence[str]
    ) -> None:
        """Raise: nothing was allocated."""
        raise AllocationRefused(
            f"{controller.key}: nodes are not allocated here, so none can be released"
        )


Places = tuple[Sequence[str], Sequence[str] | None]
"""Names of nodes for new pods, and for those of earlier templates; None for the same."""


def places(nodes_: EligibleNodes, controller: ReplicationController) -> Places:
    """The eligible nodes of a controller, by the stored state of its rollout.

    Raises:
        SelectorError, msgspec.ValidationError: a template cannot be parsed.
    """
    present, stable = pod_identity.sources(controller)
    return nodes_(present), None if stable is None else nodes_(stable)


_SHOWN = 5


def shortage_reasons(
    controller: ReplicationController,
    nodes: Iterable[Node],
    *,
    occupied: Container[str],
    eligible: Container[str],
) -> str:
    """Why nodes cannot take replicas, most frequent reason first.

    The eligible nodes include drained ones; occupied ones have a pod of the controller.

    Raises:
        SelectorError, msgspec.ValidationError: its spec cannot be parsed.
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
    return ", ".join(counted(count, one, many) for (one, many), count in ranked)
