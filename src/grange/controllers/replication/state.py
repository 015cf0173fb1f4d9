"""What a process keeps of its controllers from one reconcile to the next.

All of it can be rebuilt: the next owner starts without it and waits longer instead.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from grange.api.kinds.pod import Pod
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.meta import ObjectKey
from grange.base.backoff import Exponential
from grange.base.clock import Clock
from grange.controllers.replication.node_eligibility import Places
from grange.controllers.shared.audit_records import AuditRetries
from grange.controllers.shared.availability import Readiness
from grange.reconcile.expectations import Expectations
from grange.reconcile.write_tracker import WriteTracker


class ReplicationState:
    """Shared by the reconciler and the event handlers.

    Attributes:
        expectations: what each controller waits to see in the listers.
        written: versions of controllers that the listers do not have yet.
        readiness: how long pods have been ready.
        replacements: as given.
        audit_retries: when to record again what the server refused.
        kept_by_budget: controllers, by uid, that wait for a PodDisruptionBudget.
        eligible: the nodes that the last reconcile acted on, by the controller's uid.
    """

    def __init__(self, replacements: "PodBackoff", *, clock: Clock) -> None:
        self.expectations = Expectations(clock)
        self.written = WriteTracker(clock)
        self.readiness = Readiness(clock)
        self.replacements = replacements
        self.audit_retries = AuditRetries(clock)
        self.eligible: dict[str, Places] = {}
        self.kept_by_budget: dict[str, ObjectKey] = {}

    def wait_for_budget(self, controller: ReplicationController, *, waits: bool) -> None:
        """Note whether the controller waits for a PodDisruptionBudget."""
        if waits:
            self.kept_by_budget[controller.metadata.uid] = controller.key
        else:
            self.kept_by_budget.pop(controller.metadata.uid, None)

    def forget(self, uid: str) -> None:
        """Drop everything about a controller that is gone."""
        self.kept_by_budget.pop(uid, None)
        self.expectations.forget(uid)
        self.replacements.forget(uid)
        self.written.forget(uid)
        self.audit_retries.forget(uid)
        self.eligible.pop(uid, None)


@dataclass(slots=True)
class _History:
    rounds: int = 0
    last: float = 0.0
    due: dict[str, float] = field(default_factory=dict)


class PodBackoff:
    """Delays the replacement of pods that finished: at once the first time, later each further time.

    A pod that fails as soon as it starts must not be created again in a tight loop. Its place is held
    for a while, and the finished pod stays so that users can inspect it.

    Args:
        backoff: the wait by rounds of failure; pods that finish together are one round.
        reset_s: after so long without a finished pod, the next round is the first.
    """

    def __init__(self, backoff: Exponential, reset_s: float) -> None:
        self._backoff = backoff
        self._reset_s = reset_s
        self._histories: dict[str, _History] = {}

    def held(
        self, controller_uid: str, finished: Sequence[Pod], now: float
    ) -> tuple[frozenset[str], float | None]:
        """Uids of the finished pods to leave for now, and seconds until the next one is due."""
        if not finished and controller_uid not in self._histories:
            return frozenset(), None
        history = self._histories.setdefault(controller_uid, _History())
        fresh = [pod for pod in finished if pod.metadata.uid not in history.due]
        known = {pod.metadata.uid: history.due.get(pod.metadata.uid, now) for pod in finished}
        if fresh:
            if now - history.last > self._reset_s:
                history.rounds = 0
            for pod in fresh:
                known[pod.metadata.uid] = now + self._backoff.delay(history.rounds)
            history.rounds += 1
            history.last = now
        history.due = known
        if not known and now - history.last > self._reset_s:
            del self._histories[controller_uid]
        waiting = {uid: due for uid, due in known.items() if due > now}
        return frozenset(waiting), min(waiting.values()) - now if waiting else None

    def forget(self, controller_uid: str) -> None:
        """Drop everything about a controller that is gone."""
        self._histories.pop(controller_uid, None)
