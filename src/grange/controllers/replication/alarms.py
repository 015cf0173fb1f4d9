"""Which conditions of a controller or a rollout need a person, told as alerts by its owner.

The conditions are in the stored status, where every member sees them; the owner tells of them, once
while they last. A new owner goes on where the last one was, and the last one says nothing. Rollouts
between two controllers are all one member's, who carries them out.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from grange.api import timestamps
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.rollingupdate import RollingUpdate
from grange.api.meta import Condition, ObjectKey
from grange.base.clock import Clock
from grange.controllers.replication import unrecorded
from grange.controllers.replication.phases import Phase
from grange.reconcile.farm.alerts import HIGH, LOW, Alert
from grange.reconcile.farm.notes import Notes
from grange.reconcile.informer import Informer

URGENCY: Mapping[str, str] = {
    "InsufficientNodes": LOW,
    "RolloutFailed": HIGH,
    unrecorded.CONDITION: LOW,
}
"""Conditions that are alarming while they are true, and how much; the alert is named after them."""

MISPLACED: Mapping[str, str] = {
    "Static": LOW,
    "BackingOff": LOW,
    "AllocationRefused": LOW,
    "AllocationFailed": LOW,
    "ReleaseFailed": LOW,
}
"""Reasons of the condition Misplaced that need a person; a transfer under way does not.

The alert is named after the reason: a machine that cannot be released is another trouble than one that
cannot be had.
"""


def alarming(conditions: Iterable[Condition]) -> dict[str, Condition]:
    """The conditions that need a person, by the reason of the alert."""
    found = {}
    for condition in conditions:
        if condition.status != "True":
            continue
        if condition.type in URGENCY:
            found[condition.type] = condition
        elif condition.type == "Misplaced" and condition.reason in MISPLACED:
            found[condition.reason] = condition
    return found


HELD: Mapping[str, float] = {"InsufficientNodes": 10.0}
"""For so many seconds the alert of a reason waits: nodes become Ready after controllers start."""

FAILED = "RolloutFailed"
"""The condition of a rollout between two controllers that does not go on as it was asked for."""

ROLLOUTS: Mapping[Phase, tuple[str, str]] = {
    Phase.FAILED: (FAILED, HIGH),
    Phase.ROLLING_BACK: (FAILED, HIGH),
    Phase.ROLLED_BACK: (FAILED, HIGH),
    Phase.REFUSED: ("RolloutRefused", LOW),
}
"""For which of that condition's reasons somebody is told: reason and urgency of the alert.

One that was refused has moved nothing and harms nobody, but what was asked for will not be done. Of
one that goes back by policy nobody knows yet that it failed; who said undo knows.
"""


_OF_ROLLOUTS = dict(ROLLOUTS.values())


def _reason_of(update: RollingUpdate, failed: Condition | None) -> str:
    """Why somebody must hear of a rollout; empty for nothing."""
    for phase, (reason, _) in ROLLOUTS.items():
        if failed is not None and failed.reason == phase.value:
            undone = update.spec.undo and phase in {Phase.ROLLING_BACK, Phase.ROLLED_BACK}
            return "" if undone else reason
    return ""


_ALL: Mapping[str, str] = {**URGENCY, **MISPLACED}


class Alarms:
    """Watches the conditions of all controllers, and tells of those of ours.

    Args:
        notes: where to; for controllers alone.
        informer: of the controllers.
        ours: whether a controller is.
        tended: whether a controller is another's, who is there.
        held: seconds by reason for which an alert waits; ``run`` raises it then.
        clock: how old conditions are.
    """

    def __init__(
        self,
        notes: Notes,
        informer: Informer[ReplicationController],
        ours: Callable[[ObjectKey], bool],
        *,
        tended: Callable[[ReplicationController], bool] = lambda _: False,
        held: Mapping[str, float] | None = None,
        clock: Clock,
    ) -> None:
        self._notes = notes
        self._informer = informer
        self._ours = ours
        self._tended = tended
        self._clock = clock
        self._others: dict[ObjectKey, ReplicationController] = {}  # in trouble, under their owners
        self._held = held or {}
        self._waiting: dict[ObjectKey, float] = {}  # monotonic time of the next look
        self._added = asyncio.Event()
        informer.add_handler(self._see, lambda _, new: self._see(new), self._gone)

    async def run(self) -> None:
        """Raise what was held back and has lasted; works until cancelled."""
        while True:
            if not self._waiting:
                self._added.clear()
                await self._added.wait()
            now = self._clock.monotonic()
            if (left_s := min(self._waiting.values()) - now) > 0:
                await self._clock.sleep(left_s)
                continue
            for key in [key for key, due in self._waiting.items() if due <= now]:
                del self._waiting[key]
                if (controller := self._informer.store.get(key)) is not None:
                    self._see(controller)

    def gained(self, key: ObjectKey) -> None:
        """A controller has become ours; who gave it up and is still there has told of it."""
        before = self._others.pop(key, None)
        told = before is not None and self._tended(before)
        self._notes.take(_about(key), told=told)

    def lost(self, key: ObjectKey) -> None:
        """A controller is not ours any more, or not there."""
        if key in self._informer.store:
            self._notes.leave(_about(key))
        else:
            self._end(key)

    def _see(self, controller: ReplicationController) -> None:
        ours, about = self._ours(controller.key), _about(controller.key)
        found = alarming(controller.status.conditions)
        if ours or not found:
            self._others.pop(controller.key, None)
        elif self._tended(controller):
            self._others[controller.key] = controller
        self._waiting.pop(controller.key, None)
        for reason, urgency in _ALL.items():
            if reason not in found:
                self._notes.is_over(about, reason)
                continue
            age_s = _age_s(found[reason], self._clock.now())
            left_s = self._held.get(reason, 0.0) - max(0.0, age_s)
            if left_s > 0:
                self._waiting[controller.key] = self._clock.monotonic() + left_s
                self._added.set()
                continue
            alert = Alert(about, reason, found[reason].message, urgency)
            self._notes.goes_on(alert, ours=ours, age_s=age_s)

    def _gone(self, controller: ReplicationController) -> None:
        self._waiting.pop(controller.key, None)
        self._end(controller.key)
        self._others.pop(controller.key, None)
        if not self._tended(controller):
            self._notes.take(_about(controller.key))  # there will be no other owner to tell

    def _end(self, key: ObjectKey) -> None:
        for reason in _ALL:
            self._notes.is_over(_about(key), reason)


class RolloutAlarms:
    """Watches rollouts between two controllers for those that have failed or were refused.

    It is over when the rollout goes on, is undone, or is deleted; that the audit lacks a record of
    it, when it is deleted.

    Args:
        notes: where to; for rollouts alone.
        informer: of the rollouts.
        ours: whether this member carries rollouts out.
        clock: how old conditions are.
    """

    def __init__(
        self,
        notes: Notes,
        informer: Informer[RollingUpdate],
        ours: Callable[[], bool],
        *,
        clock: Clock,
    ) -> None:
        self._notes = notes
        self._ours = ours
        self._clock = clock
        informer.add_handler(self._see, lambda _, new: self._see(new), self._clear)

    def gained(self) -> None:
        """This member carries rollouts out from now on."""
        self._notes.take()

    def lost(self) -> None:
        """Somebody else does."""
        self._notes.leave()

    def _see(self, update: RollingUpdate) -> None:
        found = {said.type: said for said in update.status.conditions if said.status == "True"}
        failed = found.get(FAILED)
        alarming = _reason_of(update, failed)
        for reason, urgency in _OF_ROLLOUTS.items():
            self._note(update, reason, urgency, failed if reason == alarming else None)
        self._note(update, unrecorded.CONDITION, LOW, found.get(unrecorded.CONDITION))

    def _note(
        self, update: RollingUpdate, reason: str, urgency: str, said: Condition | None
    ) -> None:
        about = f"rollingupdate/{update.key}"
        if said is None:
            self._notes.is_over(about, reason)
            return
        alert = Alert(about, reason, said.message, urgency)
        age_s = _age_s(said, self._clock.now())
        self._notes.goes_on(alert, ours=self._ours(), age_s=age_s)

    def _clear(self, update: RollingUpdate) -> None:
        for reason in (*_OF_ROLLOUTS, unrecorded.CONDITION):
            self._notes.is_over(f"rollingupdate/{update.key}", reason)


def _about(key: ObjectKey) -> str:
    return f"replicationcontroller/{key}"


def _age_s(condition: Condition, now: datetime) -> float:
    try:
        return (now - timestamps.parse(condition.last_transition_time or "")).total_seconds()
    except timestamps.TimestampError:
        return 0.0  # nobody knows: tell it again rather than not at all
