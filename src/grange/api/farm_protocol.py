"""The words by which the farm speaks through the API: who owns what, who takes part, what is wrong."""

OWNER_ANNOTATION = "grange.dev/owner"
"""On an object: the session that owns it, as ``MEMBER_NONCE/EPOCH``; empty after a release."""

GROUP_LABEL = "grange.dev/farm"
"""On a member's Lease: the group that it belongs to."""

FARMS_ANNOTATION = "grange.dev/farms"
"""On a member's Lease: JSON, the farms that it takes part in and what it selects in each."""

REPORT_ANNOTATION = "grange.dev/farm-report"
"""On a member's Lease: JSON, how much it ``owns`` in each farm, and its ``alerts``."""

SERVICE_LABEL = "grange.dev/service"
"""On the Lease that stands for a service which one member at a time runs: the service's name."""

NAMESPACE = "kube-system"
"""Where the Leases and the ConfigMap are."""

RESUME_CONFIGMAP = "grange-farm"
RESUME_ANNOTATION = "grange.dev/farm-resume"
"""On that ConfigMap: any new value is an operator's word that deletions may go on."""
