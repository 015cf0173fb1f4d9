"""One scheduling cycle: the next pod, the newest snapshot, a decision, an assumption.

Synchronous from end to end, so nothing can change between the decision and the assumption that
records it. What takes time (binding) starts from the ``Assumed`` that comes out.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Protocol

import msgspec

from grange.scheduler.cache import Cache
from grange.scheduler.clusterevents import ASSIGNED_POD_DELETE
from grange.scheduler.diagnosis import Diagnosis, refusal
from grange.scheduler.engine import Engine, EngineStatistics, Rotation
from grange.scheduler.errors import SnapshotInconsistent
from grange.scheduler.framework import (
    Code,
    CycleState,
    Handle,
    PostFilterResult,
    Profile,
    Profiles,
    Status,
)
from grange.scheduler.nodeinfo import PodInfo
from grange.scheduler.nominator import Nominator
from grange.scheduler.preemption.budgets import Budgets
from grange.scheduler.preemption.evaluator import NOT_HELPFUL
from grange.scheduler.queue import SchedulingQueue
from grange.scheduler.queued_pods import QueuedPod
from grange.scheduler.snapshot import NodeInfoSnapshot
from grange.scheduler.waiting_pods import WaitingPods

_STORY_MAX = 200  # of an error, in a condition


class Assumed(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A pod with a node, assumed in the cache, to be bound.

    Attributes:
        queued: the pod as it was popped.
        info: the assumed copy, whose ``nodeName`` is set.
        node_name: where.
        state: for the later extension points.
    """

    queued: QueuedPod
    info: PodInfo
    node_name: str
    state: CycleState

    @property
    def uid(self) -> str:
        """The pod's UID."""
        return self.info.uid


@dataclass(frozen=True, slots=True)
class Waiting:
    """Pods with a node that a Permit plugin holds back; ``Cycle.permits`` tells when to go on."""

    placed: tuple[Assumed, ...]


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """A pod without a node; it is back in the queue.

    Attributes:
        queued: the pod.
        rejection: why.
        room: what is to be done so that it will have room; None when nothing can be.
    """

    queued: QueuedPod
    rejection: Diagnosis
    room: PostFilterResult | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """A pod that needs no node any more."""

    queued: QueuedPod


@dataclass(frozen=True, slots=True)
class Batch:
    """What became of pods that were tried together."""

    outcomes: "tuple[Assumed | Waiting | Unschedulable | Dropped, ...]"


Outcome = Assumed | Waiting | Unschedulable | Dropped | Batch


class Units(Protocol):
    """Knows which pods go together, and who may go at all."""

    def before(self, queued: QueuedPod, now: float) -> PodInfo | Outcome:
        """A pod is about to be tried: what it is to be decided as, or what became of it.

        In the second case the pod, and whoever was tried with it, is where it belongs: out of the
        queue or back in it.
        """

    def placed(self, placed: Assumed) -> None:
        """A pod was given a node by itself."""

    def taken_back(self, placed: Assumed) -> None:
        """A pod's node was taken from it again."""

    def gang_victims(self, victims: tuple[PodInfo, ...], pod: PodInfo) -> tuple[PodInfo, ...]:
        """The victims of a pod, and those who are of no use without them."""

    def failed(self, queued: QueuedPod, rejection: Diagnosis, now: float) -> Outcome | None:
        """A bug ended the try of a pod: what became of it and who goes with it; None for a loner."""


class Cycle:
    """Runs cycles over a queue and a cache.

    Args:
        profiles: the plugins.
        cache: the state of the cluster.
        queue: the pods that wait.
        budgets: what may be disrupted to make room.
        offset: where searches for such room start: a number below the argument.

    Attributes:
        nominator: who was promised room where.
    """

    def __init__(
        self,
        profiles: Profiles,
        cache: Cache,
        queue: SchedulingQueue,
        *,
        budgets: Budgets | None = None,
        offset: Callable[[int], int] = lambda _: 0,
    ) -> None:
        self.nominator = Nominator()
        self._profiles = profiles
        self._cache = cache
        self._queue = queue
        self.snapshot = NodeInfoSnapshot()
        self.permits: WaitingPods[Assumed] = WaitingPods()
        self.units: Units | None = None
        rotation = Rotation()
        self._engines = {
            profile: Engine(profile, self.snapshot, rotation=rotation)
            for profile in profiles.each()
        }
        budgets = Budgets() if budgets is None else budgets
        self._rooms = {
            profile: [
                item.make(Handle(profile, self.snapshot, self.nominator, budgets, offset))
                for _, item in profile.post_filter
            ]
            for profile in profiles.each()
        }

    @property
    def statistics(self) -> EngineStatistics:
        """The work counters of the first profile's engine."""
        return self._engines[self._profiles.each()[0]].statistics

    @property
    def decisions(self) -> int:
        """How many decisions were made."""
        return sum(engine.statistics.decisions for engine in self._engines.values())

    def run_one(self, now: float) -> Outcome | None:
        """Try the next pod; None when none may be tried now.

        Args:
            now: monotonic seconds.
        """
        queue = self._queue
        queued = queue.pop(now)
        if queued is None:
            return None
        info = queued.info
        if info.pod.metadata.deletion_timestamp or self._cache.tracks(info.uid):
            queue.done(queued)
            return Dropped(queued)
        if self.units is not None:
            seen = self.units.before(queued, now)
            if not isinstance(seen, PodInfo):
                return seen
            info = seen
        state = CycleState()
        try:
            self._cache.update_node_info_snapshot(self.snapshot)
        except SnapshotInconsistent as error:
            return self._fail(queued, str(error), now)
        profile = self._profiles.of(info)
        found = self._engines[profile].decide(info, state, self.nominator.beside(info))
        if isinstance(found, Diagnosis):
            return self._turn_down(queued, info, state, found, now)
        info = queued.info
        if profile.has_a_say or info.request.resources.scalars:
            return self._assume(queued, found, state, now)
        # What ``hold`` comes to where no plugin has anything to reserve, to allocate or to permit.
        placed = Assumed(queued, info.on(found), found, state)
        self._cache.assume_pod(placed.info, self.snapshot)
        self.nominator.remove(info.uid)
        queue.done(queued)
        if self.units is not None:
            self.units.placed(placed)
        return placed

    def _turn_down(
        self, queued: QueuedPod, info: PodInfo, state: CycleState, found: Diagnosis, now: float
    ) -> Outcome:
        if found.error:
            self._queue.fail(queued, now)
            return Unschedulable(queued, found)
        room, why_not = self._make_room(info, state, found)
        if why_not and found.num_nodes:
            found = replace(found, post_filter=why_not)
        if room is not None and room.victims and self.units is not None:
            room = replace(room, victims=self.units.gang_victims(room.victims, info))
        self._queue.turn_down(queued, found.plugins, now)
        if room is not None and room.nominated == "":
            # Its promised room is for others now, up to its own importance.
            self._queue.move(ASSIGNED_POD_DELETE, now, info.pod, None)
        return Unschedulable(queued, found, room)

    def take_back(self, placed: Assumed) -> None:
        """Undo an assumption: reservations, then the charge."""
        try:
            self.unreserve(placed)
        finally:
            # Unless bound by somebody, or gone: then the informer tells what it counts for.
            if self._cache.is_assumed_pod(placed.info.pod):
                self._cache.forget_pod(placed.info.pod)
                if self.units is not None:
                    self.units.taken_back(placed)

    def unreserve(self, placed: Assumed) -> None:
        """Give up what was reserved for a pod, in reverse order; a bug in one spares the others."""
        with ExitStack() as stack:
            for _, plugin in self._profiles.of(placed.info).reserve:
                stack.callback(plugin.unreserve, placed.state, placed.info, placed.node_name)

    def contain(self, error: Exception, now: float) -> Outcome | None:
        """A bug, in a plugin perhaps, ended ``run_one``: only the pod that was tried shall suffer.

        What a decision holds for itself is dropped; the pod takes the error backoff.

        Returns:
            What became of the pod; None when the state is not that of a pod being tried, so that
            only a new start will do.
        """
        queued = self._queue.in_flight()
        if queued is None or self._cache.tracks(queued.uid):
            return None
        self.snapshot.begin()  # without trials; the next cycle brings it up to date
        for engine in self._engines.values():
            engine.forget()  # a class may have been left half renewed
        story = f"{type(error).__name__}: {error}"[:_STORY_MAX]
        rejection = Diagnosis(self.snapshot.num_nodes, waits=f"bug on the way: {story}", error=True)
        found = None if self.units is None else self.units.failed(queued, rejection, now)
        if found is not None:
            return found
        self._queue.fail(queued, now)
        return Unschedulable(queued, rejection)

    def refresh(self) -> None:
        """Bring the snapshot up to date.

        Raises:
            SnapshotInconsistent: it is repaired for the next time.
        """
        self._cache.update_node_info_snapshot(self.snapshot)

    def decide(self, pod: PodInfo, state: CycleState) -> str | Diagnosis:
        """The node for a pod on the newest snapshot, or why there is none; nothing is assumed."""
        try:
            self.refresh()
        except SnapshotInconsistent as error:
            return Diagnosis(self.snapshot.num_nodes, pre_filter=str(error), error=True)
        return self.judge(pod, state)

    def judge(self, pod: PodInfo, state: CycleState) -> str | Diagnosis:
        """As ``decide``, on the snapshot as it is, trials included."""
        engine = self._engines[self._profiles.of(pod)]
        return engine.decide(pod, state, self.nominator.beside(pod))

    def ask(self, pod: PodInfo, state: CycleState) -> PostFilterResult | None:
        """What the first PostFilter plugin that has an idea would do; nothing is kept of it."""
        for ask in self._rooms[self._profiles.of(pod)]:
            found = ask(state, pod)
            if found.nominated:
                return found
        return None

    def promise(self, pod: PodInfo, room: PostFilterResult) -> None:
        """Nominate a pod that preempts to the node that it was found."""
        for other in room.cleared:
            self.nominator.remove(other.uid)
        self.nominator.put(pod, room.nominated or "")
        if room.victims:
            self.nominator.evicting[pod.uid] = False

    def on(self, info: PodInfo, node_name: str) -> PodInfo:
        """The pod as it would be on a node that all filters passed, devices included."""
        profile = self._profiles.of(info)
        info = info.on(node_name)
        if profile.device_allocator is not None and profile.device_allocator.applies(info):
            return info.holding(
                profile.device_allocator.allocate(info, self.snapshot.node_info_map[node_name])
            )
        return info

    def _make_room(
        self, pod: PodInfo, state: CycleState, rejection: Diagnosis
    ) -> tuple[PostFilterResult | None, str]:
        """Ask the PostFilter plugins, and keep what they nominate.

        Returns:
            What is to be done, None for nothing; and why nobody makes room.
        """
        asked, why_not = self._rooms[self._profiles.of(pod)], ""
        if rejection.pre_filter and asked:  # no node was the reason
            total = rejection.num_nodes
            return None, f"0/{total} nodes are available: {total} {NOT_HELPFUL}."
        for ask in asked:
            found = ask(state, pod)
            if found.nominated == "":
                self.nominator.remove(pod.uid)
            elif found.nominated is not None:
                for other in found.cleared:
                    self.nominator.remove(other.uid)
                self.nominator.put(pod, found.nominated)
                self.nominator.evicting[pod.uid] = False
            if found.status.code is Code.UNSCHEDULABLE:
                why_not = why_not or ", ".join(found.status.reasons)
            if found.nominated is not None or found.status.code is not Code.UNSCHEDULABLE:
                return found, why_not
        return None, why_not

    def hold(
        self, queued: QueuedPod, node_name: str, state: CycleState
    ) -> tuple[Assumed, dict[str, float]] | Diagnosis:
        """Assume a pod on a node, reserve what it needs there, and ask the Permit plugins.

        Returns:
            The placed pod, and how many seconds each plugin that holds it back wants to; or, with
            everything taken back, why not.
        """
        profile = self._profiles.of(queued.info)
        placed = Assumed(queued, self.on(queued.info, node_name), node_name, state)
        self._cache.assume_pod(placed.info, self.snapshot)
        self.nominator.remove(placed.uid)
        try:
            answer = self._consult(profile, placed)
        except BaseException:
            self.take_back(placed)
            raise
        if isinstance(answer, dict):
            return placed, answer
        self.take_back(placed)
        # An error is no word about the pod, so no event that its plugin asks for would end it.
        return refusal(self.snapshot.num_nodes, *answer)

    def _consult(self, profile: Profile, placed: Assumed) -> dict[str, float] | tuple[str, Status]:
        """Reserve and Permit: who holds the pod back and for how long, or who is against it."""
        state, info, node_name = placed.state, placed.info, placed.node_name
        for name, plugin in profile.reserve:
            status = plugin.reserve(state, info, node_name)
            if not status.ok:
                return name, status
        waits: dict[str, float] = {}
        if profile.permit:
            state.write(self.permits)
        for name, gate in profile.permit:
            status = gate.permit(state, info, node_name)
            if status.code is Code.WAIT:
                waits[name] = status.wait_s
            elif not status.ok:
                return name, status
        return waits

    def _assume(self, queued: QueuedPod, node_name: str, state: CycleState, now: float) -> Outcome:
        held = self.hold(queued, node_name, state)
        if isinstance(held, Diagnosis):
            if held.error:
                self._queue.fail(queued, now)
            else:
                self._queue.turn_down(queued, held.plugins, now)
            return Unschedulable(queued, held)
        placed, waits = held
        self._queue.done(queued)
        if self.units is not None:
            self.units.placed(placed)
        if waits:
            self.permits.hold((placed,), {placed.uid: waits}, now)
            return Waiting((placed,))
        return placed

    def _fail(self, queued: QueuedPod, reason: str, now: float) -> Outcome:
        self._queue.fail(queued, now)
        return Unschedulable(
            queued, Diagnosis(self.snapshot.num_nodes, pre_filter=reason, error=True)
        )
