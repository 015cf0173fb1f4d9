"""The state of the cluster, including decisions that it has not confirmed yet.

A pod that was just placed is *assumed*: charged to its node at once, so that the next decision sees
it. The informer's event confirms it; failing that it is forgotten, or expires. Every change of a
node's entry takes the next generation and moves the entry to the front, so a snapshot catches up by
walking from the front until it meets a generation that it has.

::

    state                    assume   finish    forget   add      update  remove   cleanup
    (not stored)             Assumed  -         -        Added    error   error    -
    Assumed                  error    deadline  (gone)   Added    error   (gone)   never
    Assumed with deadline    error    deadline  (gone)   Added    error   (gone)   (gone) when past
    Added                    error    -         error    error    Added   (gone)   -

The key is the pod's UID. Under ``strict`` two entries are errors, as in old versions of kube-scheduler: forgetting
what is not stored, and removing what is only assumed.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from grange.api import pod_requests
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.api.selectors import Labels
from grange.base.errors import invariant
from grange.placement.podaffinity import Namespaces
from grange.scheduler.errors import CacheCorrupted, CacheError
from grange.scheduler.nodeinfo import ImageState, ImageStates, NodeInfo
from grange.scheduler.nodetree import NodeTree
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.snapshot import NodeInfoSnapshot

Pods: TypeAlias = list[Pod]
Names: TypeAlias = list[str]
PodFilter: TypeAlias = Callable[[Pod], bool]


@dataclass(frozen=True, slots=True)
class CacheDump:
    """A deep copy of the cache for debugging.

    Attributes:
        assumed_pods: UIDs of pods that are not confirmed.
        nodes: every entry by name, ghosts and placeholders included.
    """

    assumed_pods: frozenset[str]
    nodes: dict[str, NodeInfo]


class Cache:
    """The assumed-pod cache. Synchronous; one owner.

    Args:
        ttl_s: how long a finished binding may stay unconfirmed; 0 means without end, which is right
            as long as informers relist: expiry would book capacity twice while the API is slow.
        strict: refuse to forget unknown pods and to remove assumed ones.
    """

    def __init__(self, *, ttl_s: float = 0.0, strict: bool = False) -> None:
        self._ttl_s = ttl_s
        self._strict = strict
        self._nodes: OrderedDict[str, NodeInfo] = OrderedDict()  # most recently changed last
        self._tree = NodeTree()
        self._images = ImageStates()
        self._namespaces: Namespaces = MappingProxyType({})
        self._pods: dict[str, PodInfo] = {}  # placed, all of them
        self._assumed: dict[str, float | None] = {}  # with the deadline, if there is one
        self._generation = 0

    # --- pods --------------------------------------------------------------------------------

    def assume_pod(self, pod: Pod | PodInfo) -> None:
        """Charge a placed pod (``spec.nodeName`` set) to its node before it is bound.

        Raises:
            CacheError: no UID, no node name, or the pod is tracked already.
        """
        info = _info(pod)
        uid = info.uid or _uid(info.pod)
        node_name = info.pod.spec.node_name
        if not node_name:
            raise CacheError(f"pod {info.pod.key} is not placed")
        if uid in self._pods:
            raise CacheError(f"pod {info.pod.key} is in the cache already, so cannot be assumed")
        self._charge(info, node_name)
        self._pods[uid] = info
        self._assumed[uid] = None

    def finish_binding(self, pod: Pod, now: float) -> None:
        """The binding is written: from now on the assumption may expire (if it ever does).

        A pod that is not assumed is left alone.

        Raises:
            CacheError: no UID.
        """
        uid = _uid(pod)
        if uid in self._assumed:
            self._assumed[uid] = now + self._ttl_s if self._ttl_s else None

    def forget_pod(self, pod: Pod) -> None:
        """Take an assumption back; an unknown pod is fine (unless strict).

        Raises:
            CacheError: no UID; the pod is confirmed, or assumed on another node.
        """
        uid = _uid(pod)
        known = self._pods.get(uid)
        if known is None:
            if self._strict:
                raise CacheError(f"pod {pod.key} is not in the cache, so cannot be forgotten")
            return
        if pod.spec.node_name != known.pod.spec.node_name:
            raise CacheError(
                f"pod {pod.key} was assumed on {known.pod.spec.node_name} "
                f"but is assigned to {pod.spec.node_name}"
            )
        if uid not in self._assumed:
            raise CacheError(f"pod {pod.key} is confirmed, so cannot be forgotten")
        self._drop(uid)

    def add_pod(self, pod: Pod | PodInfo) -> None:
        """The informer shows a bound pod: confirm its assumption, or charge it.

        Raises:
            CacheError: no UID, no node name, or the pod was added before.
        """
        info = _info(pod)
        uid = _uid(info.pod)
        node_name = info.pod.spec.node_name
        if not node_name:
            raise CacheError(f"pod {info.pod.key} is not bound")
        known = self._pods.get(uid)
        if known is None:
            self._charge(info, node_name)
        elif uid not in self._assumed:
            raise CacheError(f"pod {info.pod.key} was added before")
        elif known.pod.spec.node_name == node_name:
            entry = self._nodes[node_name]
            entry.replace_pod(info)
            self._touch(entry)
        else:
            self._discharge(known.pod.spec.node_name, uid)
            self._charge(info, node_name)
        self._pods[uid] = info
        self._assumed.pop(uid, None)

    def update_pod(self, old: Pod, new: Pod | PodInfo) -> None:
        """A confirmed pod changed.

        Raises:
            CacheError: no UID; the pod is unknown or only assumed.
            CacheCorrupted: it moved to another node, which pods never do.
        """
        uid = _uid(old)
        info = _info(new)
        known = self._pods.get(uid)
        if known is None:
            raise CacheError(f"pod {old.key} is not in the cache, so cannot be updated")
        if uid in self._assumed:
            raise CacheError(f"pod {old.key} is assumed and must be added before it is updated")
        node_name = known.pod.spec.node_name
        if info.pod.spec.node_name != node_name or info.uid != uid:
            raise CacheCorrupted(
                f"pod {old.key} was on {node_name} and is now on {info.pod.spec.node_name}"
            )
        entry = self._nodes[node_name]
        entry.replace_pod(info)
        self._touch(entry)
        self._pods[uid] = info

    def remove_pod(self, pod: Pod) -> None:
        """The pod is gone; its cached charge goes, whatever the event's object shows.

        Raises:
            CacheError: no UID; unknown; or only assumed, when strict.
            CacheCorrupted: the event names another node.
        """
        uid = _uid(pod)
        known = self._pods.get(uid)
        if known is None:
            raise CacheError(f"pod {pod.key} is not in the cache, so cannot be removed")
        if self._strict and uid in self._assumed:
            raise CacheError(f"pod {pod.key} is only assumed, so cannot be removed")
        # A deletion that was missed arrives without a node name: the cached one counts.
        node_name = known.pod.spec.node_name
        if pod.spec.node_name and pod.spec.node_name != node_name:
            raise CacheCorrupted(
                f"pod {pod.key} is on {node_name}; its removal names {pod.spec.node_name}"
            )
        self._drop(uid)

    def get_pod(self, pod: Pod) -> Pod:
        """The cached version of the pod; its node may be gone.

        Raises:
            CacheError: no UID, or unknown.
        """
        known = self._pods.get(_uid(pod))
        if known is None:
            raise CacheError(f"pod {pod.key} is not in the cache")
        return known.pod

    def info(self, uid: str) -> PodInfo | None:
        """What is known of a pod by its UID; None for an unknown one."""
        return self._pods.get(uid)

    def is_assumed_pod(self, pod: Pod) -> bool:
        """Whether the pod is assumed and neither confirmed, forgotten nor expired.

        Raises:
            CacheError: no UID.
        """
        return _uid(pod) in self._assumed

    def is_on(self, uid: str, node_name: str) -> bool:
        """Whether a pod of this UID is assumed or added on the node."""
        known = self._pods.get(uid)
        return known is not None and known.pod.spec.node_name == node_name

    def tracks(self, uid: str) -> bool:
        """Whether a pod of this UID is assumed or added."""
        return uid in self._pods

    def cleanup(self, now: float) -> Pods:
        """Drop the assumptions whose deadline has passed, and return their pods."""
        expired: Pods = []
        for uid, deadline in [*self._assumed.items()]:
            known = self._pods.get(uid)
            invariant(known is not None, "an assumed pod is not tracked", uid=uid)
            if known is not None and deadline is not None and now > deadline:
                expired.append(known.pod)
                self._drop(uid)
        return expired

    def list(self, selector: Labels) -> Pods:
        """All pods whose labels the selector chooses, assumed ones and those of ghosts too."""
        return self.filtered_list(lambda _: True, selector)

    def filtered_list(self, pod_filter: PodFilter, selector: Labels) -> Pods:
        """As ``list``, of the pods that also pass the filter."""
        return [
            info.pod
            for entry in self._nodes.values()
            for info in entry.pods
            if pod_filter(info.pod) and selector.matches(info.pod.metadata.labels)
        ]

    # --- nodes -------------------------------------------------------------------------------

    def add_node(self, node: Node) -> NodeInfo:
        """A node appeared; pods that came before it are already on it.

        Returns:
            A copy of its entry.

        Raises:
            QuantityError: an allocatable amount is no quantity; nothing was changed.
        """
        return self._put_node(node).clone()

    def update_node(self, old: Node | None, new: Node) -> None:
        """A node changed; an unknown one is added, a ghost comes back to life.

        Raises:
            CacheError: the two have different names.
            QuantityError: an allocatable amount is no quantity; nothing was changed.
        """
        if old is not None and old.metadata.name != new.metadata.name:
            raise CacheError(f"node {old.metadata.name} cannot become {new.metadata.name}")
        self._put_node(new)

    def remove_node(self, node: Node) -> None:
        """A node went away; while pods are on it, its entry stays as a ghost.

        Raises:
            CacheError: unknown, or a ghost already.
        """
        name = node.metadata.name
        entry = self._nodes.get(name)
        if entry is None or entry.node is None:
            raise CacheError(f"node {name} is not in the cache, so cannot be removed")
        self._tree.remove_node(node)
        self._images.remove(entry)
        entry.clear_node()
        if entry.pods:
            self._touch(entry)
        else:
            del self._nodes[name]

    @property
    def node_tree(self) -> NodeTree:
        """The live tree of names."""
        return self._tree

    @property
    def pod_count(self) -> int:
        """How many pods are assumed or added."""
        return len(self._pods)

    @property
    def assumed_count(self) -> int:
        """How many pods are assumed."""
        return len(self._assumed)

    def order(self) -> Names:
        """Names of all entries, the most recently changed first."""
        return [*reversed(self._nodes)]

    def node_info(self, name: str) -> NodeInfo | None:
        """The live entry of a node: to look at, not to change."""
        return self._nodes.get(name)

    def clear(self) -> None:
        """Drop everything, to be rebuilt; generations and the tree's version go on."""
        version = self._tree.version
        self._nodes.clear()
        self._images.clear()
        self._pods.clear()
        self._assumed.clear()
        self._tree = NodeTree()
        self._tree.version = version + 1

    # --- namespaces --------------------------------------------------------------------------

    def set_namespace(self, name: str, labels: Mapping[str, str]) -> bool:
        """A namespace appeared or changed; pods may be chosen by its labels.

        Returns:
            Whether its labels are different from before.
        """
        if self._namespaces.get(name) == labels:
            return False
        self._namespaces = {**self._namespaces, name: labels}
        return True

    def remove_namespace(self, name: str) -> None:
        """A namespace went away; an unknown one is fine."""
        if name in self._namespaces:
            self._namespaces = {
                known: labels for known, labels in self._namespaces.items() if known != name
            }

    # --- snapshots ---------------------------------------------------------------------------

    def update_node_info_snapshot(self, snapshot: NodeInfoSnapshot) -> None:
        """Bring a snapshot up to date, copying only the entries that changed since.

        Raises:
            SnapshotInconsistent: it disagreed with the node tree; it is repaired for next time.
        """
        snapshot.undo_trials()
        snapshot.index.set_namespaces(self._namespaces)
        snapshot.table.images = self._images.by_name
        for entry in reversed(self._nodes.values()):
            if entry.generation <= snapshot.generation:
                break
            if entry.node is not None:
                snapshot.put(entry)
        snapshot.generation = self._generation
        if len(snapshot.node_info_map) > self._tree.num_nodes:
            live = self._nodes
            snapshot.keep(lambda name: name in live and live[name].node is not None)
        snapshot.finish(self._tree)

    def snapshot(self) -> CacheDump:
        """A deep copy of everything, for debugging; never on the path of a decision."""
        return CacheDump(
            frozenset(self._assumed),
            {name: entry.clone() for name, entry in self._nodes.items()},
        )

    # --- inside ------------------------------------------------------------------------------

    def _touch(self, entry: NodeInfo) -> None:
        self._generation += 1
        entry.generation = self._generation
        self._nodes.move_to_end(entry.name)

    def _entry(self, name: str) -> NodeInfo:
        entry = self._nodes.get(name)
        if entry is None:
            entry = self._nodes[name] = NodeInfo(name)
        return entry

    def _charge(self, info: PodInfo, node_name: str) -> None:
        entry = self._entry(node_name)
        entry.add_pod(info)
        self._touch(entry)

    def _discharge(self, node_name: str, uid: str) -> None:
        entry = self._nodes[node_name]
        entry.remove_pod(uid)
        if entry.node is None and not entry.pods:
            del self._nodes[node_name]
        else:
            self._touch(entry)

    def _drop(self, uid: str) -> None:
        known = self._pods.pop(uid)
        self._assumed.pop(uid, None)
        self._discharge(known.pod.spec.node_name, uid)

    def _put_node(self, node: Node) -> NodeInfo:
        allocatable = pod_requests.allocatable(node.status.allocatable)
        entry = self._entry(node.metadata.name)
        old = entry.node
        entry.node = node
        entry.offer(allocatable)
        if old is None or old.status.images != node.status.images:
            self._images.remove(entry)
            entry.image_states = self._images.add(node)
        self._tree.add_node(node)
        self._touch(entry)
        return entry

    @property
    def images(self) -> Mapping[str, ImageState]:
        """Every image that some node has, by name."""
        return self._images.by_name


def _info(pod: Pod | PodInfo) -> PodInfo:
    return pod if isinstance(pod, PodInfo) else PodInfo.of(pod)


def _uid(pod: Pod) -> str:
    uid = pod.metadata.uid
    if not uid:
        raise CacheError(f"pod {pod.key} has no UID")
    return uid
