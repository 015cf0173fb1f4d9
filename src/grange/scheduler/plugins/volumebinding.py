"""VolumeBinding: a pod whose volumes nobody can provide is not placed.

What the server provides needs no placement: emptyDir, hostPath, ConfigMaps, Secrets and the downward
API are made on whatever node the pod gets. Persistent volumes are not among it. A pod that claims one
would be placed and never start, so it waits and says why.
"""

from collections.abc import Hashable

from grange.scheduler.framework import PASS, Code, CycleState, Plugin, PreFilterResult, Status
from grange.scheduler.nodeinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot


class _Claims:
    def for_each(self, pod: PodInfo) -> bool:
        """The answer names a claim of the pod."""
        return bool(pod.claims)

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeInfoSnapshot
    ) -> PreFilterResult:
        """No claim can be met."""
        if not pod.claims:
            return PASS
        name = pod.claims[0].partition("/")[2]
        return PreFilterResult(
            Status(Code.UNRESOLVABLE, (f'persistentvolumeclaim "{name}" not found',))
        )


def _signature(pod: PodInfo) -> Hashable:
    return pod.claims


PLUGIN = Plugin("VolumeBinding", pre_filter=_Claims(), signature=_signature)
