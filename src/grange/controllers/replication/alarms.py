"""Which conditions of a controller or a rollout need a person, told as alerts by its owner.

The conditions are in the stored status, so a new owner knows what goes on, and the old one says that
it is over for him. Each is told once while it lasts. Rollouts between two controllers are all one
member's, who carries them out.
"""

from collections.abc import Callable, Iterable, Mapping

from grange.api import conditions
from grange.api.kinds.replicationcontroller import ReplicationController
from grange.api.kinds.rollingupdate import RollingUpdate
from grange.api.meta import Condition, ObjectKey
from grange.controllers.replication.phases import Phase
from grange.reconcile.farm.alerts import HIGH, LOW, Alert, Alerts
from grange.reconcile.informer import Informer

URGENCY: Mapping[str, str] = {"InsufficientNodes": LOW, "RolloutFailed": HIGH}
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


FAILED = "RolloutFailed"
"""The condition of a rollout between two controllers that does not go on as it was asked for."""

ROLLOUTS: Mapping[Phase, tuple[str, str]] = {
    Phase.FAILED: (FAILED, HIGH),
    Phase.REFUSED: ("RolloutRefused", LOW),
}
"""For which of that condition's reasons somebody is told: reason and urgency of the alert.

One that was refused has moved nothing and harms nobody, but what was asked for will not be done.
"""

_ALL: Mapping[str, str] = {**URGENCY, **MISPLACED}


class Alarms:
    """Watches the conditions of the controllers that are ours.

    Args:
        alerts: where to; told of each once while it lasts.
        informer: of the controllers.
        ours: whether a controller is.
    """

    def __init__(
        self,
        alerts: Alerts,
        informer: Informer[ReplicationController],
        ours: Callable[[ObjectKey], bool],
    ) -> None:
        self._alerts = alerts
        self._informer = informer
        self._ours = ours
        informer.add_handler(self._see, lambda _, new: self._see(new))

    def gained(self, key: ObjectKey) -> None:
        """A controller has become ours."""
        controller = self._informer.store.get(key)
        if controller is not None:
            self._see(controller)

    def lost(self, key: ObjectKey) -> None:
        """A controller is not ours any more, or not there."""
        for reason in _ALL:
            self._alerts.clear(f"replicationcontroller/{key}", reason)

    def _see(self, controller: ReplicationController) -> None:
        if not self._ours(controller.key):
            return
        about = f"replicationcontroller/{controller.key}"
        found = alarming(controller.status.conditions)
        for reason, urgency in _ALL.items():
            if reason in found:
                self._alerts.fire(Alert(about, reason, found[reason].message, urgency))
            else:
                self._alerts.clear(about, reason)


class RolloutAlarms:
    """Watches rollouts between two controllers for those that have failed or were refused.

    It is over when the rollout goes on, goes back, or is deleted.

    Args:
        alerts: where to; told of each once while it lasts.
        informer: of the rollouts.
        ours: whether this member carries rollouts out.
    """

    def __init__(
        self, alerts: Alerts, informer: Informer[RollingUpdate], ours: Callable[[], bool]
    ) -> None:
        self._alerts = alerts
        self._informer = informer
        self._ours = ours
        informer.add_handler(self._see, lambda _, new: self._see(new), self._clear)

    def gained(self) -> None:
        """This member carries rollouts out from now on."""
        for update in self._informer.store.list():
            self._see(update)

    def lost(self) -> None:
        """Somebody else does."""
        for update in self._informer.store.list():
            self._clear(update)

    def _see(self, update: RollingUpdate) -> None:
        if not self._ours():
            return
        said = conditions.find(update.status.conditions, FAILED)
        why = said.reason if said is not None and said.status == "True" else ""
        for phase, (reason, urgency) in ROLLOUTS.items():
            if said is not None and why == phase.value:
                self._alerts.fire(Alert(_about(update), reason, said.message, urgency))
            else:
                self._alerts.clear(_about(update), reason)

    def _clear(self, update: RollingUpdate) -> None:
        for reason, _ in ROLLOUTS.values():
            self._alerts.clear(_about(update), reason)


def _about(update: RollingUpdate) -> str:
    return f"rollingupdate/{update.key}"
