"""What must hold at every revision of a world, whatever goes wrong.

A ``WriteHistory`` reads every write from the store, in order, and shows it to each invariant; the first
that does not hold raises ``InvariantError`` with the facts. They are written without the rooms whose
work they judge: no scheduler cache, no placement kernels, only the objects.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from grange.api import quantity
from grange.api.kinds import NODE, POD, REPLICATIONCONTROLLER
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Document, controller_of
from grange.api.scheme import AnyKind
from grange.base.errors import invariant
from grange.store.interface import Store, StoreEvent

_FINISHED = frozenset({"Succeeded", "Failed"})
_GPU_MILLI, _GPU_DEVICES, _WHOLE = "grange.dev/gpu-milli", "grange.dev/gpu-devices", 1000


@dataclass(frozen=True, slots=True)
class ObservedWrite:
    """One write.

    Attributes:
        key: the stored key, ``/<group>/<plural>/…``.
        revision: of the write.
        document: as written; for a deletion the last state.
        deleted: whether the object is gone.
    """

    key: str
    revision: int
    document: Document
    deleted: bool

    @property
    def uid(self) -> str:
        """Identity of the object."""
        return str(self.document["metadata"]["uid"])

    def concerns(self, kind: AnyKind) -> bool:
        """Whether the object is of the kind."""
        return self.key.startswith(f"/{kind.group or 'core'}/{kind.plural}/")


class Invariant(Protocol):
    """Keeps what it needs of the past and judges each change."""

    def see(self, change: ObservedWrite) -> None:
        """Take note of a change.

        Raises:
            InvariantError: it must not have happened.
        """


class RevisionsRise:
    """Each write has a greater revision than the one before and carries it as its version."""

    def __init__(self) -> None:
        self._last = 0

    def see(self, change: ObservedWrite) -> None:
        """Compare with the write before."""
        invariant(
            change.revision > self._last,
            "revisions rise",
            key=change.key,
            revision=change.revision,
            after=self._last,
        )
        self._last = change.revision
        version = change.document["metadata"].get("resourceVersion")
        invariant(
            version == str(change.revision),
            "an object carries the revision of its write",
            key=change.key,
            revision=change.revision,
            version=version,
        )


class IdentityIsUnique:
    """A UID belongs to one object forever, and a deleted object does not come back under it."""

    def __init__(self) -> None:
        self._keys: dict[str, str] = {}
        self._gone: dict[str, int] = {}

    def see(self, change: ObservedWrite) -> None:
        """Compare with who had the UID before."""
        known = self._keys.setdefault(change.uid, change.key)
        invariant(
            known == change.key, "a UID is of one object", uid=change.uid, keys=(known, change.key)
        )
        invariant(
            change.uid not in self._gone,
            "what was deleted stays deleted",
            key=change.key,
            uid=change.uid,
            revision=change.revision,
        )
        if change.deleted:
            self._gone[change.uid] = change.revision


class BoundOnce:
    """A pod's node, once set, never changes."""

    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}

    def see(self, change: ObservedWrite) -> None:
        """Compare with where the pod was."""
        if not change.concerns(POD):
            return
        node = change.document.get("spec", {}).get("nodeName", "")
        before = self._nodes.get(change.uid, "")
        invariant(
            not before or node == before,
            "a pod is bound once",
            key=change.key,
            uid=change.uid,
            nodes=(before, node),
            revision=change.revision,
        )
        if node:
            self._nodes[change.uid] = node


@dataclass(frozen=True, slots=True)
class _Amounts:
    cpu_milli: int
    memory_bytes: int
    pods: int


def _needs(pod: Pod) -> _Amounts:
    """Requests of the containers; enough for pods without init containers."""
    requests = [container.resources.requests for container in pod.spec.containers]
    return _Amounts(
        sum(quantity.milli(r.get("cpu", 0)) for r in requests),
        sum(quantity.value(r.get("memory", 0)) for r in requests),
        1,
    )


def _has(node: Node) -> _Amounts:
    given = node.status.allocatable or node.status.capacity
    return _Amounts(
        quantity.milli(given.get("cpu", 0)),
        quantity.value(given.get("memory", 0)),
        quantity.value(given.get("pods", 0)),
    )


class _BoundPods:
    """The pods that are bound and not finished, by node."""

    def __init__(self) -> None:
        self.by_node: dict[str, dict[str, Pod]] = {}

    def note(self, change: ObservedWrite) -> Pod | None:
        """Take note of a pod; returns it if this change has just put it on its node."""
        pod = msgspec.convert(change.document, Pod)
        there = self.by_node.setdefault(pod.spec.node_name, {})
        if change.deleted or not pod.spec.node_name or pod.status.phase in _FINISHED:
            there.pop(change.uid, None)
            return None
        fresh = change.uid not in there
        there[change.uid] = pod
        return pod if fresh else None


class NoOvercommit:
    """When a pod is bound, everything on its node fits into what the node has."""

    def __init__(self) -> None:
        self._pods = _BoundPods()
        self._nodes: dict[str, _Amounts] = {}
        self._first: dict[str, str] = {}  # by name, the UID of the first node that had it

    def see(self, change: ObservedWrite) -> None:
        """Add up the node that a pod was just bound to."""
        if change.concerns(NODE):
            node = msgspec.convert(change.document, Node)
            name = node.metadata.name
            silent = not (node.status.allocatable or node.status.capacity)
            other = self._first.setdefault(name, change.uid) != change.uid
            # Until its capacity is known, a binding to the one before it of that name is not wrong.
            if change.deleted or (silent and other):
                self._nodes.pop(name, None)
            else:
                self._nodes[name] = _has(node)
        elif change.concerns(POD) and (pod := self._pods.note(change)) is not None:
            name = pod.spec.node_name
            if name not in self._nodes:
                return  # the node is gone; the binder could not know yet
            has, there = self._nodes[name], self._pods.by_node[name]
            for resource in ("cpu_milli", "memory_bytes", "pods"):
                used = sum(getattr(_needs(other), resource) for other in there.values())
                limit = getattr(has, resource)
                invariant(
                    used <= limit,
                    "no node is overcommitted",
                    node=name,
                    resource=resource,
                    used=used,
                    allocatable=limit,
                    bound=change.key,
                    revision=change.revision,
                )


class OnePodPerNode:
    """A controller with ``OnePerNode`` has at most one bound, unfinished pod on a node."""

    def __init__(self) -> None:
        self._pods = _BoundPods()
        self._spread: dict[str, bool] = {}

    def see(self, change: ObservedWrite) -> None:
        """Look at the node that a pod was just bound to."""
        if change.concerns(REPLICATIONCONTROLLER):
            controller = msgspec.convert(change.document, ReplicationController)
            self._spread[change.uid] = controller.spec.placement == "OnePerNode"
        elif change.concerns(POD) and (pod := self._pods.note(change)) is not None:
            owner = controller_of(pod.metadata)
            if owner is None or not self._spread.get(owner.uid, False):
                return
            siblings = [
                other.metadata.name
                for other in self._pods.by_node[pod.spec.node_name].values()
                if (theirs := controller_of(other.metadata)) is not None and theirs.uid == owner.uid
            ]
            invariant(
                len(siblings) <= 1,
                "one pod of a controller on a node",
                controller=owner.name,
                node=pod.spec.node_name,
                pods=siblings,
                revision=change.revision,
            )


class DevicesHeldOnce:
    """A pod that asks for GPUs is bound with its devices, and no device is promised twice."""

    def __init__(self) -> None:
        self._pods = _BoundPods()
        self._nodes: dict[str, int] = {}

    def see(self, change: ObservedWrite) -> None:
        """Add up the devices of the node that a pod was just bound to."""
        if change.concerns(NODE):
            node = msgspec.convert(change.document, Node)
            there = quantity.value(node.status.allocatable.get(_GPU_MILLI, 0)) // _WHOLE
            self._nodes[node.metadata.name] = 0 if change.deleted else there
        elif change.concerns(POD) and (pod := self._pods.note(change)) is not None:
            if not _milli(pod):
                return
            used: Counter[int] = Counter()
            for other in self._pods.by_node[pod.spec.node_name].values():
                want = _milli(other)
                devices = other.metadata.annotations.get(_GPU_DEVICES, "") if want else ""
                held = [int(word) for word in devices.split(",") if word]
                facts = {"node": pod.spec.node_name, "pod": other.metadata.name, "devices": devices}
                number = max(1, want // _WHOLE) if want else 0
                invariant(len({*held}) == number, "a pod has the devices it asks for", **facts)
                for device in held:
                    used[device] += min(want, _WHOLE)
                    invariant(used[device] <= _WHOLE, "no device is promised twice", **facts)
            has = self._nodes.get(pod.spec.node_name)
            if has:  # unless the node is gone; the binder could not know yet
                invariant(max(used) < has, "a device exists", node=pod.spec.node_name, used=used)


def _milli(pod: Pod) -> int:
    requests = [container.resources.requests for container in pod.spec.containers]
    return sum(quantity.value(item.get(_GPU_MILLI, 0)) for item in requests)


def standard() -> list[Invariant]:
    """Every invariant that holds in every world."""
    return [
        RevisionsRise(),
        IdentityIsUnique(),
        BoundOnce(),
        NoOvercommit(),
        OnePodPerNode(),
        DevicesHeldOnce(),
    ]


class WriteHistory:
    """Reads a store's writes from the first on.

    Args:
        store: whose writes.
        invariants: what must hold; ``standard()`` by default.

    Attributes:
        changes: keys of all writes, for fixed points and reports: (revision, key, deleted).
    """

    def __init__(self, store: Store, invariants: Sequence[Invariant] | None = None) -> None:
        self._store = store
        self._invariants = list(standard() if invariants is None else invariants)
        self.changes: list[tuple[int, str, bool]] = []

    def add(self, one: Invariant) -> None:
        """Have one more invariant judge the writes from now on."""
        self._invariants.append(one)

    async def run(self) -> None:
        """Judge every write until cancelled or until the store is closed.

        Raises:
            InvariantError: something does not hold.
        """
        subscription = self._store.watch("", after=0)
        try:
            async for events in subscription:
                for event in events:
                    self.see(event)
        finally:
            subscription.close()

    def see(self, event: StoreEvent) -> None:
        """Judge one write."""
        document: Document = msgspec.json.decode(event.value)
        change = ObservedWrite(event.key, event.revision, document, event.deleted)
        self.changes.append((event.revision, event.key, event.deleted))
        for one in self._invariants:
            one.see(change)

    def since(self, revision: int, *, without: Sequence[str] = ()) -> list[tuple[int, str, bool]]:
        """The writes after a revision, but for keys that begin with one of ``without``."""
        return [
            change
            for change in self.changes
            if change[0] > revision and not change[1].startswith(tuple(without))
        ]
