"""VolumeBinding: refuses pods with persistent volume claims.

No server of ours provides persistent volumes. What it provides needs no placement: emptyDir,
hostPath, ConfigMaps, Secrets and the downward API are made on any node. A pod with a claim would be
placed and never start, so it waits with a reason.
"""

from grange.scheduler.framework import Plugin
from grange.scheduler.node_plugin import PodFilter
from grange.scheduler.podinfo import PodInfo


def _refusal(pod: PodInfo) -> str:
    """The first claim is not found."""
    if not pod.claims:
        return ""
    return f'persistentvolumeclaim "{pod.claims[0].partition("/")[2]}" not found'


PLUGIN = Plugin(
    "VolumeBinding",
    pre_filter=PodFilter(_refusal),
    signature=_refusal,
    advice="there are no persistent volumes here; use emptyDir or hostPath",
)
