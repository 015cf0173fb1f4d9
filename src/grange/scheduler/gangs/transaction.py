"""All or nothing: members are placed one after another, and all taken back if that fails.

Each member is decided by the engine on the newest snapshot and assumed at once, so the next one is
decided as if the first were there: the gang ends up exactly where its members would, one by one.
Nothing is written until the whole is kept, and the loop does nothing else meanwhile, so nobody ever
sees a part of a gang.
"""

from contextlib import ExitStack
from dataclasses import dataclass, field

from grange.scheduler.cycle import Assumed, Cycle
from grange.scheduler.diagnosis import Diagnosis
from grange.scheduler.framework import CycleState
from grange.scheduler.nodeinfo import PodInfo
from grange.scheduler.queued_pods import QueuedPod


@dataclass(slots=True)
class Transaction:
    """One attempt.

    Attributes:
        cycle: decides and assumes.
        placed: the members that have a node so far.
        waits: by UID, the Permit plugins that hold members back, and for how long.
        rejection: why the first member without a node has none; once a plugin failed, that.
        promises: by UID, members that were nominated to a node.
    """

    cycle: Cycle
    placed: list[Assumed] = field(default_factory=list)
    waits: dict[str, dict[str, float]] = field(default_factory=dict)
    rejection: Diagnosis | None = None
    promises: dict[str, tuple[PodInfo, str]] = field(default_factory=dict)

    def place(self, queued: QueuedPod, seen_as: PodInfo) -> bool:
        """Place one member.

        Args:
            queued: the member.
            seen_as: how it looks at the nodes.

        Returns:
            Whether it has a node. Where that raises, everything is taken back first.
        """
        try:
            return self._place(queued, seen_as)
        except BaseException:
            self.roll_back()
            raise

    def _place(self, queued: QueuedPod, seen_as: PodInfo) -> bool:
        state = CycleState()
        found = self.cycle.decide(seen_as, state)
        if isinstance(found, str):
            nominated = self.cycle.nominator.node_of(queued.uid)
            if nominated:
                self.promises[queued.uid] = (queued.info, nominated)
            held = self.cycle.hold(queued, found, state)
            if not isinstance(held, Diagnosis):
                placed, waits = held
                self.placed.append(placed)
                if waits:
                    self.waits[placed.uid] = waits
                return True
            found = held
        if self.rejection is None or (found.error and not self.rejection.error):
            self.rejection = found
        return False

    @property
    def failed(self) -> bool:
        """Whether a plugin failed, as opposed to refused."""
        return self.rejection is not None and self.rejection.error

    def roll_back(self) -> None:
        """Take everything back, the youngest first; a bug in one plugin spares the others."""
        try:
            with ExitStack() as stack:
                for placed in self.placed:
                    stack.callback(self.cycle.take_back, placed)
        finally:
            for info, node_name in self.promises.values():
                self.cycle.nominator.put(info, node_name)
            self.placed.clear()
            self.promises.clear()
            self.waits.clear()
