"""Watches the pods of sessions and gives each session's events to its subscriber.

Theory of operation. An informer lists and watches the pods that have the label of sessions, resumes
broken watches, and lists again where the history is gone, so no state is missed for long. Each change
becomes an event with a diagnosis. A health that is terminal stays: later events of the pod keep it. A
subscriber has a buffer. When it is full, an event that a later one of the same pod has replaced is
dropped, so the latest state of each pod is never lost, and one that does not read costs memory for
its own pods only and delays no other.
"""

import asyncio
from collections.abc import Container
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from grange.api.kinds import POD
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import COMPONENT_LABEL, SESSION_LABEL
from grange.api.meta import ObjectKey
from grange.api.status import ApiError
from grange.base.clock import Clock, LoopClock
from grange.base.log import Logger
from grange.base.rng import Stream
from grange.base.tasks import Child, Nursery
from grange.client.client import Client
from grange.controllers.testsession.health import diagnose
from grange.controllers.testsession.library.library_errors import (
    ControllerStartError,
    SubscriptionError,
)
from grange.controllers.testsession.library.pod_subscription import PodSubscription, PodWatchEvent
from grange.reconcile.informer import Informer

DEFAULT_NAMESPACE = "default"
_PROBE_S = 0.1  # in which a server that refuses to watch has refused


@dataclass(frozen=True, slots=True)
class WatcherOptions:
    """Overrides the defaults of a watcher.

    Attributes:
        event_buffer_size: events of one subscriber from which on those that were replaced are
            dropped; 0 is the default of 32.

    Raises:
        ValueError: a negative size.
    """

    event_buffer_size: int = 32

    def __post_init__(self) -> None:
        if self.event_buffer_size < 0:
            raise ValueError(
                f"event_buffer_size: {self.event_buffer_size} is negative; give 0 for the default"
            )


class Watcher:
    """Gives the changes of pods to the subscribers of their sessions.

    Subscribe at any time. Start and stop inside of its block, as often as is wanted:

        async with Watcher(client) as watcher:
            events = watcher.subscribe("session")
            await watcher.start()

    Args:
        client: where from.
        options: overrides of the defaults.
        namespace: of the pods.
        clock: time.
        rng: jitter.
        log: where failures of the watch go.
    """

    def __init__(
        self,
        client: Client,
        options: WatcherOptions | None = None,
        *,
        namespace: str = DEFAULT_NAMESPACE,
        clock: Clock | None = None,
        rng: Stream | None = None,
        log: Logger | None = None,
    ) -> None:
        self._client = client
        self._size = (options or WatcherOptions()).event_buffer_size or 32
        self._namespace = namespace
        self._clock = clock or LoopClock()
        self._rng = rng or Stream.from_system()
        self._log = log or Logger("sessions")
        self._nursery = Nursery("pod watcher")
        self._starting = asyncio.Lock()
        self._tasks: list[Child[None]] = []
        self._subscriptions: dict[str, PodSubscription] = {}
        self._latest: dict[ObjectKey, PodWatchEvent] = {}
        self._rechecks_changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        await self._nursery.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self._nursery.cancel()
        await self._nursery.__aexit__(None, None, None)  # an error of the block passes as it is

    async def start(self) -> None:
        """Watch pods until stopped; does nothing where it is started.

        Raises:
            ControllerStartError: pods cannot be listed or watched; start it again later.
        """
        async with self._starting:
            if self._tasks:
                return
            try:
                await self._probe()
            except ApiError as error:
                raise ControllerStartError(
                    f"the watcher cannot start: pods of namespace {self._namespace} cannot be "
                    f"watched: {error}; start it again when that is possible"
                ) from error
            informer: Informer[Pod] = Informer(
                self._client,
                POD,
                namespace=self._namespace,
                labels=SESSION_LABEL,
                clock=self._clock,
                rng=self._rng,
                log=self._log,
            )
            informer.add_handler(self._publish, lambda old, new: self._publish(new), self._delete)
            self._tasks = [
                self._nursery.start(informer.run(), name="pods of sessions"),
                self._nursery.start(self._recheck(), name="diagnoses of pods"),
                self._nursery.start(self._find_deleted(informer), name="pods that are gone"),
            ]

    def stop(self) -> None:
        """Give no more events to subscribers, which stay; does nothing where it is stopped."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    def subscribe(self, session_name: str) -> PodSubscription:
        """The events of a session's pods from now on, beginning with how each of them is.

        Raises:
            SubscriptionError: the session has a subscriber.
        """
        if session_name in self._subscriptions:
            raise SubscriptionError(
                f"session {session_name} has a subscriber already; unsubscribe it first"
            )
        subscription = PodSubscription(session_name, self._size)
        self._subscriptions[session_name] = subscription
        for event in self._latest.values():
            if event.session_name == session_name:
                subscription.put(event)
        return subscription

    def unsubscribe(self, session_name: str) -> None:
        """End a subscription; what is in its buffer can still be read.

        Raises:
            SubscriptionError: the session has no subscriber.
        """
        subscription = self._subscriptions.pop(session_name, None)
        if subscription is None:
            raise SubscriptionError(f"session {session_name} has no subscriber; subscribe it first")
        subscription.close()

    def nodes_of(self, session_names: Container[str]) -> set[str]:
        """The names of the nodes that have pods of these sessions."""
        found = (event for event in self._latest.values() if event.session_name in session_names)
        return {event.pod.spec.node_name for event in found}

    async def _probe(self) -> None:
        """Raise what the server answers to a list or a watch that it refuses."""
        selection = {"labels": SESSION_LABEL}
        listed = await self._client.list(POD, self._namespace, limit=1, **selection)
        watched = self._client.watch_batches(
            POD,
            self._namespace,
            resource_version=listed.resource_version,
            timeout_s=1.0,
            **selection,
        )
        try:
            async with self._clock.timeout(_PROBE_S), aclosing(watched):
                async for _ in watched:
                    return
        except TimeoutError:
            return  # it watches, and there is no change

    def _publish(self, pod: Pod, *, deleted: bool = False) -> None:
        """Diagnose a pod and give the event to the subscriber of its session, if there is one."""
        labels = pod.metadata.labels
        session = labels.get(SESSION_LABEL, "")
        if not session or not self._tasks:
            return
        before = self._latest.get(pod.key)
        if before is not None and before.pod.metadata.uid != pod.metadata.uid:
            self._publish(before.pod, deleted=True)
            before = None
        diagnosis = diagnose(pod, self._clock.now(), deleted=deleted)
        if before is not None and before.health.is_terminal:
            diagnosis = before.diagnosis
        event = PodWatchEvent(session, labels.get(COMPONENT_LABEL, ""), pod, diagnosis, deleted)
        if deleted:
            self._latest.pop(pod.key, None)
        else:
            self._latest[pod.key] = event
            if diagnosis.recheck_at is not None:
                self._rechecks_changed.set()
        subscription = self._subscriptions.get(session)
        if subscription is not None:
            subscription.put(event)

    def _delete(self, pod: Pod) -> None:
        self._publish(pod, deleted=True)

    async def _find_deleted(self, informer: Informer[Pod]) -> None:
        """Publish the end of pods that went away while the watcher was stopped."""
        await informer.synced.wait()
        for event in list(self._latest.values()):
            if informer.store.get(event.pod.key) is None:
                self._delete(event.pod)

    async def _recheck(self) -> None:
        """Publish pods again whose diagnosis changes by time alone."""
        while True:
            self._rechecks_changed.clear()
            now = self._clock.now()
            due = [e.diagnosis.recheck_at for e in self._latest.values() if e.diagnosis.recheck_at]
            left_s = (min(due) - now).total_seconds() if due else None
            try:
                async with self._clock.timeout(left_s):
                    await self._rechecks_changed.wait()
            except TimeoutError:
                self._publish_due()

    def _publish_due(self) -> None:
        now = self._clock.now()
        for event in list(self._latest.values()):
            at = event.diagnosis.recheck_at
            if at is not None and at <= now:
                self._publish(event.pod)
