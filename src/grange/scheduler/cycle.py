"""The extension points of a scheduling cycle: decide, post-filter, assume, reserve, permit, forget.

Synchronous from end to end, so nothing can change between the decision and the assumption that
records it. ``schedule_one`` goes through them for one pod, ``gangs`` for many pods together.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import msgspec

from grange.placement import devices
from grange.scheduler.cache import Cache
from grange.scheduler.diagnosis import Diagnosis, refusal
from grange.scheduler.disruption_budgets import DisruptionBudgets
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
from grange.scheduler.nominator import Nominator
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.preemption.evaluator import NOT_HELPFUL
from grange.scheduler.queued_pods import QueuedPod
from grange.scheduler.snapshot import NodeInfoSnapshot
from grange.scheduler.waiting_pods import WaitingPods


class Assumed(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A pod with a node, assumed in the cache, to be bound.

    Attributes:
        info: the assumed copy, whose ``nodeName`` is set.
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
    """Pods with a node that a Permit plugin holds back; ``Cycle.waiting_pods`` releases them."""

    placed: tuple[Assumed, ...]


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """A pod without a node; it is back in the queue.

    Attributes:
        post_filter: the result of PostFilter, to be carried out; None without any.
    """

    queued: QueuedPod
    diagnosis: Diagnosis
    post_filter: PostFilterResult | None = None


@dataclass(frozen=True, slots=True)
class Dropped:
    """A pod that needs no node any more."""

    queued: QueuedPod


@dataclass(frozen=True, slots=True)
class Batch:
    """What became of pods that were tried together."""

    outcomes: "tuple[Assumed | Waiting | Unschedulable | Dropped, ...]"


Outcome = Assumed | Waiting | Unschedulable | Dropped | Batch

_NO_WAITS: dict[str, float] = {}


class Cycle:
    """What happens to pods on a snapshot of the cluster.

    Args:
        permits_changed: called when Permit plugins have decided about pods.
        offset: where searches for victims start: a number below the argument.
    """

    def __init__(
        self,
        profiles: Profiles,
        cache: Cache,
        *,
        permits_changed: Callable[[], None] = lambda: None,
        budgets: DisruptionBudgets | None = None,
        offset: Callable[[int], int] = lambda _: 0,
    ) -> None:
        self.snapshot = NodeInfoSnapshot()
        self.nominator = Nominator()
        self.waiting_pods: WaitingPods[Assumed] = WaitingPods(permits_changed)
        self.profiles = profiles
        self.cache = cache
        rotation = Rotation()
        self._engines = {
            profile: Engine(profile, self.snapshot, rotation=rotation)
            for profile in profiles.each()
        }
        budgets = DisruptionBudgets() if budgets is None else budgets
        self._post_filters = {
            profile: [
                make(Handle(profile, self.snapshot, self.nominator, budgets, offset))
                for _, make in profile.post_filter
            ]
            for profile in profiles.each()
        }

    @property
    def statistics(self) -> EngineStatistics:
        """The work counters of the first profile's engine."""
        return self._engines[self.profiles.each()[0]].statistics

    @property
    def decisions(self) -> int:
        """How many decisions were made."""
        return sum(engine.statistics.decisions for engine in self._engines.values())

    # --- decide ------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Bring the snapshot up to date.

        Raises:
            SnapshotInconsistent: it is repaired for the next time.
        """
        self.cache.update_node_info_snapshot(self.snapshot)

    def reset(self) -> None:
        """Drop what an interrupted decision left: trials on the snapshot, half-updated results."""
        self.snapshot.undo_trials()
        for engine in self._engines.values():
            engine.forget()

    def decide(self, pod: PodInfo, state: CycleState) -> str | Diagnosis:
        """The node for a pod on the newest snapshot, or why there is none; nothing is assumed."""
        try:
            self.cache.update_node_info_snapshot(self.snapshot)
        except SnapshotInconsistent as error:
            return Diagnosis(self.snapshot.num_nodes, pre_filter=str(error), error=True)
        return self.decide_on_snapshot(pod, state)

    def decide_on_snapshot(self, pod: PodInfo, state: CycleState) -> str | Diagnosis:
        """As ``decide``, on the snapshot as it is, trials included."""
        engine = self._engines[self.profiles.of(pod)]
        return engine.decide(pod, state, self.nominator.nominations_for(pod))

    # --- post-filter -------------------------------------------------------------------------

    def find_preemption(self, pod: PodInfo, state: CycleState) -> PostFilterResult | None:
        """The result of the first PostFilter plugin that nominates a node; nothing is carried out."""
        for ask in self._post_filters[self.profiles.of(pod)]:
            found = ask(state, pod)
            if found.nominated:
                return found
        return None

    def nominate(self, pod: PodInfo, result: PostFilterResult) -> None:
        """Nominate a pod to the node that PostFilter found for it."""
        for other in result.cleared:
            self.nominator.remove(other.uid)
        self.nominator.put(pod, result.nominated or "")
        if result.victims:
            self.nominator.evicting[pod.uid] = False

    def run_post_filter(
        self, pod: PodInfo, state: CycleState, diagnosis: Diagnosis
    ) -> tuple[PostFilterResult | None, str]:
        """Run the PostFilter plugins, and keep what they nominate.

        Returns:
            The result, None for nothing; and why preemption does not help.
        """
        asked, why_not = self._post_filters[self.profiles.of(pod)], ""
        if diagnosis.pre_filter and asked:  # no node was the reason
            total = diagnosis.num_nodes
            return None, f"0/{total} nodes are available: {total} {NOT_HELPFUL}."
        for ask in asked:
            found = ask(state, pod)
            if found.nominated == "":
                self.nominator.remove(pod.uid)
            elif found.nominated is not None:
                self.nominate(pod, found)
                self.nominator.evicting[pod.uid] = False
            if found.status.code is Code.UNSCHEDULABLE:
                why_not = why_not or ", ".join(found.status.reasons)
            if found.nominated is not None or found.status.code is not Code.UNSCHEDULABLE:
                return found, why_not
        return None, why_not

    # --- assume ------------------------------------------------------------------------------

    def info_on(self, info: PodInfo, node_name: str) -> PodInfo:
        """The pod as it would be on a node that all filters passed, devices included."""
        profile = self.profiles.of(info)
        info = info.on(node_name)
        choose = profile.device_allocator
        if choose is not None and devices.asked(info.request):
            return info.holding(choose(info, self.snapshot.node_info_map[node_name]))
        return info

    def assume(
        self, queued: QueuedPod, node_name: str, state: CycleState
    ) -> tuple[Assumed, dict[str, float]] | Diagnosis:
        """Assume a pod on a node, reserve what it needs there, and ask the Permit plugins.

        Returns:
            The assumed pod, and for how many seconds each plugin holds it; or, with
            everything taken back, why not.
        """
        info = queued.info
        profile = self.profiles.of(info)
        plain = not (profile.has_reserve_or_permit or info.request.resources.scalars)
        info = info.on(node_name) if plain else self.info_on(info, node_name)
        assumed = Assumed(queued, info, node_name, state)
        self.cache.assume_pod(info)
        self.nominator.remove(info.uid)
        if plain:
            return assumed, _NO_WAITS
        try:
            answer = self._reserve_and_permit(profile, assumed)
        except BaseException:
            self.forget(assumed)
            raise
        if isinstance(answer, dict):
            return assumed, answer
        self.forget(assumed)
        return refusal(self.snapshot.num_nodes, *answer)

    def _reserve_and_permit(
        self, profile: Profile, assumed: Assumed
    ) -> dict[str, float] | tuple[str, Status]:
        """The plugins that hold the pod and for how long, or the one that rejects it."""
        state, info, node_name = assumed.state, assumed.info, assumed.node_name
        for name, plugin in profile.reserve:
            status = plugin.reserve(state, info, node_name)
            if not status.ok:
                return name, status
        waits: dict[str, float] = {}
        if profile.permit:
            state.write(self.waiting_pods)
        for name, gate in profile.permit:
            status = gate.permit(state, info, node_name)
            if status.code is Code.WAIT:
                waits[name] = status.wait_s
            elif not status.ok:
                return name, status
        return waits

    def forget(self, assumed: Assumed) -> None:
        """Undo an assumption: reservations, then the charge.

        A pod that was bound or deleted meanwhile counts for what the informer shows.
        """
        try:
            self.unreserve(assumed)
        finally:
            if self.cache.is_assumed_pod(assumed.info.pod):
                self.cache.forget_pod(assumed.info.pod)

    def unreserve(self, assumed: Assumed) -> None:
        """Release what was reserved for a pod, in reverse order; a bug in one plugin does not stop the others."""
        with ExitStack() as stack:
            for _, plugin in self.profiles.of(assumed.info).reserve:
                stack.callback(plugin.unreserve, assumed.state, assumed.info, assumed.node_name)
