"""What the scheduler knows of one pod and of one node.

A ``PodInfo`` is computed once from a pod and never changes. A ``NodeInfo`` is the sum over a node's
pods. Its parts are immutable values that a change replaces, so a copy of a ``NodeInfo`` costs a few
references and shares everything that did not change since.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Self

import msgspec

from grange.api import gpus
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.api.pod_requests import Request, Resources, effective_spec, pod_request
from grange.placement import devices, images, loads, node_rules, podaffinity, spread
from grange.placement.disks import Disk, inline_disks
from grange.placement.loads import Load
from grange.placement.node_rules import NodeRules
from grange.placement.node_usage import Usage
from grange.placement.podaffinity import NO_TERMS, Terms
from grange.placement.ports import HostPort, host_ports
from grange.placement.spread import Constraint
from grange.scheduler import label_set
from grange.scheduler.errors import CacheError
from grange.scheduler.label_set import LabelSet

_NO_CLAIMS: Mapping[str, int] = MappingProxyType({})


class PodInfo(msgspec.Struct, gc=False):
    """A pod and what follows from its spec.

    Attributes:
        pod: the object.
        uid: its UID, the scheduler's identity of it.
        request: what it needs.
        ports: the host ports it wants.
        affinity: its demands and wishes about nodes.
        has_affinity: it states any pod affinity or anti-affinity, even a preference.
        has_required_anti_affinity: it refuses company.
        claims: the persistent volume claims it mounts, as ``namespace/name``.
        terms: its demands and wishes about other pods.
        spread: how it wants to be spread over domains.
        images: what its containers run, by name with tag.
        devices: the devices that it holds on its node, by number.
        disks: the inline disks that it uses.
        signature: filled in by the profile: pods with equal numbers are placed alike.
        kin: filled in by ``kinship``: the pods that selectors cannot tell from it.
    """

    pod: Pod
    uid: str
    request: Request
    ports: tuple[HostPort, ...]
    affinity: NodeRules
    has_affinity: bool
    has_required_anti_affinity: bool
    claims: tuple[str, ...]
    terms: Terms = NO_TERMS
    spread: tuple[Constraint, ...] = ()
    images: tuple[str, ...] = ()
    devices: tuple[int, ...] = ()
    disks: tuple[Disk, ...] = ()
    signature: int | None = None
    kin: LabelSet | None = None

    @classmethod
    def of(cls, pod: Pod) -> Self:
        """Compute it.

        Raises:
            QuantityError: a request is no quantity.
            SelectorError: a selector about other pods cannot be read.
        """
        spec = pod.spec
        request = pod_request(effective_spec(pod))
        near = far = False
        if spec.affinity is not None:
            near = spec.affinity.pod_affinity is not None
            anti = spec.affinity.pod_anti_affinity
            if anti is not None:
                near = True
                far = bool(anti.required_during_scheduling_ignored_during_execution)
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
            request,
            host_ports(spec),
            node_rules.of_pod(spec),
            near,
            far,
            claims,
            podaffinity.of_pod(pod) if near else NO_TERMS,
            spread.of_pod(pod) if spec.topology_spread_constraints else (),
            images.of_pod(spec),
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
            return msgspec.structs.replace(self, pod=pod, request=request, kin=None)
        return self.of(pod)

    def charged_alike(self, other: Self) -> bool:
        """Whether a node that holds the one is charged as one that holds the other."""
        return (
            self.request == other.request
            and self.ports == other.ports
            and self.claims == other.claims
            and self.devices == other.devices
            and self.disks == other.disks
            and self.has_affinity == other.has_affinity
            and self.has_required_anti_affinity == other.has_required_anti_affinity
        )

    def kinship(self) -> LabelSet:
        """The pods that selectors cannot tell from it."""
        found = self.kin
        if found is None:
            found = self.kin = label_set.of(self.pod.metadata)
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


def _held(pod: Pod, request: Request) -> tuple[int, ...]:
    """What the pod's annotation says; before it has a node that means nothing."""
    want = devices.asked(request)
    if not want or not pod.spec.node_name:
        return ()
    return gpus.parse(pod.metadata.annotations.get(gpus.ANNOTATION, ""), want)


@dataclass(slots=True)
class ImageState:
    """An image in the cluster: shared by all nodes that have it, so counts are always current.

    Attributes:
        size_bytes: as the first node reported it.
        nodes: who has it, in order of arrival.
    """

    size_bytes: int
    nodes: dict[str, None] = field(default_factory=dict)

    @property
    def num_nodes(self) -> int:
        """How many nodes have it."""
        return len(self.nodes)


_NO_IMAGES: Mapping[str, ImageState] = MappingProxyType({})


def _without(pods: tuple[PodInfo, ...], at: int) -> tuple[PodInfo, ...]:
    """Without one; the last takes its place, as the order of pods carries no meaning."""
    if at == len(pods) - 1:
        return pods[:-1]
    return (*pods[:at], pods[-1], *pods[at + 1 : -1])


def _exchanged(pods: tuple[PodInfo, ...], at: int, info: PodInfo) -> tuple[PodInfo, ...]:
    return (*pods[:at], info, *pods[at + 1 :])


def _renewed(pods: tuple[PodInfo, ...], info: PodInfo) -> tuple[PodInfo, ...]:
    """With the new version of a pod that is among them."""
    return tuple([info if item.uid == info.uid else item for item in pods])


def _dropped(pods: tuple[PodInfo, ...], uid: str) -> tuple[PodInfo, ...]:
    for at, item in enumerate(pods):
        if item.uid == uid:
            return _without(pods, at)
    return pods


def charged(load: Load, info: PodInfo) -> Load:
    """The load with one more pod."""
    load = load.charged(info.request, info.ports + info.disks)
    if info.devices:
        load = load.holding(devices.asked(info.request), info.devices)
    return load


def discharged(load: Load, info: PodInfo) -> Load:
    """The load with one pod less: the exact inverse of ``charged``."""
    load = load.discharged(info.request, info.ports + info.disks)
    if info.devices:
        load = load.releasing(devices.asked(info.request), info.devices)
    return load


class NodeInfo:
    """A node and the sum over its pods.

    ``node`` is None for a placeholder (pods seen before their node) and for a ghost (a removed node
    whose pods are still there).

    Attributes:
        name: the node's name.
        node: the object.
        load: what it offers and what its pods need together.
        pods: its pods, assumed ones included.
        pods_with_affinity, pods_with_required_anti_affinity: those of them that say so.
        claims: the persistent volume claims they mount, counted.
        image_states: the images it has, by every name.
        generation: when it last changed; unique among all changes of one cache.
    """

    __slots__ = (
        "claims",
        "generation",
        "image_states",
        "load",
        "name",
        "node",
        "pods",
        "pods_with_affinity",
        "pods_with_required_anti_affinity",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: Node | None = None
        self.load: Load = loads.NOTHING
        self.pods: tuple[PodInfo, ...] = ()
        self.pods_with_affinity: tuple[PodInfo, ...] = ()
        self.pods_with_required_anti_affinity: tuple[PodInfo, ...] = ()
        self.claims: Mapping[str, int] = _NO_CLAIMS
        self.image_states: Mapping[str, ImageState] = _NO_IMAGES
        self.generation = 0

    @property
    def allocatable(self) -> Resources:
        """What the node offers."""
        return self.load.allocatable

    @property
    def usage(self) -> Usage:
        """What its pods need together."""
        return self.load.usage

    def offer(self, allocatable: Resources) -> None:
        """The node offers this from now on."""
        self.load = self.load.offered(allocatable)

    def add_pod(self, info: PodInfo) -> None:
        """Charge one more pod."""
        self.pods = (*self.pods, info)
        self.load = charged(self.load, info)
        if info.has_affinity:
            self.pods_with_affinity = (*self.pods_with_affinity, info)
            if info.has_required_anti_affinity:
                self.pods_with_required_anti_affinity = (
                    *self.pods_with_required_anti_affinity,
                    info,
                )
        if info.claims:
            claims = dict(self.claims)
            for claim in info.claims:
                claims[claim] = claims.get(claim, 0) + 1
            self.claims = claims

    def _index(self, uid: str) -> int:
        for at, info in enumerate(self.pods):
            if info.uid == uid:
                return at
        raise CacheError(f"pod {uid} is not on node {self.name}")

    def remove_pod(self, uid: str) -> PodInfo:
        """Discharge a pod: what was charged when it came, whatever its spec says now.

        Raises:
            CacheError: no such pod here.
        """
        at = self._index(uid)
        info = self.pods[at]
        self.pods = _without(self.pods, at)
        self.load = discharged(self.load, info)
        if info.has_affinity:
            self.pods_with_affinity = _dropped(self.pods_with_affinity, uid)
            if info.has_required_anti_affinity:
                self.pods_with_required_anti_affinity = _dropped(
                    self.pods_with_required_anti_affinity, uid
                )
        if info.claims:
            claims = dict(self.claims)
            for claim in info.claims:
                count = claims[claim] - 1
                if count:
                    claims[claim] = count
                else:
                    del claims[claim]
            self.claims = claims
        return info

    def replace_pod(self, info: PodInfo) -> None:
        """Put another version of a pod in its place; its charge changes with it.

        Raises:
            CacheError: no such pod here.
        """
        at = self._index(info.uid)
        old = self.pods[at]
        if old.charged_alike(info):
            self.pods = _exchanged(self.pods, at, info)
            if info.has_affinity:
                self.pods_with_affinity = _renewed(self.pods_with_affinity, info)
                if info.has_required_anti_affinity:
                    self.pods_with_required_anti_affinity = _renewed(
                        self.pods_with_required_anti_affinity, info
                    )
            return
        self.remove_pod(info.uid)
        self.add_pod(info)

    def clear_node(self) -> None:
        """The node object went away; its pods stay."""
        self.node = None
        self.offer(loads.NOTHING.allocatable)
        self.image_states = _NO_IMAGES

    def assign(self, other: "NodeInfo") -> None:
        """Become equal to the other, keeping this object's identity."""
        self.node = other.node
        self.load = other.load
        self.pods = other.pods
        self.pods_with_affinity = other.pods_with_affinity
        self.pods_with_required_anti_affinity = other.pods_with_required_anti_affinity
        self.claims = other.claims
        self.image_states = other.image_states
        self.generation = other.generation

    def clone(self) -> "NodeInfo":
        """An equal one, independent of later changes to this one; the generation is kept."""
        copy = NodeInfo.__new__(NodeInfo)
        copy.name = self.name
        copy.assign(self)  # all the rest
        return copy

    def __repr__(self) -> str:
        return f"NodeInfo({self.name!r}, pods={len(self.pods)}, generation={self.generation})"


def same(one: NodeInfo, other: NodeInfo) -> bool:
    """Whether both say the same, generation included."""
    names = [name for name in NodeInfo.__slots__ if name != "load"] + ["allocatable", "usage"]
    return all(getattr(one, name) == getattr(other, name) for name in names)
