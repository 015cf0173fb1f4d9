"""One copy of what objects that are alike have in common.

Half a million pods seldom come from more than some hundred templates, and the status of a container is
most of a pod's view; a hundred thousand nodes are of a few sizes. Informers of many objects therefore
store views whose parts are shared. Views are immutable, so sharing is not visible.
"""

from collections.abc import Hashable, Mapping
from sys import intern
from typing import TypeVar, cast

import msgspec

from grange.api.kinds.node import Node
from grange.api.kinds.pod import Container, Pod, PodSpec, Scalar
from grange.base.bounded import BoundedDict

_PARTS_MAX = 2_000

T = TypeVar("T")


class Sharing:
    """Remembers parts that were seen lately.

    Attributes:
        searches: how often containers were looked for among those of all templates.
    """

    def __init__(self) -> None:
        self.searches = 0
        self._containers: BoundedDict[Hashable, tuple[Container, ...]] = BoundedDict(_PARTS_MAX)
        self._amounts: BoundedDict[Hashable, dict[str, Scalar]] = BoundedDict(_PARTS_MAX)

    def slim(self, obj: T, old: T | None = None) -> T:
        """An equal object that shares parts with earlier ones; what is no pod or node as it is.

        Args:
            obj: any object.
            old: the one that it takes the place of: most changes leave the spec alone, or set the
                node, and to compare it with the old one costs less than to look for its parts.
        """
        if isinstance(obj, Pod):
            return cast("T", self._pod(obj, cast("Pod | None", old)))
        if isinstance(obj, Node):
            return cast("T", self._node(obj))
        return obj

    def _pod(self, pod: Pod, old: Pod | None) -> Pod:
        meta, replace = pod.metadata, msgspec.structs.replace
        namespace = intern(meta.namespace)
        # Only an old one that went through here has the one text of its namespace, and shares.
        before = old.spec if old is not None and old.metadata.namespace is namespace else None
        return replace(
            pod,
            api_version=intern(pod.api_version),
            kind=intern(pod.kind),
            metadata=replace(meta, namespace=namespace),
            spec=self._spec(pod.spec, before),
        )

    def _spec(self, spec: PodSpec, old: PodSpec | None) -> PodSpec:
        replace = msgspec.structs.replace
        containers = spec.containers
        if old is not None:
            same = old
            if spec.node_name != old.node_name:
                same = replace(old, node_name=spec.node_name)
            if same == spec:
                return same
            if old.containers == containers:
                containers = old.containers
        if containers and (old is None or containers is not old.containers):
            containers = self._alike(containers)
        return replace(spec, containers=containers, scheduler_name=intern(spec.scheduler_name))

    def _alike(self, containers: tuple[Container, ...]) -> tuple[Container, ...]:
        self.searches += 1
        first = containers[0]
        # Distinguishes most templates; the comparison does the rest.
        key = (first.name, first.image, first.args, *first.resources.requests.items())
        known = _kept(self._containers, key, containers)
        return known if known == containers else containers

    def _node(self, node: Node) -> Node:
        status = msgspec.structs.replace(
            node.status,
            capacity=self._shared(node.status.capacity),
            allocatable=self._shared(node.status.allocatable),
        )
        return msgspec.structs.replace(
            node, api_version=intern(node.api_version), kind=intern(node.kind), status=status
        )

    def _shared(self, amounts: Mapping[str, Scalar]) -> dict[str, Scalar]:
        # Types belong to the key: 1 and 1.0 are equal, and are not written alike.
        key = tuple((name, type(amount), amount) for name, amount in amounts.items())
        return _kept(self._amounts, key, dict(amounts))


def _kept(parts: dict[Hashable, T], key: Hashable, part: T) -> T:
    """The part that was first seen under the key."""
    known = parts.get(key)
    if known is None:
        known = parts[key] = part
    return known
