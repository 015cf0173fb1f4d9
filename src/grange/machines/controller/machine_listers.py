"""What the controller knows: machines, pools, nodes and pods, and what a change of one concerns."""

from collections.abc import Callable, Mapping, Sequence

from grange.api.kinds import (
    MACHINE,
    MACHINELEASE,
    NAMESPACE,
    NODE,
    NODEPOOL,
    POD,
    PODDISRUPTIONBUDGET,
    PODGROUP,
)
from grange.api.kinds.machine import (
    NODE_POOL_LABEL,
    PLANNED_LEASE_ANNOTATION,
    PLANNED_PODS_ANNOTATION,
    Machine,
    MachineSpec,
)
from grange.api.kinds.machinelease import MachineLease
from grange.api.kinds.node import Node, is_ready
from grange.api.kinds.nodepool import NodePool
from grange.api.kinds.pod import Pod, is_active, is_finished
from grange.api.kinds.poddisruptionbudget import PodDisruptionBudget
from grange.api.kinds.podgroup import PodGroup
from grange.api.machine_phases import MachinePhase
from grange.api.meta import ObjectKey, controller_of
from grange.machines.controller.pool_template import CONFIG_ANNOTATION, config_text
from grange.machines.scaling.lease_needs import requests_machines
from grange.machines.scaling.node_match import instance_of, own_node
from grange.machines.scaling.packing_pods import waits_for_machine
from grange.reconcile.deps import Deps
from grange.reconcile.latest_views import LatestViews

_BY_NODE = (
    "machines/node"  # pods by the node that they are bound to; machines by the name of theirs
)
_BY_INSTANCE = "machines/instance"  # nodes and machines by the instance that they name
_BY_POOL = "machines/pool"  # pods by the pool that they select; machines by their pool
_BY_UID = "machines/uid"  # pods and leases by UID; machines by the pod that they are meant for
_MIRROR = "kubernetes.io/config.mirror"
_BY_PHASE = "machines/phase"
_UNSEEN_S = 60.0  # one that the cache does not show for so long was deleted meanwhile


class MachineListers:
    """Caches that do not go back behind our own writes.

    Args:
        deps: informers.
        on_machine: called with the name of a machine that may need something.
        on_pool: called with the name of a pool for which a plan may differ now.
        on_unschedulable: called when the scheduler finds no node for a pod, or a lease requests machines.
    """

    def __init__(
        self,
        deps: Deps,
        *,
        on_machine: Callable[[str], None],
        on_pool: Callable[[str], None],
        on_unschedulable: Callable[[], None],
    ) -> None:
        self._on_machine, self._on_pool = on_machine, on_pool
        self._on_unschedulable = on_unschedulable
        self._clock = deps.clock
        self._created: dict[str, tuple[Machine, float]] = {}  # that the cache may not have yet
        self._machines = deps.informers.informer(MACHINE)
        self._pools = deps.informers.informer(NODEPOOL)
        self._nodes = deps.informers.informer(NODE)
        self._pods = deps.informers.informer(POD)
        self._groups = deps.informers.informer(PODGROUP)
        self._budgets = deps.informers.informer(PODDISRUPTIONBUDGET)
        self._namespaces = deps.informers.informer(NAMESPACE)
        self._leases = deps.informers.informer(MACHINELEASE)
        self._machines.store.add_index(_BY_POOL, lambda machine: (machine.spec.pool,))
        self._machines.store.add_index(_BY_UID, lambda machine: (machine.status.bound_pod_uid,))
        self._machines.store.add_index(_BY_NODE, lambda machine: (machine.node,))
        self._machines.store.add_index(
            _BY_INSTANCE, lambda machine: _named(machine.status.instance_id)
        )
        self._nodes.store.add_index(_BY_INSTANCE, lambda node: _named(instance_of(node)))
        self._pods.store.add_index(_BY_NODE, lambda pod: (pod.spec.node_name,))
        self._pods.store.add_index(_BY_POOL, _pools_of)
        self._pods.store.add_index(_BY_UID, lambda pod: (pod.metadata.uid,))
        self._leases.store.add_index(_BY_UID, lambda lease: (lease.metadata.uid,))
        self._machines.store.add_index(_BY_PHASE, lambda machine: (machine.status.phase,))
        self._machine_views = LatestViews(self._machines)
        self._pool_views = LatestViews(self._pools)
        self._machines.add_handler(
            self._machine_seen, lambda _, new: self._machine_seen(new), self._machine_seen
        )
        self._pools.add_handler(self._pool_seen, self._pool_changed, self._pool_seen)
        self._nodes.add_handler(self._node_seen, self._node_changed, self._node_seen)
        self._pods.add_handler(self._pod_seen, self._pod_changed, self._pod_seen)
        self._leases.add_handler(self._lease_seen, self._lease_changed, self._lease_seen)

    async def synced(self) -> None:
        """Wait until every cache has shown a complete state once."""
        kinds = (
            self._machines,
            self._pools,
            self._nodes,
            self._pods,
            self._namespaces,
            self._leases,
        )
        for informer in kinds:
            await informer.synced.wait()

    # --- what is asked ---------------------------------------------------------------------------

    def machine(self, name: str) -> Machine | None:
        """The newest known version of a machine."""
        created = self._created.get(name)
        return self._machine_views.get(ObjectKey("", name)) or (created[0] if created else None)

    def machines(self) -> Sequence[Machine]:
        """All of them, sorted by name."""
        return self._newest([*self._machines.store.list(), *self._unseen()])

    def machines_of(self, pool: str) -> Sequence[Machine]:
        """The machines of a pool, sorted by name."""
        unseen = [one for one in self._unseen() if one.spec.pool == pool]
        return self._newest([*self._machines.store.by_index(_BY_POOL, pool), *unseen])

    def launching(self, pool: NodePool) -> Sequence[MachineSpec]:
        """Orders at the provider of a pool, as it is configured, whose launch is not answered yet."""
        phases = ("", MachinePhase.CREATING.value)
        found = [one for phase in phases for one in self._machines.store.by_index(_BY_PHASE, phase)]
        text = config_text(pool)
        return [
            one.spec
            for one in self._newest([*found, *self._unseen()])
            if one.phase is MachinePhase.CREATING
            and one.spec.provider == pool.spec.provider
            and one.metadata.annotations.get(CONFIG_ANNOTATION, text) == text
        ]

    def machines_for(self, uid: str) -> Sequence[Machine]:
        """The machines that are meant for a pod."""
        return self._newest(self._machines.store.by_index(_BY_UID, uid)) if uid else []

    def machine_names(self) -> set[str]:
        """Names of all records."""
        return {machine.metadata.name for machine in self.machines()}

    def machine_with(self, instance: str) -> str | None:
        """Name of a machine whose record has an instance."""
        found = self._machines.store.by_index(_BY_INSTANCE, instance) if instance else ()
        return next((one.metadata.name for one in found), None)

    def pool(self, name: str) -> NodePool | None:
        """The newest known version of a pool."""
        return self._pool_views.get(ObjectKey("", name))

    def pools(self) -> Sequence[NodePool]:
        """All of them, sorted by name."""
        found = [self.pool(pool.metadata.name) for pool in self._pools.store.list()]
        return sorted((one for one in found if one is not None), key=lambda one: one.metadata.name)

    def nodes(self) -> Sequence[Node]:
        """All of them, sorted by name."""
        return sorted(self._nodes.store.list(), key=lambda node: node.metadata.name)

    def groups(self) -> Sequence[PodGroup]:
        """All PodGroups."""
        return self._groups.store.list()

    def budgets(self) -> Sequence[PodDisruptionBudget]:
        """All PodDisruptionBudgets."""
        return self._budgets.store.list()

    def namespaces(self) -> Mapping[str, Mapping[str, str]]:
        """The labels of each namespace."""
        return {one.metadata.name: one.metadata.labels for one in self._namespaces.store.list()}

    def pods(self) -> Sequence[Pod]:
        """All of them, sorted by name."""
        return sorted(self._pods.store.list(), key=_pod_order)

    def pod_named(self, name: str) -> Pod | None:
        """The pod of a ``namespace/name``."""
        namespace, _, own = name.partition("/")
        return self._pods.store.get(ObjectKey(namespace, own))

    def node_of(self, machine: Machine) -> Node | None:
        """The node of a machine; one of its name that is not its own if there is no other."""
        named = self._nodes.store.get(ObjectKey("", machine.node))
        instance = machine.status.instance_id
        there = self._nodes.store.by_index(_BY_INSTANCE, instance) if instance else ()
        return own_node(machine, named, there, self.__contains__)

    def pod_of(self, uid: str) -> Pod | None:
        """The pod of a UID."""
        return next(iter(self._pods.store.by_index(_BY_UID, uid)), None) if uid else None

    def leases(self) -> Sequence[MachineLease]:
        """MachineLeases that machines are to be made for."""
        return [lease for lease in self._leases.store.list() if requests_machines(lease)]

    def lease_of(self, uid: str) -> MachineLease | None:
        """The MachineLease of a UID, if machines are to be made for it."""
        found = self._leases.store.by_index(_BY_UID, uid)
        return next((lease for lease in found if requests_machines(lease)), None)

    def waits(self, uid: str) -> bool:
        """Whether a pod is there, has no node and has not ended, or a lease waits for machines."""
        pod = self.pod_of(uid)
        if pod is None:
            return self.lease_of(uid) is not None
        return not pod.spec.node_name and is_active(pod)

    def pods_meant_for(self, machine: Machine) -> Sequence[Pod]:
        """The pods that a machine was ordered for and that are there."""
        planned = machine.metadata.annotations.get(PLANNED_PODS_ANNOTATION, "").split(",")
        found = [self.pod_of(uid) for uid in (machine.status.bound_pod_uid, *planned)]
        return [pod for pod in found if pod is not None]

    def lease_meant_for(self, machine: Machine) -> MachineLease | None:
        """The MachineLease that a machine was ordered for, if it still waits for machines."""
        uid = machine.metadata.annotations.get(PLANNED_LEASE_ANNOTATION, "")
        return self.lease_of(uid) if uid else None

    def pods_on(self, node: str) -> Sequence[Pod]:
        """Pods on a node that have not ended, other than those that every node has."""
        found = self._pods.store.by_index(_BY_NODE, node)
        return [pod for pod in found if is_active(pod) and not _is_of_daemon(pod)]

    def remaining_on(self, node: str) -> Sequence[Pod]:
        """Pods on a node that run or are still ending, other than those that every node has."""
        found = self._pods.store.by_index(_BY_NODE, node)
        return [pod for pod in found if not is_finished(pod) and not _is_of_daemon(pod)]

    def unschedulable(self) -> Sequence[Pod]:
        """Pods for which the scheduler has found no node."""
        return [pod for pod in self._pods.store.list() if waits_for_machine(pod)]

    def pods_for(self, pool: str) -> Sequence[Pod]:
        """Pods that select a pool, sorted by name."""
        found = self._pods.store.by_index(_BY_POOL, pool)
        return sorted(found, key=_pod_order)

    def _newest(self, machines: Sequence[Machine]) -> Sequence[Machine]:
        found = [self.machine(machine.metadata.name) for machine in machines]
        return sorted((one for one in found if one is not None), key=lambda one: one.metadata.name)

    # --- what was done ---------------------------------------------------------------------------

    def wrote(self, machine: Machine) -> None:
        """The server made this of a write."""
        name = machine.metadata.name
        if name in self:
            self._machine_views.wrote(machine)
        else:
            self._created[name] = (machine, self._clock.monotonic() + _UNSEEN_S)

    def _unseen(self) -> list[Machine]:
        """Machines that we created and that the cache does not show yet."""
        now = self._clock.monotonic()
        self._created = {
            name: (machine, due)
            for name, (machine, due) in self._created.items()
            if name not in self and now < due
        }
        return [machine for machine, _ in self._created.values()]

    def wrote_pool(self, pool: NodePool) -> None:
        """The server made this of a write."""
        self._pool_views.wrote(pool)

    # --- handlers --------------------------------------------------------------------------------

    def _machine_seen(self, machine: Machine) -> None:
        self._created.pop(machine.metadata.name, None)
        self._on_machine(machine.metadata.name)
        self._on_pool(machine.spec.pool)

    def _pool_seen(self, pool: NodePool) -> None:
        self._on_pool(pool.metadata.name)
        for machine in self._machines.store.by_index(_BY_POOL, pool.metadata.name):
            self._on_machine(machine.metadata.name)

    def _pool_changed(self, old: NodePool, new: NodePool) -> None:
        before, after = old.metadata, new.metadata
        if before.generation != after.generation or after.deletion_timestamp is not None:
            self._pool_seen(new)
        elif before.annotations != after.annotations:  # what holders ask for
            self._on_pool(after.name)

    def _node_seen(self, node: Node) -> None:
        named = self._machines.store.by_index(_BY_NODE, node.metadata.name)
        there = self._machines.store.by_index(_BY_INSTANCE, instance_of(node))
        for machine in {one.key: one for one in (*named, *there)}.values():
            self._machine_seen(machine)

    def _node_changed(self, old: Node, new: Node) -> None:
        if is_ready(old) != is_ready(new) or (old.metadata.labels, old.spec) != (
            new.metadata.labels,
            new.spec,
        ):
            self._node_seen(new)

    def _pod_seen(self, pod: Pod) -> None:
        for pool in _pools_of(pod):
            self._on_pool(pool)
        if waits_for_machine(pod):
            self._on_unschedulable()
        holders = self._machines.store.by_index(_BY_UID, pod.metadata.uid)
        under = self._machines.store.by_index(_BY_NODE, pod.spec.node_name)
        for name in {machine.metadata.name: None for machine in (*under, *holders)}:
            self._on_machine(name)

    def _pod_changed(self, old: Pod, new: Pod) -> None:
        if _counted(old) != _counted(new):
            self._pod_seen(new)

    def _lease_seen(self, lease: MachineLease) -> None:
        if requests_machines(lease):
            self._on_unschedulable()

    def _lease_changed(self, old: MachineLease, new: MachineLease) -> None:
        if requests_machines(old) != requests_machines(new):
            self._on_unschedulable()

    def __contains__(self, machine: str) -> bool:
        return ObjectKey("", machine) in self._machines.store


def _is_of_daemon(pod: Pod) -> bool:
    """Whether it comes with the node: of a DaemonSet, or of the kubelet itself."""
    owner = controller_of(pod.metadata)
    return (owner is not None and owner.kind == "DaemonSet") or _MIRROR in pod.metadata.annotations


def _named(instance: str) -> tuple[str, ...]:
    return (instance,) if instance else ()


def _pools_of(pod: Pod) -> tuple[str, ...]:
    name = pod.spec.node_selector.get(NODE_POOL_LABEL)
    return (name,) if name else ()


def _counted(pod: Pod) -> tuple[object, ...]:
    """What of a pod decides about machines."""
    meta, spec = pod.metadata, pod.spec
    gated = bool(spec.scheduling_gates)
    return (
        spec.node_name,
        pod.status.phase,
        meta.deletion_timestamp,
        meta.annotations,
        gated,
        waits_for_machine(pod),
    )


def _pod_order(pod: Pod) -> tuple[str, str]:
    return (pod.metadata.namespace, pod.metadata.name)
