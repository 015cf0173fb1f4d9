"""When to replace pods that finished: at once the first time, later and later if they keep ending.

A pod that fails as soon as it starts (a node that refuses it, say) must not be created again in a
tight loop. Its place is held for a while, and the finished pod stays where people can look at it.
Counts live in memory: a new controller process starts with patience.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from grange.api.kinds.pod import Pod
from grange.base.backoff import Exponential


@dataclass(slots=True)
class _History:
    rounds: int = 0
    last: float = 0.0
    due: dict[str, float] = field(default_factory=dict)


class PodBackoff:
    """Remembers, by controller, how often its pods finished lately.

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
        """Uids of the finished pods to leave for now, and seconds until the next one is due.

        Args:
            controller_uid: whose pods.
            finished: its finished pods that are not on their way out.
            now: monotonic seconds.
        """
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
        """The controller is gone."""
        self._histories.pop(controller_uid, None)
