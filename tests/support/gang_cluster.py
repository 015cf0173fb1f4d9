"""Gangs without a server: a cache, a queue and a cycle that tests drive by hand."""

from collections.abc import Sequence
from typing import Any

import msgspec
from tests.support.scheduler_cluster import Cluster

from grange.api.kinds.podgroup import GROUP_LABEL, PodGroup
from grange.api.kinds.queue import Queue
from grange.placement import resource_fit
from grange.placement.node_usage import IDLE, charged
from grange.scheduler import plugins
from grange.scheduler.clusterevents import ASSIGNED_POD_DELETE
from grange.scheduler.cycle import Assumed, Batch, Cycle, Outcome, Unschedulable
from grange.scheduler.framework import Plugin, Profile
from grange.scheduler.gangs.coscheduling import Coscheduling
from grange.scheduler.gangs.queue_policies import QueuePolicy
from grange.scheduler.gangs.queue_policies.best_effort_fifo import BestEffortFIFO
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.schedule_one import ScheduleOne
from grange.sim import builders

HOUR = 3600.0


def group(name: str, minimum: int, **spec: Any) -> PodGroup:
    """A group in the namespace ``default``; further fields of its spec as on the wire."""
    document = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"minMember": minimum, **spec},
    }
    return msgspec.convert(document, PodGroup)


def quota(
    name: str, cohort: str = "", limits: dict[str, Any] | None = None, **capacity: Any
) -> Queue:
    """A queue."""
    spec = {"capacity": capacity, "cohort": cohort, "borrowingLimit": limits or {}}
    return msgspec.convert({"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": spec}, Queue)


class Bench(Cluster):
    """A cluster with gangs, queues and a scheduling loop by hand.

    Args:
        extra: further plugins.
        base: instead of the default plugins.
        overtakes: as in the configuration.
        policy: of the queues; the default one unless given.
    """

    def __init__(
        self,
        *extra: Plugin,
        base: Sequence[Plugin] = plugins.DEFAULT,
        overtakes: int = 64,
        policy: QueuePolicy | None = None,
    ) -> None:
        super().__init__(Profile((*base, *extra)))
        self.queue = SchedulingQueue(self.profile)
        self.cycle = Cycle(self.profile, self.cache)
        policy = policy or BestEffortFIFO(overtakes)
        self.gangs = Coscheduling(self.profile, self.cycle, self.cache, self.queue, policy)
        self.loop = ScheduleOne(self.cycle, self.queue, self.gangs)
        self.now = 0.0
        self.where: dict[str, str] = {}
        self.why: dict[str, str] = {}
        self.rejectors: dict[str, frozenset[str]] = {}
        self.infos: dict[str, PodInfo] = {}
        self.order: list[str] = []
        self.victims: list[str] = []

    def nodes(self, *names: str, **options: Any) -> None:
        for name in names:
            node = builders.node(name, **options)
            self.cache.update_node(None, self.gangs.handlers.transform_node(node))

    def group(self, name: str, minimum: int, **spec: Any) -> None:
        self.gangs.handlers.update_group(group(name, minimum, **spec), self.now)

    def quota(self, name: str, cohort: str = "", limits: Any = None, **capacity: Any) -> None:
        self.gangs.handlers.update_queue(quota(name, cohort, limits, **capacity))

    def pods(self, *names: str, gang: str = "", labels: Any = None, **options: Any) -> None:
        marks = {**(labels or {}), **({GROUP_LABEL: gang} if gang else {})}
        for name in names:
            pod = builders.pod(name, labels=marks, **options)
            self.gangs.handlers.update_pod(pod, self.now)
            info = PodInfo.of(pod)
            self.profile.sign(info)
            self.infos[name] = info
            self.queue.add(info, self.now)

    def relabel(self, name: str, gang: str, labels: dict[str, str] | None = None) -> None:
        """A pod names another group, or (empty) none; it has these labels besides."""
        self._change(name, labels={**(labels or {}), **({GROUP_LABEL: gang} if gang else {})})

    def terminate(self, *names: str) -> None:
        """Pods are being deleted; they keep their nodes until they are ``gone``."""
        for name in names:
            self._change(name, deletion_timestamp="2026-01-01T00:00:00Z")

    def _change(self, name: str, **fields: Any) -> None:
        """The informer reports that a pod's metadata changed."""
        before = self.infos[name].pod
        meta = msgspec.structs.replace(before.metadata, **fields)
        pod = msgspec.structs.replace(before, metadata=meta)
        self.gangs.handlers.update_pod(pod, self.now)
        info = self.infos[name] = PodInfo.of(pod)
        self.profile.sign(info)
        if self.cache.tracks(info.uid):
            if self.cache.is_assumed_pod(before):
                self.cache.add_pod(info)
            else:
                self.cache.update_pod(before, info)
        elif meta.deletion_timestamp:
            self.queue.delete(info.uid)
        else:
            self.queue.update(info, None, self.now)

    def gone(self, *names: str) -> None:
        """Pods are deleted, with or without a node."""
        for name in names:
            pod = self.infos[name].pod
            self.queue.delete(pod.metadata.uid)
            if self.cache.tracks(pod.metadata.uid):
                self.cache.remove_pod(pod)
                self.queue.move(ASSIGNED_POD_DELETE, self.now, pod, None)
            self.gangs.handlers.delete_pod(pod, self.now)
            self.where.pop(name, None)

    def run(self, seconds: float = 0.0) -> dict[str, str]:
        """Decide until nothing is left to do, for so long; where pods are."""
        until = self.now + seconds
        while True:
            self.queue.flush(self.now)
            self.gangs.handlers.tick(self.now)
            while (outcome := self.loop.schedule_one(self.now)) is not None:
                self._follow(outcome)
                self.gangs.handlers.tick(self.now)
            if self.now >= until:
                return self.where
            self.now += 1.0

    def _follow(self, outcome: Outcome) -> None:
        match outcome:
            case Assumed():
                name = outcome.info.pod.metadata.name
                assert name not in self.where, f"{name} is placed twice"
                self.where[name] = outcome.node_name
                self.order.append(name)
                self.why.pop(name, None)
                self.infos[name] = outcome.info
            case Unschedulable(queued, diagnosis, room):
                self.why[queued.info.pod.metadata.name] = diagnosis.message
                self.rejectors[queued.info.pod.metadata.name] = diagnosis.plugins
                if room is not None and room.nominated:
                    self.victims += [info.pod.metadata.name for info in room.victims]
                    self.cycle.nominator.evicting.pop(queued.uid, None)
            case Batch(outcomes):
                for one in outcomes:
                    self._follow(one)
            case _:
                pass

    def check(self) -> None:
        """The cache holds what was placed and nothing else, and no node too much."""
        assert self.cache.pod_count == len(self.where)
        for name in self.cache.node_tree.list():
            entry = self.cache.node_info(name)
            assert entry is not None
            usage = IDLE
            for info in entry.pods:
                assert resource_fit.fits(info.request, entry.allocatable, usage), name
                usage = charged(usage, info.request, info.ports)


def names(prefix: str, count: int, start: int = 0) -> list[str]:
    return [f"{prefix}{number}" for number in range(start, start + count)]
