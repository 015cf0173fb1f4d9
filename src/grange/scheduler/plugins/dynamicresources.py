"""DynamicResources: a pod whose resource claims do not exist is not placed (KEP-4381).

Neither our server nor this scheduler knows ResourceClaims: a pod that names one would be bound to a
node that has not been chosen for its devices, so it waits and says why.
"""

from collections.abc import Hashable

from grange.scheduler.framework import PASS, Code, CycleState, Plugin, PreFilterResult, Status
from grange.scheduler.nodeinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot


def _missing(pod: PodInfo) -> str:
    claim = pod.pod.spec.resource_claims[0]
    if name := claim.get("resourceClaimName"):
        return f'resourceclaim "{name}" not found'
    return f'pod claim "{claim.get("name", "")}": waiting for its ResourceClaim to be created'


class _Claims:
    def for_each(self, pod: PodInfo) -> bool:
        """The answer names a claim."""
        return bool(pod.pod.spec.resource_claims)

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeInfoSnapshot
    ) -> PreFilterResult:
        """No claim can be met."""
        if not pod.pod.spec.resource_claims:
            return PASS
        return PreFilterResult(Status(Code.UNRESOLVABLE, (_missing(pod),)))


def _signature(pod: PodInfo) -> Hashable:
    return bool(pod.pod.spec.resource_claims)


PLUGIN = Plugin("DynamicResources", pre_filter=_Claims(), signature=_signature)
