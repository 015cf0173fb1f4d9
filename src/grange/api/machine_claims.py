"""The object by which claims on machines are fenced."""

EPOCHS_CONFIGMAP = "grange-machine-claims"
"""ConfigMap with the highest epoch of each holder of machines, by the holder's UID."""

NAMESPACE = "kube-system"
"""Where that ConfigMap is."""
