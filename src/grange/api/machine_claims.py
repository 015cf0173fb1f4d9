"""The names by which claims on machines are fenced and recorded."""

EPOCHS_CONFIGMAP = "grange-machine-claims"
"""ConfigMap with the highest epoch of each holder of machines, by the holder's UID."""

NAMESPACE = "kube-system"
"""Where that ConfigMap is."""

REQUEST_PREFIX = "machine-requests.grange.dev/"
"""Prefix of annotations of NodePools: machines that the pool is to have for a claim, as JSON."""

HOLDER_LABEL = "grange.dev/machine-holder"
"""Label of MachineLeases that were made for a claim: UID of the holder."""

REQUEST_ANNOTATION = "grange.dev/machine-request"
"""Annotation of these leases: id of the claim."""

EPOCH_ANNOTATION = "grange.dev/holder-epoch"
"""Annotation of these leases: the highest epoch of the holder that has answered with them."""
