"""All or nothing: members are assumed one after another, and all forgotten if that fails.

Each member is decided by the engine on the newest snapshot and assumed at once, so the next one is
decided as if the first were there: the gang ends up exactly where its members would, one by one.
Nothing is written until the whole is committed, and the loop does nothing else meanwhile, so a part
of a gang is never visible.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property

from grange.scheduler.cycle import Assumed, Cycle
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.framework import CycleState
from grange.scheduler.gangs.pod_groups import Gang, Quorum
from grange.scheduler.gangs.quotas import amounts, total
from grange.scheduler.podinfo import PodInfo
from grange.scheduler.queued_pods import QueuedPod


@dataclass(frozen=True)
class GangAttempt:
    """What a gang is tried with.

    Attributes:
        gang: the gang.
        leader: the member that came to the head of the queue.
        candidates: the members that may be placed, in order; those that are needed come first.
        need: how many of them must be placed.
    """

    gang: Gang
    leader: QueuedPod
    candidates: Sequence[QueuedPod]
    need: int

    def quorum(self) -> Quorum:
        """What is needed, to be found among the candidates."""
        return self.gang.quorum([queued.uid for queued in self.candidates])

    @cached_property
    def pods(self) -> list[PodInfo]:
        """The pods of the candidates."""
        return [queued.info for queued in self.candidates]

    @cached_property
    def wanted(self) -> dict[str, int]:
        """The quota that as many of the first candidates as are needed request."""
        return wanted(self.candidates[: self.need])


def wanted(pods: Iterable[QueuedPod]) -> dict[str, int]:
    """The quota that pods request together."""
    return total(amounts(queued.info.request.resources) for queued in pods)


@dataclass(slots=True)
class Transaction:
    """One try.

    Attributes:
        cycle: decides and assumes.
        assumed: the members that have a node so far.
        waits: by UID, the Permit plugins that hold members back, and for how long.
        diagnosis: why the first member without a node has none; once a plugin failed, that.
        nominations: by UID, members that were nominated to a node.
    """

    cycle: Cycle
    assumed: list[Assumed] = field(default_factory=list)
    waits: dict[str, dict[str, float]] = field(default_factory=dict)
    diagnosis: Diagnosis | None = None
    nominations: dict[str, tuple[PodInfo, str]] = field(default_factory=dict)

    def place_all(self, attempt: GangAttempt, overridden: Sequence[PodInfo]) -> bool:
        """Place as many candidates as are needed; whether that was done. Rolls back before it raises.

        Args:
            attempt: the candidates.
            overridden: what is decided instead of each candidate's own pod.
        """
        quorum = attempt.quorum()
        try:
            for queued, info in zip(attempt.candidates, overridden, strict=True):
                if self.failed or not quorum.is_open:
                    break
                if quorum.takes(queued.uid):
                    quorum.tried(queued.uid, placed=self._place(queued, info))
        except BaseException:
            self.roll_back()
            raise
        return quorum.is_met and not self.failed

    def _place(self, queued: QueuedPod, overridden: PodInfo) -> bool:
        state = CycleState()
        found = self.cycle.decide(overridden, state)
        if isinstance(found, str):
            nominated = self.cycle.nominator.node_of(queued.uid)
            if nominated:
                self.nominations[queued.uid] = (queued.info, nominated)
            held = self.cycle.assume(queued, found, state)
            if not isinstance(held, Diagnosis):
                assumed, waits = held
                self.assumed.append(assumed)
                if waits:
                    self.waits[assumed.uid] = waits
                return True
            found = held
        if self.diagnosis is None or (found.error and not self.diagnosis.error):
            self.diagnosis = found
        return False

    @property
    def failed(self) -> bool:
        """Whether a plugin failed, as opposed to refused."""
        return self.diagnosis is not None and self.diagnosis.error

    def roll_back(self) -> None:
        """Forget all members, the youngest first; a bug in one plugin does not keep the others."""
        try:
            with ExitStack() as stack:
                for assumed in self.assumed:
                    stack.callback(self.cycle.forget, assumed)
        finally:
            for info, node_name in self.nominations.values():
                self.cycle.nominator.put(info, node_name)
            self.assumed.clear()
            self.nominations.clear()
            self.waits.clear()
