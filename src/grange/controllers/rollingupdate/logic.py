"""The next step of a rollout between two controllers. Pure.

Theory of operation. Replicas move from the *old* controller to the *new* one a step at a time, with
the same counting (``rollout_step``) and phases (``rollout_phase``) as the rollout of one controller's
template. Only pods of their controller's present template count as real. Rolling back is the same with
the sides swapped.

It is complete when the new controller has all its pods; the health of the last ones is not considered
(check U2). Then the old controller is deleted if it has no pods left, unless it is to be kept.

Source: the rolling update of the specification of replication, §4c.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from grange.alerts.alerts import HIGH, LOW
from grange.api import conditions, timestamps
from grange.api.kinds import pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.rollingupdate import Counts, RollingUpdate, RollingUpdateStatus
from grange.base.statemachine import advance
from grange.controllers.shared import (
    audit_records,
    availability,
    pod_identity,
    rollout_step,
)
from grange.controllers.shared.availability import Readiness
from grange.controllers.shared.event_reasons import Reason
from grange.controllers.shared.rollout_phase import ROLLOUT, SETTLED, RolloutEvent, RolloutPhase
from grange.controllers.shared.rollout_step import Goal, Side, Verdict
from grange.reconcile.condition_alerts import ConditionAlert

OVER = frozenset({RolloutPhase.REFUSED, *SETTLED})
"""Phases in which a rollout leaves its controllers alone, for good."""


@dataclass(frozen=True, slots=True)
class PodCounts:
    """The pods of one controller, by what is known of them.

    Attributes:
        desired: replicas of the controller.
        current: pods that are neither finished nor terminating.
        real: those of them that have the template of new pods.
        healthy: real ones that are available.
        unhealthy: real ones that are not ready.
        unknown: real ones without a current status, and missing pods.
        message: of a pod that is not available; empty for none.
    """

    desired: int = 0
    current: int = 0
    real: int = 0
    healthy: int = 0
    unhealthy: int = 0
    unknown: int = 0
    message: str = ""


def count_pods(
    controller: ReplicationController,
    active: Sequence[Pod],
    down: Container[str],
    now: datetime,
    readiness: Readiness | None = None,
    sure: Container[str] | None = None,
) -> PodCounts:
    """Count the active pods of a controller; only ``sure`` ones may count as available, if given."""
    template = pod_identity.template_hash(
        pod_identity.sources(controller)[0]
    )  # not one that went back
    real = [pod for pod in active if pod_identity.is_of(pod, template)]
    available = availability.observe(controller, real, down, now, readiness).available
    # Deletions that are sent and not certain may arrive at any time: their pods do not count.
    going = {item.uid for item in controller.status.pending_deletions}
    going.update(pod.metadata.uid for pod in active if pods.is_disruption_target(pod))
    healthy = sum(uid not in going and (sure is None or uid in sure) for uid in available)
    unhealthy = 0
    for pod in real:
        ready = pods.condition(pod, "Ready")
        if pod.spec.node_name not in down and ready is not None and ready.status == "False":
            unhealthy += 1
    desired = max(0, controller.spec.replicas)
    missing = max(0, desired - len(active))
    unknown = len(real) - healthy - unhealthy + missing
    message = availability.failure_message(pod for pod in real if pod.metadata.uid not in available)
    return PodCounts(desired, len(active), len(real), healthy, unhealthy, unknown, message)


@dataclass(frozen=True, slots=True)
class UpdateInputs:
    """Everything that a decision depends on.

    Attributes:
        update: the rollout.
        old: its old controller; None if there is none.
        new: its new controller; None if it does not exist.
        old_pods: of the old one.
        new_pods: of the new one.
        rivals: names of earlier rollouts of either controller that have not ended.
        now: wall time.
    """

    update: RollingUpdate
    old: ReplicationController | None
    new: ReplicationController | None
    old_pods: PodCounts
    new_pods: PodCounts
    rivals: Sequence[str]
    now: datetime


@dataclass(frozen=True, slots=True)
class Decision:
    """What to write, and what to do next.

    Attributes:
        status: to be stored first; without conditions.
        message: of its conditions.
        split: the counts to give the controllers; None to leave them.
        delete_old: the old controller is empty and no longer needed.
        events: to record.
        wait_s: seconds until something is due without an event; None for nothing.
    """

    status: RollingUpdateStatus
    message: str
    split: Counts | None = None
    delete_old: bool = False
    events: tuple[tuple[Reason, str], ...] = ()
    wait_s: float | None = None


def _side(seen: PodCounts) -> Side:
    """The side of a controller, without the broken pods that it removes anyway."""
    going = max(0, seen.current - seen.desired)
    return Side(seen.desired, seen.healthy, broken=max(0, seen.unhealthy - going))


def decide(facts: UpdateInputs) -> Decision:
    """One step of a rollout between two controllers."""
    return _Step(facts).decide()


class _Step:
    """The working state of one decision, used once."""

    def __init__(self, facts: UpdateInputs) -> None:
        self.facts = facts
        self.spec = facts.update.spec
        phase = facts.update.status.phase or RolloutPhase.PENDING.value
        self.status = replace(
            facts.update.status,
            phase=phase,
            observed_generation=facts.update.metadata.generation,
        )
        self.here = Counts(facts.old_pods.desired, facts.new_pods.desired)
        self.events: list[tuple[Reason, str]] = []

    @property
    def phase(self) -> RolloutPhase:
        return RolloutPhase(self.status.phase)

    def _advance(self, event: RolloutEvent) -> None:
        self.status = replace(self.status, phase=advance(ROLLOUT, self.phase, event).value)

    def _now(self) -> str:
        return timestamps.rfc3339(self.facts.now)

    def decide(self) -> Decision:
        """Decide; called once."""
        if self.phase is RolloutPhase.PENDING:
            reason = self._begin()
            if reason:
                return Decision(self.status, reason, events=tuple(self.events))
        if self.phase in OVER:
            return Decision(self.status, self._message())
        if self.facts.new is None or self.facts.new.metadata.uid != self.status.new_uid:
            return self._give_up(f"controller {self.spec.new} is gone: nothing is moved")
        if self.facts.update.metadata.generation != self.facts.update.status.observed_generation:
            self.status = replace(self.status, mark=self._score(), progressed_at=self._now())
            if self.phase is RolloutPhase.FAILED:
                self._advance(RolloutEvent.CHANGED)
        self._turn()
        self._progress()
        split = None if self.phase in {RolloutPhase.PAUSED, *OVER} else self._split()
        delete_old = self._finish(split)
        if split == self.here:
            split = None
        self.status = replace(self.status, replicas=split or self.here)
        if self.phase in {RolloutPhase.PROGRESSING, RolloutPhase.WAITING, RolloutPhase.COMPLETE}:
            self.status = replace(self.status, message="")
        return Decision(
            self.status,
            self._message(),
            split=split,
            delete_old=delete_old,
            events=tuple(self.events),
            wait_s=self._remaining_s(),
        )

    def _give_up(self, why: str) -> Decision:
        """The new controller is gone: the rollout fails after its deadline."""
        if self.phase is RolloutPhase.PAUSED and not self.spec.paused:
            self._advance(RolloutEvent.RESUMED)
            self.status = replace(self.status, progressed_at=self._now())
        if self._remaining_s() == 0.0:
            self._advance(RolloutEvent.LATE)
            self.events.append((Reason.ROLLOUT_FAILED, why))
        return Decision(self.status, why, events=tuple(self.events), wait_s=self._remaining_s())

    # --- the beginning ------------------------------------------------------------------------

    def _begin(self) -> str:
        """Begin, or return why not."""
        spec, old, new = self.spec, self.facts.old, self.facts.new
        if self.facts.rivals:
            rivals = ", ".join(self.facts.rivals)
            return self._refuse(f"{rivals} already moves replicas of {spec.old or spec.new}")
        if spec.old == spec.new:  # our own server takes none; others know of no such rule
            return self._refuse("spec.new must differ from spec.old: it takes two controllers")
        if new is None or (spec.old and old is None):
            missing = spec.new if new is None else spec.old
            return f"waits for controller {missing}, which is not there"
        counts = self.here
        if spec.starting_replicas is not None and spec.starting_replicas != counts:
            wanted = spec.starting_replicas
            return self._refuse(
                f"spec.startingReplicas: expected {wanted.old} and {wanted.new}, "
                f"found {counts.old} and {counts.new}: nothing was moved"
            )
        self._advance(RolloutEvent.BEGAN)
        self.status = replace(
            self.status,
            old_uid=old.metadata.uid if old is not None else "",
            new_uid=new.metadata.uid,
            began=counts,
            replicas=counts,
            mark=self._score(),
            started_at=self._now(),
            progressed_at=self._now(),
        )
        self.events.append((Reason.ROLLOUT_STARTED, f"Moving replicas to {spec.new}"))
        return ""

    def _refuse(self, why: str) -> str:
        """End the rollout before it begins."""
        self._advance(RolloutEvent.REFUSED)
        self.events.append((Reason.ROLLOUT_REFUSED, why))
        return why

    # --- on the way ---------------------------------------------------------------------------

    def _turn(self) -> None:
        """Pause, resume or roll back, as the spec asks."""
        if self.spec.paused:
            if (self.phase, RolloutEvent.PAUSED) in ROLLOUT:
                self._advance(RolloutEvent.PAUSED)
                self.events.append((Reason.ROLLOUT_PAUSED, "Rollout paused"))
            return
        if self.phase is RolloutPhase.PAUSED:
            self._advance(RolloutEvent.RESUMED_BACK if self._is_turned() else RolloutEvent.RESUMED)
            self.status = replace(self.status, progressed_at=self._now())
            self.events.append((Reason.ROLLOUT_RESUMED, "Rollout resumed"))
        if self.spec.undo and (self.phase, RolloutEvent.BACK) in ROLLOUT:
            self._go_back("undo")

    def _is_turned(self) -> bool:
        """Whether it rolls back, paused or not."""
        return self.spec.undo or self.status.going_back

    def _go_back(self, why: str) -> None:
        self._advance(RolloutEvent.BACK)
        self.status = replace(self.status, going_back=True, progressed_at=self._now())
        self.events.append((Reason.ROLLING_BACK, f"Rolling back: {why}"))

    def _score(self) -> int:
        """The progress: healthy new pods, and old ones that are gone."""
        began = self.status.began.old if self.status.began is not None else 0
        gone = max(0, began - self.facts.old_pods.current)
        return min(self.facts.new_pods.healthy, self.spec.desired) + gone

    def _remaining_s(self) -> float | None:
        if self.phase is not RolloutPhase.PROGRESSING:
            return None
        since = self.facts.now - timestamps.parse_or(self.status.progressed_at, timestamps.EPOCH)
        return max(0.0, self.spec.progress_deadline_seconds - since.total_seconds())

    def _progress(self) -> None:
        score = self._score()
        if score > self.status.mark and self.phase is not RolloutPhase.ROLLING_BACK:
            self.status = replace(self.status, mark=score, progressed_at=self._now())
            if self.phase is RolloutPhase.FAILED:
                self._advance(RolloutEvent.ADVANCED)
        elif self._remaining_s() == 0.0:
            why = f"no further for {self.spec.progress_deadline_seconds} s"
            self.status = replace(self.status, message=self.facts.new_pods.message)
            if self.spec.auto_rollback:
                self._go_back(f"{why}{self._cause()}")
            else:
                self._advance(RolloutEvent.LATE)
                self.events.append((Reason.ROLLOUT_FAILED, f"{why}: {self._message()}"))

    def _goal(self) -> Goal:
        spec = self.spec
        updated = spec.desired if spec.canary is None else spec.canary
        ceiling = spec.desired + spec.max_surge
        if self.phase is RolloutPhase.ROLLING_BACK and self.status.began is not None:
            began = self.status.began
            target = began.old + began.new
            return Goal(target, began.old, min(spec.minimum, target), max(ceiling, target))
        return Goal(spec.desired, updated, spec.minimum, ceiling)

    def _split(self) -> Counts:
        """The counts after the next step; while rolling back the sides are swapped."""
        old, new = _side(self.facts.old_pods), _side(self.facts.new_pods)
        if self.phase is RolloutPhase.ROLLING_BACK:
            back = rollout_step.step(new, old, self._goal())
            return Counts(old=back.new, new=back.old)
        if self.facts.old is None:  # no side keeps what a canary leaves
            move = rollout_step.shift(
                old,
                new,
                target=self._goal().updated,
                minimum=self.spec.minimum,
                ceiling=self._goal().ceiling,
            )
            return Counts(0, new.desired + move.add)
        return rollout_step.step(old, new, self._goal())

    # --- the end ------------------------------------------------------------------------------

    def _finish(self, split: Counts | None) -> bool:
        """Note that it has ended or waits; whether to delete the old controller."""
        if split is None or split != self.here:
            if self.phase is RolloutPhase.WAITING and split is not None:
                self._advance(RolloutEvent.PROMOTED)
                self.status = replace(self.status, progressed_at=self._now())
            return False
        if self.phase is RolloutPhase.ROLLING_BACK:
            if self._is_back():
                self._advance(RolloutEvent.COMPLETED)
                self.events.append((Reason.ROLLED_BACK, f"Rolled back: {self._counts()}"))
            return False
        goal = self._goal()
        found = rollout_step.verdict(
            new_desired=self.here.new, new_current=self.facts.new_pods.current, target=goal.updated
        )
        if found is not Verdict.DONE:
            return False
        if goal.updated < goal.target:
            if self.phase is RolloutPhase.PROGRESSING:
                self._advance(RolloutEvent.REACHED)
                self.events.append((Reason.CANARY_REACHED, f"Waiting: {self._counts()}"))
            return False
        return self._complete()

    def _is_back(self) -> bool:
        goal = self._goal()
        old, new = self.facts.old_pods, self.facts.new_pods
        here = (old.desired, new.desired) == (goal.updated, goal.target - goal.updated)
        return here and old.current >= old.desired and new.current <= new.desired

    def _complete(self) -> bool:
        old = self.facts.old
        if old is not None and (self.facts.old_pods.desired or self.facts.old_pods.current):
            return False  # its last pods are still there
        delete_old = old is not None and not self.spec.leave_old
        if delete_old and not self._is_recorded():
            return False  # its last records would be lost
        self._advance(RolloutEvent.COMPLETED)
        self.events.append((Reason.ROLLOUT_COMPLETE, f"{self.spec.new} has all replicas"))
        return delete_old

    def _is_recorded(self) -> bool:
        """Whether the audit of the old controller has no more pods."""
        old = self.facts.old
        return old is None or not (old.status.outbox or old.status.audited)

    # --- words --------------------------------------------------------------------------------

    def _counts(self) -> str:
        old, new = self.facts.old_pods, self.facts.new_pods
        counts = f"{self.spec.new} {new.healthy} of {self.spec.desired} healthy"
        return f"{counts}, {self.spec.old} {old.current} left" if self.spec.old else counts

    def _message(self) -> str:
        if self.phase is RolloutPhase.FAILED:
            return f"{self._counts()}{self._paused_sides()}{self._cause()}"
        if (
            self.phase in {RolloutPhase.ROLLING_BACK, RolloutPhase.ROLLED_BACK}
            and not self.spec.undo
        ):
            deadline_s = self.spec.progress_deadline_seconds
            why = f"goes back because it got no further for {deadline_s} s"
            return f"{why}: {self._counts()}{self._cause()}"
        return self._counts()

    def _cause(self) -> str:
        return f"; {self.status.message}" if self.status.message else ""

    def _paused_sides(self) -> str:
        """The paused controllers, a likely cause of no progress."""
        sides = [side for side in (self.facts.old, self.facts.new) if side is not None]
        paused = [side.metadata.name for side in sides if side.spec.paused]
        return "".join(f"; {name} is paused (spec.paused)" for name in paused)


ALERTS: Mapping[RolloutPhase, tuple[str, str]] = {
    RolloutPhase.FAILED: ("RolloutFailed", HIGH),
    RolloutPhase.ROLLING_BACK: ("RolloutFailed", HIGH),
    RolloutPhase.ROLLED_BACK: ("RolloutFailed", HIGH),
    RolloutPhase.REFUSED: ("RolloutRefused", LOW),
}
"""Reason and urgency of the alert, by the reason of the condition RolloutFailed.

A refused rollout moved nothing, but what was requested will not be done. One that rolls back by policy
alerts because its failure was never acknowledged; one that a user undoes does not.
"""


def alerts_of(update: RollingUpdate) -> Iterator[ConditionAlert]:
    """The conditions of a rollout that need an operator."""
    failed = conditions.find(update.status.conditions, "RolloutFailed")
    if failed is not None and failed.status == "True":
        phase = next((phase for phase in ALERTS if phase.value == failed.reason), None)
        undone = update.spec.undo and phase in {RolloutPhase.ROLLING_BACK, RolloutPhase.ROLLED_BACK}
        if phase is not None and not undone:
            yield ConditionAlert(*ALERTS[phase], failed)
    refused = conditions.find(update.status.conditions, audit_records.CONDITION)
    if refused is not None and refused.status == "True":
        yield ConditionAlert(audit_records.CONDITION, LOW, refused)
