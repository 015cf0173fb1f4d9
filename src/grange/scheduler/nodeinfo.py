"""A node as the scheduler sees it.

A ``NodeInfo`` is the sum over a node's pods. Its parts are immutable values that a change replaces,
so a copy of a ``NodeInfo`` costs a few references and shares everything that did not change since.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from grange.api.kinds.node import Node
from grange.api.pod_requests import Resources
from grange.placement import loads
from grange.placement.loads import Load
from grange.placement.node_usage import Usage
from grange.scheduler.errors import CacheError
from grange.scheduler.podinfo import PodInfo


@dataclass(slots=True)
class ImageState:
    """An image in the cluster: shared by all nodes that have it, so counts are always current.

    Attributes:
        size_bytes: as the first node reported it.
        nodes: the nodes that have it, in order of arrival.
    """

    size_bytes: int
    all_nodes: Mapping[str, None]
    nodes: dict[str, None] = field(default_factory=dict)

    @property
    def num_nodes(self) -> int:
        """How many nodes have it."""
        return len(self.nodes)

    @property
    def share(self) -> int:
        """What having it is worth: little if few nodes have it, lest they get all the pods."""
        return int(float(self.size_bytes) * (float(len(self.nodes)) / float(len(self.all_nodes))))


_NO_IMAGES: Mapping[str, ImageState] = MappingProxyType({})
_NO_LABELS: Mapping[str, str] = MappingProxyType({})


def charged(load: Load, info: PodInfo) -> Load:
    """The load with one more pod."""
    return load.changed(info.request, info.ports + info.disks, info.devices, 1)


class NodeInfo:
    """A node and the sum over its pods.

    ``node`` is None for a placeholder (pods seen before their node) and for a ghost (a removed node
    whose pods are still there).

    Attributes:
        load: what it offers and what its pods need together.
        pods: its pods, assumed ones included.
        image_states: the images it has, by every name.
        generation: when it last changed; unique among all changes of one cache.
    """

    __slots__ = (
        "generation",
        "image_states",
        "load",
        "name",
        "node",
        "pods",
        "pods_with_affinity",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: Node | None = None
        self.load: Load = loads.NOTHING
        self.pods: tuple[PodInfo, ...] = ()
        self.pods_with_affinity: tuple[PodInfo, ...] = ()
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

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels of its node object."""
        return _NO_LABELS if self.node is None else self.node.metadata.labels

    @property
    def pods_with_required_anti_affinity(self) -> tuple[PodInfo, ...]:
        """Those of its pods that require anti-affinity."""
        return tuple(info for info in self.pods_with_affinity if info.has_required_anti_affinity)

    def offer(self, allocatable: Resources) -> None:
        """The node offers this from now on."""
        self.load = self.load.offered(allocatable)

    def add_pod(self, info: PodInfo) -> None:
        """Charge one more pod."""
        self.pods = (*self.pods, info)
        self.load = charged(self.load, info)
        if info.has_affinity:
            self.pods_with_affinity = (*self.pods_with_affinity, info)

    def _index(self, uid: str) -> int:
        for at, info in enumerate(self.pods):
            if info.uid == uid:
                return at
        raise CacheError(f"pod {uid} is not on node {self.name}")

    def remove_pod(self, uid: str) -> PodInfo:
        """Discharge a pod: what was charged when it came, whatever its spec is now.

        Raises:
            CacheError: no such pod here.
        """
        at = self._index(uid)
        info = self.pods[at]
        *others, last = self.pods  # the order of pods carries no meaning
        if last is not info:
            others[at] = last
        self.pods = tuple(others)
        self.load = self.load.changed(info.request, info.ports + info.disks, info.devices, -1)
        if info.has_affinity:
            near = self.pods_with_affinity
            self.pods_with_affinity = tuple([item for item in near if item.uid != uid])
        return info

    def replace_pod(self, info: PodInfo) -> None:
        """Put another version of a pod in its place; its charge changes with it.

        Raises:
            CacheError: no such pod here.
        """
        at = self._index(info.uid)
        old = self.pods[at]
        if old.charged_alike(info):
            self.pods = (*self.pods[:at], info, *self.pods[at + 1 :])
            if info.has_affinity:
                near = self.pods_with_affinity
                self.pods_with_affinity = tuple(
                    [info if item.uid == info.uid else item for item in near]
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


class ImageStates:
    """The images of a cluster."""

    def __init__(self) -> None:
        self.by_name: dict[str, ImageState] = {}
        self._nodes: dict[str, None] = {}

    def add(self, node: Node) -> dict[str, ImageState]:
        """Add a node, and return its images by name."""
        self._nodes[node.metadata.name] = None
        states: dict[str, ImageState] = {}
        for image in node.status.images:
            for name in image.names:
                state = self.by_name.get(name)
                if state is None:
                    state = self.by_name[name] = ImageState(image.size_bytes, self._nodes)
                state.nodes[node.metadata.name] = None
                states[name] = state
        return states

    def remove(self, entry: NodeInfo) -> None:
        """Remove a node."""
        self._nodes.pop(entry.name, None)
        for name, state in entry.image_states.items():
            state.nodes.pop(entry.name, None)
            if not state.nodes:
                self.by_name.pop(name, None)
        entry.image_states = {}

    def clear(self) -> None:
        """Remove all of them."""
        self.by_name.clear()
        self._nodes.clear()
