"""The rollout of one controller's template: the next counts of pods, to be stored before pods follow. Pure.

Theory of operation. ``status.rollout`` states which template pods are created from and how many pods of
it (the *new side*) and of earlier ones (the *old side*) are wanted; ``status.history`` holds the
templates. ``decide`` advances this by one step. The result is stored in the status by compare-and-set;
then the pods are brought to those counts. After a crash the next owner continues from the status.

The wanted template is ``spec.template``, except after a rollback: then it is the last one that a
rollout completed with, while ``spec.template`` is the one that failed. Pods of the old side that are
lost are created from that stable template, so a bad new one cannot replace a good old side while it
fails; without a stable template, the new side gets their places.

The deadline moves when the spec changes, and when the rollout gets further than ever since then: a pod
that is ready now and then moves it once.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from msgspec.structs import replace

from grange.api import rollouts, timestamps
from grange.api.kinds import pod as pods
from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import Document
from grange.api.rollouts import Revision, RolloutLimits, RolloutState
from grange.base.statemachine import advance
from grange.controllers.replication import deletion_budgets
from grange.controllers.replication.plan import Inputs, Sides
from grange.controllers.shared import availability, pod_identity, rollout_step
from grange.controllers.shared.event_reasons import Reason
from grange.controllers.shared.pod_identity import is_of
from grange.controllers.shared.rollout_phase import ROLLOUT, SETTLED, RolloutEvent, RolloutPhase
from grange.controllers.shared.rollout_step import Goal, Side


@dataclass(frozen=True, slots=True)
class RolloutDecision:
    """What to write, and what follows from it.

    Attributes:
        controller: with the template that pods are created from, and the status to write.
        sides: None while all pods have one template, or may have any.
        limits: what the controller allows.
        events: to record once it is written.
        deadline_s: seconds until the rollout fails; None for none.
    """

    controller: ReplicationController
    sides: Sides | None
    limits: RolloutLimits
    events: tuple[tuple[Reason, str], ...] = ()
    deadline_s: float | None = None


def decide(inputs: Inputs, now: datetime) -> RolloutDecision:
    """One step of the controller's rollout; none while nodes are unknown."""
    if inputs.nodes_error is not None:
        limits = deletion_budgets.limits(inputs.controller)
        return RolloutDecision(inputs.controller, None, limits)
    return _Step(inputs, now).decide()


def stored(controller: ReplicationController) -> RolloutState | None:
    """The stored rollout that balances two sides; None for none."""
    state = controller.status.rollout
    if state is None or controller.spec.rollout.type != "RollingUpdate":
        return None
    return None if RolloutPhase(state.phase) in SETTLED or not state.old_replicas else state


def remember(
    history: Sequence[Revision], template_hash: str, template: Document, now: str
) -> tuple[Revision, ...]:
    """The history with a template as its latest revision; a known one gets a new number."""
    number = 1 + max((item.revision for item in history), default=0)
    others = [item for item in history if item.template_hash != template_hash]
    return (*others, Revision(number, template_hash, template, now))


def pruned(history: Sequence[Revision], keep: Container[str], limit: int) -> tuple[Revision, ...]:
    """The history without its earliest revisions: so many are left besides those to keep."""
    others = [item for item in history if item.template_hash not in keep]
    gone = {item.revision for item in others[: max(0, len(others) - limit)]}
    return tuple(item for item in history if item.revision not in gone)


@dataclass(slots=True)
class _Step:
    """The working state of one decision, used once."""

    inputs: Inputs
    now: datetime
    events: list[tuple[Reason, str]] = field(default_factory=list)
    limits: RolloutLimits = field(default_factory=lambda: RolloutLimits(0, 0))
    state: RolloutState = field(default_factory=lambda: RolloutState(0, ""))
    history: tuple[Revision, ...] = ()
    active: list[Pod] = field(default_factory=list)
    new: list[Pod] = field(default_factory=list)
    old: list[Pod] = field(default_factory=list)

    def decide(self) -> RolloutDecision:
        """Decide; called once."""
        spec = self.inputs.controller.spec
        self.active = [pod for pod in self.inputs.owned if pods.is_active(pod)]
        self._begin()
        self._sort()
        self.limits = self._limits()
        if self.old and self.phase in SETTLED:
            self._advance(RolloutEvent.OUTDATED)
            self._restart()
        self._pause()
        if not spec.paused:
            if self._late():
                self._go_back_or_fail()
            self._move()
        self._judge()
        return self._decision()

    @property
    def phase(self) -> RolloutPhase:
        return RolloutPhase(self.state.phase)

    @property
    def replicas(self) -> int:
        return max(0, self.inputs.controller.spec.replicas)

    @property
    def rolling(self) -> bool:
        """Whether there are two sides to balance."""
        if self.inputs.controller.spec.rollout.type != "RollingUpdate":
            return False
        return self.phase not in SETTLED and bool(self.old or self.state.old_replicas)

    def _advance(self, event: RolloutEvent) -> None:
        self.state = replace(self.state, phase=advance(ROLLOUT, self.phase, event).value)

    def _timestamp(self) -> str:
        return timestamps.rfc3339(self.now)

    # --- which template -----------------------------------------------------------------------

    def _begin(self) -> None:
        """Note a new template, or a change of the spec that moves the deadline."""
        controller = self.inputs.controller
        wanted = pod_identity.template_hash(controller)
        state, self.history = controller.status.rollout, controller.status.history
        if state is not None and state.spec_hash == wanted:
            self.state = state
            self._note_cause(wanted)
            if self.phase not in SETTLED and state.generation != controller.metadata.generation:
                if self.phase is RolloutPhase.FAILED:
                    self._advance(RolloutEvent.CHANGED)
                self._sort()
                self.state = replace(
                    self.state,
                    generation=controller.metadata.generation,
                    mark=self._score(),  # the last one was for another number of replicas
                    progressed_at=self._timestamp(),
                )
            return
        template = controller.spec.template
        self.history = remember(self.history, wanted, template, self._timestamp())
        self._note_cause(wanted)
        number = self.history[-1].revision
        if state is None:
            self.state = RolloutState(number, wanted, wanted, phase=RolloutPhase.PROGRESSING.value)
        else:
            self.state = replace(
                state, revision=number, template_hash=wanted, spec_hash=wanted, message=""
            )
            self._advance(RolloutEvent.CHANGED)
            self.events.append((Reason.ROLLOUT_STARTED, f"Rolling out revision {number}"))
        self._sort()
        self._restart()

    def _note_cause(self, wanted: str) -> None:
        """Note the cause of the wanted template, which users may annotate later, as of a Deployment."""
        cause = self.inputs.controller.metadata.annotations.get(rollouts.CHANGE_CAUSE, "")
        cause = cause[: rollouts.CAUSE_MAX]  # each revision has one, and all of them are one status
        self.history = tuple(
            replace(item, change_cause=cause) if item.template_hash == wanted else item
            for item in self.history
        )

    def _sort(self) -> None:
        self.new, self.old = [], []
        for pod in self.active:
            (self.new if is_of(pod, self.state.template_hash) else self.old).append(pod)

    def _restart(self) -> None:
        """Count from the existing pods."""
        self.state = replace(
            self.state,
            new_replicas=min(len(self.new), self.replicas),
            old_replicas=len(self.old),
            generation=self.inputs.controller.metadata.generation,
            mark=self._score(),
            started_at=self._timestamp(),
            progressed_at=self._timestamp(),
        )

    def _known(self, template_hash: str) -> Revision | None:
        for item in self.history:
            if item.template_hash == template_hash:
                return item
        return None

    def _made_from(self, template_hash: str) -> ReplicationController:
        controller = self.inputs.controller
        known = self._known(template_hash)
        if known is None or template_hash == self.state.spec_hash:
            return controller
        return replace(controller, spec=replace(controller.spec, template=known.template))

    def _source(self) -> ReplicationController | None:
        """What pods of the old side are created from: only a template that was completed."""
        stable = self.state.stable_hash
        if stable in {"", self.state.template_hash} or self._known(stable) is None:
            return None
        return self._made_from(stable)

    # --- how many -----------------------------------------------------------------------------

    def _limits(self) -> RolloutLimits:
        controller = self.inputs.controller
        if controller.spec.placement == "OnePerNode":
            places = {pod_identity.node_of(pod) for pod in self.active}
            places.discard("")
            return deletion_budgets.limits(
                controller, room=len(places.union(self.inputs.eligible)) - self.replicas
            )
        stuck = any(pods.is_unschedulable(pod) for pod in self.new) if self.old else False
        return deletion_budgets.limits(controller, room=0 if stuck else None)

    def _available(self, side: Sequence[Pod]) -> int:
        return sum(pod.metadata.uid in self.inputs.available for pod in side)

    def _goal(self) -> Goal:
        rollout = self.inputs.controller.spec.rollout
        updated = self.replicas
        if self.phase is RolloutPhase.PAUSED:
            updated = self.state.new_replicas
        elif rollout.canary is not None and self.state.template_hash == self.state.spec_hash:
            updated = rollouts.share(rollout.canary, self.replicas, up=True)
        updated = min(updated, self.replicas)
        return Goal(self.replicas, updated, self.limits.minimum, self.limits.ceiling)

    def _move(self) -> None:
        if not self.rolling:
            return
        old_replicas = self.state.old_replicas
        if self._source() is None:
            old_replicas = min(old_replicas, len(self.old))
        idle = sum(self._is_idle(pod) for pod in self.old)
        broken = sum(_is_broken(pod, self.inputs.down) for pod in self.old)
        broken += idle + max(0, old_replicas - len(self.old))
        old = Side(old_replicas, self._available(self.old), broken=broken, idle=idle)
        new_replicas = self.state.new_replicas
        broken = sum(
            not pod.spec.node_name or _is_broken(pod, self.inputs.down) for pod in self.new
        )
        broken += max(0, new_replicas - len(self.new))
        new = Side(new_replicas, self._available(self.new), broken=broken)
        split = rollout_step.step(old, new, self._goal())
        self.state = replace(self.state, old_replicas=split.old, new_replicas=split.new)

    def _is_idle(self, pod: Pod) -> bool:
        """Whether the pod runs nowhere and will not soon."""
        if pod.spec.node_name:
            return False
        return not is_of(pod, self.state.stable_hash) or pods.is_unschedulable(pod)

    # --- where it is --------------------------------------------------------------------------

    def _pause(self) -> None:
        spec = self.inputs.controller.spec
        paused = spec.paused or spec.rollout.paused
        if paused and (self.phase, RolloutEvent.PAUSED) in ROLLOUT:
            self._advance(RolloutEvent.PAUSED)
            if self.old:
                self.events.append((Reason.ROLLOUT_PAUSED, "Rollout paused"))
        elif not paused and self.phase is RolloutPhase.PAUSED:
            back = self.state.template_hash != self.state.spec_hash
            self._advance(RolloutEvent.RESUMED_BACK if back else RolloutEvent.RESUMED)
            self.state = replace(self.state, progressed_at=self._timestamp())
            if self.old:
                self.events.append((Reason.ROLLOUT_RESUMED, "Rollout resumed"))

    def _score(self) -> int:
        """The progress, between zero and twice the replicas."""
        return min(self._available(self.new), self.replicas) + max(0, self.replicas - len(self.old))

    def _remaining_s(self) -> float | None:
        """Seconds until the deadline; None where there is none."""
        rollout = self.inputs.controller.spec.rollout
        if self.phase is not RolloutPhase.PROGRESSING or rollout.type != "RollingUpdate":
            return None
        since = self.now - timestamps.parse_or(self.state.progressed_at, timestamps.EPOCH)
        return rollout.progress_deadline_seconds - since.total_seconds()

    def _late(self) -> bool:
        if self._score() > self.state.mark:
            return False
        remaining_s = self._remaining_s()
        return remaining_s is not None and remaining_s <= 0 and not self._is_complete()

    def _go_back_or_fail(self) -> None:
        rollout = self.inputs.controller.spec.rollout
        failed = self.state.revision
        message = (
            f"revision {failed} got no further for {rollout.progress_deadline_seconds} s: "
            f"{self._available(self.new)} of its {self.replicas} replicas are available"
        )
        idle = (pod for pod in self.new if pod.metadata.uid not in self.inputs.available)
        if cause := availability.failure_message(idle):
            message += f"; {cause}"
        self.state = replace(self.state, message=message)
        source = self._source()
        if not rollout.auto_rollback or source is None:
            self._advance(RolloutEvent.LATE)
            self.events.append((Reason.ROLLOUT_FAILED, message))
            return
        self._advance(RolloutEvent.BACK)
        stable = self.state.stable_hash
        self.history = remember(self.history, stable, source.spec.template, self._timestamp())
        number = self.history[-1].revision
        self.state = replace(self.state, revision=number, template_hash=stable)
        self._sort()
        self._restart()
        self.events.append((Reason.ROLLING_BACK, f"Rolling back: {message}"))

    def _is_complete(self) -> bool:
        return (
            not self.old
            and (not self.rolling or self.state.old_replicas == 0)
            and self._available(self.new) >= min(self.replicas, self._places())
        )

    def _places(self) -> int:
        """How many pods of the new side can be placed."""
        controller = self.inputs.controller
        if controller.spec.placement != "OnePerNode":
            return self.replicas
        taken = {pod.spec.node_name for pod in self.new if pod.spec.node_name}
        return len(taken.union(self.inputs.eligible))

    def _judge(self) -> None:
        """Advance the phase by what has changed."""
        if self.phase in {RolloutPhase.PAUSED, *SETTLED}:
            return
        score = self._score()
        if score > self.state.mark:
            self.state = replace(self.state, mark=score, progressed_at=self._timestamp())
            if self.phase is RolloutPhase.FAILED:
                self._advance(RolloutEvent.ADVANCED)
        if self._is_complete():
            self._complete()
            return
        if self.phase in {RolloutPhase.PROGRESSING, RolloutPhase.WAITING}:
            self._wait_or_go_on()

    def _wait_or_go_on(self) -> None:
        goal = self._goal()
        if self.inputs.controller.spec.rollout.type != "RollingUpdate":
            reached = bool(self.old)
        else:
            reached = self.rolling and goal.updated < goal.target
            reached = reached and self.state.new_replicas == goal.updated
        before = self.inputs.controller.status.rollout
        grown = before is not None and self.state.new_replicas > before.new_replicas
        if self.phase is RolloutPhase.WAITING and (grown or not reached):
            self._advance(RolloutEvent.PROMOTED)
            self.state = replace(self.state, progressed_at=self._timestamp())
        elif self.phase is RolloutPhase.PROGRESSING and reached:
            if self.rolling and self._available(self.new) < goal.updated:
                return  # the canaries are not up
            self._advance(RolloutEvent.REACHED)
            if self.rolling:
                message = f"{goal.updated} of {goal.target} replicas are updated: waiting"
                self.events.append((Reason.CANARY_REACHED, message))

    def _complete(self) -> None:
        back = self.phase is RolloutPhase.ROLLING_BACK
        self._advance(RolloutEvent.COMPLETED)
        self.state = replace(
            self.state, stable_hash=self.state.template_hash, new_replicas=0, old_replicas=0
        )
        if not back:
            self.state = replace(self.state, message="")
        number = self.state.revision
        if back:
            self.events.append((Reason.ROLLED_BACK, f"Rolled back to the template of {number}"))
        elif number > 1:
            self.events.append((Reason.ROLLOUT_COMPLETE, f"Revision {number} is rolled out"))

    def _decision(self) -> RolloutDecision:
        controller = self.inputs.controller
        keep = {self.state.template_hash, self.state.spec_hash, self.state.stable_hash}
        limit = controller.spec.rollout.revision_history_limit
        status = replace(
            controller.status, rollout=self.state, history=pruned(self.history, keep, limit)
        )
        sides = None
        if self.rolling:
            sides = Sides(self.state.new_replicas, self.state.old_replicas, self._source())
        remaining_s = self._remaining_s()
        return RolloutDecision(
            controller=replace(self._made_from(self.state.template_hash), status=status),
            sides=sides,
            limits=self.limits,
            events=tuple(self.events),
            deadline_s=None if remaining_s is None else max(0.0, remaining_s),
        )


def _is_broken(pod: Pod, down: Container[str]) -> bool:
    """Whether the pod is known not to be ready; a missing or stale status is not knowledge."""
    node = pod.spec.node_name
    ready = pods.condition(pod, "Ready")
    return bool(node) and node not in down and ready is not None and ready.status == "False"
