"""The objects that a pod names, from its document: what its node has to read to run it."""

from collections.abc import Iterator
from typing import Any

from grange.api.fields import lookup
from grange.api.meta import Document

SECRETS, CONFIGMAPS, ACCOUNTS, CLAIMS = (
    "secrets",
    "configmaps",
    "serviceaccounts",
    "persistentvolumeclaims",
)
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_DEFAULT_ACCOUNT = "default"


def references(pod: Document) -> Iterator[tuple[str, str]]:
    """Plural and name of each object in the pod's namespace that its spec names."""
    spec = pod.get("spec") or {}
    account = spec.get("serviceAccountName") or _DEFAULT_ACCOUNT
    found = [(ACCOUNTS, account)]
    found += [(SECRETS, item.get("name")) for item in _objects(spec.get("imagePullSecrets"))]
    for volume in _objects(spec.get("volumes")):
        found += _of_volume(volume)
    for field in _CONTAINERS:
        for container in _objects(spec.get(field)):
            found += _of_container(container)
    for plural, name in found:
        if isinstance(name, str) and name:
            yield plural, name


def _of_volume(volume: Document) -> Iterator[tuple[str, Any]]:
    yield SECRETS, lookup(volume, "secret.secretName")
    yield CONFIGMAPS, lookup(volume, "configMap.name")
    yield CLAIMS, lookup(volume, "persistentVolumeClaim.claimName")
    for field in ("cephfs", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"):
        yield SECRETS, lookup(volume, f"{field}.secretRef.name")
    yield SECRETS, lookup(volume, "csi.nodePublishSecretRef.name")
    yield SECRETS, lookup(volume, "azureFile.secretName")
    for source in _objects(lookup(volume, "projected.sources")):
        yield SECRETS, lookup(source, "secret.name")
        yield CONFIGMAPS, lookup(source, "configMap.name")


def _of_container(container: Document) -> Iterator[tuple[str, Any]]:
    for source in _objects(container.get("envFrom")):
        yield SECRETS, lookup(source, "secretRef.name")
        yield CONFIGMAPS, lookup(source, "configMapRef.name")
    for variable in _objects(container.get("env")):
        yield SECRETS, lookup(variable, "valueFrom.secretKeyRef.name")
        yield CONFIGMAPS, lookup(variable, "valueFrom.configMapKeyRef.name")


def _objects(items: Any) -> list[Document]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
