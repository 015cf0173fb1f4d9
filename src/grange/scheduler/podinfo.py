"""A pod as the scheduler sees it.

A ``PodInfo`` is computed once from a pod and never changes.
"""

from collections.abc import Callable
from typing import Self

import msgspec

from grange.api import gpus
from grange.api.kinds.pod import Pod, PodSpec
from grange.api.meta import controller_of
from grange.api.pod_requests import PodRequest, effective_spec, pod_request
from grange.base.bounded import BoundedDict
from grange.placement import devices, node_rules, podaffinity, spread
from grange.placement.node_rules import NodeRules
from grange.placement.podaffinity import NO_TERMS, Terms
from grange.placement.ports_and_disks import Disk, HostPort, host_ports, inline_disks
from grange.placement.spread import Constraint

_LABEL_SETS_MAX = 50_000
_TEMPLATES_MAX = 1024  # of some kilobytes each

_encode = msgspec.json.Encoder().encode


class LabelSet:
    """A namespace and labels; selectors cannot distinguish pods with equal ones.

    Compared by identity, so that tables keyed by it are quick. Equal ones with labels in one order are
    one object, until so many were seen that the register is emptied: results do not rely on it.
    """

    __slots__ = ("labels", "namespace")

    def __init__(self, namespace: str, labels: dict[str, str]) -> None:
        self.namespace = namespace
        self.labels = labels


_register: BoundedDict[tuple[object, ...], LabelSet] = BoundedDict(_LABEL_SETS_MAX)


class PodInfo(msgspec.Struct, gc=False):
    """A pod and what follows from its spec.

    Attributes:
        uid: its UID, the scheduler's identity of it.
        priority: as in its spec; read without the spec, since searches for victims read thousands.
        affinity: its demands and wishes about nodes.
        has_affinity: it states any pod affinity or anti-affinity, even a preference.
        claims: the persistent volume claims it mounts, as ``namespace/name``.
        terms: its demands and wishes about other pods.
        spread: its topology spread constraints, default ones included.
        images: what its containers run, by name with tag.
        devices: the devices that it holds on its node, by number.
        signature: filled in by the profile: pods with equal numbers are placed alike.
        known_label_set: filled in by ``label_set``: its namespace and labels.
    """

    pod: Pod
    uid: str
    priority: int
    request: PodRequest
    ports: tuple[HostPort, ...]
    affinity: NodeRules
    has_affinity: bool
    claims: tuple[str, ...]
    terms: Terms = NO_TERMS
    spread: tuple[Constraint, ...] = ()
    images: tuple[str, ...] = ()
    devices: tuple[int, ...] = ()
    disks: tuple[Disk, ...] = ()
    signature: int | None = None
    known_label_set: LabelSet | None = None

    @classmethod
    def of(cls, pod: Pod) -> Self:
        """Compute it.

        Raises:
            QuantityError: a request is no quantity.
            SelectorError: a selector about other pods cannot be read.
        """
        spec = pod.spec
        request = pod_request(effective_spec(pod))
        affinity = spec.affinity
        near = affinity is not None and (
            affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None
        )
        claims: tuple[str, ...] = ()
        if spec.volumes:
            claims = tuple(
                f"{pod.metadata.namespace}/{volume.persistent_volume_claim.get('claimName', '')}"
                for volume in spec.volumes
                if volume.persistent_volume_claim is not None
            )
        return cls(
            pod,
            pod.metadata.uid,
            spec.priority,
            request,
            host_ports(spec),
            node_rules.of_pod(spec),
            near,
            claims,
            podaffinity.of_pod(pod) if near else NO_TERMS,
            spread.of_pod(pod) if spec.topology_spread_constraints else (),
            _images(spec),
            _held(pod, request) if request.resources.scalars else (),
            inline_disks(spec) if spec.volumes else (),
        )

    def seen_as(self, pod: Pod) -> Self:
        """The same for another version of the pod, computed again only where it differs.

        Raises:
            QuantityError: a request is no quantity.
            SelectorError: a selector about other pods cannot be read.
        """
        same = pod.spec == self.pod.spec and pod.metadata.uid == self.uid
        # Labels decide whether a pod counts for its own spread, and what "the same label" means.
        labelled = bool(self.spread) or self.has_affinity
        if same and (not labelled or pod.metadata.labels == self.pod.metadata.labels):
            request, before = self.request, self.pod.status
            if pod.status.container_statuses or before.container_statuses or pod.spec.resources:
                request = pod_request(effective_spec(pod))
            return msgspec.structs.replace(self, pod=pod, request=request, known_label_set=None)
        return self.of(pod)

    def charged_alike(self, other: Self) -> bool:
        """Whether a node that holds the one is charged as one that holds the other."""
        return (
            self.request == other.request
            and self.ports == other.ports
            and self.devices == other.devices
            and self.disks == other.disks
            and self.has_affinity == other.has_affinity
        )

    @property
    def has_required_anti_affinity(self) -> bool:
        """Whether it states required anti-affinity."""
        return bool(self.terms.anti_affinity)

    def label_set(self) -> LabelSet:
        """Its namespace and labels."""
        found = self.known_label_set
        if found is None:
            meta = self.pod.metadata
            key: tuple[object, ...] = (meta.namespace, *meta.labels.items())
            found = _register.get(key)
            if found is None:
                found = _register[key] = LabelSet(meta.namespace, dict(meta.labels))
            self.known_label_set = found
        return found

    def on(self, node_name: str) -> Self:
        """The same for a copy of the pod that is on the node."""
        pod = self.pod
        spec = msgspec.structs.replace(pod.spec, node_name=node_name)
        return msgspec.structs.replace(self, pod=msgspec.structs.replace(pod, spec=spec))

    def holding(self, held: tuple[int, ...]) -> Self:
        """The same for a copy of the pod that holds these devices of its node."""
        meta = self.pod.metadata
        annotations = {**meta.annotations, gpus.ANNOTATION: devices.written(held)}
        meta = msgspec.structs.replace(meta, annotations=annotations)
        pod = msgspec.structs.replace(self.pod, metadata=meta)
        return msgspec.structs.replace(self, pod=pod, devices=held)


def _images(spec: PodSpec) -> tuple[str, ...]:
    """The images that containers and volumes name, each as often as it is named."""
    names = [item.image for item in (*spec.init_containers, *spec.containers)]
    names += [str(item.image.get("reference") or "") for item in spec.volumes if item.image]
    # A colon after the last slash, not one of a registry's port, starts the tag.
    return tuple(
        name if name.rfind(":") > name.rfind("/") else f"{name}:latest" for name in names if name
    )


def _held(pod: Pod, request: PodRequest) -> tuple[int, ...]:
    """The devices in the pod's annotation; without a node that means nothing."""
    want = devices.asked(request)
    if not want or not pod.spec.node_name:
        return ()
    return gpus.parse(pod.metadata.annotations.get(gpus.ANNOTATION, ""), want)


class PodInfoCache:
    """Computes the PodInfo of pods, once for those that are made alike.

    Pods come by the thousand from one template and differ in their names alone. Reading their
    quantities, compiling their selectors and numbering their signatures takes several times as long as
    finding out that they are alike: they share one spec, or its bytes are equal.

    Args:
        compute: a function of the pod's namespace, labels, controller and spec, apart from the pod's
            identity.

    Attributes:
        computed: how often it was called (a work counter).
    """

    def __init__(self, compute: Callable[[Pod], PodInfo]) -> None:
        self.computed = 0
        self._compute = compute
        self._by_bytes: BoundedDict[bytes, PodInfo] = BoundedDict(_TEMPLATES_MAX)
        # Keys begin with the identity of a spec, which the entry keeps alive.
        self._by_spec: BoundedDict[tuple[object, ...], PodInfo] = BoundedDict(_TEMPLATES_MAX)

    def info(self, pod: Pod) -> PodInfo:
        """What ``compute`` returns for the pod; what it raises is raised for every pod alike."""
        meta = pod.metadata
        owner = controller_of(meta)
        uid = owner and owner.uid
        key = (id(pod.spec), meta.namespace, uid, *meta.labels.items())
        known = self._by_spec.get(key)
        if known is None:
            body = _encode((meta.namespace, meta.labels, uid, pod.spec))
            known = self._by_bytes.get(body)
            if known is None:
                self.computed += 1
                known = self._by_bytes[body] = self._compute(pod)
            known = self._by_spec[key] = msgspec.structs.replace(known, pod=pod, uid=meta.uid)
            return known
        return msgspec.structs.replace(known, pod=pod, uid=meta.uid)

    def clear(self) -> None:
        """Something else that ``compute`` depends on has changed."""
        self._by_bytes.clear()
        self._by_spec.clear()
