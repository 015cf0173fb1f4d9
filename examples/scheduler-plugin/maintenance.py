"""MaintenanceWindow: no new pods on nodes that are about to be maintained, except short ones.

An example of a scheduler plugin: this file in ``scheduler/plugins`` and one line in its ``__init__``.
"""

from grange.scheduler.node_plugin import NAME_AND_LABELS, NameAndLabels, NodeFilter
from grange.scheduler.plugin_explanation import Remedy
from grange.scheduler.podinfo import PodInfo

LABEL = "example.com/maintenance"
SHORT_S = 3600
FOREVER_S = 2**31


class MaintenanceWindow(NodeFilter[int, NameAndLabels]):
    """Compares how long the pod may run with the node's label."""

    name = "MaintenanceWindow"
    attribute = NAME_AND_LABELS
    reason = "node(s) had a maintenance window"

    def demand(self, pod: PodInfo) -> int:
        """For how many seconds the pod may run."""
        limit = pod.pod.spec.active_deadline_seconds
        return FOREVER_S if limit is None else limit

    def allows(self, demand: int, value: NameAndLabels) -> bool:
        """Nodes without the label; short pods go anywhere."""
        return demand <= SHORT_S or LABEL not in value[1]

    def remedies(self, demand: int, value: NameAndLabels) -> list[Remedy]:
        """Wait for the end of the window."""
        return [Remedy.of_cluster(f"their label {LABEL} is removed", 0.4)]


PLUGIN = MaintenanceWindow().plugin()
