"""Pods that wait for a node.

Theory of operation. A waiting pod is in exactly one pool. *Active* pods are tried next, in the order
of the profile's sort. A pod that failed is *unschedulable* until an event that one of the plugins
that rejected it asked for; it then goes to *backoff*, or straight to active if its backoff is over.
A pod whose cycle failed with an error goes to *error backoff* without waiting for an event. A pod
that is being tried is *in flight*; events are logged meanwhile, so that none that would help is lost
between the failure and the return to the queue. A *gated* pod is unschedulable by a PreEnqueue
plugin's rejection and is only looked at again for the events of that plugin.

When nothing is active, pods leave backoff early, so that the scheduler is not idle while pods wait.
That is limited to a number a second: otherwise many pods that cannot be placed and a stream of events would
keep the scheduler busy.

Synchronous, takes ``now`` (monotonic seconds), keyed by UID.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from math import floor, inf

from grange.scheduler.clusterevents import LEFTOVER, ClusterEvent, Object, Registration, Subject
from grange.scheduler.framework import Profiles
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queued_pods import (
    GroupKey,
    Heap,
    InFlightEvents,
    QueuedPod,
    QueueSettings,
    QueueStatistics,
    SubQueue,
)

_IN_FLIGHT = SubQueue.IN_FLIGHT  # looking a member up takes longer than all else in pop


class _Requeue(Enum):
    STAY = 0
    AFTER_BACKOFF = 1
    NOW = 2


# What an event meets on its way; see above.
_STAY, _AFTER_BACKOFF, _NOW = _Requeue.STAY, _Requeue.AFTER_BACKOFF, _Requeue.NOW
_UNSCHEDULABLE, _ANY = SubQueue.UNSCHEDULABLE, Subject.ANY


class SchedulingQueue:
    """The queue of one scheduler."""

    def __init__(self, profiles: Profiles, settings: QueueSettings | None = None) -> None:
        self._profiles = profiles
        self._sort_key = profiles.each()[0].queue_sort
        # Which events a plugin asks for is the same in all profiles; its hints may differ.
        self._asked = {name: item for one in profiles.each() for name, item in one.events.items()}
        self._settings = settings or QueueSettings()
        self._pods: dict[str, QueuedPod] = {}
        self._active = Heap(SubQueue.ACTIVE)
        self._backoff = Heap(SubQueue.BACKOFF)
        self._error_backoff = Heap(SubQueue.ERROR_BACKOFF)
        self._unschedulable: dict[GroupKey, dict[str, QueuedPod]] = {}
        self._in_flight = InFlightEvents()
        self._tickets = 0
        self._check_due = -inf
        self._early = (-1, 0)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def __len__(self) -> int:
        return len(self._pods)

    # --- pods come, change and go ------------------------------------------------------------

    def add(self, info: PodInfo, now: float) -> None:
        """Add a pod that needs a node; one that is in the queue already is updated."""
        if info.uid in self._pods:
            self.update(info, None, now)
            return
        pod = QueuedPod(info, timestamp=now, first_queued=now)
        self._pods[info.uid] = pod
        self._enter(pod, self._active, now)

    def update(self, info: PodInfo, event: ClusterEvent | None, now: float) -> None:
        """Update a pod, or add an unknown one; retry it if a plugin that rejected it asked for the event.

        The event is what ``clusterevents.pod_update`` returns; None for nothing relevant.
        """
        pod = self._pods.get(info.uid)
        if pod is None:
            self.add(info, now)
            return
        before, pod.info = pod.info.pod, info
        match pod.pool:
            case SubQueue.ACTIVE:
                self._push(pod, self._active)
            case SubQueue.IN_FLIGHT if event is not None:
                self._in_flight.note(event, before, info.pod, info.uid)
            case SubQueue.UNSCHEDULABLE if event is not None:
                self._requeue(pod, self._verdict(pod, event, before, info.pod), now)
            case _:
                pass

    def delete(self, uid: str) -> None:
        """Remove a pod that is gone or has a node; one in flight does not return."""
        pod = self._pods.pop(uid, None)
        if pod is None:
            return
        self._leave(pod)
        pod.gone = True

    def clear(self) -> None:
        """Drop everything: nothing is in any pool, nor in flight."""
        for uid in [*self._pods]:
            self.delete(uid)
        self._in_flight.clear()

    # --- trying ------------------------------------------------------------------------------

    def pop(self, now: float) -> QueuedPod | None:
        """The next pod to try, now in flight; None when no pod may be tried."""
        pod = self._active.pop()
        if pod is None:
            pod = self._pop_early(now)
            if pod is None:
                return None
        pod.pool = _IN_FLIGHT
        pod.attempts += 1
        self._in_flight.begin(pod.info.uid)
        return pod

    def in_flight(self) -> QueuedPod | None:
        """The pod that was popped last and is being tried; None when none is."""
        uid = self._in_flight.newest()
        return None if uid is None else self._pods.get(uid)

    def done(self, pod: QueuedPod) -> None:
        """Remove a pod that will be bound, and its part of the log."""
        uid = pod.info.uid
        self._in_flight.end(uid)
        if self._pods.get(uid) is pod:
            del self._pods[uid]

    def mark_unschedulable(
        self,
        pod: QueuedPod,
        rejectors: frozenset[str],
        now: float,
        *,
        pending: bool = False,
    ) -> None:
        """Let a pod without a feasible node wait for an event, unless one came in the meantime.

        One that is gone by now is dropped. Without a rejector it is an error. An event that ``pending``
        rejectors take ends the wait without a backoff.
        """
        if not rejectors:
            self.fail(pod, now)
            return
        logged = self._in_flight.end(pod.uid)
        if not self._returns(pod):
            return
        pod.errors = 0
        pod.unschedulable_count += 1
        pod.rejectors, pod.pending = rejectors, pending
        pod.timestamp = now
        self._park(pod)
        for item in logged:
            if item.uid in ("", pod.uid):
                verdict = self._verdict(pod, item.event, item.before, item.after)
                if self._requeue(pod, verdict, now):
                    return

    def fail(self, pod: QueuedPod, now: float) -> None:
        """Retry a pod after a backoff: its cycle or its binding failed by an error."""
        self._in_flight.end(pod.uid)
        if not self._returns(pod):
            return
        pod.errors += 1
        pod.rejectors, pod.pending = frozenset(), False
        pod.timestamp = now
        self._enter(pod, self._error_backoff, now)

    def requeue(
        self,
        info: PodInfo,
        now: float,
        *,
        tried: QueuedPod | None = None,
        rejector: str = "",
    ) -> None:
        """Queue a pod again whose binding failed or was rejected; one that is queued stays as it is.

        If a plugin rejected it while it was held, it is tried again after its backoff, since what happened
        meanwhile is not known. Without a rejector it is an error.
        """
        if info.uid in self._pods:
            return
        pod = tried or QueuedPod(info, timestamp=now, first_queued=now)
        pod.info, pod.gone = info, False
        pod.pool = SubQueue.IN_FLIGHT
        self._pods[info.uid] = pod
        if not rejector:
            self.fail(pod, now)
            return
        pod.errors = 0
        pod.unschedulable_count += 1
        pod.rejectors, pod.pending = frozenset({rejector}), False
        pod.timestamp = now
        self._enter(pod, self._backoff, now)

    def park(self, uid: str, rejectors: frozenset[str], now: float) -> None:
        """Mark a waiting pod unschedulable as if these plugins had rejected it, without trying it.

        Nothing happens to one that is in flight, gated, or rejected by them already.
        """
        pod = self._pods.get(uid)
        if pod is None or pod.pool is SubQueue.IN_FLIGHT or pod.gate:
            return
        if pod.pool is SubQueue.UNSCHEDULABLE and pod.rejectors == rejectors:
            return
        self._leave(pod)
        pod.rejectors, pod.pending = rejectors, False
        pod.timestamp = now
        self._park(pod)

    # --- events and time ---------------------------------------------------------------------

    def move(
        self, event: ClusterEvent, now: float, before: Object = None, after: Object = None
    ) -> int:
        """Reconsider the pods whose rejectors registered such an event.

        Returns:
            How many pods left the unschedulable pool.
        """
        self._in_flight.note(event, before, after, "")
        moved = 0
        for (rejectors, signature), pods in [*self._unschedulable.items()]:
            if not self._asked_for(event, rejectors):
                continue
            verdict: _Requeue | None = None
            for pod in [*pods.values()]:
                if verdict is None or signature is None:
                    verdict = self._verdict(pod, event, before, after)
                moved += self._requeue(pod, verdict, now)
                if verdict is _STAY and signature is not None:
                    break
        return moved

    def activate(self, uids: Iterable[str], now: float) -> None:
        """Try these pods as soon as possible, whatever they wait for."""
        for uid in uids:
            pod = self._pods.get(uid)
            if pod is None or pod.pool is SubQueue.ACTIVE:
                continue
            if pod.pool is SubQueue.IN_FLIGHT:
                self._in_flight.note(LEFTOVER, None, None, uid)
            else:
                pod.timestamp = now
                self._leave(pod)
                self._enter(pod, self._active, now)

    def flush(self, now: float) -> None:
        """End backoffs, and retry pods that waited too long without an event."""
        for heap in (self._backoff, self._error_backoff):
            while (head := heap.head()) is not None and head[0] < floor(now):
                heap.pop()
                self._enter(head[1], self._active, now)
        if now >= self._check_due:
            self._check_due = now + self._settings.leftover_check_s
            for pod in [pod for pods in self._unschedulable.values() for pod in pods.values()]:
                if now - pod.timestamp > self._settings.leftover_s:
                    self._requeue(pod, _Requeue.AFTER_BACKOFF, now)

    def next_deadline(self, now: float) -> float | None:
        """When ``flush`` or ``pop`` may next have something to do without any event."""
        found = []
        if self._active.head() is not None:
            found.append(now)
        for heap in (self._backoff, self._error_backoff):
            head = heap.head()
            if head is not None:
                found.append(head[0] + 1.0)
        if self._settings.early_per_s and self._backoff.head() is not None:
            found.append(now if self._early_left(now) else floor(now) + 1.0)
        if self._unschedulable:
            found.append(max(now, self._check_due))
        return min(found, default=None)

    def statistics(self) -> QueueStatistics:
        """How many pods wait where."""
        pods = self._pods.values()
        pools = Counter(pod.pool for pod in pods)
        return QueueStatistics(
            active=pools[SubQueue.ACTIVE],
            backoff=pools[SubQueue.BACKOFF] + pools[SubQueue.ERROR_BACKOFF],
            unschedulable=pools[_UNSCHEDULABLE],
            gated=sum(1 for pod in pods if pod.gate),
            in_flight=pools[_IN_FLIGHT],
        )

    def waiting(self) -> list[QueuedPod]:
        """All of them, wherever they wait. Not to be changed."""
        return [*self._pods.values()]

    def find(self, uid: str) -> QueuedPod | None:
        """The pod as it waits; None when it is not in the queue. Not to be changed."""
        return self._pods.get(uid)

    def due(self, pod: QueuedPod) -> float | None:
        """When a pod of the queue is tried at the latest, monotonic seconds; None: when it may be.

        A pod in backoff may be tried earlier when nothing is active.
        """
        match pod.pool:
            case SubQueue.BACKOFF | SubQueue.ERROR_BACKOFF:
                return floor(self._expiry(pod)) + 1.0
            case SubQueue.UNSCHEDULABLE if not pod.gate:
                return pod.timestamp + self._settings.leftover_s
            case _:
                return None

    # --- inside ------------------------------------------------------------------------------

    def _push(self, pod: QueuedPod, heap: Heap) -> None:
        key = self._sort_key(pod.info, pod.timestamp)
        if heap is not self._active:
            key = (float(floor(self._expiry(pod))), *key)
        self._tickets += 1
        heap.push(key, self._tickets, pod)

    def _enter(self, pod: QueuedPod, heap: Heap, now: float) -> None:
        """Put a pod into a heap, unless a PreEnqueue plugin holds it."""
        for name, pre_enqueue in self._profiles.of(pod.info).pre_enqueue:
            if not pre_enqueue(pod.info).ok:
                pod.gate = name
                pod.rejectors, pod.pending = frozenset({name}), False
                self._park(pod)
                return
        pod.gate = ""
        if heap is not self._active and not self._backing_off(pod, now):
            heap = self._active
        self._push(pod, heap)

    def _park(self, pod: QueuedPod) -> None:
        pod.ticket = 0
        pod.pool = _UNSCHEDULABLE
        signed = pod.rejectors <= self._profiles.of(pod.info).signed
        pod.group = (pod.rejectors, pod.info.signature if signed else None)
        self._unschedulable.setdefault(pod.group, {})[pod.uid] = pod

    def _leave(self, pod: QueuedPod) -> None:
        """Remove a pod from its pool; its entry in a heap becomes void."""
        pod.ticket = 0
        if pod.group is not None:
            pods = self._unschedulable[pod.group]
            del pods[pod.uid]
            if not pods:
                del self._unschedulable[pod.group]
            pod.group = None

    def _returns(self, pod: QueuedPod) -> bool:
        return not pod.gone and self._pods.get(pod.uid) is pod and pod.pool is _IN_FLIGHT

    def _backoff_s(self, pod: QueuedPod) -> float:
        failures = pod.errors or pod.unschedulable_count
        longest = self._settings.backoff_max_s
        if failures <= 0 or longest <= 0:
            return 0.0
        return float(min(longest, self._settings.backoff_initial_s * 2.0 ** min(failures - 1, 62)))

    def _expiry(self, pod: QueuedPod) -> float:
        return pod.timestamp + self._backoff_s(pod)

    def _backing_off(self, pod: QueuedPod, now: float) -> bool:
        # Whole seconds, so that pods of one second become active together and sort by priority.
        return self._backoff_s(pod) > 0 and floor(self._expiry(pod)) >= floor(now)

    def _early_left(self, now: float) -> bool:
        second, used = self._early
        return (0 if second != floor(now) else used) < self._settings.early_per_s

    def _pop_early(self, now: float) -> QueuedPod | None:
        if not self._early_left(now):
            return None
        pod = self._backoff.pop()
        if pod is not None:
            second, used = self._early
            self._early = (floor(now), used + 1 if second == floor(now) else 1)
        return pod

    def _requeue(self, pod: QueuedPod, verdict: _Requeue, now: float) -> bool:
        if verdict is _STAY:
            return False
        self._leave(pod)
        self._enter(pod, self._active if verdict is _NOW else self._backoff, now)
        return pod.pool is not _UNSCHEDULABLE

    def _asked_for(self, event: ClusterEvent, rejectors: frozenset[str]) -> bool:
        return event.subject is _ANY or any(
            item.event.matches(event) for name in rejectors for item in self._asked.get(name, ())
        )

    def _verdict(
        self, pod: QueuedPod, event: ClusterEvent, before: Object, after: Object
    ) -> _Requeue:
        if event.subject is _ANY:
            return _AFTER_BACKOFF
        events = self._profiles.of(pod.info).events
        for name in sorted(pod.rejectors):
            if _wanted(events, name, pod.info, (event, before, after)):
                return _NOW if pod.pending else _AFTER_BACKOFF
        return _STAY


def _wanted(
    registrations: Mapping[str, tuple[Registration, ...]],
    plugin: str,
    info: PodInfo,
    happened: tuple[ClusterEvent, Object, Object],
) -> bool:
    event, before, after = happened
    for item in registrations.get(plugin, ()):
        if item.event.matches(event) and (item.hint is None or item.hint(info, before, after)):
            return True
    return False
