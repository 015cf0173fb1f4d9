"""The cluster as one decision sees it: node entries, their order, and the columns for the engine.

A snapshot belongs to one scheduling loop and is brought up to date by the cache, which puts only the
entries that changed. Objects keep their identity from one update to the next, because the ordered
lists and the map share them. Every put that matters to a decision is noted in ``changes``, so that
readers with results by row can update just those rows.

``assume_pod`` and ``forget_pod``, ``take_out`` and ``put_back`` work on the snapshot alone, for trying
things out; they leave the generations as they are, and the next update takes leftovers back.
"""

from collections.abc import Callable

import numpy as np

from grange.api.kinds.node import Node
from grange.placement.columns import Integers, NodeTable
from grange.scheduler.changelog import ChangeLog
from grange.scheduler.errors import CacheError, SnapshotInconsistent
from grange.scheduler.nodeinfo import NodeInfo
from grange.scheduler.nodetree import NodeTree
from grange.scheduler.podindex import PodIndex
from grange.scheduler.podinfo import PodInfo

_NO_NODE = NodeInfo("")

TIE_BITS = 32
TIE_MAX = (1 << TIE_BITS) - 1
LOG_MIN = 4096


class NodeInfoSnapshot:
    """A snapshot; empty and of generation 0 until a cache updates it.

    Attributes:
        node_info_map: entries by name; every one has a node object.
        node_info_list: the same objects in the order of the node tree.
        generation: of the newest entry that it has seen.
        by_row: the same entries by row of the table; one without pods or node in an unused row.
        changes: rows of the table that changed: twice the row, and one more if its node object did.
        touched: rows of the table where anything changed, another version of a pod included.
        layout: grows whenever rows or order change; results by row are void then.
        node_version: grows whenever a node object changes so that a decision could notice.
        ties: by row, larger for nodes earlier in the list; unique.
        tie: the same, for single elements.
        order: the row of each node in the list.
        copies: how many entries were ever copied (a work counter).
        index: how many pods of a kind are on each row.
    """

    def __init__(self) -> None:
        self.node_info_map: dict[str, NodeInfo] = {}
        self.node_info_list: list[NodeInfo] = []
        self.generation = 0
        self.table = NodeTable()
        self.by_row: list[NodeInfo] = self.table.entries
        self.changes: ChangeLog[int] = ChangeLog(LOG_MIN)
        self.touched: ChangeLog[int] = ChangeLog(LOG_MIN)
        self.layout = 0
        self.node_version = 0
        self.ties: Integers = np.zeros(0, np.int64)
        self.tie = self.ties.data
        self.order = np.zeros(0, np.int64).data
        self.copies = 0
        self.index = PodIndex(self.table, self.node_info_map)
        # By UID and whether the pod was taken out: where, and the pod; the last one last.
        self._trials: dict[tuple[str, bool], tuple[NodeInfo, PodInfo]] = {}
        self._placeholders: dict[str, NodeInfo] = {}
        self._tree_version = -1
        self._reordered = False

    @property
    def num_nodes(self) -> int:
        """How many nodes there are to choose from."""
        return len(self.node_info_list)

    def get(self, name: str) -> NodeInfo | None:
        """The entry of a node, or of a placeholder that ``assume_pod`` made."""
        return self.node_info_map.get(name) or self._placeholders.get(name)

    # --- updates by the cache ----------------------------------------------------------------

    def put(self, entry: NodeInfo) -> None:
        """Copy one entry that changed; it has a node object."""
        self.copies += 1
        mine = self.node_info_map.get(entry.name)
        if mine is None:
            mine = self.node_info_map[entry.name] = entry.clone()
            self._reordered = True
            self._write(mine, None)
            row = self.table.rows[mine.name]
            self.by_row[row] = mine
            if mine.pods:
                self.index.change(row, (), mine.pods)
            return
        before, pods = mine.node, mine.pods
        near = mine.pods_with_affinity or entry.pods_with_affinity
        mine.assign(entry)
        written = self._write(mine, before)
        if mine.pods is not pods:
            row = self.table.rows[mine.name]
            if near or self.index.counting:
                self.index.change(row, pods, mine.pods)
            if not written:
                self.touched.note(row)

    def keep(self, live: Callable[[str], bool]) -> None:
        """Drop the entries whose node is gone."""
        for name in [name for name in self.node_info_map if not live(name)]:
            self._discard(name)
            del self.node_info_map[name]
            self._reordered = True

    def finish(self, tree: NodeTree) -> None:
        """End an update: derive the lists again where they changed.

        Raises:
            SnapshotInconsistent: the entries are not those of the tree. Everything is dropped, so
                that the next update copies all of it.
        """
        if self._reordered or tree.version != self._tree_version:
            self._order(tree)
        if not len(self.node_info_list) == len(self.node_info_map) == tree.num_nodes:
            counts = (len(self.node_info_list), len(self.node_info_map), tree.num_nodes)
            self._reset()
            raise SnapshotInconsistent(
                "the snapshot lists {} nodes, maps {} and the tree has {}".format(*counts)
            )

    def _order(self, tree: NodeTree) -> None:
        self._reordered = False
        self._tree_version = tree.version
        self.changes.limit = self.touched.limit = max(LOG_MIN, 4 * self.table.size)
        entries = self.node_info_map
        self.node_info_list = [entries[name] for name in tree.list() if name in entries]
        self.ties = np.zeros(self.table.capacity, np.int64)
        rows = np.fromiter(
            (self.table.rows[info.name] for info in self.node_info_list),
            np.int64,
            len(self.node_info_list),
        )
        self.order = rows.data
        self.tie = self.ties.data
        self.ties[rows] = TIE_MAX - np.arange(len(rows), dtype=np.int64)
        self.layout += 1

    def _discard(self, name: str) -> None:
        row = self.table.rows[name]
        self.index.change(row, self.node_info_map[name].pods, ())
        self.index.nodes += 1
        self.table.remove(name)
        self.by_row[row] = _NO_NODE

    def _reset(self) -> None:
        for name in self.node_info_map:
            self._discard(name)
        self.node_info_map.clear()
        self.node_info_list = []
        self.generation = 0
        self._reordered = True

    def _write(self, mine: NodeInfo, before: Node | None) -> bool:
        """Bring the entry's row up to date, and note what a decision could notice, if anything."""
        node = mine.node
        if (
            node is not None
            and node is not before
            and (before is None or affects_decisions(before, node))
        ):
            row = self.table.put_node(node, mine.allocatable)
            self.table.put_usage(row, mine.usage)
            self.changes.note(row * 2 + 1)
            self.node_version += 1
            if before is None or _affects_domains(before, node):
                self.index.nodes += 1
        else:
            row = self.table.rows[mine.name]
            if not self.table.put_usage(row, mine.usage):
                return False
            self.changes.note(row * 2)
        self.touched.note(row)
        return True

    # --- trials ------------------------------------------------------------------------------

    def assume_pod(self, info: PodInfo) -> None:
        """Charge a placed pod here and nowhere else; an unknown node gets a placeholder.

        Raises:
            CacheError: the pod is assumed here already, or not placed.
        """
        node_name = info.pod.spec.node_name
        if not node_name or (info.uid, False) in self._trials:
            raise CacheError(f"pod {info.pod.key} cannot be assumed in the snapshot")
        entry = self.get(node_name)
        if entry is None:
            entry = self._placeholders[node_name] = NodeInfo(node_name)
        pods = entry.pods
        entry.add_pod(info)
        self._trials[info.uid, False] = (entry, info)
        self._tried(entry, pods)

    def forget_pod(self, info: PodInfo) -> None:
        """Undo ``assume_pod``.

        Raises:
            CacheError: it is not assumed here.
        """
        self._undo(info.uid, taken=False)

    def take_out(self, info: PodInfo) -> None:
        """Take a pod off its node here and nowhere else, as if it were gone.

        Raises:
            CacheError: it is not on a node that is known here, or only assumed here.
        """
        entry = self.node_info_map.get(info.pod.spec.node_name)
        if entry is None or (info.uid, False) in self._trials:
            raise CacheError(f"pod {info.pod.key} cannot be taken out of the snapshot")
        pods = entry.pods
        self._trials[info.uid, True] = (entry, entry.remove_pod(info.uid))
        self._tried(entry, pods)

    def put_back(self, uid: str) -> None:
        """Undo ``take_out``.

        Raises:
            CacheError: no such pod was taken out.
        """
        self._undo(uid, taken=True)

    def undo_trials(self) -> None:
        """Undo all of them, the last first."""
        while self._trials:
            uid, taken = next(reversed(self._trials))
            self._undo(uid, taken=taken)

    @property
    def assumed(self) -> list[str]:
        """UIDs of the pods that are assumed here."""
        return [uid for uid, taken in self._trials if not taken]

    def _undo(self, uid: str, *, taken: bool) -> None:
        found = self._trials.pop((uid, taken), None)
        if found is None:
            what = "taken out of" if taken else "assumed in"
            raise CacheError(f"pod {uid} is not {what} the snapshot")
        entry, info = found
        pods = entry.pods
        if taken:
            entry.add_pod(info)
        else:
            entry.remove_pod(uid)
        self._tried(entry, pods)
        if not entry.pods:
            self._placeholders.pop(entry.name, None)

    def _tried(self, entry: NodeInfo, pods: tuple[PodInfo, ...]) -> None:
        if entry.name in self.node_info_map:
            self._write(entry, entry.node)
            self.index.change(self.table.rows[entry.name], pods, entry.pods)


def affects_decisions(before: Node, after: Node) -> bool:
    """Whether the change of a node could change a decision; heartbeats and conditions cannot."""
    return (
        before.spec != after.spec
        or before.metadata.labels != after.metadata.labels
        or before.metadata.annotations != after.metadata.annotations
        or before.status.allocatable != after.status.allocatable
        or before.status.images != after.status.images
        or before.status.declared_features != after.status.declared_features
    )


def _affects_domains(before: Node, after: Node) -> bool:
    """Whether the change of a node could change which domains it is in, or whether it counts there."""
    return (
        before.metadata.labels != after.metadata.labels or before.spec.taints != after.spec.taints
    )
