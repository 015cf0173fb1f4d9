"""What an executor knows of the session that it runs. Pure.

The session's status is kept here and nowhere else; the decisions are those of the kind's controller.
Machines were counted before, so the session has no pools here, and asks for no lease.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec.structs import replace

from grange.api import timestamps
from grange.api.kinds import testsession
from grange.api.kinds.pod import Pod
from grange.api.kinds.testsession import (
    ATTEMPT_LABEL,
    SESSION_UID_LABEL,
    SessionComponent,
    SessionEvent,
    SessionRetries,
    SessionTimeouts,
    TestSession,
    TestSessionSpec,
    TestSessionStatus,
)
from grange.controllers.testsession.component_pods import component_pods, pool_of
from grange.controllers.testsession.evidence_collector import CollectedEvidence
from grange.controllers.testsession.health import diagnose
from grange.controllers.testsession.library.pod_subscription import PodWatchEvent
from grange.controllers.testsession.session_events import events_since
from grange.controllers.testsession.session_inputs import (
    DiagnosedPod,
    SessionDecision,
    SessionInputs,
)

_AT_WORK = frozenset({testsession.PROVISIONING, testsession.RUNNING})
_BEFORE_RUN = frozenset({"", testsession.QUEUED, testsession.ACCEPTED, testsession.PROVISIONING})


class ExecutionState:
    """One session that runs.

    Args:
        session: as it was scheduled; its UID is its own.
        default_pools: by role.
        started: when it got its executor.
        timeout_s: how long provisioning and the run may take together; None: no limit.

    Attributes:
        session: with its status.
        pools: of its pods, by their names.
        evidence: what was collected in this attempt.
        logs: output by component.
        files_removed: whether no pod of this attempt can start any more.
        confirmed: whether the server has no pod of it.
        is_abandoned: pods were left behind that did not go away in time.
    """

    def __init__(
        self,
        session: TestSession,
        default_pools: Mapping[str, str],
        *,
        started: datetime,
        timeout_s: float | None = None,
    ) -> None:
        pods = component_pods(session)
        self.pools = {pod.name: pool_of(pod, default_pools) for pod in pods}
        spec = _without_pools(session.spec)
        self.session = replace(session, spec=spec, status=TestSessionStatus())
        self._timeouts = spec.timeouts
        self._started, self._timeout_s = started, timeout_s
        self._pods: dict[str, DiagnosedPod] = {}  # by UID
        self._ended: dict[str, DiagnosedPod] = {}  # pods that are gone after they had ended, by UID
        self._gone: set[str] = set()  # by UID
        self._lost: set[tuple[str, str]] = set()  # attempt and name of pods that are gone
        self._refused: dict[str, str] = {}
        self.evidence: CollectedEvidence | None = None
        self.logs: dict[str, bytes] = {}
        self.files_removed = False
        self.confirmed = False
        self.is_abandoned = False

    @property
    def uid(self) -> str:
        """Of the session; its pods have it as a label."""
        return self.session.metadata.uid

    @property
    def status(self) -> TestSessionStatus:
        """Of the session."""
        return self.session.status

    @property
    def is_over(self) -> bool:
        """Whether nothing more is done about the session."""
        return self.is_abandoned or self.status.phase in testsession.FINAL_PHASES

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The pods that are there."""
        return tuple(item.pod for item in self._pods.values())

    def observe(self, event: PodWatchEvent) -> None:
        """Take note of a change of a pod; those of others are ignored."""
        pod = event.pod
        uid = pod.metadata.uid
        if pod.metadata.labels.get(SESSION_UID_LABEL) != self.uid:
            return
        item = DiagnosedPod(pod, event.diagnosis)
        if event.deleted:
            self._gone.add(uid)
            self._lost.add((pod.metadata.labels.get(ATTEMPT_LABEL, ""), pod.metadata.name))
            self._pods.pop(uid, None)
            if item.health.is_terminal and not event.diagnosis.is_infrastructure:
                self._ended[uid] = item
        elif uid not in self._gone:
            self._pods[uid] = item

    def add(self, pods: Iterable[Pod], now: datetime) -> None:
        """Take note of pods that the server has answered, where no event was faster."""
        for pod in pods:
            uid = pod.metadata.uid
            if uid not in self._gone and uid not in self._pods:
                self._pods[uid] = DiagnosedPod(pod, diagnose(pod, now))

    def keep_only(self, pods: Iterable[Pod], now: datetime) -> None:
        """The server has these pods of the session and no others."""
        listed = {pod.metadata.uid: pod for pod in pods}
        self._gone |= self._pods.keys() - listed.keys()
        self._gone -= listed.keys()
        self._pods = {uid: item for uid, item in self._pods.items() if uid in listed}
        self.add(listed.values(), now)

    def refuse(self, refused: Mapping[str, str]) -> None:
        """Pods cannot be created as they are: why, by name."""
        self._refused.update(refused)

    def cancel(self) -> None:
        """The session is to end, without evidence."""
        self.session = replace(self.session, spec=replace(self.session.spec, cancel="Now"))

    def inputs(self, now: datetime, *, link_mounts: bool) -> SessionInputs:
        """What the next decision is made from."""
        spec = replace(self.session.spec, timeouts=self._limited(now))
        if self.left_s(now) <= 0:
            spec = replace(spec, retries=SessionRetries(infrastructure=0, failure=0))
        pods, current = dict(self._pods), str(self.status.attempt)
        if self.status.phase in _AT_WORK:
            pods |= self._ended
        return SessionInputs(
            replace(self.session, spec=spec),
            now,
            pods=tuple(pods.values()),
            refused=self._refused,
            gone=frozenset(name for attempt, name in self._lost if attempt == current),
            evidence=self.evidence,
            collects=True,
            confirmed=self.confirmed,
            link_mounts=link_mounts,
        )

    def accept(self, decision: SessionDecision) -> tuple[SessionEvent, ...]:
        """Store the status that was decided; the events that are new in it."""
        before = self.status
        self.session = replace(self.session, status=decision.status)
        if decision.status.attempt != before.attempt:
            self._refused, self._ended = {}, {}
            self.evidence, self.files_removed, self.confirmed = None, False, False
        return events_since(before.events, decision.status.events)

    def left_s(self, at: datetime) -> float:
        """Seconds that provisioning and the run have left at this time; may be negative."""
        if self._timeout_s is None:
            return float("inf")
        return self._timeout_s - (at - self._started).total_seconds()

    def _limited(self, now: datetime) -> SessionTimeouts:
        """The session's deadlines, no later than the one of the controller."""
        if self._timeout_s is None:
            return self._timeouts
        since = timestamps.parse_or(self.status.phase_time, now)
        left = max(0.0, round(self.left_s(since), 3))
        field = "provision_seconds" if self.status.phase in _BEFORE_RUN else "run_seconds"
        if left >= getattr(self._timeouts, field):
            return self._timeouts
        whole = int(left) if left == int(left) else left
        return replace(self._timeouts, **{field: whole})


def _without_pools(spec: TestSessionSpec) -> TestSessionSpec:
    def plain(component: SessionComponent) -> SessionComponent:
        return replace(component, pool="")

    return replace(
        spec,
        driver=plain(spec.driver) if spec.driver is not None else None,
        servers=tuple(map(plain, spec.servers)),
        clients=tuple(map(plain, spec.clients)),
        roles={role: tuple(map(plain, found)) for role, found in spec.roles.items()},
    )
