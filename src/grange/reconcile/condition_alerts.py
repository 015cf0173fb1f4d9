"""Alerts from the stored conditions of the objects that this process owns, of any kind."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from grange.alerts.alerts import Alert, Alerts
from grange.api import timestamps
from grange.api.meta import Condition, ObjectKey, Resource
from grange.base.clock import Clock
from grange.reconcile.informer import Informer

R = TypeVar("R", bound=Resource)


@dataclass(frozen=True, slots=True)
class ConditionAlert:
    """A condition that needs an operator.

    Attributes:
        reason: of the alert; stable.
        urgency: of the alert.
        condition: its message and age are the alert's.
        after_s: seconds that the condition must last first.
    """

    reason: str
    urgency: str
    condition: Condition
    after_s: float = 0.0


class ConditionAlerts(Generic[R]):
    """Reports the alerts of owned objects; those of other processes are theirs to report.

    Args:
        alerts: where they are reported.
        informer: of the objects.
        find: the conditions of an object that need an operator. Pure.
        owns: whether this process owns an object.
        about: names an object in its alerts.
        clock: measures how long conditions last.
    """

    def __init__(
        self,
        alerts: Alerts,
        informer: Informer[R],
        *,
        find: Callable[[R], Iterable[ConditionAlert]],
        owns: Callable[[ObjectKey], bool],
        about: Callable[[ObjectKey], str],
        clock: Clock,
    ) -> None:
        self._alerts = alerts
        self._informer = informer
        self._find = find
        self._owns = owns
        self._about = about
        self._clock = clock
        self._waiting: dict[ObjectKey, float] = {}  # monotonic time of the next look
        self._added = asyncio.Event()
        informer.add_handler(self._update, lambda _, new: self._update(new), self._delete)

    async def run(self) -> None:
        """Raise alerts whose conditions have lasted long enough, until cancelled."""
        while True:
            if not self._waiting:
                self._added.clear()
                await self._added.wait()
            now = self._clock.monotonic()
            if (left_s := min(self._waiting.values()) - now) > 0:
                await self._clock.sleep(left_s)
                continue
            for key in [key for key, due in self._waiting.items() if due <= now]:
                self.gained(key)

    def gained(self, key: ObjectKey) -> None:
        """Report the alerts of an object that this process owns now."""
        self._waiting.pop(key, None)
        if (obj := self._informer.store.get(key)) is not None:
            self._update(obj)

    def lost(self, key: ObjectKey) -> None:
        """Leave the alerts of an object to its next owner, or resolve them if it is deleted."""
        self._waiting.pop(key, None)
        if key in self._informer.store:
            self._alerts.release(self._about(key))
        else:
            self._alerts.replace(self._about(key), ())

    def gained_all(self) -> None:
        """Report the alerts of all objects: this process owns them now."""
        for obj in self._informer.store.list():
            self._update(obj)

    def lost_all(self) -> None:
        """Leave the alerts of all objects to the next owner."""
        for obj in self._informer.store.list():
            self.lost(obj.key)

    def _update(self, obj: R) -> None:
        if not self._owns(obj.key):
            return
        self._waiting.pop(obj.key, None)
        about, now = self._about(obj.key), self._clock.now()
        due: list[Alert] = []
        for found in self._find(obj):
            since = timestamps.parse_or(found.condition.last_transition_time, now)
            age_s = max(0.0, (now - since).total_seconds())
            if (left_s := found.after_s - age_s) > 0:
                at = self._clock.monotonic() + left_s
                self._waiting[obj.key] = min(at, self._waiting.get(obj.key, at))
                self._added.set()
                continue
            due.append(Alert(about, found.reason, found.condition.message, found.urgency))
        self._alerts.replace(about, due)

    def _delete(self, obj: R) -> None:
        self._waiting.pop(obj.key, None)
        self._alerts.replace(self._about(obj.key), ())
