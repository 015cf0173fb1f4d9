"""Runs the collection of evidence apart from reconciles, one task for each attempt."""

from collections.abc import Callable, Mapping
from datetime import timedelta

from grange.api import timestamps
from grange.api.kinds.pod import FINISHED, Pod
from grange.api.kinds.testsession import COLLECTING, SessionEvidenceStatus, TestSession
from grange.api.meta import ObjectKey
from grange.base.clock import Clock
from grange.base.errors import GrangeError
from grange.base.log import Logger
from grange.base.tasks import Child, Nursery
from grange.controllers.testsession.evidence_collector import CollectedEvidence, EvidenceCollector

_Attempt = tuple[str, int]
_STARTED = FINISHED | {"Running"}


class EvidenceTasks:
    """Asks the collector, and remembers what it answered.

    Args:
        collector: keeps evidence; None where it is not kept.
        clock: time.
        log: for what the collector does not handle.
        enqueue: wakes a session.
    """

    def __init__(
        self,
        collector: EvidenceCollector | None,
        clock: Clock,
        log: Logger,
        enqueue: Callable[[ObjectKey], None],
    ) -> None:
        self._collector = collector
        self._clock = clock
        self._log = log
        self._enqueue = enqueue
        self._nursery: Nursery | None = None
        self._tasks: dict[_Attempt, Child[None]] = {}
        self._collected: dict[_Attempt, CollectedEvidence] = {}
        self._followed: dict[str, set[str]] = {}  # UIDs of pods by UID of the session

    @property
    def collects(self) -> bool:
        """Whether anybody keeps evidence."""
        return self._collector is not None

    def open(self, nursery: Nursery) -> None:
        """Tasks are started in this nursery from now on."""
        self._nursery = nursery

    def environment(self, session: TestSession) -> Mapping[str, str]:
        """Variables that the collector has for the session's containers."""
        return self._collector.environment(session) if self._collector is not None else {}

    def follow(self, session: TestSession, pods: list[Pod]) -> None:
        """Report pods that have started, each once."""
        if self._collector is None:
            return
        followed = self._followed.setdefault(session.metadata.uid, set())
        for pod in pods:
            if pod.status.phase in _STARTED and pod.metadata.uid not in followed:
                followed.add(pod.metadata.uid)
                self._collector.start(session, pod)

    def collected(self, session: TestSession) -> CollectedEvidence | None:
        """What was collected of the session's attempt; None as long as that goes on."""
        return self._collected.get((session.metadata.uid, session.status.attempt))

    def collect(self, session: TestSession) -> None:
        """Begin to collect, unless that was begun."""
        attempt = session.metadata.uid, session.status.attempt
        if self._nursery is None or attempt in self._tasks or attempt in self._collected:
            return
        self._tasks[attempt] = self._nursery.start(
            self._collect(session, attempt), name=f"evidence of {session.key}"
        )

    def settle(self, session: TestSession) -> None:
        """Stop what is still collected of a session that does not wait for it any more."""
        if session.status.phase != COLLECTING:
            self._stop(session)

    def forget(self, session: TestSession) -> None:
        """The session is gone."""
        self._stop(session)
        self._followed.pop(session.metadata.uid, None)
        if self._collector is not None:
            self._collector.forget(session)

    def _stop(self, session: TestSession) -> None:
        uid = session.metadata.uid
        for attempt in [one for one in self._tasks if one[0] == uid]:
            self._tasks.pop(attempt).cancel()
        for attempt in [one for one in self._collected if one[0] == uid]:
            del self._collected[attempt]

    async def _collect(self, session: TestSession, attempt: _Attempt) -> None:
        if self._collector is None:
            return
        since = timestamps.parse_or(session.status.phase_time, self._clock.now())
        limit = session.spec.timeouts.collect_seconds
        deadline = since + timedelta(seconds=limit)
        try:
            self._collected[attempt] = await self._collector.collect(session, deadline)
        except GrangeError as error:
            self._fail(attempt, str(error))
        except Exception as error:  # noqa: BLE001  supervision point: evidence costs no verdict
            self._log.error("evidence not collected", session=str(session.key), error=error)
            self._fail(attempt, f"{type(error).__name__}: {error}")
        self._tasks.pop(attempt, None)
        self._enqueue(session.key)

    def _fail(self, attempt: _Attempt, why: str) -> None:
        failure = f"evidence was not collected: {why}"
        status = SessionEvidenceStatus(message=failure)
        self._collected[attempt] = CollectedEvidence(status, failure=failure)
