"""Follows the logs of all containers of one session while its pods come and go.

Lines go to a sink as they arrive, so that they are kept whatever happens to the pods. A stream that
breaks off is read again from the start without what was read before: a container's log only grows.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass

from grange.api.kinds import POD
from grange.api.kinds.testsession import ATTEMPT_LABEL, SESSION_UID_LABEL
from grange.api.meta import Document
from grange.api.status import ApiError, NotFound
from grange.base.tasks import Nursery
from grange.cli import log_stream, watched_object
from grange.cli.session import ApiSession

_RETRY_S = 0.5


@dataclass(frozen=True, slots=True)
class ContainerLog:
    """A container whose log is read.

    Attributes:
        component: the pod's name without the session's.
        pod: the pod's name.
        container: the container's name.
        attempt: of the session, from 0.
        only: whether the pod has no other container.
    """

    component: str
    pod: str
    container: str
    attempt: int = 0
    only: bool = True

    @property
    def label(self) -> str:
        """The component, with the container where it has several."""
        return self.component if self.only else f"{self.component}/{self.container}"


Selected = Callable[[ContainerLog], bool]
Sink = Callable[[ContainerLog, Sequence[bytes]], None]


class ComponentLogs:
    """The logs of one session.

    Args:
        opened: the connection.
        session: its document.
        sink: gets the lines of each container in their order, each with its end.
        query: of the log requests.
        selected: which containers; all by default.

    Attributes:
        lost: what could not be read, and why.
    """

    def __init__(
        self,
        opened: ApiSession,
        session: Document,
        sink: Sink,
        *,
        query: Mapping[str, str] | None = None,
        selected: Selected = lambda source: True,
    ) -> None:
        self._opened = opened
        self._session = session
        self._sink = sink
        self._query = dict(query or {})
        self._selected = selected
        self._started: set[tuple[str, str, int]] = set()  # UID, container and its restarts
        self.lost: list[str] = []

    async def follow(self, readers: Nursery) -> None:
        """Start a reader for each container that starts, until cancelled.

        Args:
            readers: of the readers, which end with their containers.
        """
        meta = self._session["metadata"]
        query = {"labelSelector": f"{SESSION_UID_LABEL}={meta['uid']}"}
        while True:
            with suppress(*watched_object.TRANSIENT):  # a watch that breaks off is ordinary
                async with aclosing(
                    watched_object.watched(self._opened, POD, meta["namespace"], query)
                ) as seen:
                    async for items in seen:
                        for pod in items.values():
                            self.start(readers, pod)
            await self._opened.env.clock.sleep(_RETRY_S)

    def start(self, readers: Nursery, pod: Document) -> None:
        """Start readers for the containers of a pod that have started and have none yet."""
        for source, restarts in sources(self._session, pod):
            key = (str(pod["metadata"]["uid"]), source.container, restarts)
            if key not in self._started and self._selected(source):
                self._started.add(key)
                readers.start(self._read(source))

    async def print_once(self, pods: Sequence[Document]) -> int:
        """Read what there is, pod after pod; the number of containers that were read."""
        count = 0
        for pod in pods:
            for source, _ in sources(self._session, pod):
                if self._selected(source):
                    await self._read(source, follow=False)
                    count += 1
        return count

    async def _read(self, source: ContainerLog, *, follow: bool = True) -> None:
        seen = 0  # bytes that the sink has
        query = {**self._query, "container": source.container}
        if follow:
            query["follow"] = "true"
        while True:
            skip = seen
            try:
                async with aclosing(
                    log_stream.lines(self._opened, self._namespace, source.pod, query)
                ) as found:
                    async for lines in found:
                        fresh, skip = _after(lines, skip)
                        seen += sum(map(len, fresh))
                        if fresh:
                            self._sink(source, fresh)
            except NotFound as error:
                if not seen:
                    self.lost.append(f"{source.label}: {error.message}")
            except watched_object.TRANSIENT:
                await self._opened.env.clock.sleep(_RETRY_S)
                continue
            except ApiError as error:
                self.lost.append(f"{source.label}: {error.message}")
            return

    @property
    def _namespace(self) -> str:
        return str(self._session["metadata"].get("namespace") or "default")


def sources(session: Document, pod: Document) -> list[tuple[ContainerLog, int]]:
    """The containers of a pod that have started, with how often each was restarted."""
    meta, status = pod["metadata"], pod.get("status") or {}
    statuses = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    spec = pod.get("spec") or {}
    only = len(spec.get("containers") or ()) + len(spec.get("initContainers") or ()) <= 1
    attempt = str((meta.get("labels") or {}).get(ATTEMPT_LABEL) or "0")
    found = []
    for item in statuses:
        state = item.get("state") or {}
        restarts = int(item.get("restartCount") or 0)
        if restarts or state.get("running") is not None or state.get("terminated") is not None:
            source = ContainerLog(
                component=component_of(session, str(meta["name"])),
                pod=str(meta["name"]),
                container=str(item["name"]),
                attempt=int(attempt) if attempt.isdecimal() else 0,
                only=only,
            )
            found.append((source, restarts))
    return found


def component_of(session: Document, pod: str) -> str:
    """The pod's name without the session's: the component, with its index where it has several."""
    return pod.removeprefix(f"{session['metadata']['name']}-")


def _after(lines: Sequence[bytes], skip: int) -> tuple[list[bytes], int]:
    """The lines without the first ``skip`` bytes, and how many of these are still to come."""
    fresh = []
    for line in lines:
        if skip >= len(line):
            skip -= len(line)
        else:
            fresh.append(line[skip:])
            skip = 0
    return fresh, skip
