"""Which nodes a controller may use, and how it gets more.

``NodeScheduler`` is the controller's view of placement: it names eligible nodes, allocates further ones from a
pool of machines, if there is one, and releases them. It does not bind pods.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from grange.api import pod_requests
from grange.api.kinds import POD, REPLICATIONCONTROLLER, node as nodes
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod, PodSpec, is_finished
from grange.api.kinds.replicationcontroller import ID_LABEL, ReplicationController
from grange.api.kinds.transfer_status import drained_nodes
from grange.api.meta import ObjectKey
from grange.api.quantity import QuantityError
from grange.base.bounded import BoundedDict
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.log import Logger
from grange.base.plurals import counted
from grange.client.client import Client
from grange.controllers.replication.listers import Listers
from grange.controllers.replication.podtemplate import LeaseTolerations
from grange.controllers.shared import pod_identity
from grange.placement import resource_fit
from grange.placement.node_demand import Demand
from grange.placement.node_usage import IDLE, charged
from grange.reconcile.machine_pool import MachinePool, PoolExhausted, epoch_of

T = TypeVar("T")

_REMEMBERED = 4096  # distinct demands
_MOST_NODES = 200  # whose room is computed in one reconcile; all others count as full
_TIMEOUT_S = 5.0
_PAUSE_S = 5.0  # after a timeout: thousands of controllers would wait one after another


class AllocationRefused(GrangeError):
    """No further nodes can be provided: report the shortage and continue with the existing ones."""


class PoolSilent(GrangeError):
    """The pool does not answer in time: try again later."""


EligibleNodes = Callable[[ReplicationController], Sequence[str]]
"""Names of the eligible nodes of any controller at one moment, sorted.

Raises:
    SelectorError, msgspec.ValidationError: the controller's spec cannot be read.
"""


def placement_facts(node: Node) -> tuple[object, ...]:
    """Everything about a node that eligibility depends on; equal facts mean equal answers."""
    return (
        node.metadata.labels,
        node.metadata.deletion_timestamp is None,
        node.spec.unschedulable,
        [(taint.key, taint.value, taint.effect) for taint in node.spec.taints],
        nodes.is_ready(node),
    )


class NodeScheduler:
    """Eligibility by node selectors, and further nodes from a pool.

    A machine of the pool is eligible for its holder only; other nodes are eligible by their labels. Answers about
    labels are cached by demand until ``nodes_changed``: ten thousand controllers have few distinct demands.

    Args:
        nodes_: those that exist.
        pool: of machines; without one no nodes can be allocated.
        clock: for timeouts of the pool.
        leased: the taints that pods tolerate on machines of the pool.
    """

    def __init__(
        self,
        nodes_: Iterable[Node],
        pool: MachinePool | None = None,
        *,
        clock: Clock,
        leased: LeaseTolerations | None = None,
    ) -> None:
        self._nodes = nodes_
        self._pool = pool
        self._clock = clock
        self._leased = leased or LeaseTolerations()
        self._answers: BoundedDict[bytes, tuple[str, ...]] = BoundedDict(_REMEMBERED)
        self._known: dict[str, str] | None = None
        self._silent_until = 0.0

    def nodes_changed(self) -> None:
        """Clear the cache; call when the placement facts of any node changed."""
        self._answers.clear()

    async def eligible_nodes(self) -> EligibleNodes:
        """The eligible nodes of now, used ones included, of any controller.

        Empty is a valid answer: nothing will be placed. While the pool does not answer, its last known holders count.

        Raises:
            GrangeError: the pool fails, and no holders are known.
        """
        try:
            holders = await self.holders()
        except GrangeError:
            if self._known is None:
                raise
            holders = self._known
        if not holders:
            return self._selected

        def eligible(controller: ReplicationController) -> Sequence[str]:
            uid = controller.metadata.uid
            names = self._selected(self._leased.tolerating(controller))
            return [name for name in names if holders.get(name, uid) == uid]

        return eligible

    def _selected(self, controller: ReplicationController) -> Sequence[str]:
        """Names of the nodes that a controller selects and tolerates."""
        spec = controller.spec.template.get("spec") or {}
        about_nodes = [spec.get(key) for key in ("nodeSelector", "affinity", "tolerations")]
        question = msgspec.json.encode(
            [controller.spec.node_selector, about_nodes], order="deterministic"
        )
        answer = self._answers.get(question)
        if answer is None:
            demand = Demand.of(controller)
            answer = tuple(sorted(n.metadata.name for n in self._nodes if demand.accepts(n)))
            self._answers[question] = answer
        return answer

    async def allocate_nodes(
        self, controller: ReplicationController, count: int, *, request_id: str
    ) -> Sequence[str]:
        """Claim so many machines of the pool, which ``eligible_nodes`` then includes.

        The same request id returns the same nodes.

        Raises:
            AllocationRefused: the pool has none, or there is no pool.
            GrangeError: the pool fails.
        """
        if self._pool is None:
            more = counted(count, "more node")
            raise AllocationRefused(
                f"{controller.key}: {more} wanted, but nodes are not allocated here: "
                "label nodes to match spec.nodeSelector or add nodes"
            )
        uid = controller.metadata.uid
        epoch = epoch_of(controller.metadata.resource_version)
        asked = self._pool.claim(
            request_id, holder=uid, demand=controller, count=count, epoch=epoch
        )
        try:
            given = await self._answer(asked)
        except PoolExhausted as error:
            raise AllocationRefused(f"{controller.key}: {error}") from error
        self._note(given, uid)
        return given

    async def allocated_nodes(self, controller: ReplicationController) -> Sequence[str]:
        """Names of the machines that the controller holds.

        Raises:
            GrangeError: the pool fails.
        """
        uid = controller.metadata.uid
        return [name for name, held in (await self.holders()).items() if held == uid]

    async def deallocate_nodes(
        self, controller: ReplicationController, names: Sequence[str]
    ) -> None:
        """Release machines; nodes that the controller does not hold are ignored.

        Raises:
            AllocationRefused: there is no pool.
            GrangeError: the pool fails, or knows a later version.
        """
        meta = controller.metadata
        await self.release(names, holder=meta.uid, version=meta.resource_version)

    async def release(self, names: Sequence[str], *, holder: str, version: str) -> None:
        """Release machines of a holder, which may be gone.

        Args:
            names: of the machines.
            holder: its uid.
            version: of the holder, or of the list in which it is missing.

        Raises:
            AllocationRefused: there is no pool.
            GrangeError: the pool fails, or knows a later version.
        """
        if self._pool is None:
            raise AllocationRefused("nodes are not allocated here, so none can be released")
        self._note([name for name in names if self._known and name in self._known], "")
        await self._answer(self._pool.release(names, holder=holder, epoch=epoch_of(version)))

    async def holders(self) -> Mapping[str, str]:
        """Every machine of the pool by node name: uid of its holder, or empty.

        Raises:
            GrangeError: the pool fails, or did not answer a moment ago.
        """
        if self._pool is None:
            return {}
        if self._clock.monotonic() < self._silent_until:
            raise PoolSilent("the pool of machines did not answer a moment ago")
        try:
            self._known = dict(await self._answer(self._pool.holders()))
        except PoolSilent:
            self._silent_until = self._clock.monotonic() + _PAUSE_S
            raise
        return self._known

    def _note(self, names: Sequence[str], holder: str) -> None:
        if self._known is not None:
            self._known.update(dict.fromkeys(names, holder))

    async def _answer(self, asked: Awaitable[T]) -> T:
        try:
            async with self._clock.timeout(_TIMEOUT_S):
                return await asked
        except TimeoutError as error:
            raise PoolSilent(f"the pool of machines did not answer in {_TIMEOUT_S:g} s") from error


class MachineCollector:
    """Releases machines whose holders are gone, once no replica runs there.

    A controller releases machines that it does not need; one that was deleted during a transfer cannot. So every
    process that runs the replication controller looks now and then for machines whose holders are gone. Releasing
    is idempotent and names the holder, so several processes may do it.
    """

    def __init__(self, scheduler: NodeScheduler, client: Client, *, log: Logger) -> None:
        self._scheduler = scheduler
        self._client = client
        self._log = log
        self._missed: set[str] = set()

    async def sweep(self, present: Collection[str]) -> None:
        """Sweep once; ``present`` are the uids of the controllers that the lister has.

        A holder must be missing twice in a row: a lister may be empty by mistake.

        Raises:
            GrangeError: the pool or the server does not answer; try again later.
        """
        holders = await self._scheduler.holders()
        missing = {uid for uid in holders.values() if uid and uid not in present}
        before, self._missed = self._missed, missing
        gone = missing & before
        if not gone:
            return
        listed = await self._client.list(REPLICATIONCONTROLLER)
        gone -= {item.metadata.uid for item in listed.items}
        pods = (await self._client.list(POD, labels=ID_LABEL)).items
        used = {pod.spec.node_name for pod in pods}
        for name, holder in holders.items():
            if holder in gone and name not in used:
                await self._scheduler.release(
                    [name], holder=holder, version=listed.resource_version
                )
                self._log.warning("released orphaned machine", node=name, holder=holder)


Places = tuple[Sequence[str], Sequence[str] | None]
"""Names of nodes for new pods, and for those of earlier templates; None for the same."""


def places(nodes_: EligibleNodes, controller: ReplicationController) -> Places:
    """The eligible nodes of a controller, by the stored state of its rollout.

    Raises:
        SelectorError, msgspec.ValidationError: a template cannot be parsed.
    """
    present, stable = pod_identity.sources(controller)
    return nodes_(present), None if stable is None else nodes_(stable)


_SHOWN = 5


def shortage_reasons(
    controller: ReplicationController,
    nodes: Iterable[Node],
    *,
    occupied: Container[str],
    eligible: Container[str],
) -> str:
    """Why nodes cannot take replicas, most frequent reason first.

    The eligible nodes include drained ones; occupied ones have a pod of the controller.

    Raises:
        SelectorError, msgspec.ValidationError: its spec cannot be parsed.
    """
    demand, drained = Demand.of(controller), drained_nodes(controller)
    spread = controller.spec.placement == "OnePerNode"
    found: Counter[tuple[str, str]] = Counter()
    total = 0
    for node in nodes:
        name, total = node.metadata.name, total + 1
        if name in drained:
            mark = f"drained by rc drain-node {controller.metadata.name}"
            found["is " + mark, "are " + mark] += 1
        elif obstacle := demand.obstacle(node):
            found[obstacle] += 1
        elif name not in eligible:
            found["is not given by the machine pool", "are not given by the machine pool"] += 1
        elif spread and name in occupied:
            found["has a pod already (OnePerNode)", "have a pod already (OnePerNode)"] += 1
    if not total:
        return "there is no node"
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:_SHOWN]
    return ", ".join(counted(count, one, many) for (one, many), count in ranked)


class FullNodes:
    """The names of nodes without room for one more pod of a controller's template.

    The room of each is computed on demand.

    Raises:
        msgspec.ValidationError: its template cannot be parsed.
    """

    def __init__(self, listers: Listers, controller: ReplicationController) -> None:
        self._listers = listers
        self._spec = msgspec.convert(controller.spec.template.get("spec") or {}, PodSpec)
        self._known: dict[str, bool] = {}

    def __contains__(self, name: object) -> bool:
        key = str(name)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _MOST_NODES:
                return True
            known = self._known[key] = self._is_full(key)
        return known

    def _is_full(self, name: str) -> bool:
        node = self._listers.nodes.store.get(ObjectKey("", name))
        if node is None:
            return True
        try:
            return not _fits(self._spec, node, self._listers.on_node(name))
        except QuantityError:
            return False  # the scheduler decides


def _fits(spec: PodSpec, node: Node, there: Sequence[Pod]) -> bool:
    usage = IDLE
    for pod in there:
        if not is_finished(pod):
            usage = charged(usage, pod_requests.pod_request(pod.spec), ())
    given = node.status.allocatable or node.status.capacity
    if not given:
        return True  # not reported yet
    return resource_fit.fits(pod_requests.pod_request(spec), pod_requests.allocatable(given), usage)
