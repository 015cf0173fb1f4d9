"""Event handlers: what events change in cache, queue, gangs and quotas, and what they wake.

Every handler looks at what the cache and the queue already hold rather than at what the event
claims, because events can be missed, merged or repeated.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

import msgspec

from grange.api.kinds.namespace import Namespace
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod, is_finished
from grange.api.kinds.queue import Queue
from grange.api.kinds.service import Service
from grange.api.kinds.workloads import CoreReplicationController, Workload
from grange.api.meta import Resource, controller_of
from grange.api.quantity import QuantityError
from grange.api.selectors import SelectorError
from grange.base.log import Logger
from grange.reconcile.informer import Informer
from grange.scheduler.clusterevents import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NAMESPACE_CHANGE,
    NODE_ADD,
    NODE_DELETE,
    Subject,
    node_update,
    pod_update,
)
from grange.scheduler.cycle import Assumed, Cycle
from grange.scheduler.defaultspread import DefaultSpread
from grange.scheduler.disruption_budgets import DisruptionBudgets
from grange.scheduler.errors import CacheCorrupted, CacheError
from grange.scheduler.explain.attempt_history import AttemptHistory
from grange.scheduler.gangs.event_handlers import GangEventHandlers
from grange.scheduler.informers import Informers
from grange.scheduler.pod_conditions import SCHEDULING_GATED, PodConditions
from grange.scheduler.podinfo import PodInfo, PodInfoCache
from grange.scheduler.queue import SchedulingQueue

T = TypeVar("T", bound=Resource)
P = ParamSpec("P")


class EventHandlers:
    """Keeps cache and queue up to date.

    Args:
        names: the ``schedulerName``s that are ours.
        log: for objects that cannot be understood; they are left out.
    """

    def __init__(
        self,
        cycle: Cycle,
        queue: SchedulingQueue,
        names: frozenset[str],
        *,
        now: Callable[[], float],
        log: Logger,
    ) -> None:
        self._nominator = cycle.nominator
        self._log = log
        self._profiles = cycle.profiles
        self._cache = cycle.cache
        self._queue = queue
        self._names = names
        self._now = now
        self._spread = DefaultSpread()
        self._infos = PodInfoCache(self._compute)

    # --- pods --------------------------------------------------------------------------------

    def pod_added(self, pod: Pod) -> None:
        """A pod appeared."""
        self.pod_updated(None, pod)

    def pod_updated(self, old: Pod | None, new: Pod) -> None:
        """A pod changed, perhaps by being bound."""
        try:
            if new.spec.node_name:
                self._assigned(new)
            else:
                self._waiting(new, old)
        except (QuantityError, SelectorError) as error:
            self._log.warning("pod left out", pod=str(new.key), error=error)

    def pod_deleted(self, pod: Pod) -> None:
        """A pod is gone; what it held, assumed or real, is free."""
        self._queue.delete(pod.metadata.uid)
        self._release(pod)
        self._withdraw(pod)

    def _assigned(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self._queue.delete(uid)
        self._withdraw(pod)
        if is_finished(pod):
            self._release(pod)
            return
        known = self._cache.info(uid)
        info = PodInfo.of(pod) if known is None else known.seen_as(pod)
        if known is not None and not self._cache.is_assumed_pod(pod):
            self._cache.update_pod(known.pod, info)
            event = pod_update(known, info, Subject.ASSIGNED_POD)
            if event is not None:
                self._queue.move(event, self._now(), known.pod, pod)
            return
        self._cache.add_pod(info)
        self._queue.move(ASSIGNED_POD_ADD, self._now(), None, pod)

    def _waiting(self, pod: Pod, old: Pod | None) -> None:
        uid = pod.metadata.uid
        ours = pod.spec.scheduler_name in self._names
        if not ours or pod.metadata.deletion_timestamp or is_finished(pod):
            self._queue.delete(uid)
            self._withdraw(pod)
            return
        if self._cache.tracks(uid):
            return  # its binding is on the way; the confirmation will show it bound
        info = self.info(pod)
        if self._nominator or pod.status.nominated_node_name:
            before = None if old is None else old.status.nominated_node_name
            if self._nominator.seen(info, before):
                self._queue.move(ASSIGNED_POD_DELETE, self._now(), pod, None)
        queued = self._queue.find(uid)
        event = None if queued is None else pod_update(queued.info, info, Subject.UNSCHEDULED_POD)
        self._queue.update(info, event, self._now())

    def _withdraw(self, pod: Pod) -> None:
        """Drop the pod's nomination; others may use the resources."""
        if self._nominator and self._nominator.remove(pod.metadata.uid):
            self._queue.move(ASSIGNED_POD_DELETE, self._now(), pod, None)

    def info(self, pod: Pod) -> PodInfo:
        """The signed PodInfo of a waiting pod.

        Raises:
            QuantityError: a request is no quantity.
            SelectorError: a selector about other pods cannot be read.
        """
        return self._infos.info(pod)

    def _compute(self, pod: Pod) -> PodInfo:
        info = PodInfo.of(pod)
        info.spread = info.spread or self._spread.of(pod, self._profiles.of(info).spread)
        self._profiles.sign(info)
        return info

    def _release(self, pod: Pod) -> None:
        if self._cache.tracks(pod.metadata.uid):
            self._cache.remove_pod(pod)
            self._queue.move(ASSIGNED_POD_DELETE, self._now(), pod, None)

    # --- nodes -------------------------------------------------------------------------------

    def node_added(self, node: Node) -> None:
        """A node appeared."""
        if self._put(None, node):
            self._queue.move(NODE_ADD, self._now(), None, node)

    def node_updated(self, old: Node, new: Node) -> None:
        """A node changed; heartbeats change nothing."""
        known = new.metadata.name in self._cache.node_tree
        if not self._put(old, new):
            return
        event = node_update(old, new) if known else NODE_ADD
        if event is not None:
            self._queue.move(event, self._now(), old if known else None, new)

    def _put(self, old: Node | None, new: Node) -> bool:
        try:
            self._cache.update_node(old, self._transform_node(new))
        except QuantityError as error:
            self._log.warning("node left as it was", node=new.metadata.name, error=error)
            return False
        return True

    def _transform_node(self, node: Node) -> Node:
        """The node as the cache is to hold it."""
        return node

    def node_deleted(self, node: Node) -> None:
        """A node went away; its pods are the concern of others."""
        if node.metadata.name in self._cache.node_tree:
            self._cache.remove_node(node)
            # One domain less can make the others even.
            self._queue.move(NODE_DELETE, self._now(), node, None)

    # --- services ----------------------------------------------------------------------------

    def service_updated(self, service: Service) -> None:
        """A Service appeared or changed; only which pods it selects matters."""
        if self._spread.put(service):
            self._renew_spread(service)

    def service_deleted(self, service: Service) -> None:
        """A Service is gone."""
        if self._spread.remove(service):
            self._renew_spread(service)

    def workload_updated(self, workload: Workload | CoreReplicationController) -> None:
        """A controller of pods appeared or changed; only which pods it selects matters."""
        try:
            if self._spread.put_workload(workload):
                self._renew_spread(workload, controller=workload.metadata.uid)
        except SelectorError as error:
            self._log.warning("workload left out", workload=str(workload.key), error=error)

    def workload_deleted(self, workload: Workload | CoreReplicationController) -> None:
        """A controller of pods is gone."""
        if self._spread.remove_workload(workload):
            self._renew_spread(workload, controller=workload.metadata.uid)

    def _renew_spread(self, changed: Resource, controller: str = "") -> None:
        """Compute it again for the waiting pods of a namespace, or of one controller (its UID).

        Preferences rule no node out, so no pod has to be tried again.
        """
        self._infos.clear()
        for queued in self._queue.waiting():
            pod = queued.info.pod
            meta = pod.metadata
            if meta.namespace != changed.metadata.namespace:
                continue
            if pod.spec.topology_spread_constraints:
                continue
            if controller and ((owner := controller_of(meta)) is None or owner.uid != controller):
                continue
            spread = self._spread.of(pod, self._profiles.of(queued.info).spread)
            if spread != queued.info.spread:
                info = msgspec.structs.replace(queued.info, spread=spread, signature=None)
                self._profiles.sign(info)
                self._queue.update(info, None, self._now())

    # --- namespaces --------------------------------------------------------------------------

    def namespace_updated(self, namespace: Namespace) -> None:
        """A namespace appeared or changed; only its labels matter."""
        if self._cache.set_namespace(namespace.metadata.name, namespace.metadata.labels):
            self._queue.move(NAMESPACE_CHANGE, self._now())

    def namespace_deleted(self, namespace: Namespace) -> None:
        """A namespace is gone, and so are its pods."""
        self._cache.remove_namespace(namespace.metadata.name)


class InformerEventHandlers(EventHandlers):
    """The handlers of a running scheduler: for gangs and held pods too; they wake its loop.

    Args:
        wake: set when there may be something to decide.
        in_progress: the assumed pods that are held back or being bound.
    """

    def __init__(  # noqa: PLR0913  all that an event may change
        self,
        cycle: Cycle,
        queue: SchedulingQueue,
        names: frozenset[str],
        *,
        now: Callable[[], float],
        log: Logger,
        informers: Informers,
        budgets: DisruptionBudgets,
        gangs: GangEventHandlers,
        conditions: PodConditions,
        history: AttemptHistory,
        wake: asyncio.Event,
        in_progress: Callable[[], Iterable[Assumed]],
    ) -> None:
        super().__init__(cycle, queue, names, now=now, log=log)
        self._informers = informers
        self._budgets = budgets
        self._gangs = gangs
        self._waiting_pods = cycle.waiting_pods
        self._conditions = conditions
        self._history = history
        self._wake = wake
        self._in_progress = in_progress

    def register(self) -> None:
        """Handle every event of the informers from now on; once."""
        informers, gangs, now = self._informers, self._gangs, self._now
        self._follow(informers.budgets, self._budgets.update, self._budgets.delete)
        self._follow(
            informers.groups,
            lambda group: gangs.update_group(group, now()),
            lambda group: gangs.delete_group(group, now()),
        )
        self._follow(informers.classes, gangs.update_class, gangs.delete_class)
        self._follow(informers.quotas, self.queue_updated, gangs.delete_queue)
        self._follow(informers.namespaces, self.namespace_updated, self.namespace_deleted)
        self._follow(informers.services, self.service_updated, self.service_deleted)
        replica_sets, stateful_sets, controllers = informers.workloads
        self._follow(replica_sets, self.workload_updated, self.workload_deleted)
        self._follow(stateful_sets, self.workload_updated, self.workload_deleted)
        self._follow(controllers, self.workload_updated, self.workload_deleted)
        woken = self._waking
        informers.nodes.add_handler(
            woken(self.node_added), woken(self.node_updated), woken(self.node_deleted)
        )
        informers.pods.add_handler(
            woken(self.pod_added), woken(self.pod_updated), woken(self.pod_deleted)
        )

    def _follow(
        self, informer: Informer[T], update: Callable[[T], None], delete: Callable[[T], None]
    ) -> None:
        """Handle events of which only the newest object matters."""
        woken = self._waking
        informer.add_handler(woken(update), woken(lambda _, new: update(new)), woken(delete))

    def _waking(self, handle: Callable[P, None]) -> Callable[P, None]:
        """The handler, after which there may be something to decide."""

        def handler(*args: P.args, **kwargs: P.kwargs) -> None:
            handle(*args, **kwargs)
            self._wake.set()

        return handler

    def pod_updated(self, old: Pod | None, new: Pod) -> None:
        """A pod changed: its gang, its place in cache or queue, and what waits for it."""
        self._gangs.update_pod(new, self._now())
        try:
            super().pod_updated(old, new)
        except (CacheCorrupted, CacheError) as error:
            self._contradicted(new, error)
        uid = new.metadata.uid
        if new.spec.node_name:
            self._conditions.forget(uid)
            self._waiting_pods.reject(uid, "", "another scheduler bound the pod")
        elif new.metadata.deletion_timestamp or is_finished(new):
            self._waiting_pods.reject(uid, "", "the pod has ended or is being deleted")
        elif new.spec.scheduling_gates:
            self._report_gates(new)

    def pod_deleted(self, pod: Pod) -> None:
        """A pod is gone; what it held, assumed or real, is free."""
        uid = pod.metadata.uid
        self._conditions.forget(uid)
        self._history.forget(uid)
        try:
            super().pod_deleted(pod)
        except (CacheCorrupted, CacheError) as error:
            self._contradicted(pod, error)
        self._gangs.delete_pod(pod, self._now())
        self._waiting_pods.reject(uid, "", "the pod was deleted")

    def _contradicted(self, pod: Pod, error: Exception) -> None:
        self._log.error("cache contradicts the cluster", pod=str(pod.key), error=error)
        self.rebuild()

    def _report_gates(self, pod: Pod) -> None:
        if pod.metadata.uid in self._queue:
            gates = ", ".join(gate.get("name", "") for gate in pod.spec.scheduling_gates)
            message = f"Scheduling is blocked by gates: {gates}"
            self._conditions.unschedulable(pod, message, reason=SCHEDULING_GATED)

    def _transform_node(self, node: Node) -> Node:
        return self._gangs.transform_node(node)

    def node_deleted(self, node: Node) -> None:
        """A node went away: pods that are held for it lose their place."""
        super().node_deleted(node)
        name = node.metadata.name
        for assumed in self._waiting_pods.held():
            if assumed.node_name == name:
                self._waiting_pods.reject(assumed.uid, "", f"node {name} is gone")

    def queue_updated(self, queue: Queue) -> None:
        """A queue with its quotas appeared or changed."""
        try:
            self._gangs.update_queue(queue)
        except QuantityError as error:  # the server refuses such a queue
            self._log.warning("queue left as it was", queue=queue.metadata.name, error=error)

    def requeue(self, pod: Pod, assumed: Assumed | None, rejector: str = "") -> bool:
        """Queue a pod whose assumption was undone; False if it does not wait for a node."""
        live = self._informers.pods.store.get(pod.key)
        if live is None or live.metadata.uid != pod.metadata.uid or live.spec.node_name:
            return False
        info = self.info(live)
        self._nominator.seen(info, None)
        queued = assumed.queued if assumed is not None else None
        self._queue.requeue(info, self._now(), tried=queued, rejector=rejector)
        self._wake.set()
        return True

    def expire(self) -> None:
        """Forget what was bound and is not confirmed in time."""
        for pod in self._cache.cleanup(self._now()):
            self._log.warning("assumption expired", pod=str(pod.key), node=pod.spec.node_name)
            self._gangs.forget_pod(pod)
            self.requeue(pod, None)

    def rebuild(self) -> None:
        """Build the cache again from what the informers hold and from what is being bound."""
        self._cache.clear()
        self._gangs.clear()
        pods = self._informers.pods.store.list()
        for pod in pods:
            self._gangs.update_pod(pod, self._now())
        for node in self._informers.nodes.store.list():
            self.node_added(node)
        for pod in pods:
            if pod.spec.node_name:
                super().pod_updated(None, pod)
        for assumed in self._in_progress():
            if not self._cache.tracks(assumed.info.uid):
                self._cache.assume_pod(assumed.info)
                self._gangs.assume_pod(assumed.info.pod)
        for pod in pods:
            if not pod.spec.node_name:
                super().pod_updated(None, pod)
