"""From the informers' events to the cache and the queue.

Every handler looks at what the cache and the queue already hold rather than at what the event
claims, because events can be missed, merged or repeated.
"""

from collections.abc import Callable

import msgspec

from grange.api.kinds.namespace import Namespace
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod, is_finished
from grange.api.kinds.service import Service
from grange.api.kinds.workloads import CoreReplicationController, Workload
from grange.api.meta import Resource, controller_of
from grange.api.quantity import QuantityError
from grange.api.selectors import SelectorError
from grange.base.log import Logger
from grange.scheduler.cache import Cache
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
from grange.scheduler.defaultspread import DefaultSpread
from grange.scheduler.framework import Profiles
from grange.scheduler.nodeinfo import PodInfo
from grange.scheduler.nominator import Nominator
from grange.scheduler.pod_info_cache import PodInfoCache
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.snapshot import NodeInfoSnapshot


class Handlers:
    """Keeps cache and queue up to date.

    Args:
        profiles: sign the pods that are queued.
        cache: the state of the cluster.
        queue: the pods that wait.
        names: the ``schedulerName``s that are ours.
        now: monotonic seconds.
        log: for objects that cannot be understood; they are left out.
        nominator: who was promised room; one of its own by default.

    Attributes:
        dress: what of a node the cache is to see.
        snapshot: of the cache, perhaps; follows the confirmations if it lacks nothing else.
    """

    def __init__(
        self,
        profiles: Profiles,
        cache: Cache,
        queue: SchedulingQueue,
        names: frozenset[str],
        *,
        now: Callable[[], float],
        log: Logger,
        nominator: Nominator | None = None,
    ) -> None:
        self._nominator = Nominator() if nominator is None else nominator
        self.dress: Callable[[Node], Node] = lambda node: node
        self.snapshot: NodeInfoSnapshot | None = None
        self._log = log
        self._profiles = profiles
        self._cache = cache
        self._queue = queue
        self._names = names
        self._now = now
        self._spread = DefaultSpread()
        self._templates = PodInfoCache(self._compute)

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
        self._cache.add_pod(info, self.snapshot)
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
        """The pod needs no promised room any more; others may have it."""
        if self._nominator and self._nominator.remove(pod.metadata.uid):
            self._queue.move(ASSIGNED_POD_DELETE, self._now(), pod, None)

    def info(self, pod: Pod) -> PodInfo:
        """What is to be known of a waiting pod, signed.

        Raises:
            QuantityError: a request is no quantity.
            SelectorError: a selector about other pods cannot be read.
        """
        return self._templates.info(pod)

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
        """A node changed; heartbeats matter to nobody."""
        known = new.metadata.name in self._cache.node_tree
        if not self._put(old, new):
            return
        event = node_update(old, new) if known else NODE_ADD
        if event is not None:
            self._queue.move(event, self._now(), old if known else None, new)

    def _put(self, old: Node | None, new: Node) -> bool:
        try:
            self._cache.update_node(old, self.dress(new))
        except QuantityError as error:
            self._log.warning("node left as it was", node=new.metadata.name, error=error)
            return False
        return True

    def node_deleted(self, node: Node) -> None:
        """A node went away; its pods are the concern of others."""
        if node.metadata.name in self._cache.node_tree:
            self._cache.remove_node(node)
            # One domain less can make the others even.
            self._queue.move(NODE_DELETE, self._now(), node, None)

    # --- services ----------------------------------------------------------------------------

    def service_seen(self, service: Service) -> None:
        """A Service appeared or changed; only which pods it selects matters."""
        if self._spread.put(service):
            self._renew_spread(service)

    def service_deleted(self, service: Service) -> None:
        """A Service is gone."""
        if self._spread.remove(service):
            self._renew_spread(service)

    def workload_seen(self, workload: Workload | CoreReplicationController) -> None:
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
        self._templates.clear()
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

    def namespace_seen(self, namespace: Namespace) -> None:
        """A namespace appeared or changed; only its labels matter."""
        if self._cache.set_namespace(namespace.metadata.name, namespace.metadata.labels):
            self._queue.move(NAMESPACE_CHANGE, self._now())

    def namespace_deleted(self, namespace: Namespace) -> None:
        """A namespace is gone, and so are its pods."""
        self._cache.remove_namespace(namespace.metadata.name)
