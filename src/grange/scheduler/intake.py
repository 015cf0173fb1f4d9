"""What the informers tell, and whom in the scheduler it concerns."""

from collections.abc import Callable

from grange.api.kinds.namespace import Namespace
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod, is_finished
from grange.api.kinds.podgroup import PodGroup
from grange.api.kinds.queue import Queue
from grange.api.kinds.service import Service
from grange.api.quantity import QuantityError
from grange.scheduler.binder import Binder
from grange.scheduler.errors import CacheCorrupted, CacheError
from grange.scheduler.parts import Parts
from grange.scheduler.pod_conditions import SCHEDULING_GATED
from grange.scheduler.preemption.budgets import Budgets


class Intake:
    """Hands every event to those who keep book of such objects, and wakes who decides.

    Args:
        parts: of the scheduler.
        budgets: what may be disrupted.
        binder: knows which bindings are under way.
    """

    def __init__(self, parts: Parts, budgets: Budgets, binder: Binder) -> None:
        self._budgets = budgets
        self._binder = binder
        self._informers = parts.informers
        self._handlers = parts.handlers
        self._gang_handlers = parts.gangs.handlers
        self._cache = parts.cache
        self._queue = parts.queue
        self._cycle = parts.cycle
        self._reporter = parts.reporter
        self._history = parts.history
        self._wake = parts.wake
        self._clock = parts.clock
        self._log = parts.log
        self._listening = False

    def listen(self) -> None:
        """Hear of every event from now on; when that is so already, begin anew.

        Started again after a crash, what is held may be the reason, and what was in flight is
        nowhere: all is put together again from what the informers hold.
        """
        if self._listening:
            self._queue.clear()
            for placed in self._cycle.permits.held():
                self._cycle.take_back(placed)
            self._cycle.permits.clear()
            self._cycle.nominator.clear()
            self.rebuild()
            return
        self._cycle.permits.changed = self._wake.set
        self._listening = True
        informers, handlers = self._informers, self._handlers
        informers.budgets.add_handler(
            self._budgets.update, lambda _, new: self._budgets.update(new), self._budgets.delete
        )
        informers.groups.add_handler(self._on_group, self._on_group_update, self._on_group_delete)
        informers.quotas.add_handler(self._on_queue, self._on_queue_update, self._on_queue_delete)
        informers.namespaces.add_handler(
            self._on_namespace, self._on_namespace_update, handlers.namespace_deleted
        )
        informers.services.add_handler(
            handlers.service_seen, self._on_service_update, handlers.service_deleted
        )
        for workloads in informers.workloads:
            workloads.add_handler(
                handlers.workload_seen,
                lambda _, new: handlers.workload_seen(new),
                handlers.workload_deleted,
            )
        informers.nodes.add_handler(self._on_node_add, self._on_node_update, self._on_node_delete)
        informers.pods.add_handler(self._on_pod_add, self._on_pod_update, self._on_pod_delete)

    def _on_namespace(self, namespace: Namespace) -> None:
        self._handlers.namespace_seen(namespace)
        self._wake.set()

    def _on_namespace_update(self, _: Namespace, namespace: Namespace) -> None:
        self._on_namespace(namespace)

    def _on_service_update(self, _: Service, service: Service) -> None:
        self._handlers.service_seen(service)

    def _on_node_add(self, node: Node) -> None:
        self._handlers.node_added(node)
        self._wake.set()

    def _on_node_update(self, old: Node, new: Node) -> None:
        self._handlers.node_updated(old, new)
        self._wake.set()

    def _on_node_delete(self, node: Node) -> None:
        self._handlers.node_deleted(node)
        for placed in self._cycle.permits.held():
            if placed.node_name == node.metadata.name:
                self._cycle.permits.reject(placed.uid, "", f"node {placed.node_name} is gone")
        self._wake.set()

    def _on_group(self, group: PodGroup) -> None:
        self._gang_handlers.update_group(group, self._clock.monotonic())
        self._wake.set()

    def _on_group_update(self, _: PodGroup, group: PodGroup) -> None:
        self._on_group(group)

    def _on_group_delete(self, group: PodGroup) -> None:
        self._gang_handlers.delete_group(group, self._clock.monotonic())
        self._wake.set()

    def _on_queue(self, queue: Queue) -> None:
        try:
            self._gang_handlers.update_queue(queue)
        except QuantityError as error:  # the server refuses such a queue
            self._log.warning("queue left as it was", queue=queue.metadata.name, error=error)
        self._wake.set()

    def _on_queue_update(self, _: Queue, queue: Queue) -> None:
        self._on_queue(queue)

    def _on_queue_delete(self, queue: Queue) -> None:
        self._gang_handlers.delete_queue(queue)
        self._wake.set()

    def _on_pod_add(self, pod: Pod) -> None:
        self._gang_handlers.update_pod(pod, self._clock.monotonic())
        self._take_in(pod, self._handlers.pod_added, pod)
        self._tell_gate(pod)

    def _on_pod_update(self, old: Pod, new: Pod) -> None:
        self._gang_handlers.update_pod(new, self._clock.monotonic())
        self._take_in(new, self._handlers.pod_updated, old, new)
        if new.spec.node_name:
            self._reporter.forget(new.metadata.uid)
            self._cycle.permits.reject(new.metadata.uid, "", "somebody else bound the pod")
        elif new.metadata.deletion_timestamp or is_finished(new):
            self._cycle.permits.reject(
                new.metadata.uid, "", "the pod has ended or is being deleted"
            )
        else:
            self._tell_gate(new)

    def _on_pod_delete(self, pod: Pod) -> None:
        self._reporter.forget(pod.metadata.uid)
        self._history.forget(pod.metadata.uid)
        self._take_in(pod, self._handlers.pod_deleted, pod)
        self._gang_handlers.delete_pod(pod, self._clock.monotonic())
        self._cycle.permits.reject(pod.metadata.uid, "", "the pod was deleted")

    def _take_in(self, pod: Pod, handler: Callable[..., None], *objects: Pod) -> None:
        try:
            handler(*objects)
        except (CacheCorrupted, CacheError) as error:
            self._log.error("cache contradicts the cluster", pod=str(pod.key), error=error)
            self.rebuild()
        self._wake.set()

    def _tell_gate(self, pod: Pod) -> None:
        if not pod.spec.scheduling_gates:
            return
        gates = [gate.get("name", "") for gate in pod.spec.scheduling_gates]
        if pod.metadata.uid in self._queue:
            message = f"Scheduling is blocked by gates: {', '.join(gates)}"
            self._reporter.unschedulable(pod, message, reason=SCHEDULING_GATED)

    def rebuild(self) -> None:
        """Build the cache anew from what the informers hold and from what is being bound."""
        self._cache.clear()
        self._gang_handlers.clear()
        for pod in self._informers.pods.store.list():
            self._gang_handlers.update_pod(pod, self._clock.monotonic())
        for node in self._informers.nodes.store.list():
            self._handlers.node_added(node)
        for pod in self._informers.pods.store.list():
            if pod.spec.node_name:
                self._handlers.pod_added(pod)
        for placed in (*self._binder.under_way.values(), *self._cycle.permits.held()):
            if not self._cache.tracks(placed.info.uid):
                self._cache.assume_pod(placed.info)
                self._gang_handlers.assume_pod(placed.info.pod)
        for pod in self._informers.pods.store.list():
            if not pod.spec.node_name:
                self._handlers.pod_added(pod)
