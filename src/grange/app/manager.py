"""The controllers and the scheduler of one process, as one member of the farm.

A controller whose objects are shared works on those that are ours; every other service is run by one
member at a time. The same in ``grange up``, where there is only one member, and in any number of
``grange controllers``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from grange.alerts.alerts import AlertSink
from grange.api.kinds import NODE, POD, pod as pods
from grange.api.kinds.pod import Pod
from grange.api.meta import ObjectKey, Resource, controller_of
from grange.api.scheme import AnyKind
from grange.app.runnable import Runnable
from grange.app.settings import QUEUE_POLICY
from grange.base.errors import GrangeError
from grange.controllers import TABLE
from grange.controllers.garbagecollector.controller import NAME as GARBAGE
from grange.controllers.nodelifecycle.controller import NAME as NODES
from grange.controllers.sharded import (
    ELECTED_ALERTS,
    SHARDED,
    AlertingKind,
    ShardedController,
    ShardedService,
)
from grange.reconcile.condition_alerts import ConditionAlerts
from grange.reconcile.deps import Deps
from grange.reconcile.farm.config import FarmConfig
from grange.reconcile.farm.deletion_guard import DeletionGuardConfig, Trigger
from grange.reconcile.farm.leader_election import PREFIX, ElectedService, LeaderElectedServices
from grange.reconcile.farm.member import Member

SCHEDULER, MACHINES = "scheduler", "machines"
NAMES = (*SHARDED, *(name for name, _ in TABLE), SCHEDULER, MACHINES)
"""The controllers that a manager can run."""

# The services carry out what the API has accepted already: a namespace or an owner is gone. Their
# budget stops what runs away, and not the deletion of something large.
_SERVICES = DeletionGuardConfig(deletions=10_000)


_MANY = 100  # pods that lack what they need: more need not be counted


R = TypeVar("R", bound=Resource)


class UnknownController(GrangeError):
    """There is no controller of that name; the message lists them."""


def plain_scheduler(deps: Deps) -> ElectedService:
    """The scheduler with its default settings."""
    return scheduler_for(frozenset())(deps)


def scheduler_for(
    names: frozenset[str], queue_policy: str = QUEUE_POLICY
) -> Callable[[Deps], ElectedService]:
    """How a scheduler is made that has its default settings otherwise.

    Args:
        names: the ``schedulerName``s whose pods are its own; empty for the default ones.
        queue_policy: in which order gangs and pods wait.
    """

    def made(deps: Deps) -> ElectedService:
        from grange.scheduler.service import Scheduler, SchedulerConfig  # numpy takes its time

        config = SchedulerConfig(queue_policy=queue_policy)
        if names:
            config = replace(config, scheduler_names=names)
        return Scheduler(deps, config)

    return made


def plain_machines(deps: Deps) -> ElectedService:
    """The node controller, for machines that join by themselves."""
    from grange.machines.controller.node_controller import (
        NodeController,
    )  # not every process has it

    return NodeController(deps)


def _create(controller: ShardedController[R], deps: Deps) -> ShardedService:
    """The controller; one that takes nodes from a pool gets them from NodePools and by leases."""
    if controller.create_with_pool is None:
        return controller.create(deps)
    from grange.machines.holders.combined_pool import (
        CombinedMachinePool,
    )  # not every process has it

    return controller.create_with_pool(deps, CombinedMachinePool(deps))


class Manager:
    """What one process does for the cluster.

    Args:
        config: how it takes part in the farm.
        deps: the tools of each part, by its name; clients not fenced.
        names: which controllers.
        scheduler: how the scheduler is made.
        machines: how the node controller is made.
        selector: which objects of the shared ones this process wants, by their labels.
        alert_sink: where alerts go; the log by default.
        sharded: the controllers that share their objects, by name.

    Raises:
        UnknownController: a name is not that of a controller.
        SelectorError: the selector cannot be read.
    """

    def __init__(  # noqa: PLR0913  which controllers, and how those with settings are made
        self,
        config: FarmConfig,
        deps: Callable[[str], Deps],
        names: frozenset[str] = frozenset(NAMES),
        *,
        scheduler: Callable[[Deps], ElectedService] = plain_scheduler,
        machines: Callable[[Deps], ElectedService] = plain_machines,
        selector: str = "",
        alert_sink: AlertSink | None = None,
        sharded: Mapping[str, ShardedController[Any]] = SHARDED,
    ) -> None:
        known = dict.fromkeys((*sharded, *NAMES))
        for name in sorted(names.difference(known)):
            raise UnknownController(f"no controller {name!r}; there are {', '.join(known)}")
        self._names = names
        self._scheduler, self._machines = scheduler, machines
        self._deps = deps
        tools = deps("farm")
        self._pods = tools.informers.informer(POD)
        self.member = Member(tools, config, alert_sink=alert_sink)
        self._runnables: list[Runnable] = []
        for name, controller in sharded.items():
            if name in names:
                service = self._sharded(name, controller, selector)
                self._runnables.append(Runnable(name, service.run))
        services = dict(self._services())
        if services:
            required_objects: dict[Trigger, Callable[[], int | None]] = {}
            if GARBAGE in services:  # deletes what has lost its owners
                required_objects[Trigger.ORPHANED] = self._orphans_seen_by(tools)
            if NODES in services:  # deletes what has lost its node
                required_objects[Trigger.NODELESS] = self._stranded_seen_by(tools)
            leader_elected = LeaderElectedServices(
                self.member, config, deps, services, _SERVICES, required_objects=required_objects
            )
            self._runnables.append(Runnable("services", leader_elected.run))
            for name in ELECTED_ALERTS.keys() & services.keys():
                lease = ObjectKey(config.namespace, f"{PREFIX}{name}")
                self._report_alerts(name, ELECTED_ALERTS[name], leader_elected, lease)

    def runnables(self) -> Iterator[Runnable]:
        """What is to be run, in this order."""
        yield from self._runnables
        yield Runnable("farm", self.member.run)

    def _sharded(
        self, name: str, controller: ShardedController[R], selector: str
    ) -> ShardedService:
        farm = self.member.farm(
            name,
            controller.kind,
            selector=selector,
            weight=controller.weight,
            deletion_guard=controller.deletion_guard,
            population=lambda: len(self._pods.store),
            owned=lambda: self._owned(controller.kind),
        )
        tools = farm.fence(self._deps(name))
        service = _create(controller, tools)
        farm.attach(service.loop)
        reporter = ConditionAlerts(
            self.member.alerts,
            tools.informers.informer(controller.kind),
            find=controller.alerts,
            owns=farm.holds,
            about=lambda key: f"{controller.kind.kind.lower()}/{key}",
            clock=tools.clock,
        )
        farm.on_gain(reporter.gained)
        farm.on_loss(reporter.lost)
        self._runnables.append(Runnable(f"{name} alerts", reporter.run))
        return service

    def _report_alerts(
        self,
        name: str,
        source: AlertingKind[R],
        leader_elected: LeaderElectedServices,
        lease: ObjectKey,
    ) -> None:
        """Report the alerts of a kind while this member runs its controller."""
        farm, tools = leader_elected.farm, self._deps(name)
        reporter = ConditionAlerts(
            self.member.alerts,
            tools.informers.informer(source.kind),
            find=source.alerts,
            owns=lambda _: farm.holds(lease),
            about=lambda key: f"{source.kind.kind.lower()}/{key}",
            clock=tools.clock,
        )
        farm.on_gain(lambda key: reporter.gained_all() if key == lease else None)
        farm.on_loss(lambda key: reporter.lost_all() if key == lease else None)

    def _owned(self, kind: AnyKind) -> int | None:
        """How many live pods were made for objects of a kind; None before we have seen the pods."""
        if not self._pods.has_synced:
            return None
        return sum(1 for _ in self._made_for(kind))

    def _orphans_seen_by(self, tools: Deps) -> Callable[[], int | None]:
        """How the services see that all owners of pods are gone: their dependents would go, too."""
        kinds = [controller.kind for controller in SHARDED.values()]
        owners = {kind: tools.informers.informer(kind) for kind in kinds}

        def orphans() -> int | None:
            if not self._pods.has_synced or not all(seen.has_synced for seen in owners.values()):
                return None
            missing = [kind for kind, seen in owners.items() if not len(seen.store)]
            return sum(1 for kind in missing for _ in islice(self._made_for(kind), _MANY))

        return orphans

    def _stranded_seen_by(self, tools: Deps) -> Callable[[], int | None]:
        """How the services see that all nodes are gone: the pods on them would go, too."""
        nodes = tools.informers.informer(NODE)

        def stranded() -> int | None:
            if not (self._pods.has_synced and nodes.has_synced):
                return None
            if len(nodes.store):
                return 0
            found = (p for p in self._pods.store.list() if p.spec.node_name and pods.is_active(p))
            return sum(1 for _ in islice(found, _MANY))

        return stranded

    def _made_for(self, kind: AnyKind) -> Iterator[Pod]:
        """The live pods that were made for objects of a kind."""
        for pod in self._pods.store.list():
            owner = controller_of(pod.metadata) if pods.is_active(pod) else None
            if owner and (owner.api_version, owner.kind) == (kind.api_version, kind.kind):
                yield pod

    def _services(self) -> Iterator[tuple[str, Callable[[Deps], ElectedService]]]:
        for name, factory in TABLE:
            if name in self._names:
                yield name, factory
        if SCHEDULER in self._names:
            yield SCHEDULER, self._scheduler
        if MACHINES in self._names:
            yield MACHINES, self._machines
