"""Nominated pods: for which pods resources of which nodes are kept.

A pod that preempts is nominated to its node and keeps that while its victims take their time to go.
Until it is placed, pods of no higher priority must leave it the resources; those of higher priority
need not. What the API shows of nominations (``status.nominatedNodeName``) lags behind: it is
applied when it changes, and for pods without a nomination here.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from grange.base.bounded import BoundedDict
from grange.scheduler.changelog import ChangeLog
from grange.scheduler.podinfo import PodInfo

_Pods = tuple[PodInfo, ...]
_NO_PODS: Mapping[str, _Pods] = MappingProxyType({})
_LEVELS_MAX = 64


class Nominated:
    """The nominations that matter to one pod.

    Args:
        first: the node that it is nominated to itself, and is tried on before all others; or empty.
        level: by node, the nominated pods of its priority or above; it may be one of them.
        uid: the pod's.
        moves: names of the nodes whose nominations changed; None if that is not kept.
    """

    __slots__ = ("_uid", "first", "level", "moves")

    def __init__(
        self,
        first: str = "",
        level: Mapping[str, _Pods] = _NO_PODS,
        uid: str = "",
        moves: ChangeLog[str] | None = None,
    ) -> None:
        self.first = first
        self.level = level
        self.moves = moves
        self._uid = uid

    def on(self, node_name: str) -> _Pods:
        """The other pods that it must leave resources for on a node."""
        pods = self.level.get(node_name, ())
        if node_name == self.first:
            return tuple(info for info in pods if info.uid != self._uid)
        return pods


class Nominator:
    """Keeps the nominations of one scheduler.

    Attributes:
        evicting: UIDs of pods whose victims are being deleted, with whether the pod was tried
            again meanwhile; until that is done they look for no other victims.
        moves: names of the nodes whose nominations changed.
    """

    def __init__(self) -> None:
        self.evicting: dict[str, bool] = {}
        self.moves: ChangeLog[str] = ChangeLog()
        self._nodes: dict[str, str] = {}  # by UID
        self._pods: dict[str, PodInfo] = {}
        self._on: dict[str, dict[str, None]] = {}  # UIDs by node
        # By priority, the pods of that priority or above by node; for priorities that were asked.
        self._levels: BoundedDict[int, dict[str, _Pods]] = BoundedDict(_LEVELS_MAX)

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """UIDs and nodes."""
        return iter(self._nodes.items())

    def put(self, info: PodInfo, node_name: str) -> None:
        """Nominate a pod, or move its nomination."""
        uid = info.uid
        if uid in self._nodes:
            self.remove(uid)
        self._nodes[uid] = node_name
        self._pods[uid] = info
        self._on.setdefault(node_name, {})[uid] = None
        self.moves.note(node_name)
        priority = info.priority
        for level, by_node in self._levels.items():
            if priority >= level:
                by_node[node_name] = (*by_node.get(node_name, ()), info)

    def remove(self, uid: str) -> str:
        """Drop a pod's nomination; the node it was to, or empty."""
        node_name = self._nodes.pop(uid, "")
        if node_name:
            self.moves.note(node_name)
            there = self._on[node_name]
            del there[uid]
            if not there:
                del self._on[node_name]
            priority = self._pods.pop(uid).priority
            for level, by_node in self._levels.items():
                if priority >= level:
                    left = tuple(info for info in by_node[node_name] if info.uid != uid)
                    if left:
                        by_node[node_name] = left
                    else:
                        del by_node[node_name]
        return node_name

    def seen(self, info: PodInfo, before: str | None) -> bool:
        """The API shows a waiting pod.

        Args:
            info: the pod now.
            before: the node it was nominated to when it was last seen; None for a new pod.

        Returns:
            Whether it lost a nomination, so that others have more resources.
        """
        known, named = self.node_of(info.uid), info.pod.status.nominated_node_name
        changed = named != before if before is not None else not known
        node_name = named if changed else known
        if not node_name:
            return bool(self.remove(info.uid))
        if node_name != known or self._pods[info.uid].pod is not info.pod:
            self.put(info, node_name)
        return known not in ("", node_name)

    def node_of(self, uid: str) -> str:
        """The node that a pod is nominated to; empty for none."""
        return self._nodes.get(uid, "")

    def less_important(self, node_name: str, priority: int) -> list[PodInfo]:
        """The pods nominated to a node whose priority is below this."""
        return [
            self._pods[uid]
            for uid in self._on.get(node_name, ())
            if self._pods[uid].priority < priority
        ]

    def nominations_for(self, info: PodInfo) -> Nominated | None:
        """The nominations that matter to a pod; None without any."""
        if not self._nodes:
            return None
        first = self._nodes.get(info.uid, "")
        level = self._level(info.priority)
        return Nominated(first, level, info.uid, self.moves) if first or level else None

    def clear(self) -> None:
        """Drop everything."""
        self._nodes.clear()
        self._pods.clear()
        self._on.clear()
        self._levels.clear()
        self.moves.forget()
        self.evicting.clear()

    def _level(self, priority: int) -> dict[str, _Pods]:
        found = self._levels.get(priority)
        if found is None:
            found = self._levels[priority] = {}
            for uid, node_name in self._nodes.items():
                info = self._pods[uid]
                if info.priority >= priority:
                    found[node_name] = (*found.get(node_name, ()), info)
        return found
