"""The object by which claims on machines are fenced, and how unmet claims are recorded."""

EPOCHS_CONFIGMAP = "grange-machine-claims"
"""ConfigMap with the highest epoch of each holder of machines, by the holder's UID."""

NAMESPACE = "kube-system"
"""Where that ConfigMap is."""

REQUEST_PREFIX = "machine-requests.grange.dev/"
"""Prefix of annotations of NodePools: machines that the pool is to have for a claim, as JSON."""
