"""What a ReplicationController requires of the nodes of its pods."""

from dataclasses import dataclass

import msgspec

from grange.api import selectors
from grange.api.kinds import node as nodes
from grange.api.kinds.node import Node
from grange.api.kinds.pod import PodSpec, Toleration
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.placement import node_rules, taint_toleration

Obstacle = tuple[str, str]
"""The predicate for one node, and for several."""

_GOING: Obstacle = ("is being deleted", "are being deleted")
_NOT_READY: Obstacle = ("is not Ready", "are not Ready")
_CORDONED: Obstacle = ("is cordoned", "are cordoned")
_NOT_SELECTED: Obstacle = ("does not match spec.nodeSelector", "do not match spec.nodeSelector")
_NOT_WANTED: Obstacle = (
    "does not match the template's nodeSelector or affinity",
    "do not match the template's nodeSelector or affinity",
)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a controller requires of a node, compiled once."""

    labels: selectors.Labels
    affinity: node_rules.NodeRules
    tolerations: tuple[Toleration, ...]

    @classmethod
    def of(cls, controller: ReplicationController) -> "Demand":
        """The demand of a controller: its node selector and its template's rules about nodes.

        Raises:
            SelectorError, msgspec.ValidationError: the spec cannot be read.
        """
        spec = msgspec.convert(controller.spec.template.get("spec") or {}, PodSpec)
        return cls(
            selectors.Labels.of(controller.spec.node_selector),
            node_rules.of_pod(spec),
            tuple(spec.tolerations),
        )

    def selects(self, node: Node) -> bool:
        """Whether the node has the name and the labels that are asked for, whatever its state."""
        meta = node.metadata
        return self.labels.matches(meta.labels) and node_rules.matches(
            self.affinity, meta.name, meta.labels
        )

    def accepts(self, node: Node) -> bool:
        """Whether the node is ready, open for new pods, tolerated and selected."""
        return self.obstacle(node) is None

    def obstacle(self, node: Node) -> Obstacle | None:
        """Why the node is not accepted; None if it is."""
        meta = node.metadata
        if meta.deletion_timestamp:
            return _GOING
        if not nodes.is_ready(node):
            return _NOT_READY
        if node.spec.unschedulable and not taint_toleration.tolerated(
            self.tolerations, taint_toleration.UNSCHEDULABLE
        ):
            return _CORDONED
        if not self.labels.matches(meta.labels):
            return _NOT_SELECTED
        if not node_rules.matches(self.affinity, meta.name, meta.labels):
            return _NOT_WANTED
        taint = taint_toleration.first_untolerated(node.spec.taints, self.tolerations)
        if taint is not None:
            words = f"the taint {taint.key}, which the template does not tolerate"
            return f"has {words}", f"have {words}"
        return None
