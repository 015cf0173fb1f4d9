"""Reports why a pod waits: the PodScheduled condition and an event.

Both are written only when their content changes, and only the newest report on a pod is ever sent, so
a pod that fails again and again for the same reason costs nothing.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from grange.api import conditions, timestamps
from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.meta import Condition, preconditions
from grange.api.status import ApiError, Conflict, Invalid, NotFound
from grange.base.backoff import Exponential
from grange.base.clock import Clock
from grange.base.log import Logger
from grange.client.client import Client
from grange.reconcile.recorder import NORMAL, WARNING, Recorder

POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"
SCHEDULING_GATED = "SchedulingGated"

WRITERS = 16
"""How many conditions a scheduler writes at once."""

_BACKOFF = Exponential(initial_s=0.2, cap_s=10.0)


@dataclass(frozen=True, slots=True)
class _Report:
    pod: Pod
    reason: str
    message: str


class PodConditions:
    """Writes conditions; each ``run`` is one writer.

    Args:
        recorder: for events; run by its owner.
    """

    def __init__(self, client: Client, recorder: Recorder, *, clock: Clock, log: Logger) -> None:
        self._client = client
        self._recorder = recorder
        self._clock = clock
        self._log = log
        self._reported: dict[str, tuple[str, str]] = {}
        self._waiting: dict[str, _Report] = {}
        self._wake = asyncio.Event()
        self._delayed: dict[
            str, tuple[float, _Report]
        ] = {}  # when on the monotonic clock, and what
        self._is_delayed = asyncio.Event()

    def unschedulable(
        self,
        pod: Pod,
        message: str,
        *,
        reason: str = UNSCHEDULABLE,
        event_after_s: float = 0.0,
    ) -> None:
        """The pod found no node; nothing happens if the same was reported before.

        The condition is written at once. The event is left out if the pod is bound, or another reason holds,
        within ``event_after_s``, which counts from the first of several such reports in a row.
        """
        uid = pod.metadata.uid
        reported = self._reported.get(uid)
        if reported is None:
            have = conditions.find(pod.status.conditions, POD_SCHEDULED)
            if have is not None and have.status == "False":
                reported = (have.reason, have.message)
        self._reported[uid] = (reason, message)
        if reported == (reason, message):
            return
        self._waiting[uid] = _Report(pod, reason, message)
        self._wake.set()
        if event_after_s:
            due = self._clock.monotonic() + event_after_s
            first = self._delayed.get(uid)
            self._delayed[uid] = (first[0] if first else due, self._waiting[uid])
            self._is_delayed.set()
            return
        self._delayed.pop(uid, None)
        if reason != SCHEDULING_GATED:
            self._failed(self._waiting[uid])

    def _failed(self, report: _Report) -> None:
        self._recorder.event(report.pod, WARNING, "FailedScheduling", report.message, kind=POD)

    def scheduled(self, pods: Sequence[Pod]) -> None:
        """The pods are bound, as their specs show; the server has set their conditions."""
        for at, pod in enumerate(pods):
            meta = pod.metadata
            if self._recorder.full:  # no sentences for the rest: it may be thousands
                self._recorder.drop(len(pods) - at)
                break
            message = f"Successfully assigned {meta.namespace}/{meta.name} to {pod.spec.node_name}"
            self._recorder.event(pod, NORMAL, "Scheduled", message, kind=POD)
        if self._reported:
            for pod in pods:
                self.forget(pod.metadata.uid)

    def forget(self, uid: str) -> None:
        """Drop what is to be reported about the pod."""
        self._reported.pop(uid, None)
        self._waiting.pop(uid, None)
        self._delayed.pop(uid, None)

    async def run_delayed_events(self) -> None:
        """Write delayed events when they are due, until cancelled."""
        while True:
            await self._is_delayed.wait()
            self._is_delayed.clear()
            while self._delayed:
                # All have the same delay, so the first is due first.
                uid, (due, report) = next(iter(self._delayed.items()))
                left_s = due - self._clock.monotonic()
                if left_s > 0:
                    await self._clock.sleep(left_s)
                    continue  # it may have been forgotten meanwhile
                del self._delayed[uid]
                self._failed(report)

    async def run(self) -> None:
        """Write until cancelled. What the server refuses for good is logged and dropped."""
        while True:
            while self._waiting:
                uid = next(iter(self._waiting))
                await self._write(uid, self._waiting.pop(uid))
            self._wake.clear()
            await self._wake.wait()

    async def _write(self, uid: str, report: _Report) -> None:
        tries = 0
        # Only while it is the newest report: another writer may hold a newer one.
        while self._reported.get(uid) == (report.reason, report.message):
            try:
                await self._patch(report)
                return
            except NotFound:
                return
            except Conflict:
                fresh = await self._fresh(report)
                if fresh is None:
                    return
                report = fresh
            except Invalid as error:
                self._log.warning("condition refused", pod=str(report.pod.key), error=error)
                return
            except ApiError as error:
                self._log.warning("condition not written", pod=str(report.pod.key), error=error)
            tries += 1
            await self._clock.sleep(_BACKOFF.delay(tries))

    async def _fresh(self, report: _Report) -> _Report | None:
        """The same report about the pod as it is now; None when it is no longer true."""
        meta = report.pod.metadata
        try:
            pod: Pod = await self._client.get(POD, meta.name, meta.namespace)
        except NotFound:
            return None
        except ApiError:
            return report
        if pod.spec.node_name or pod.metadata.uid != meta.uid:
            return None
        return _Report(pod, report.reason, report.message)

    async def _patch(self, report: _Report) -> None:
        meta = report.pod.metadata
        now = timestamps.rfc3339(self._clock.now())
        wanted = Condition(
            type=POD_SCHEDULED, status="False", reason=report.reason, message=report.message
        )
        whole = conditions.set_condition(report.pod.status.conditions, wanted, now)
        mine = conditions.find(whole, POD_SCHEDULED)
        patch = {
            # Fenced: between the decision and this write the pod may have been bound or replaced.
            "metadata": preconditions(meta),
            "status": {"conditions": [msgspec.to_builtins(mine)]},
        }
        await self._client.patch(
            POD, meta.name, meta.namespace, patch=patch, type="strategic", subresource="status"
        )
