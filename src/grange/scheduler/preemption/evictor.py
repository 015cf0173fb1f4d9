"""The evictor: carries out preemptions, concurrently with scheduling.

For each pod that preempts: its nomination is written into its status, then its victims get a
condition with the reason and are deleted, each fenced by its UID. Before every write it is checked
that the preemption is still wanted. A write that fails is retried for a while; then the pod is
scheduled again.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import msgspec

from grange.api import timestamps
from grange.api.kinds import POD
from grange.api.kinds.pod import DISRUPTION_TARGET, Pod
from grange.api.meta import Condition, preconditions
from grange.api.status import ApiError, Conflict, Invalid, NotFound
from grange.base.backoff import Exponential
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.base.tasks import Nursery
from grange.client.client import Client
from grange.reconcile.recorder import NORMAL, Recorder
from grange.scheduler.framework import PostFilterResult
from grange.scheduler.nominator import Nominator
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.preemption.evaluator import BY_SCHEDULER

_BACKOFF = Exponential(initial_s=0.2, cap_s=5.0)
_TRIES = 6
_WORKERS_MAX = 8


class _Job(msgspec.Struct, frozen=True, gc=False):
    pod: PodInfo
    nominated: str
    victims: tuple[PodInfo, ...] = ()
    lent: frozenset[str] = frozenset()

    def reason(self, victim: Pod) -> str:
        """For the victim's condition and event: for which pod it is deleted, and why it is a victim."""
        by = f"by pod {self.pod.pod.key}"
        if victim.metadata.uid in self.lent:
            return f"{by}, whose queue wants back the quota that it lent"
        if victim.spec.node_name != self.nominated:
            return f"{by} on node {self.nominated}: too few of its gang would be left"
        return f"{by} on node {self.nominated}"


class Evictor:
    """Deletes victims and writes nominations.

    Args:
        recorder: for the victims' events; run by its owner.
        nominator: which nominations still hold.
        activate: moves a pod to the active queue, by UID.
    """

    def __init__(
        self,
        client: Client,
        recorder: Recorder,
        nominator: Nominator,
        *,
        activate: Callable[[str], object],
        clock: Clock,
        log: Logger,
    ) -> None:
        self._client = client
        self._recorder = recorder
        self._nominator = nominator
        self._activate = activate
        self._clock = clock
        self._log = log
        self._waiting: deque[_Job] = deque()
        self._nursery: Nursery | None = None
        self._workers = 0

    def start(self, nursery: Nursery) -> None:
        """Run workers in this nursery from now on; what was put in before is dropped."""
        self._waiting.clear()
        self._nursery, self._workers = nursery, 0

    def put(self, pod: PodInfo, result: PostFilterResult) -> None:
        """Carry out what a pod's preemption asks for; returns at once."""
        if result.nominated is not None:
            self._waiting.append(_Job(pod, result.nominated, result.victims, result.lent))
        self.withdraw(result.cleared)

    def withdraw(self, pods: Iterable[PodInfo]) -> None:
        """Remove these pods' nominations from the API; returns at once."""
        self._waiting.extend(_Job(pod, "") for pod in pods)
        while self._nursery is not None and self._workers < min(_WORKERS_MAX, len(self._waiting)):
            self._workers += 1
            self._nursery.start(self._work(), name="scheduler evictor")

    async def _work(self) -> None:
        while self._waiting:
            await self._carry_out(self._waiting.popleft())
        self._workers -= 1

    async def _carry_out(self, job: _Job) -> None:
        uid = job.pod.uid
        done = await self._persist(job, partial(self._nominate, job))
        if job.nominated:
            for victim in job.victims:
                done = done and await self._persist(job, partial(self._evict, job, victim.pod))
            tried_meanwhile = self._nominator.evicting.pop(uid, False)
            if tried_meanwhile or not done:
                self._activate(uid)

    def _wanted(self, job: _Job) -> bool:
        return self._nominator.node_of(job.pod.uid) == job.nominated

    async def _persist(self, job: _Job, write: Callable[[], Awaitable[None]]) -> bool:
        """Retry a write until it succeeds; False if it fails for good or is not wanted any more."""
        tries = 0
        while self._wanted(job):
            try:
                await write()
                return True
            except (NotFound, Conflict):
                return True  # that pod is gone, or another has its name
            except Invalid as error:
                self._log.warning("preemption refused", pod=str(job.pod.pod.key), error=error)
                return False
            except ApiError as error:
                tries += 1
                if tries == _TRIES:
                    self._log.warning("preemption failed", pod=str(job.pod.pod.key), error=error)
                    return False
            await self._clock.sleep(_BACKOFF.delay(tries))
        return False

    async def _nominate(self, job: _Job) -> None:
        """Write the nomination, or remove it (empty), unless the pod has a node by now."""
        meta = job.pod.pod.metadata
        while True:
            live: Pod = await self._client.get(POD, meta.name, meta.namespace)
            is_written = live.status.nominated_node_name == job.nominated
            if live.metadata.uid != meta.uid or live.spec.node_name or is_written:
                return
            if not self._wanted(job):
                return
            patch = {
                "metadata": preconditions(live.metadata),
                "status": {"nominatedNodeName": job.nominated or None},
            }
            try:
                await self._client.patch(
                    POD, meta.name, meta.namespace, patch=patch, subresource="status"
                )
                return
            except Conflict:
                continue  # the pod was written in between

    async def _evict(self, job: _Job, victim: Pod) -> None:
        meta = victim.metadata
        condition = Condition(
            type=DISRUPTION_TARGET,
            status="True",
            reason=BY_SCHEDULER,
            message=f"preempted {job.reason(victim)}",
            last_transition_time=timestamps.rfc3339(self._clock.now()),
        )
        patch = {
            "metadata": {"uid": meta.uid},
            "status": {"conditions": [msgspec.to_builtins(condition)]},
        }
        for attempt in range(1, _TRIES + 1):
            marked: Pod = await self._client.patch(
                POD, meta.name, meta.namespace, patch=patch, type="strategic", subresource="status"
            )
            if not self._wanted(job):
                return
            try:
                # Of this version: a late delete must not hit a pod whose status has changed since.
                await self._client.delete_as_read(POD, marked)
                break
            except Conflict:
                if attempt == _TRIES:
                    raise
        self._recorder.event(
            victim, NORMAL, "Preempted", f"Preempted {job.reason(victim)}", kind=POD
        )
