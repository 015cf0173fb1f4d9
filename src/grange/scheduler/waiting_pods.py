"""Pods that have a node and wait for a Permit plugin before they are bound.

A held pod stays assumed. Each plugin that returned ``WAIT`` has a timer; the first to run
out rejects. Pods that were placed together are held together: all are released when the last is
allowed, and none is when one is rejected.

Synchronous, takes ``now`` (monotonic seconds), keyed by UID. Plugins find the ``WaitingPods`` in the
cycle's state and may call ``allow`` and ``reject`` at any time; what follows from it is collected
and acted on by the scheduling loop.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

WAIT_MAX_S = 900.0
"""No plugin's timer is longer; kube-scheduler's limit."""


class Held(Protocol):
    """A placed pod, as far as this module uses it."""

    @property
    def uid(self) -> str:
        """The pod's UID."""


P = TypeVar("P", bound=Held)


@dataclass(frozen=True, slots=True)
class Refused(Generic[P]):
    """Pods that were held together and must be forgotten, and the one that a plugin rejected."""

    pods: tuple[P, ...]
    uid: str
    plugin: str
    reason: str


@dataclass(slots=True, eq=False)
class _Unit(Generic[P]):
    pods: tuple[P, ...]
    timers: dict[str, dict[str, float]]  # by UID, the deadline of each plugin that waits


class WaitingPods(Generic[P]):
    """The pods between assumption and binding that wait; ``changed`` is called when there is something to collect."""

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self.changed = changed
        self._units: dict[str, _Unit[P]] = {}
        self._released: list[P] = []
        self._refused: list[Refused[P]] = []

    def __contains__(self, uid: str) -> bool:
        return uid in self._units

    def __len__(self) -> int:
        return len(self._units)

    def hold(self, pods: Sequence[P], waits: Mapping[str, Mapping[str, float]], now: float) -> None:
        """Hold pods that were placed together.

        ``waits`` are by UID, for how many seconds each plugin that returned ``WAIT`` holds the pod;
        0 means as long as possible, which is a quarter of an hour. ``now`` is monotonic seconds.
        """
        timers = {
            uid: {
                name: now + min(wait_s or WAIT_MAX_S, WAIT_MAX_S) for name, wait_s in mine.items()
            }
            for uid, mine in waits.items()
        }
        unit: _Unit[P] = _Unit(tuple(pods), timers)
        for pod in unit.pods:
            self._units[pod.uid] = unit

    def waiting_for(self, uid: str) -> tuple[str, ...]:
        """The plugins that have not allowed the pod yet; empty when it is not held."""
        unit = self._units.get(uid)
        return () if unit is None else tuple(unit.timers.get(uid, ()))

    def held(self) -> tuple[P, ...]:
        """Every pod that is held, in the order of arrival."""
        units = dict.fromkeys(self._units.values())
        return tuple(pod for unit in units for pod in unit.pods)

    def allow(self, uid: str, plugin: str) -> None:
        """Allow a pod on behalf of a plugin; nothing happens if it does not wait."""
        unit = self._units.get(uid)
        if unit is None or unit.timers.get(uid, {}).pop(plugin, None) is None:
            return
        if not any(unit.timers.values()):
            self._close(unit)
            self._released.extend(unit.pods)
            self.changed()

    def reject(self, uid: str, plugin: str, reason: str = "") -> None:
        """Reject a pod, and all that were placed with it."""
        unit = self._units.get(uid)
        if unit is None:
            return
        self._close(unit)
        reason = reason or f"{plugin} rejected the pod"
        self._refused.append(Refused(unit.pods, uid, plugin, reason))
        self.changed()

    def expire(self, now: float) -> None:
        """Reject the pods whose first timer has run out."""
        for unit in dict.fromkeys(self._units.values()):
            due = [
                (deadline, uid, name)
                for uid, timers in unit.timers.items()
                for name, deadline in timers.items()
                if deadline <= now
            ]
            if due:
                _, uid, name = min(due)
                self.reject(uid, name, f"{name} did not permit the pod in time")

    def next_deadline(self) -> float | None:
        """When ``expire`` may next have something to do."""
        found = (
            deadline
            for unit in dict.fromkeys(self._units.values())
            for timers in unit.timers.values()
            for deadline in timers.values()
        )
        return min(found, default=None)

    def collect_released(self) -> list[P]:
        """Pods that may be bound now; each is returned once."""
        found, self._released = self._released, []
        return found

    def collect_refused(self) -> list[Refused[P]]:
        """Pods that must be forgotten; each is returned once."""
        found, self._refused = self._refused, []
        return found

    def clear(self) -> None:
        """Forget everything."""
        self._units.clear()
        self._released.clear()
        self._refused.clear()

    def _close(self, unit: _Unit[P]) -> None:
        for pod in unit.pods:
            self._units.pop(pod.uid, None)
