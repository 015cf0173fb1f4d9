"""What an operator gives to ``JobController``, and how the controller is set up."""

from dataclasses import dataclass
from typing import Protocol, TypeVar

from grange.api.meta import Resource
from grange.api.scheme import AnyKind, KindInfo
from grange.controllers.gangjob.adapter import JobLabels
from grange.reconcile.controller import Done, Result

R = TypeVar("R", bound=Resource)


class ControllerInterface(Protocol[R]):
    """An operator for one kind of job; subclass it to inherit what it need not define.

    Attributes:
        controller_name: of the operator, for logs, metrics and events.
        kind: of the jobs.
        labels: of their pods and Services.
    """

    controller_name: str
    kind: KindInfo[R]
    labels: JobLabels

    async def reconcile_job(self, job: R) -> Result:
        """Bring a job a step closer to what its spec wants; never called twice at once for a job.

        Called when the caches show all that was written for the job before. What it raises is tried
        again with growing delays.

        Raises:
            InvalidJob: the spec cannot be acted on; reported in a condition, not tried again.
        """

    async def finalize_job(self, job: R) -> Result:
        """Do what a job with a deletion timestamp needs; its pods are garbage-collected anyway."""
        return Done()


@dataclass(frozen=True, slots=True)
class JobControllerConfiguration:
    """How a ``JobController`` works.

    Attributes:
        reconciler_sync_loop_period_s: look at each job again after so many seconds, for an operator
            that depends on what no watch shows; None: only when something changes.
        enable_gang_scheduling: make pods members of the job's PodGroup (``sync_pod_group``).
        pod_group_kind: the kind of that group; None: ``PodGroup`` of ``scheduling.x-k8s.io``.
        scheduler_name: who schedules the gang's pods, where the template names none.
        workers: how many jobs are reconciled at once.
        cache_sync_timeout_s: ``run`` fails when the caches are not filled after so long.
    """

    reconciler_sync_loop_period_s: float | None = None
    enable_gang_scheduling: bool = False
    pod_group_kind: AnyKind | None = None
    scheduler_name: str = "grange"
    workers: int = 1
    cache_sync_timeout_s: float = 120.0
