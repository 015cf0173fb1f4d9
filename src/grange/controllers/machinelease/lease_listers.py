"""What the controller knows: leases, nodes, pods and policy, and the queue and machines made of them."""

from collections.abc import Callable
from dataclasses import replace

from grange.api.kinds import LEASEPOLICY, MACHINELEASE, NODE, NODEPOOL, POD
from grange.api.kinds.leasepolicy import POLICY_NAME, LeasePolicySpec
from grange.api.kinds.machinelease import (
    MACHINE_LEASE,
    POOL_LABEL,
    RELEASE_FINALIZER,
    MachineLease,
    foreign_pods,
)
from grange.api.kinds.node import Node
from grange.api.kinds.nodepool import DEDICATED, NodePool
from grange.api.kinds.pod import Pod
from grange.api.meta import ObjectKey
from grange.controllers.machinelease import logic
from grange.controllers.machinelease.config import MachineLeaseConfig
from grange.placement.lease_model import MachineCounts
from grange.placement.lease_queue import LeaseQueue
from grange.placement.machine_table import MachineTable, lease_of, machine_of
from grange.placement.pool_growth import growth_of, lease_pool, node_pool_of
from grange.reconcile import finalizers
from grange.reconcile.deps import Deps
from grange.reconcile.latest_views import LatestViews

_BY_NODE = "machinelease/node"  # pods by the node they are bound to
_BY_LEASE = "machinelease/lease"  # pods by the lease they belong to
_BY_NODE_POOL = "machinelease/node-pool"  # nodes by the NodePool that made their machine


class LeaseListers:
    """Caches, and what follows from them; kept up to date by their handlers.

    Args:
        deps: informers and clock.
        config: settings.
        on_lease: called with the key of a lease that may need something done.
        on_orphan: called with the name of a node that bears marks of a lease that is not known.
        on_change: called when another lease may be granted.

    Attributes:
        claiming: uids of leases that are being given machines.
    """

    def __init__(
        self,
        deps: Deps,
        config: MachineLeaseConfig,
        *,
        on_lease: Callable[[ObjectKey], None],
        on_orphan: Callable[[str], None],
        on_change: Callable[[], None],
    ) -> None:
        self.queue, self.table = LeaseQueue(), MachineTable()
        self.claiming: set[str] = set()
        self._clock, self._config = deps.clock, config
        self._on_lease, self._on_orphan, self._on_change = on_lease, on_orphan, on_change
        self._keys: dict[str, ObjectKey] = {}
        self._settled_at: dict[str, float] = {}
        self._began = 0.0
        self._avoided: dict[str, float] = {}
        self._leases = deps.informers.informer(MACHINELEASE)
        self._policies = deps.informers.informer(LEASEPOLICY)
        self._nodes = deps.informers.informer(NODE)
        self._pods = deps.informers.informer(POD)
        self._node_pools = deps.informers.informer(NODEPOOL)
        self._nodes.store.add_index(_BY_NODE_POOL, lambda node: (node_pool_of(node),))
        self._pods.store.add_index(_BY_NODE, lambda pod: (pod.spec.node_name,))
        self._pods.store.add_index(_BY_LEASE, _lease_of_pod)
        self._lease_views, self._node_views = LatestViews(self._leases), LatestViews(self._nodes)
        self._leases.add_handler(
            self._lease_seen, lambda _, new: self._lease_seen(new), self._lease_gone
        )
        self._nodes.add_handler(
            self._node_seen, lambda _, new: self._node_seen(new), self._node_gone
        )
        self._pods.add_handler(self._pod_seen, self._pod_changed, self._pod_seen)
        self._node_pools.add_handler(
            self._node_pool_seen, self._node_pool_changed, self._node_pool_seen
        )
        self._policies.add_handler(
            self._policy_seen, lambda _, new: self._policy_seen(new), self._policy_gone
        )

    async def synced(self) -> None:
        """Wait until every cache has shown a complete state once."""
        kinds = (self._leases, self._policies, self._nodes, self._pods, self._node_pools)
        for informer in kinds:
            await informer.synced.wait()

    def begin(self) -> None:
        """This member has the work now: nothing is under way, and everything may need something."""
        self.claiming.clear()
        self.table.settle_all()
        self._avoided.clear()
        self._began = self._clock.monotonic()
        settled = self._began + self._config.settle_s
        for node in self._nodes.store.list():
            self.observe_node(node.metadata.name)
        for node_pool in self._node_pools.store.list():
            self._node_pool_seen(node_pool)
        for pool in self.queue.pools:
            self._settled_at[pool] = max(self._settled_at.get(pool, 0.0), settled)
        self._settled_at[""] = settled
        for lease in self._leases.store.list():
            self.observe_lease(lease.key)
            self._on_lease(lease.key)
        for uid in self.table.leases():
            self._wake(uid)
        self._on_change()

    # --- what is asked ------------------------------------------------------------------------

    def lease(self, key: ObjectKey) -> MachineLease | None:
        """The newest known version of a lease."""
        return self._lease_views.get(key)

    def lease_of(self, uid: str) -> MachineLease | None:
        """The lease of a uid."""
        key = self._keys.get(uid)
        found = self._lease_views.get(key) if key is not None else None
        return found if found is not None and found.metadata.uid == uid else None

    def node(self, name: str) -> Node | None:
        """The newest known version of a node."""
        return self._node_views.get(ObjectKey("", name))

    def pods_of(self, lease: str) -> list[Pod]:
        """Pods that belong to a lease."""
        return self._pods.store.by_index(_BY_LEASE, lease)

    def settles_in(self, pool: str) -> float:
        """Seconds until the size of a pool counts, and its absence."""
        due = max(self._settled_at.get("", 0.0), self._settled_at.get(pool, 0.0))
        counts = self.queue.pools.get(pool)
        if not len(self._nodes.store) and (counts is None or counts.growth is None):
            due = max(due, self._began + self._config.first_node_s)
        return max(0.0, due - self._clock.monotonic())

    def dedicated_pool(self, pool: str) -> str:
        """A dedicated NodePool whose machines have the label of a pool; empty for none."""
        return min(
            (
                one.metadata.name
                for one in self._node_pools.store.list()
                if one.spec.mode == DEDICATED and one.spec.template.labels.get(POOL_LABEL) == pool
            ),
            default="",
        )

    def avoids_for(self) -> float | None:
        """Seconds until the next avoided machine is free again; None for none."""
        now = self._clock.monotonic()
        return min((due - now for due in self._avoided.values()), default=None)

    # --- what was done ------------------------------------------------------------------------

    def wrote_lease(self, lease: MachineLease) -> None:
        """The server made this of a write."""
        self._lease_views.wrote(lease)
        self.observe_lease(lease.key)

    def wrote_node(self, node: Node) -> None:
        """The server made this of a write."""
        self._node_views.wrote(node)
        self.observe_node(node.metadata.name)

    def avoid(self, node: str) -> None:
        """A machine cannot be claimed now."""
        self._avoided[node] = self._clock.monotonic() + self._config.avoid_s
        self.observe_node(node)

    def stop_avoiding(self) -> None:
        """Count machines that have been left alone for long enough."""
        now = self._clock.monotonic()
        for node in [node for node, due in self._avoided.items() if due <= now]:
            del self._avoided[node]
            self.observe_node(node)

    # --- what follows -------------------------------------------------------------------------

    def observe_lease(self, key: ObjectKey) -> None:
        """Bring the queue up to date with a lease."""
        lease = self.lease(key)
        if lease is None:
            return
        uid = lease.metadata.uid
        if logic.is_held(lease):
            self.queue.hold(logic.granted(lease, self._clock.now().timestamp()))
        elif not logic.is_waiting(lease):
            self.queue.remove(uid)
        elif uid not in self.claiming and finalizers.has(lease, RELEASE_FINALIZER):
            self.queue.release(uid)
            self.queue.put(logic.waiting(lease))
        self._on_change()

    def observe_node(self, name: str) -> None:
        """Bring machines and pools up to date with a node and its pods."""
        before, node = self.table.get(name), self.node(name)
        if node is None:
            self.table.remove(name)
        else:
            pods = self._pods.store.by_index(_BY_NODE, name)
            foreign = (pod.key for pod in foreign_pods(pods, lease_of(node)))
            first = next((f"{key.namespace}/{key.name}" for key in foreign), "")
            self.table.put(machine_of(node, pod=first, avoided=name in self._avoided))
        after = self.table.get(name)
        for pool in {one.pool for one in (before, after) if one is not None and one.pool}:
            self.count_pool(pool)
        if before != after:
            for uid in {one.lease for one in (before, after) if one is not None and one.lease}:
                self._wake(uid)

    def count_pool(self, pool: str) -> None:
        """Bring the queue up to date with the machines of a pool."""
        before, counts = self.queue.pools.get(pool), self._counts(pool)
        if not self.queue.set_pool(pool, counts):
            return
        was, most = before.capacity if before else 0, counts.capacity if counts else 0
        if was != most:
            settle_s = self._config.settle_s if most > was else self._config.replace_s
            due = self._clock.monotonic() + settle_s
            self._settled_at[pool] = max(self._settled_at.get(pool, 0.0), due)
        self._on_change()

    def _counts(self, pool: str) -> MachineCounts | None:
        """The machines of a pool, with what NodePools may add; None for no pool."""
        makers = [one for one in self._node_pools.store.list() if lease_pool(one) == pool]
        makers.sort(key=lambda one: one.metadata.name)
        counts = self.table.counts(pool)
        if not makers:
            return counts
        names = (one.metadata.name for one in makers)
        made = {name: len(self._nodes.store.by_index(_BY_NODE_POOL, name)) for name in names}
        return replace(counts or MachineCounts(0, 0, 0), growth=growth_of(makers, made))

    def _wake(self, uid: str) -> None:
        lease = self.lease_of(uid)
        if lease is not None:
            self._on_lease(lease.key)
            return
        for machine in self.table.of(uid):
            self._on_orphan(machine.node)

    # --- handlers -----------------------------------------------------------------------------

    def _lease_seen(self, lease: MachineLease) -> None:
        self._keys[lease.metadata.uid] = lease.key
        self.observe_lease(lease.key)
        self._on_lease(lease.key)

    def _lease_gone(self, lease: MachineLease) -> None:
        uid = lease.metadata.uid
        self._lease_views.get(lease.key)  # forgets what was written
        self._keys.pop(uid, None)
        self.queue.remove(uid)
        self._wake(uid)
        self._on_change()

    def _node_seen(self, node: Node) -> None:
        if len(self._nodes.store) == 1:  # the first one: others are about to come
            settled = self._clock.monotonic() + self._config.settle_s
            self._settled_at[""] = max(self._settled_at.get("", 0.0), settled)
        self.observe_node(node.metadata.name)

    def _node_gone(self, node: Node) -> None:
        self.observe_node(node.metadata.name)

    def _pod_seen(self, pod: Pod) -> None:
        node = self._nodes.store.get(ObjectKey("", pod.spec.node_name))
        if node is not None and (node.metadata.labels.get(POOL_LABEL) or lease_of(node)):
            self.observe_node(pod.spec.node_name)
            if uid := lease_of(node):
                self._wake(uid)
        for uid in _lease_of_pod(pod):
            self._wake(uid)

    def _pod_changed(self, old: Pod, new: Pod) -> None:
        if _counted(old) != _counted(new):
            self._pod_seen(old)
            self._pod_seen(new)

    def _node_pool_seen(self, pool: NodePool) -> None:
        if name := pool.spec.template.labels.get(POOL_LABEL, ""):
            self.count_pool(name)

    def _node_pool_changed(self, old: NodePool, new: NodePool) -> None:
        self._node_pool_seen(old)
        self._node_pool_seen(new)

    def _policy_seen(self, policy: object) -> None:
        found = self._policies.store.get(ObjectKey("", POLICY_NAME))
        self.queue.policy = found.spec if found is not None else LeasePolicySpec()
        self._on_change()

    _policy_gone = _policy_seen


def _lease_of_pod(pod: Pod) -> tuple[str, ...]:
    uid = pod.metadata.labels.get(MACHINE_LEASE)
    return (uid,) if uid else ()


def _counted(pod: Pod) -> tuple[object, ...]:
    """What of a pod decides whether its machine is busy."""
    meta = pod.metadata
    return (
        pod.spec.node_name,
        pod.status.phase,
        meta.labels.get(MACHINE_LEASE),
        meta.deletion_timestamp,
    )
