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

from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.placement import images, nodeaffinity, podaffinity, requests, spread
from grange.placement.nodeaffinity import Affinity
from grange.placement.podaffinity import NO_TERMS, Terms
from grange.placement.ports import HostPort, host_ports
from grange.placement.requests import IDLE, Request, Resources, Usage
from grange.placement.spread import Constraint
from grange.scheduler.errors import CacheError

_NOTHING = Resources()
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
        signature: filled in by the profile: pods with equal numbers are placed alike.
    """

    pod: Pod
    uid: str
    request: Request
    ports: tuple[HostPort, ...]
    affinity: Affinity
    has_affinity: bool
    has_required_anti_affinity: bool
    claims: tuple[str, ...]
    terms: Terms = NO_TERMS
    spread: tuple[Constraint, ...] = ()
    images: tuple[str, ...] = ()
    signature: int | None = None

    @classmethod
    def of(cls, pod: Pod) -> Self:
        """Compute it.

        Raises:
            QuantityError: a request is no quantity.
            SelectorError: a selector about other pods cannot be read.
        """
        spec = pod.spec
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
            requests.pod_request(spec),
            host_ports(spec),
            nodeaffinity.of_pod(spec),
            near,
            far,
            claims,
            podaffinity.of_pod(pod) if near else NO_TERMS,
            spread.of_pod(pod) if spec.topology_spread_constraints else (),
            images.of_pod(spec),
        )

    def seen_as(self, pod: Pod) -> Self:
        """The same for another version of the pod, computed anew only if the spec differs.

        Raises:
            QuantityError: a request is no quantity.
            SelectorError: a selector about other pods cannot be read.
        """
        same = pod.spec == self.pod.spec and pod.metadata.uid == self.uid
        # Whether a pod counts for its own spread depends on its labels.
        if same and (not self.spread or pod.metadata.labels == self.pod.metadata.labels):
            return msgspec.structs.replace(self, pod=pod)
        return self.of(pod)

    def on(self, node_name: str) -> Self:
        """The same for a copy of the pod that is on the node."""
        pod = self.pod
        spec = msgspec.structs.replace(pod.spec, node_name=node_name)
        return msgspec.structs.replace(self, pod=msgspec.structs.replace(pod, spec=spec))


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


def _dropped(pods: tuple[PodInfo, ...], uid: str) -> tuple[PodInfo, ...]:
    for at, item in enumerate(pods):
        if item.uid == uid:
            return _without(pods, at)
    return pods


class NodeInfo:
    """A node and the sum over its pods.

    ``node`` is None for a placeholder (pods seen before their node) and for a ghost (a removed node
    whose pods are still there).

    Attributes:
        name: the node's name.
        node: the object.
        allocatable: what it offers.
        pods: its pods, assumed ones included.
        pods_with_affinity, pods_with_required_anti_affinity: those of them that say so.
        usage: what they need together.
        claims: the persistent volume claims they mount, counted.
        image_states: the images it has, by every name.
        generation: when it last changed; unique among all changes of one cache.
    """

    __slots__ = (
        "allocatable",
        "claims",
        "generation",
        "image_states",
        "name",
        "node",
        "pods",
        "pods_with_affinity",
        "pods_with_required_anti_affinity",
        "usage",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: Node | None = None
        self.allocatable: Resources = _NOTHING
        self.pods: tuple[PodInfo, ...] = ()
        self.pods_with_affinity: tuple[PodInfo, ...] = ()
        self.pods_with_required_anti_affinity: tuple[PodInfo, ...] = ()
        self.usage: Usage = IDLE
        self.claims: Mapping[str, int] = _NO_CLAIMS
        self.image_states: Mapping[str, ImageState] = _NO_IMAGES
        self.generation = 0

    def add_pod(self, info: PodInfo) -> None:
        """Charge one more pod."""
        self.pods = (*self.pods, info)
        self.usage = requests.charged(self.usage, info.request, info.ports)
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
        self.usage = requests.discharged(self.usage, info.request, info.ports)
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
        plain = not (old.has_affinity or info.has_affinity or old.claims or info.claims)
        if plain and old.request == info.request and old.ports == info.ports:
            self.pods = (*self.pods[:at], info, *self.pods[at + 1 :])
            return
        self.remove_pod(info.uid)
        self.add_pod(info)

    def clear_node(self) -> None:
        """The node object went away; its pods stay."""
        self.node = None
        self.allocatable = _NOTHING
        self.image_states = _NO_IMAGES

    def assign(self, other: "NodeInfo") -> None:
        """Become equal to the other, keeping this object's identity."""
        self.node = other.node
        self.allocatable = other.allocatable
        self.pods = other.pods
        self.pods_with_affinity = other.pods_with_affinity
        self.pods_with_required_anti_affinity = other.pods_with_required_anti_affinity
        self.usage = other.usage
        self.claims = other.claims
        self.image_states = other.image_states
        self.generation = other.generation

    def clone(self) -> "NodeInfo":
        """An equal one, independent of later changes to this one; the generation is kept."""
        copy = NodeInfo(self.name)
        copy.assign(self)
        return copy

    def __repr__(self) -> str:
        return f"NodeInfo({self.name!r}, pods={len(self.pods)}, generation={self.generation})"


def same(one: NodeInfo, other: NodeInfo) -> bool:
    """Whether both say the same, generation included."""
    return all(getattr(one, name) == getattr(other, name) for name in NodeInfo.__slots__)
