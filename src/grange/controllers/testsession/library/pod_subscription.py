"""The events of the pods of one session, and the buffer between the watcher and their reader."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

from grange.api.kinds.pod import Pod
from grange.controllers.testsession.health import Health, PodDiagnosis


@dataclass(frozen=True, slots=True)
class PodWatchEvent:
    """A change of a session's pod.

    Attributes:
        session_name: from the pod's label.
        component_name: from the pod's label; empty where it has none.
        pod: as it is, or was last.
        diagnosis: its health and why.
        deleted: the pod is gone.
    """

    session_name: str
    component_name: str
    pod: Pod
    diagnosis: PodDiagnosis
    deleted: bool = False

    @property
    def pod_ip(self) -> str:
        """The pod's address; empty as long as it has none."""
        return self.pod.status.pod_ip

    @property
    def health(self) -> Health:
        """The health of the pod."""
        return self.diagnosis.health

    @property
    def error(self) -> str:
        """Why the health is what it is; empty where there is nothing to explain."""
        return self.diagnosis.message


class PodSubscription:
    """The events of one session, in order: ``async for event in subscription``.

    One reader. It ends when it was closed and everything in the buffer has been read.
    """

    def __init__(self, session: str, size: int) -> None:
        self.session = session
        self._size = size
        self._events: deque[PodWatchEvent] = deque()
        self._changed = asyncio.Event()
        self._closed = False

    def __len__(self) -> int:
        return len(self._events)

    def __bool__(self) -> bool:
        return True  # an empty subscription is still one

    def __aiter__(self) -> AsyncIterator[PodWatchEvent]:
        return self

    async def __anext__(self) -> PodWatchEvent:
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._events.popleft()

    def put(self, event: PodWatchEvent) -> None:
        """Append an event; never waits."""
        if self._closed:
            return
        if len(self._events) >= self._size:
            self._drop_replaced(event)
        self._events.append(event)
        self._changed.set()

    def close(self) -> None:
        """Accept no more events."""
        self._closed = True
        self._changed.set()

    def _drop_replaced(self, latest: PodWatchEvent) -> None:
        """Drop the oldest event that a later one of its pod makes useless, if there is one."""
        later = {latest.pod.metadata.uid}
        drop = -1
        for index in range(len(self._events) - 1, -1, -1):
            uid = self._events[index].pod.metadata.uid
            if uid in later:
                drop = index
            later.add(uid)
        if drop >= 0:
            del self._events[drop]
