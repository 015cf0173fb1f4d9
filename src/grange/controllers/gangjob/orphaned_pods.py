"""Releases tracked pods whose job is gone: nothing will count them any more.

Any member of the farm does it, because a job that is gone belongs to none. The job is read live
first: a cache that is behind must not release the pods of a new job.
"""

from contextlib import suppress
from typing import Generic, TypeVar

from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.meta import ObjectKey, Resource, controller_of
from grange.api.scheme import KindInfo
from grange.api.status import Conflict, NotFound
from grange.client.client import Client
from grange.controllers.gangjob.job_pods import TRACKING_FINALIZER
from grange.reconcile import finalizers
from grange.reconcile.controller import Controller, Done, Requeue, Result
from grange.reconcile.informer import Informer

R = TypeVar("R", bound=Resource)

_AGAIN_S = 1.0


class OrphanedPods(Generic[R]):
    """Watches pods with the tracking finalizer and releases those whose job is gone.

    Args:
        client: to the API.
        kind: of the jobs.
        jobs, pods: the informers.
    """

    def __init__(
        self, client: Client, kind: KindInfo[R], jobs: Informer[R], pods: Informer[Pod]
    ) -> None:
        self._client = client
        self._kind = kind
        self._jobs = jobs
        self._pods = pods
        self._loop: Controller | None = None

    def attach(self, loop: Controller) -> None:
        """Enqueue pods into a loop that runs ``reconcile``."""
        self._loop = loop
        self._pods.add_handler(self._seen, lambda _, new: self._seen(new), lambda _: None)
        self._jobs.add_handler(lambda _: None, lambda _, __: None, self._job_gone)

    def enqueue_all(self) -> None:
        """Look at every pod; call when all informers have listed their collections.

        Pods that were listed before the jobs could not be compared with them.
        """
        for pod in self._pods.store.list():
            self._seen(pod)

    async def reconcile(self, key: ObjectKey) -> Result:
        """Release one pod if its job is gone."""
        pod = self._pods.store.get(key)
        if pod is None or not self._is_tracked(pod):
            return Done()
        reference = controller_of(pod.metadata)
        with suppress(NotFound):
            live = await self._client.get(
                self._kind, reference.name if reference else "", key.namespace
            )
            if reference is not None and live.metadata.uid == reference.uid:
                return Done()
        try:
            await finalizers.remove(self._client, POD, pod, TRACKING_FINALIZER)
        except NotFound:
            return Done()
        except Conflict:  # it changed, or this member may not write just now
            return Requeue(_AGAIN_S)
        return Done()

    def _seen(self, pod: Pod) -> None:
        if self._loop is not None and self._is_tracked(pod) and not self._has_job(pod):
            self._loop.enqueue(pod.key)

    def _job_gone(self, job: R) -> None:
        if self._loop is None:
            return
        for pod in self._pods.store.list(job.metadata.namespace):
            reference = controller_of(pod.metadata)
            if reference is not None and reference.uid == job.metadata.uid:
                self._seen(pod)

    def _is_tracked(self, pod: Pod) -> bool:
        if not finalizers.has(pod, TRACKING_FINALIZER):
            return False
        reference = controller_of(pod.metadata)
        return (
            reference is not None
            and reference.kind == self._kind.kind
            and reference.api_version.rpartition("/")[0] == self._kind.group
        )

    def _has_job(self, pod: Pod) -> bool:
        reference = controller_of(pod.metadata)
        if reference is None or not self._jobs.has_synced:
            return True
        job = self._jobs.store.get(ObjectKey(pod.metadata.namespace, reference.name))
        return job is not None and job.metadata.uid == reference.uid
