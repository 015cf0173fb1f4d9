"""DynamicResources: refuses pods with resource claims (KEP-4381).

ResourceClaims are not served here: a pod that names one would be bound to a
node that was not chosen for its devices, so it waits with a reason.
"""

from grange.scheduler.framework import Plugin
from grange.scheduler.node_plugin import PodFilter
from grange.scheduler.podinfo import PodInfo


def _refusal(pod: PodInfo) -> str:
    """The first claim is not found, or is never created from its template."""
    if not pod.pod.spec.resource_claims:
        return ""
    claim = pod.pod.spec.resource_claims[0]
    if name := claim.get("resourceClaimName"):
        return f'resourceclaim "{name}" not found'
    return f'pod claim "{claim.get("name", "")}": waiting for its ResourceClaim to be created'


PLUGIN = Plugin(
    "DynamicResources",
    pre_filter=PodFilter(_refusal),
    signature=_refusal,
    advice="there are no resource claims here; request devices as resources",
)
