"""What a scheduler consists of, for those of its parts that need many of the others."""

import asyncio
from dataclasses import dataclass, field
from typing import Self

from grange.api.kinds import NAMESPACE, NODE, POD, PODDISRUPTIONBUDGET, PODGROUP, QUEUE, SERVICE
from grange.api.kinds.namespace import Namespace
from grange.api.kinds.node import Node
from grange.api.kinds.pod import Pod
from grange.api.kinds.poddisruptionbudget import PodDisruptionBudget
from grange.api.kinds.podgroup import PodGroup
from grange.api.kinds.queue import Queue
from grange.api.kinds.service import Service
from grange.api.kinds.workloads import (
    CORE_REPLICATIONCONTROLLER,
    REPLICASET,
    STATEFULSET,
    CoreReplicationController,
    Workload,
)
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.reconcile.informer import Informer, InformerFactory
from grange.scheduler.cache import Cache
from grange.scheduler.config import SchedulerConfig
from grange.scheduler.cycle import Cycle
from grange.scheduler.explain.attempts import AttemptHistory
from grange.scheduler.gangs.coscheduling import Coscheduling
from grange.scheduler.handlers import Handlers
from grange.scheduler.metrics import Instruments
from grange.scheduler.pod_conditions import Reporter
from grange.scheduler.queue import SchedulingQueue


@dataclass(frozen=True, slots=True)
class Informers:
    """The collections that a scheduler follows."""

    namespaces: Informer[Namespace]
    nodes: Informer[Node]
    pods: Informer[Pod]
    services: Informer[Service]
    workloads: tuple[Informer[Workload], Informer[Workload], Informer[CoreReplicationController]]
    groups: Informer[PodGroup]
    quotas: Informer[Queue]
    budgets: Informer[PodDisruptionBudget]

    @classmethod
    def of(cls, factory: InformerFactory) -> Self:
        """Those of a process."""
        return cls(
            namespaces=factory.informer(NAMESPACE),
            nodes=factory.informer(NODE),
            pods=factory.informer(POD),
            services=factory.informer(SERVICE),
            workloads=(
                factory.informer(REPLICASET),
                factory.informer(STATEFULSET),
                factory.informer(CORE_REPLICATIONCONTROLLER),
            ),
            groups=factory.informer(PODGROUP),
            quotas=factory.informer(QUEUE),
            budgets=factory.informer(PODDISRUPTIONBUDGET),
        )

    async def wait_synced(self) -> None:
        """Until all of them hold what there is."""
        await self.namespaces.synced.wait()
        await self.services.synced.wait()
        for informer in self.workloads:
            await informer.synced.wait()
        await self.nodes.synced.wait()
        await self.pods.synced.wait()
        await self.groups.synced.wait()
        await self.quotas.synced.wait()
        await self.budgets.synced.wait()


@dataclass(frozen=True, slots=True)
class Parts:
    """What several parts of a scheduler work on; each takes out of it what it needs.

    Attributes:
        config: settings.
        clock: time.
        log: the scheduler's logger.
        metrics: what is counted.
        informers: what is followed.
        cache: the state of the cluster.
        queue: the pods that wait.
        cycle: decides about one pod.
        handlers: keep cache and queue up to date.
        gangs: gangs and quotas.
        reporter: tells pods why they wait.
        history: the last attempts.
        wake: set when there may be something to decide.
    """

    config: SchedulerConfig
    clock: Clock
    log: Logger
    metrics: Instruments
    informers: Informers
    cache: Cache
    queue: SchedulingQueue
    cycle: Cycle
    handlers: Handlers
    gangs: Coscheduling
    reporter: Reporter
    history: AttemptHistory
    wake: asyncio.Event = field(default_factory=asyncio.Event)
