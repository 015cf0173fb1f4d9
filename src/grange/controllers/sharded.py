"""Controllers whose objects are shared between members of the farm, each object at one member."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from grange.api.kinds import REPLICATIONCONTROLLER, ROLLINGUPDATE, TESTSESSION
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Resource
from grange.api.scheme import KindInfo
from grange.controllers.gangjob.adapter import JobAdapter
from grange.controllers.gangjob.adapters import ADAPTERS
from grange.controllers.gangjob.controller import JobService
from grange.controllers.gangjob.errors import InvalidJob
from grange.controllers.replication import condition_types
from grange.controllers.replication.controller import ReplicationService
from grange.controllers.rollingupdate import logic
from grange.controllers.rollingupdate.controller import NAME as ROLLING_UPDATES
from grange.controllers.testsession.component_pods import pod_count
from grange.controllers.testsession.controller import NAME as TEST_SESSIONS, SessionService
from grange.reconcile.condition_alerts import ConditionAlert
from grange.reconcile.controller import Controller
from grange.reconcile.deps import Deps
from grange.reconcile.farm.deletion_guard import DeletionGuardConfig
from grange.reconcile.machine_pool import MachinePool

R = TypeVar("R", bound=Resource)


class ShardedService(Protocol):
    """A controller that can share its objects."""

    @property
    def loop(self) -> Controller:
        """The keys of its objects and the passes over them."""

    async def run(self) -> None:
        """Work; returns only by cancellation."""


def _one(_: object) -> int:
    return 1


def _no_alerts(_: object) -> Iterable[ConditionAlert]:
    return ()


@dataclass(frozen=True, slots=True)
class ShardedController(Generic[R]):
    """A controller of objects of any kind, shared object by object.

    Attributes:
        kind: of the objects.
        create: makes the controller; its deps write for owned objects only.
        create_with_pool: the same where a pool of machines lends it nodes; None if it takes none.
        weight: what an object asks for (replicas, for example), for the deletion guard.
        alerts: the conditions of an object that need an operator.
        deletion_guard: what holds deletions of its pods.
    """

    kind: KindInfo[R]
    create: Callable[[Deps], ShardedService]
    create_with_pool: Callable[[Deps, MachinePool], ShardedService] | None = None
    weight: Callable[[R], int] = _one
    alerts: Callable[[R], Iterable[ConditionAlert]] = _no_alerts
    deletion_guard: DeletionGuardConfig | None = None


@dataclass(frozen=True, slots=True)
class AlertingKind(Generic[R]):
    """A kind whose controller one member runs, with conditions that need an operator.

    Attributes:
        kind: of the objects.
        alerts: the conditions of an object that need an operator.
    """

    kind: KindInfo[R]
    alerts: Callable[[R], Iterable[ConditionAlert]]


def _replicas(controller: ReplicationController) -> int:
    return controller.spec.replicas


# Jobs and sessions end, expire and are deleted in large numbers at any time, and a pod is only deleted
# for one that is there. What is left of the guard is that the store must not go back to an earlier revision.
_JOBS_COME_AND_GO = DeletionGuardConfig(small=10**9, deletions=10**9)


def _job_controller(adapter: JobAdapter[R]) -> ShardedController[R]:
    def pods(job: R) -> int:
        try:
            return sum(role.replicas for role in adapter.model(job).roles)
        except InvalidJob:
            return 0

    return ShardedController(
        adapter.kind,
        lambda deps: JobService(deps, adapter),
        weight=pods,
        deletion_guard=_JOBS_COME_AND_GO,
    )


SHARDED: Mapping[str, ShardedController[Any]] = {
    "replication": ShardedController(
        REPLICATIONCONTROLLER,
        ReplicationService,
        create_with_pool=lambda deps, pool: ReplicationService(deps, pool=pool),
        weight=_replicas,
        alerts=condition_types.alerts_of,
    ),
    TEST_SESSIONS: ShardedController(
        TESTSESSION, SessionService, weight=pod_count, deletion_guard=_JOBS_COME_AND_GO
    ),
    **{adapter.kind.kind.lower(): _job_controller(adapter) for adapter in ADAPTERS},
}
"""By name: the controllers of which every member runs one. The others, in ``TABLE``, run whole at one
member at a time."""

ELECTED_ALERTS: Mapping[str, AlertingKind[Any]] = {
    ROLLING_UPDATES: AlertingKind(ROLLINGUPDATE, logic.alerts_of)
}
"""By name: the controllers of ``TABLE`` whose objects alert; the member that runs one reports them."""
