"""ImageRuntime: pods that are containers where that is possible prefer nodes that can run images.

Kubernetes has no such plugin, because there every node can. A node shows it by a label; where no node
has the label, every node is worth the same.
"""

from grange.api.kinds.pod import uses_images
from grange.api.pod_fields import IMAGES_LABEL
from grange.scheduler.node_plugin import NodeScore, label
from grange.scheduler.podinfo import PodInfo


class ImageRuntime(NodeScore[bool, str | None]):
    """Reads the label that agents set."""

    name = "ImageRuntime"
    attribute = label(IMAGES_LABEL)
    weight = 20  # more than all other preferences together: elsewhere the pod would wait

    def demand(self, pod: PodInfo) -> bool:
        """Whether every container names an image, and the pod does not ask for processes."""
        return bool(pod.images) and uses_images(pod.pod)

    def score_value(self, demand: bool, value: str | None) -> int:  # noqa: FBT001  the form of scores
        return 100 if demand and value == "true" else 0


PLUGIN = ImageRuntime().plugin()
