"""DynamicResources: refuses pods with resource claims (KEP-4381).

ResourceClaims are not served here: a pod that names one would be bound to a
node that was not chosen for its devices, so it waits with a reason.
"""

from collections.abc import Hashable

from grange.scheduler.framework import Plugin
from grange.scheduler.node_plugin import PodFilter
from grange.scheduler.podinfo import PodInfo


class DynamicResources(PodFilter):
    """Refuses claims."""

    def refusal(self, pod: PodInfo) -> str:
        """The first claim is not found, or is never created from its template."""
        if not pod.pod.spec.resource_claims:
            return ""
        claim = pod.pod.spec.resource_claims[0]
        if name := claim.get("resourceClaimName"):
            return f'resourceclaim "{name}" not found'
        return f'pod claim "{claim.get("name", "")}": waiting for its ResourceClaim to be created'


def _signature(pod: PodInfo) -> Hashable:
    return bool(pod.pod.spec.resource_claims)


PLUGIN = Plugin(
    "DynamicResources",
    pre_filter=DynamicResources(),
    signature=_signature,
    advice="there are no resource claims here; request devices as resources",
)
