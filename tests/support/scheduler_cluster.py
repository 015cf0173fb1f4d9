"""A cache and a snapshot of it, without a server: what tests of decisions share."""

from typing import Self

from grange.scheduler import plugins
from grange.scheduler.cache import Cache
from grange.scheduler.framework import Profile
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.queued_pods import SubQueue
from grange.scheduler.snapshot import NodeInfoSnapshot

PROFILE = Profile(plugins.DEFAULT)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


class Cluster:
    """Nodes and pods as the scheduler has them."""

    def __init__(self, profile: Profile = PROFILE) -> None:
        self.profile = profile
        self.cache = Cache()
        self.snapshot = NodeInfoSnapshot()

    def refresh(self) -> NodeInfoSnapshot:
        """The snapshot, up to date."""
        self.cache.update_node_info_snapshot(self.snapshot)
        return self.snapshot

    def put(self, info: PodInfo, node: str) -> Self:
        """Bind a pod to a node."""
        self.cache.add_pod(info.on(node))
        return self


def pool_of(queue: SchedulingQueue, uid: str) -> SubQueue | None:
    """Where a pod waits; None when it is not in the queue."""
    found = queue.find(uid)
    return None if found is None else found.pool
