"""What the pods of each node ask for together, so that no binding gives a node more than it has.

And whose it is: a binding of a pod that does not tolerate the lease of its node is declined, too.

Theory of operation. Whether a pod fits is decided where its write is *accepted*: there all writes
of all clients have one order, so of two bindings that compete for the last place the later one
sees the earlier one, also within one group. For that the registry lets the totals note each write of a
pod or a node as part of the write's value, which the store asks for at acceptance and not otherwise.
A binding that does not fit is declined in the same place.

What counts is what a scheduler's cache counts: every pod that has a node and has not ended, also one
that is on its way out, with the requests that kube-scheduler's rules give it: while it is resized, with the
largest of those that it asks for and that its node has allocated. So what fits for a
scheduler that knows the newest state fits here. A node that is not there or has no
allocatable sets no limit, and neither does an extended resource that it does not name. Of CPU, memory,
ephemeral storage and places for pods a node that names any of them has the named amounts, and none of what it
leaves out.

If the disk refuses, all writes that were accepted and not acknowledged are undone without notice. The
totals check that in the store before each step, and only then read again what was not acknowledged.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from grange.api import gpus, pod_requests
from grange.api.kinds import NODE, POD
from grange.api.kinds.pod import FINISHED, Scalar
from grange.api.meta import Document
from grange.api.pod_requests import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, Resources
from grange.api.quantity import QuantityError
from grange.api.scheme import AnyKind
from grange.apiserver import storage
from grange.apiserver.leased_nodes import LeaseTaint, Tolerations, is_tolerated, lease_taint
from grange.store.errors import WriteDeclined
from grange.store.interface import Store

Skip = Callable[[str, int, Exception], object]
UNREADABLE = (msgspec.MsgspecError, QuantityError, UnicodeDecodeError)

_JOURNAL_KEPT = 256  # acknowledged writes are dropped when there are more


class Shortage(NamedTuple):
    """What a node has too little of.

    Attributes:
        node: its name.
        resource: the resource's name.
        requested: what the pod asks for.
        free: what the other pods leave of it; negative where they ask for more than there is.
    """

    node: str
    resource: str
    requested: int
    free: int

    def __str__(self) -> str:
        unit = "m" if self.resource == CPU else ""
        return (
            f"node {self.node} has not enough {self.resource}: "
            f"{self.requested}{unit} requested, {max(0, self.free)}{unit} free"
        )


class Leased(NamedTuple):
    """A node that belongs to a machine lease, and not to the pod.

    Attributes:
        node: its name.
        lease: UID of the lease.
    """

    node: str
    lease: str

    def __str__(self) -> str:
        return f"node {self.node} is leased to {self.lease}, which the pod does not tolerate"


@dataclass(slots=True)
class _Node:
    """A node's totals: what it offers, to whom it is leased, and sums over its pods."""

    offer: Resources | None = None
    lease: LeaseTaint | None = None
    pods: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    ephemeral_bytes: int = 0
    scalars: dict[str, int] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)

    def add(self, need: Resources, sign: int) -> None:
        """Charge a pod, or discharge it."""
        self.pods += sign
        self.cpu_milli += sign * need.cpu_milli
        self.memory_bytes += sign * need.memory_bytes
        self.ephemeral_bytes += sign * need.ephemeral_bytes
        for name, amount in need.scalars.items() if need.scalars else ():
            left = self.scalars.get(name, 0) + sign * amount
            if left:
                self.scalars[name] = left
            else:
                self.scalars.pop(name, None)

    def lacks(self, need: Resources) -> tuple[str, int, int] | None:
        """The first resource that one more pod would find too little of, what it asks and what is free.

        As ``placement.resource_fit.fits``: what a pod does not ask for cannot keep it out.
        """
        offer = self.offer
        if offer is None:
            return None
        if self.pods >= offer.pods:
            return PODS, 1, offer.pods - self.pods
        if need.cpu_milli and need.cpu_milli > (left := offer.cpu_milli - self.cpu_milli):
            return CPU, need.cpu_milli, left
        if need.memory_bytes and need.memory_bytes > (
            left := offer.memory_bytes - self.memory_bytes
        ):
            return MEMORY, need.memory_bytes, left
        if need.ephemeral_bytes and need.ephemeral_bytes > (
            left := offer.ephemeral_bytes - self.ephemeral_bytes
        ):
            return EPHEMERAL_STORAGE, need.ephemeral_bytes, left
        for name, amount in need.scalars.items():
            there = offer.scalars.get(name)
            if (
                there is not None
                and amount
                and amount > (left := there - self.scalars.get(name, 0))
            ):
                return name, amount, left
        return None


class _ContainerStatus(msgspec.Struct, omit_defaults=True):
    name: str = ""
    allocatedResources: dict[str, Any] | None = None  # noqa: N815  as in the document
    resources: dict[str, Any] | None = None


class _PodCondition(msgspec.Struct):
    type: str = ""
    reason: str = ""


class _PodStatus(msgspec.Struct):
    phase: str = ""
    containerStatuses: list[_ContainerStatus] = msgspec.field(default_factory=list)  # noqa: N815  as in the document
    initContainerStatuses: list[_ContainerStatus] = msgspec.field(default_factory=list)  # noqa: N815  as in the document
    conditions: list[_PodCondition] = msgspec.field(default_factory=list)


class _StoredPod(msgspec.Struct):
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class _StoredNode(msgspec.Struct):
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)


_pods = msgspec.json.Decoder(_StoredPod)
_nodes = msgspec.json.Decoder(_StoredNode)
_POD_KEYS, _NODE_KEYS = storage.prefix(POD), storage.prefix(NODE)


class NodeCapacity:
    """The totals of all nodes.

    Args:
        store: whose accepted writes they follow.

    Attributes:
        rereads: how often writes that were noted were undone, and the totals put right.
    """

    def __init__(self, store: Store) -> None:
        self.rereads = 0
        self._store = store
        self._nodes: dict[str, _Node] = {}
        self._held: dict[str, Resources] = {}  # by the pod's key; the pod itself names its node
        # Revision, key and a pod's node of what may still be undone, and of some more.
        self._journal: deque[tuple[int, str, str]] = deque()
        self._journal_max = _JOURNAL_KEPT
        self._setbacks = store.setbacks

    async def load(self, skip: Skip) -> None:
        """Take note of what is there already; once, before the first write.

        Args:
            skip: called with key, revision and error of what cannot be read: it counts as absent.

        Raises:
            StoreError: the store cannot be read.
        """
        for prefix in (_NODE_KEYS, _POD_KEYS):
            for entry in (await self._store.list(prefix)).entries:
                try:
                    self._read(entry.key, entry.value)
                except UNREADABLE as error:
                    skip(entry.key, entry.revision, error)

    def noting(
        self,
        info: AnyKind,
        key: str,
        document: Document,
        value: Callable[[int], bytes],
        *,
        gone: bool = False,
        fits: bool = False,
    ) -> Callable[[int], bytes]:
        """The value of a write, which is noted when the write is accepted.

        Args:
            info: the kind.
            key: what is written.
            document: the new object; for a deletion the last one.
            value: gives the bytes.
            gone: the write is a deletion.
            fits: decline a pod that comes to a node with it and does not fit there, or does not
                tolerate the node's lease.

        Returns:
            The value; it raises ``WriteDeclined``, naming the reason, to decline the write.
        """
        if info is POD:
            # Nothing holds the document until the write is accepted: groups would keep hundreds.
            node, need = _placed(document)
            if not node:
                return value  # and it never had one
            held = None if gone else need
            if fits:
                return partial(self._bind, key, node, held, _tolerations(document), value)
            return partial(self._accept_pod, key, node, held, value)
        if info is NODE:
            status = None if gone else document.get("status")
            lease = None if gone else lease_taint(document.get("spec"))
            return partial(self._accept_node, key, status, lease, value)
        return value

    def refusal(self, info: AnyKind, key: str, document: Document) -> Leased | Shortage | None:
        """Why a pod that is about to be bound cannot have its node; None if it can."""
        if info is not POD:
            return None
        self._confirm()
        node, need = _placed(document)
        return self._refusal(key, node, need, _tolerations(document))

    def pods_on(self, node: str) -> Iterator[str]:
        """The keys of the pods on a node that have not ended."""
        self._confirm()
        totals = self._nodes.get(node)
        yield from sorted(totals.keys) if totals is not None else ()

    def sums(self) -> Iterator[tuple[str, int, Resources]]:
        """By node how many pods there are and what they ask for together, for comparisons."""
        self._confirm()
        for name, totals in self._nodes.items():
            total = Resources(
                totals.cpu_milli,
                totals.memory_bytes,
                totals.ephemeral_bytes,
                scalars=MappingProxyType(dict(totals.scalars)),
            )
            yield name, totals.pods, total

    # --- inside ------------------------------------------------------------------------------

    def _refusal(
        self, key: str, node: str, need: Resources | None, tolerations: Tolerations
    ) -> Leased | Shortage | None:
        totals = self._nodes.get(node)
        if need is None or totals is None or key in self._held:
            return None
        if totals.lease is not None and not is_tolerated(totals.lease, tolerations):
            return Leased(node, totals.lease.lease)
        found = totals.lacks(need)
        return None if found is None else Shortage(node, *found)

    def _accept_node(
        self,
        key: str,
        status: Any,
        lease: LeaseTaint | None,
        value: Callable[[int], bytes],
        revision: int,
    ) -> bytes:
        self._confirm()
        body = value(revision)
        self._put_node(key, status, lease)
        self._remember(revision, key, "")
        return body

    def _accept_pod(
        self,
        key: str,
        node: str,
        need: Resources | None,
        value: Callable[[int], bytes],
        revision: int,
    ) -> bytes:
        body = value(revision)
        self._confirm()
        if self._held.get(key) is not need:
            self._put_pod(key, node, need)
            self._remember(revision, key, node)
        return body

    def _bind(
        self,
        key: str,
        node: str,
        need: Resources | None,
        tolerations: Tolerations,
        value: Callable[[int], bytes],
        revision: int,
    ) -> bytes:
        self._confirm()
        refusal = self._refusal(key, node, need, tolerations)
        if refusal is not None:
            raise WriteDeclined(str(refusal))
        return self._accept_pod(key, node, need, value, revision)

    def _put_node(self, key: str, status: Any, lease: LeaseTaint | None) -> None:
        name = key.removeprefix(_NODE_KEYS)
        totals = self._nodes.get(name)
        offer = None
        if status and (given := status.get("allocatable")):
            try:
                offer = _offered(tuple(given.items()))
            except QuantityError:
                # As schedulers do: what it offers stays as it was.
                offer = totals.offer if totals is not None else None
        if totals is None:
            if offer is None and lease is None:
                return
            totals = self._nodes[name] = _Node()
        totals.offer, totals.lease = offer, lease
        self._drop_empty(name, totals)

    def _put_pod(self, key: str, node: str, need: Resources | None) -> None:
        before = self._held.get(key)
        if before is need:
            return
        totals = self._nodes.get(node)
        if totals is None:
            totals = self._nodes[node] = _Node()
        if before is not None:
            totals.add(before, -1)
        if need is not None:
            self._held[key] = need
            totals.add(need, 1)
            totals.keys.add(key)
        else:
            del self._held[key]
            totals.keys.discard(key)
            self._drop_empty(node, totals)

    def _drop_empty(self, name: str, totals: _Node) -> None:
        if totals.offer is None and not totals.pods and totals.lease is None:
            del self._nodes[name]

    def _remember(self, revision: int, key: str, node: str) -> None:
        journal = self._journal
        journal.append((revision, key, node))
        if len(journal) >= self._journal_max:
            acknowledged = self._store.revision
            while journal and journal[0][0] <= acknowledged:
                journal.popleft()
            self._journal_max = max(_JOURNAL_KEPT, 2 * len(journal))

    def _confirm(self) -> None:
        """See to it that the totals show what is accepted and nothing else."""
        setbacks = self._store.setbacks
        if setbacks == self._setbacks:
            return
        self._setbacks = setbacks
        self.rereads += 1
        journal, self._journal = self._journal, deque()
        # A name may have moved between nodes; a pod is charged where it was noted last.
        last = {key: node for _, key, node in journal}
        for key, node in last.items():
            if node:
                self._put_pod(key, node, None)
        for key in last:
            entry = self._store.latest(key)
            if entry is not None:
                with suppress(*UNREADABLE):  # it was logged when it was written or loaded
                    self._read(key, entry.value)
            elif key.startswith(_NODE_KEYS):
                self._put_node(key, None, None)

    def _read(self, key: str, value: bytes) -> None:
        if key.startswith(_NODE_KEYS):
            found = _nodes.decode(value)
            self._put_node(key, found.status, lease_taint(found.spec))
            return
        pod = _pods.decode(value)
        if pod.spec.get("nodeName") and pod.status.phase not in FINISHED:
            status = msgspec.to_builtins(pod.status) if pod.status.containerStatuses else {}
            node, need = _placed({"metadata": pod.metadata, "spec": pod.spec, "status": status})
            self._put_pod(key, node, need)


def _tolerations(pod: Document) -> Tolerations:
    given = (pod.get("spec") or {}).get("tolerations") or ()
    return bytes(given) if isinstance(given, msgspec.Raw) else given


def _placed(pod: Document) -> tuple[str, Resources | None]:
    """A pod's node, and what it needs there: None without a node, and when it has ended."""
    spec = pod.get("spec") or {}
    node = spec.get("nodeName") or ""
    if not node:
        return "", None
    status = pod.get("status")
    if status and status.get("phase") in FINISHED:
        return node, None
    try:
        need = pod_requests.charged_request(spec, status).resources
    except QuantityError:
        return node, None  # schedulers leave it out as well
    if gpus.GPU_MILLI in need.scalars:
        annotation = (pod["metadata"].get("annotations") or {}).get(gpus.ANNOTATION, "")
        need = _with_devices(need, annotation)
    return node, need


# A device is one more resource here, of which there is a thousand: shares of it add up like amounts.


def _device(number: int) -> str:
    return f"{gpus.GPU_MILLI} of device {number}"


def _with_devices(need: Resources, annotation: str) -> Resources:
    want = need.scalars[gpus.GPU_MILLI]
    held = gpus.parse(annotation, want) if want else ()
    each = dict.fromkeys((_device(number) for number in held), min(want, gpus.WHOLE))
    return msgspec.structs.replace(need, scalars=MappingProxyType({**need.scalars, **each}))


@lru_cache(maxsize=1024)
def _offered(given: tuple[tuple[str, Scalar], ...]) -> Resources:
    """What a node offers, with its devices.

    Raises:
        QuantityError: an amount is no quantity.
    """
    offer = pod_requests.allocatable(dict(given))
    devices = gpus.count(offer)
    if not devices:
        return offer
    each = dict.fromkeys((_device(number) for number in range(devices)), gpus.WHOLE)
    return msgspec.structs.replace(offer, scalars=MappingProxyType({**offer.scalars, **each}))
