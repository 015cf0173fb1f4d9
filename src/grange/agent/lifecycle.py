"""What to do next for a pod: pure decisions over what is known of its containers.

``ManagedContainer`` is what is known of one container; its methods take note of what happened, through the
table of ``transitions``. ``decide`` reads the containers and answers with actions and with the time at which
to ask again. The worker performs the actions and feeds the outcome back; it decides nothing. Times
to wait for come from a clock that does not step; only what people read is wall time.
"""

import signal
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum

from grange.agent import transitions
from grange.agent.config import Timing
from grange.agent.container_runtime import ContainerID, Run
from grange.agent.probe_thresholds import Record
from grange.agent.transitions import ContainerEvent, ContainerPhase
from grange.api import stop_signals
from grange.api.kinds.pod import Container, Pod, ResourceRequirements
from grange.api.meta import controller_of
from grange.api.restart_policies import restarts
from grange.base import statemachine

_EVICTION_GRACE_S = 1.0  # as a kubelet's where a threshold or a limit is hard
_AFTER_HOOK_S = 2.0  # between SIGTERM and SIGKILL when a preStop hook has used up the grace


class Role(Enum):
    """What a container is in its pod."""

    INIT = "init"
    SIDECAR = "sidecar"
    MAIN = "main"
    EPHEMERAL = "ephemeral"


class PodTermination(Enum):
    """Why a whole pod is brought to its end."""

    NONE = ""
    DELETED = "deleted"
    VANISHED = "vanished"
    DEADLINE = "DeadlineExceeded"
    EVICTED = "Evicted"
    FINISHED = "finished"


@dataclass(slots=True)
class ManagedContainer:
    """What is known of one container.

    Attributes:
        spec: as the pod has it, with the resources that the node has allocated.
        role: what it is in the pod.
        policy: the restart policy that applies to it: its own, or by its role in the pod.
        phase: where it is in its life.
        attempt: number of the attempt that runs or ran last, or of the first one.
        latest: the newest run; None before the first.
        previous: the run before it.
        crashes: ends in a row, without a long good run between them.
        tries: failed tries in a row to create it.
        due: when it may be created (again); None for at once.
        reason, message: why it is blocked, or why it is being restarted.
        stopped_at: when it was asked to stop.
        unhealthy: why a probe or a hook wants it restarted; empty for none.
        probe_grace_s: the grace of the probe that wants it restarted; None for the pod's.
        post_starting: its postStart hook has not come to its end.
        pre_stopping: its preStop hook runs; SIGTERM comes after it.
        started: its startup probe has passed, or there is none and it runs.
        ready: its readiness probe passes, or there is none and it is started.
        probes: what its probes found, by kind.
        applied: the resources with which it runs, or was started last.
        is_resizing: it is stopped to be started again with other resources.
        interrupted: attempts that stops of the node ended and no status has counted yet.
    """

    spec: Container
    role: Role
    policy: str
    phase: ContainerPhase = ContainerPhase.WAITING
    attempt: int = 0
    latest: Run | None = None
    previous: Run | None = None
    crashes: int = 0
    tries: int = 0
    due: datetime | None = None
    reason: str = ""
    message: str = ""
    stopped_at: datetime | None = None
    unhealthy: str = ""
    probe_grace_s: float | None = None
    post_starting: bool = False
    pre_stopping: bool = False
    started: bool = False
    ready: bool = False
    probes: dict[str, Record] = field(default_factory=dict)
    applied: ResourceRequirements | None = None
    is_resizing: bool = False
    interrupted: frozenset[int] = frozenset()

    @property
    def name(self) -> str:
        """The container's name."""
        return self.spec.name

    @property
    def stop_signal(self) -> int:
        """What asks its program to end: SIGTERM, or the ``lifecycle.stopSignal`` that it names."""
        named = self.spec.lifecycle.stop_signal if self.spec.lifecycle is not None else ""
        return stop_signals.number_of(named)

    @property
    def succeeded(self) -> bool:
        """Whether it is done and its last run ended well."""
        return (
            self.phase is ContainerPhase.DONE
            and self.latest is not None
            and self.latest.exit_code == 0
        )

    @property
    def failed(self) -> bool:
        """Whether it is done and did not end well; one that never ran counts as failed."""
        return self.phase is ContainerPhase.DONE and not self.succeeded

    def grace_of(self, spec_grace_s: float) -> float:
        """Seconds between SIGTERM and SIGKILL when this container alone is restarted."""
        return spec_grace_s if self.probe_grace_s is None else self.probe_grace_s

    def on_created(self, run: Run) -> None:
        """A new run began; it may have ended already."""
        self.phase = statemachine.advance(transitions.CONTAINER, self.phase, ContainerEvent.CREATED)
        self.previous, self.latest = self.latest, run
        self.attempt = run.id.attempt
        self.tries = 0
        self.due = None
        self.reason = self.message = self.unhealthy = ""
        self.probe_grace_s = None
        self.stopped_at = None
        self.started = self.ready = False
        self.probes.clear()
        self.applied = self.spec.resources
        self.is_resizing = False

    def on_resize(self, why: str) -> None:
        """It is to be stopped and started again with the resources that are allocated now."""
        self.is_resizing = True
        self.unhealthy = why

    def on_awaited(self, reason: str, message: str, due: datetime) -> None:
        """It cannot be created yet, and it is known when to look again."""
        self.phase = statemachine.advance(transitions.CONTAINER, self.phase, ContainerEvent.REFUSED)
        self.reason, self.message, self.due = reason, message, due

    def on_refused(
        self, reason: str, message: str, now: datetime, timing: Timing, *, lasting: bool = False
    ) -> None:
        """It could not be created; it will be tried again, rarely if the cause is a lasting one."""
        self.phase = statemachine.advance(transitions.CONTAINER, self.phase, ContainerEvent.REFUSED)
        self.tries += 1
        self.reason, self.message = reason, message
        wait_s = timing.retry_lasting_s if lasting else timing.retries.delay(self.tries)
        self.due = now + timedelta(seconds=wait_s)

    def on_stop(self, now: datetime) -> None:
        """It was sent SIGTERM."""
        self.phase = statemachine.advance(transitions.CONTAINER, self.phase, ContainerEvent.STOP)
        self.stopped_at = now
        self.ready = False

    def on_pre_stopped(self, now: datetime, grace_s: float) -> None:
        """Its preStop hook is over and it was sent SIGTERM: it gets two seconds of its grace at least."""
        self.pre_stopping = False
        earliest = now + timedelta(seconds=min(_AFTER_HOOK_S, grace_s) - grace_s)
        self.stopped_at = max(self.stopped_at or now, earliest)

    def on_kill(self) -> None:
        """It was sent SIGKILL."""
        self.phase = statemachine.advance(transitions.CONTAINER, self.phase, ContainerEvent.KILL)
        self.ready = False
        self.pre_stopping = False

    def on_abandoned(self) -> None:
        """It is not running and never will again."""
        self.phase = statemachine.advance(
            transitions.CONTAINER, self.phase, ContainerEvent.ABANDONED
        )

    @property
    def interrupted_restarts(self) -> int:
        """How many of its restarts followed a stop of the node, without those that a status counts."""
        newest = self.attempt if self.latest is None else self.latest.id.attempt
        return sum(attempt < newest for attempt in self.interrupted)

    def on_ended(
        self, run: Run, now: datetime, timing: Timing, *, pod_ends: bool, cause: str = ""
    ) -> None:
        """Its newest run ended.

        Args:
            run: with its end.
            now: the time from which the back-off counts.
            timing: of the back-off.
            pod_ends: whether the whole pod is coming to its end: nothing is restarted then.
            cause: why it ended, where a restart will meet the same; for the message.
        """
        self.latest = run
        self.started = self.ready = False
        self.post_starting = self.pre_stopping = False
        self.probes.clear()
        self.stopped_at = None
        restarted = self.is_resizing or restarts(
            self.policy, run.id.attempt, run.exit_code or 0, self.spec.restart_policy_rules
        )
        if pod_ends or not restarted:
            self.phase = statemachine.advance(
                transitions.CONTAINER, self.phase, ContainerEvent.ENDED
            )
            return
        self.phase = statemachine.advance(
            transitions.CONTAINER, self.phase, ContainerEvent.ENDED_AGAIN
        )
        if self.is_resizing:
            self.due, self.reason, self.message = None, "", ""
            self.attempt = run.id.attempt + 1
            return
        self._back_off(run, now, timing)
        self.message = "; ".join(filter(None, (self.message, cause)))

    def _back_off(self, run: Run, now: datetime, timing: Timing) -> None:
        ended = run.finished_at or now
        if (ended - run.started_at).total_seconds() >= timing.restart_backoff_reset_s:
            self.crashes = 0
        self.crashes += 1
        wait_s = timing.restarts.delay(self.crashes - 1)  # the first restart is at once
        self.due = now + timedelta(seconds=wait_s) if wait_s else None
        self.reason = "CrashLoopBackOff"
        self.message = f"back-off {wait_s:g}s restarting container {self.name}"
        self.attempt = run.id.attempt + 1


@dataclass(frozen=True, slots=True)
class Start:
    """Create the container's next run."""

    container: str


@dataclass(frozen=True, slots=True)
class Signal:
    """Send a signal to the container; SIGTERM begins its grace, SIGKILL ends it."""

    container: str
    number: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Abandon:
    """The container does not run and shall not any more."""

    container: str


@dataclass(frozen=True, slots=True)
class EndHook:
    """The container's preStop hook has used up the grace: give it up and go on to SIGTERM."""

    container: str


Action = Start | Signal | Abandon | EndHook


@dataclass(frozen=True, slots=True)
class LifecycleDecision:
    """What to do now.

    Attributes:
        actions: in this order.
        termination: why the pod is coming to its end, if it is.
        wake_at: when to decide again though nothing happens; None for not at all.
    """

    actions: tuple[Action, ...] = ()
    termination: PodTermination = PodTermination.NONE
    wake_at: datetime | None = None


def managed_containers(pod: Pod) -> list[ManagedContainer]:
    """A fresh state for every container: init containers and sidecars first, in their order.

    Of several with one name, which only a server without that rule has stored, the first counts.
    """
    policy = pod.spec.restart_policy or "Always"
    # An init container must succeed: a policy that restarts restarts it only until then.
    init_policy = policy if policy == "Never" else "OnFailure"
    inits = [
        ManagedContainer(item, Role.SIDECAR, "Always")
        if item.restart_policy == "Always"
        else ManagedContainer(item, Role.INIT, item.restart_policy or init_policy)
        for item in pod.spec.init_containers
    ]
    mains = [
        ManagedContainer(item, Role.MAIN, item.restart_policy or policy)
        for item in pod.spec.containers
    ]
    return _first_of_each_name(inits + mains + ephemeral_containers(pod))


def _first_of_each_name(containers: Iterable[ManagedContainer]) -> list[ManagedContainer]:
    found: dict[str, ManagedContainer] = {}
    for container in containers:
        found.setdefault(container.name, container)
    return [*found.values()]


def ephemeral_containers(pod: Pod, known: Collection[str] = ()) -> list[ManagedContainer]:
    """A fresh state for the containers that were added to the pod: they run once.

    Args:
        pod: the newest object.
        known: names of those to leave out.
    """
    added = [
        ManagedContainer(item, Role.EPHEMERAL, "Never")
        for item in pod.spec.ephemeral_containers
        if item.name not in known
    ]
    return _first_of_each_name(added)


def termination_of(
    pod: Pod,
    containers: Sequence[ManagedContainer],
    now: datetime,
    *,
    vanished: bool,
    evicted: bool,
    expired_at: datetime | None,
) -> PodTermination:
    """Why the pod must come to its end, if it must.

    Args:
        pod: the newest object.
        containers: its containers.
        now: wall time.
        vanished: the object is gone.
        evicted: the node needs what it uses.
        expired_at: when ``activeDeadlineSeconds`` is over; None for never.
    """
    if vanished:
        return PodTermination.VANISHED
    if pod.metadata.deletion_timestamp:
        return PodTermination.DELETED
    if evicted:
        return PodTermination.EVICTED
    if expired_at is not None and now >= expired_at:
        return PodTermination.DEADLINE
    mains = [container for container in containers if container.role is Role.MAIN]
    init_failed = any(container.role is Role.INIT and container.failed for container in containers)
    if init_failed or all(container.phase is ContainerPhase.DONE for container in mains):
        return PodTermination.FINISHED
    return PodTermination.NONE


def grace_of(
    pod: Pod,
    termination: PodTermination,
    timing: Timing,
    *,
    left_s: float | None = None,
    evicted: bool = False,
) -> float:
    """Seconds between SIGTERM and SIGKILL.

    Args:
        pod: the newest object.
        termination: why it ends.
        timing: of the agent.
        left_s: until ``deletionTimestamp``, when an agent found the pod being deleted: the one
            before it has begun the grace. None where this agent saw the deletion itself.
        evicted: the node needs what the pod uses, also when it was ending anyway.
    """
    grace = float(pod.spec.termination_grace_period_seconds)
    shortest = min(grace, timing.vanished_grace_s)
    if termination is PodTermination.VANISHED:
        return shortest
    if evicted:
        return min(grace, _EVICTION_GRACE_S)
    asked = pod.metadata.deletion_grace_period_seconds
    if termination is not PodTermination.DELETED or asked is None:
        return grace
    return float(asked) if left_s is None else min(float(asked), max(shortest, left_s))


def decide(
    containers: Sequence[ManagedContainer],
    now: datetime,
    *,
    termination: PodTermination,
    grace_s: float,
    spec_grace_s: float,
) -> LifecycleDecision:
    """What to do now for a pod with these containers.

    Args:
        containers: in the order of ``managed_containers``.
        now: wall time.
        termination: from ``termination_of``.
        grace_s: between SIGTERM and SIGKILL when the pod ends.
        spec_grace_s: the same when only one container is restarted.
    """
    if termination is PodTermination.NONE:
        actions, waits = _keep_running(containers, now, spec_grace_s)
    else:
        actions, waits = _bring_to_end(containers, now, grace_s)
    future = [wait for wait in waits if wait > now]
    return LifecycleDecision(tuple(actions), termination, min(future, default=None))


def _overdue(
    container: ManagedContainer, now: datetime, grace_s: float
) -> tuple[list[Action], list[datetime]]:
    """A container that was asked to stop: kill it when its grace is over."""
    limit = (container.stopped_at or now) + timedelta(seconds=grace_s)
    if now < limit:
        return [], [limit]
    if container.pre_stopping:
        return [EndHook(container.name)], []
    return [Signal(container.name, signal.SIGKILL, f"still running {grace_s:g}s after SIGTERM")], []


def _keep_running(
    containers: Sequence[ManagedContainer], now: datetime, grace_s: float
) -> tuple[list[Action], list[datetime]]:
    actions: list[Action] = []
    waits: list[datetime] = []
    may_start = True
    for container in containers:
        if container.phase is ContainerPhase.STOPPING:
            more, until = _overdue(container, now, container.grace_of(grace_s))
            actions += more
            waits += until
        elif container.phase is ContainerPhase.RUNNING and container.unhealthy:
            actions.append(Signal(container.name, signal.SIGTERM, container.unhealthy))
        elif container.phase in transitions.STARTABLE and (
            may_start or container.role is Role.EPHEMERAL
        ):
            if container.due is not None and now < container.due:
                waits.append(container.due)
            else:
                actions.append(Start(container.name))
                # As in Kubernetes: what comes after it starts when its hook is over.
                may_start = (
                    container.spec.lifecycle is None or container.spec.lifecycle.post_start is None
                )
        may_start = may_start and _lets_others_start(container)
    return actions, waits


def _lets_others_start(container: ManagedContainer) -> bool:
    """Whether the containers after this one may start: init containers go one by one."""
    match container.role:
        case Role.MAIN | Role.EPHEMERAL:
            return not container.post_starting
        case Role.SIDECAR:
            return container.started
        case Role.INIT:
            return container.succeeded


def _bring_to_end(
    containers: Sequence[ManagedContainer], now: datetime, grace_s: float
) -> tuple[list[Action], list[datetime]]:
    """Stop everything: sidecars last, because the others may still need them."""
    actions: list[Action] = []
    waits: list[datetime] = []
    others_alive = any(
        container.role is not Role.SIDECAR and container.phase in transitions.ALIVE
        for container in containers
    )
    for container in containers:
        if container.phase in transitions.STARTABLE:
            actions.append(Abandon(container.name))
        elif container.phase is ContainerPhase.STOPPING:
            more, until = _overdue(container, now, grace_s)
            actions += more
            waits += until
        elif container.phase is ContainerPhase.RUNNING and not (
            container.role is Role.SIDECAR and others_alive
        ):
            number = signal.SIGTERM if grace_s > 0 else signal.SIGKILL
            actions.append(Signal(container.name, number, "the pod ends"))
    return actions, waits


def is_replaced(pod: Pod) -> bool:
    """Whether a controller makes another pod in its place when its node interrupts it.

    Its containers are not restarted then, which would count against a limit of the controller. Pods
    that are restarted always go on as they are: it is sooner, and they keep their addresses.
    """
    return controller_of(pod.metadata) is not None and pod.spec.restart_policy != "Always"


def adopt(
    container: ManagedContainer,
    runs: Iterable[Run],
    now: datetime,
    timing: Timing,
    *,
    replaced: bool = False,
    counted: int = 0,
) -> None:
    """Let a fresh state take over what a runtime (or the last status) knows of the container.

    A run that ended while no agent ran counts as ended now; the restart comes at once, as after
    a first crash, because how often it crashed before is not known.

    Args:
        container: as its pod has it.
        runs: of it.
        now: wall time.
        timing: of the back-off.
        replaced: its pod ends, and is replaced, if its node interrupted it.
        counted: its restarts that the status of the pod counts.
    """
    known = sorted(runs, key=lambda run: run.id.attempt)
    if not known:
        return
    for run in known:
        container.previous, container.latest = container.latest, run
    attempts = (run.id.attempt for run in known if run.interrupted)
    container.interrupted = frozenset(item for item in attempts if item >= counted)
    newest = known[-1]
    container.attempt = newest.id.attempt
    if newest.running:
        container.phase = statemachine.advance(
            transitions.CONTAINER, container.phase, ContainerEvent.CREATED
        )
    else:
        container.on_ended(newest, now, timing, pod_ends=replaced and newest.interrupted)


def next_id(pod_uid: str, container: ManagedContainer) -> ContainerID:
    """The attempt that ``Start`` would begin."""
    return ContainerID(pod_uid, container.name, container.attempt)
