"""Kinds of Kubernetes that are not served, and what to use instead.

Manifests and clients use them; the refusal names the nearest kind that is served, with a manifest of
it where one can be made.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from grange.api import codec, unsupported
from grange.api.kinds import REPLICATIONCONTROLLER
from grange.api.meta import Document
from grange.api.scheme import AnyKind, Scheme

Convert = Callable[[Document], Document]


class Alternative(NamedTuple):
    """What to use instead of a kind.

    Attributes:
        group: API group of the kind that is not served.
        kind: its name.
        plural: its resource.
        info: the kind to use; None where there is none.
        note: what else to know.
        convert: makes the manifest of ``info`` from one of this kind.
    """

    group: str
    kind: str
    plural: str
    info: AnyKind | None
    note: str
    convert: Convert | None = None

    @property
    def advice(self) -> str:
        """What to do, in one clause."""
        if self.info is None:
            return self.note
        named = f"use {self.info.kind} in {self.info.api_version}"
        return f"{named} ({self.note})" if self.note else named

    def manifest(self, document: Document) -> Document | None:
        """The manifest to use instead of this one; None where none can be made."""
        return self.convert(document) if self.convert is not None else None


def _part(document: Document, name: str) -> Document:
    found = document.get(name)
    return found if isinstance(found, dict) else {}


def _made(info: AnyKind, document: Document, spec: Document) -> Document:
    given = _part(document, "metadata")
    kept = {key: given[key] for key in ("name", "namespace", "labels") if key in given}
    return {"apiVersion": info.api_version, "kind": info.kind, "metadata": kept, "spec": spec}


def _replication_controller(document: Document) -> Document:
    given = _part(document, "spec")
    spec: Document = {"replicas": given.get("replicas", 1), "template": given.get("template", {})}
    rollout = dict(_part(_part(given, "strategy"), "rollingUpdate"))
    for field in ("minReadySeconds", "progressDeadlineSeconds", "revisionHistoryLimit"):
        if field in given:
            rollout[field] = given[field]
    if given.get("paused"):
        rollout["paused"] = True
    if rollout:
        spec["rollout"] = rollout
    return _made(REPLICATIONCONTROLLER, document, spec)


def _on_every_node(document: Document) -> Document:
    made = _replication_controller({**document, "spec": _part(document, "spec")})
    made["spec"] |= {"placement": "OnePerNode"}
    return made


_VOLUMES = "use a volume of type emptyDir or hostPath in the pod"
_COPIES = (REPLICATIONCONTROLLER, "", _replication_controller)

_TABLE = (
    Alternative("apps", "Deployment", "deployments", *_COPIES),
    Alternative("apps", "ReplicaSet", "replicasets", *_COPIES),
    Alternative("", "ReplicationController", "replicationcontrollers", *_COPIES),
    Alternative(
        "apps",
        "DaemonSet",
        "daemonsets",
        REPLICATIONCONTROLLER,
        "with as many replicas as there are nodes",
        _on_every_node,
    ),
    Alternative(
        "apps",
        "StatefulSet",
        "statefulsets",
        REPLICATIONCONTROLLER,
        "its pods keep neither names nor volumes",
        _replication_controller,
    ),
    Alternative(
        "autoscaling",
        "HorizontalPodAutoscaler",
        "horizontalpodautoscalers",
        None,
        "set the number with grange scale",
    ),
    Alternative(
        "networking.k8s.io",
        "Ingress",
        "ingresses",
        None,
        "reach pods by a Service, of type NodePort from outside",
    ),
    Alternative("", "PersistentVolumeClaim", "persistentvolumeclaims", None, _VOLUMES),
    Alternative("", "PersistentVolume", "persistentvolumes", None, _VOLUMES),
    Alternative(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        None,
        "kinds cannot be added to this server while it runs",
    ),
)
_PROGRAMS = "nodes here run programs of the machine, not images: name one in command"
_SAMPLE: Document = {
    "metadata": {"name": "NAME"},
    "spec": {
        "replicas": 1,
        "template": {"spec": {"containers": [{"name": "main", "command": ["PROGRAM"]}]}},
    },
}


def advise_on_resource(scheme: Scheme, group: str, plural: str) -> str:
    """What to do about a resource that is not served, with an example; empty if nothing is near."""
    item = next((one for one in _TABLE if (one.group, one.plural) == (group, plural)), None)
    if item is None:
        return _elsewhere([info for info in scheme if info.plural == plural])
    sample = item.manifest(_SAMPLE)
    if sample is None:
        return item.advice
    return f"{item.advice}; {_PROGRAMS}, for example {codec.encode(sample).decode()}"


def advise_on_document(scheme: Scheme, document: Document) -> tuple[str, Document | None]:
    """What to do about a manifest of a kind that is not served.

    Returns:
        The advice, empty if nothing is near; and the manifest to use instead, if one can be made.
    """
    group, kind = str(document.get("apiVersion", "")).rpartition("/")[0], document.get("kind")
    item = next((one for one in _TABLE if (one.group, one.kind) == (group, kind)), None)
    if item is None:
        return _elsewhere([info for info in scheme if info.kind == kind]), None
    manifest = item.manifest(document)
    missing = unsupported.image_only(pod_spec(manifest)) if manifest is not None else ()
    if not missing:
        return item.advice, manifest
    containers = "container" if len(missing) == 1 else "containers"
    names = ", ".join(str(container.get("name")) for _, container in missing)
    return f"{item.advice}; {_PROGRAMS} of {containers} {names}", manifest


def pod_spec(manifest: Document) -> Document:
    """The spec of the pod that a manifest of ``advise_on_document`` makes."""
    return _part(_part(_part(manifest, "spec"), "template"), "spec")


def advise_on_word(word: str) -> str:
    """What to do about a kind that a person names; empty if nothing is near."""
    lowered = word.lower().partition(".")[0]
    found = (one for one in _TABLE if lowered in (one.plural, one.kind.lower()))
    item = next(found, None)
    return item.advice if item is not None else ""


def _elsewhere(infos: Sequence[AnyKind]) -> str:
    return f"{infos[0].kind} is served in {infos[0].api_version}" if infos else ""
