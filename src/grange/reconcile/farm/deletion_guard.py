"""The deletion guard holds deletions while the view of the cluster looks wrong.

Triggers are: all objects of the farm vanish, all are scaled to zero at once, many vanish within a
short time, or the store returns to an earlier revision. A process that has just started has no
earlier view to compare with, so for it the triggers are: objects ask for nothing, or do not exist,
while many pods that were made for them do; and no node exists while pods are bound to nodes. The
guard also limits how much the farm itself deletes within a time. Creations are never held, so a new
cluster can start. A trigger lasts until the view has been normal for a cooldown, or until an operator
resumes deletions.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from grange.alerts.alerts import HIGH, Alert, Alerts
from grange.reconcile.farm.errors import DeletionsHeld


class Trigger(StrEnum):
    """Why deletions are held; also the reason of the alert."""

    EMPTY = "no_objects_found"
    ALL_ZERO = "zero_replicas_found"
    SHRANK = "objects_vanished"
    STORE_ROLLED_BACK = "store_went_back"
    TOO_MANY = "deletion_budget_exceeded"
    ORPHANED = "owners_not_found"
    NODELESS = "nodes_not_found"


@dataclass(frozen=True, slots=True)
class DeletionGuardConfig:
    """What counts as dangerous.

    Attributes:
        small: this many objects may vanish at once without a trigger.
        share: more than this share vanishing within the window is a trigger.
        window_s: how far back the view is compared.
        deletions: how many more objects of one resource may be deleted than created within the
            window. A rolling update deletes what it replaces, so it is not limited.
        deletion_share: or this share of the population, if that is more.
        cooldown_s: seconds after the last trigger until deletions go on.
        resume_s: seconds during which nothing triggers after an operator has resumed deletions.
    """

    small: int = 3
    share: float = 0.5
    window_s: float = 60.0
    deletions: int = 500
    deletion_share: float = 0.25
    cooldown_s: float = 60.0
    resume_s: float = 600.0


@dataclass(slots=True, eq=False)
class CountedWrite:
    """One deletion or creation, while it counts.

    Attributes:
        at: when, in monotonic seconds.
        resource: of what.
        lost: 1 for a deletion, -1 for a creation; 0 when it does not count any more.
    """

    at: float
    resource: str
    lost: int


_MESSAGES = {
    Trigger.EMPTY: "every object has vanished from the view",
    Trigger.ALL_ZERO: "every object asks for nothing all at once",
    Trigger.SHRANK: "much of the view has vanished at once",
    Trigger.STORE_ROLLED_BACK: "the store has gone back to an earlier state",
    Trigger.ORPHANED: "much lives, and none of the objects that it was made for is there",
    Trigger.NODELESS: "much lives, and none of the nodes that it lives on is there",
    Trigger.TOO_MANY: "more deletions were wanted than the budget allows",
}


RequiredObjects = Mapping[Trigger, Callable[[], int | None]]
"""By trigger: counts live objects that need others of which none exists.

Returns None while that is not known; may stop counting beyond ``small``.
"""


class DeletionGuard:
    """Decides for one farm whether deletions may be sent; no method blocks.

    Args:
        about: the farm, for alerts.
        alerts: reports triggers.
        config: settings.
        population: how many objects there are that the farm might delete.
        owned: how many live ones were made for the farm's objects, for the first look; None while
            that is not known. The population by default.
        required_objects: what exists without what it needs, for the first look.
    """

    def __init__(
        self,
        about: str,
        alerts: Alerts,
        config: DeletionGuardConfig | None = None,
        *,
        population: Callable[[], int] = lambda: 0,
        owned: Callable[[], int | None] | None = None,
        required_objects: RequiredObjects | None = None,
    ) -> None:
        self._about = about
        self._alerts = alerts
        self._config = config or DeletionGuardConfig()
        self._population = population
        self._owned = owned or population
        self._required_objects = required_objects or {}
        self._has_looked = False
        self._has_asked: set[Trigger] = set()
        self._triggers: dict[Trigger, float] = {}  # when each was last seen
        self._views: deque[tuple[float, int, int]] = deque()  # (when, objects, weight)
        self._changes: deque[CountedWrite] = deque()
        self._lost: Counter[str] = Counter()  # deletions less creations, by resource
        self._revision = 0
        self._resumed_until = float("-inf")

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        """Why deletions are held, oldest first; empty when they are not."""
        return tuple(self._triggers)

    def see(
        self, now: float, *, objects: int, weight: int | None = None, version: str = ""
    ) -> None:
        """Take note of the view.

        Args:
            now: monotonic seconds.
            objects: how many there are.
            weight: what they ask for together (e.g. replicas); None where that has no meaning.
            version: the store's version, where it is a whole number.
        """
        if version.isdecimal():
            if int(version) < self._revision:
                self._trigger(Trigger.STORE_ROLLED_BACK, now)
            self._revision = int(version)
        view = (objects, objects if weight is None else weight)
        if not self._views or self._views[-1][1:] != view:
            self._views.append((now, *view))
        self.tick(now)

    def tick(self, now: float) -> float | None:
        """Look at the time: what goes on is noted, what is over is forgotten.

        Returns:
            When to look again; None when nothing is wrong.
        """
        self._forget_views(now)
        if self._views:
            for trigger in self._find_triggers():
                self._trigger(trigger, now)
        for trigger, last in list(self._triggers.items()):
            if now >= last + self._config.cooldown_s:
                del self._triggers[trigger]
                self._alerts.clear(self._about, trigger)
        if not self._triggers:
            return None
        return min(self._triggers.values()) + self._config.cooldown_s

    def permit_deletion(self, now: float, resource: str = "pods") -> CountedWrite:
        """Allow one deletion, and count it at once: those under way share the budget.

        Returns:
            What to hand to ``cancel_deletion`` if nothing was deleted after all.

        Raises:
            DeletionsHeld: it must not happen now.
        """
        self.tick(now)
        self._forget_changes(now)
        budget = max(self._config.deletions, int(self._config.deletion_share * self._population()))
        if self._lost[resource] >= budget or Trigger.TOO_MANY in self._triggers:
            # Refused deletions keep the guard active: as long as they are repeated, it is not calm.
            self._trigger(Trigger.TOO_MANY, now)
        if self._triggers:
            names = ", ".join(self._triggers)
            raise DeletionsHeld(
                f"{self._about}: deletions are held back ({names}); "
                f"they go on when all is calm, or after `grange farm resume`",
                retry_after_s=max(1, int(self._config.cooldown_s)),
            )
        return self._note(now, resource, 1)

    def cancel_deletion(self, change: CountedWrite) -> None:
        """A deletion that was allowed did not happen: it does not count. Idempotent."""
        self._lost[change.resource] -= change.lost
        change.lost = 0

    def created(self, now: float, resource: str) -> None:
        """One was created: it makes up for one that is deleted in the same window."""
        self._forget_changes(now)
        self._note(now, resource, -1)

    def _note(self, now: float, resource: str, lost: int) -> CountedWrite:
        change = CountedWrite(now, resource, lost)
        self._changes.append(change)
        self._lost[resource] += lost
        return change

    def _forget_changes(self, now: float) -> None:
        while self._changes and self._changes[0].at <= now - self._config.window_s:
            self.cancel_deletion(self._changes.popleft())  # not any more

    def resume(self, now: float) -> None:
        """An operator confirms the present state: what the cache shows is intended."""
        self._resumed_until = now + self._config.resume_s
        while self._changes:
            self.cancel_deletion(self._changes.popleft())
        while len(self._views) > 1:
            self._views.popleft()
        for trigger in list(self._triggers):
            del self._triggers[trigger]
            self._alerts.clear(self._about, trigger)

    def _forget_views(self, now: float) -> None:
        """Drop what is too old to compare with; the newest of those is how the window began."""
        while len(self._views) > 1 and self._views[1][0] <= now - self._config.window_s:
            self._views.popleft()

    def _find_triggers(self) -> list[Trigger]:
        """What is alarming about the present view."""
        _, objects, weight = self._views[-1]
        most = max(view[1] for view in self._views)
        heaviest = max(view[2] for view in self._views)
        lost = most - objects
        triggers = []
        if objects == 0 and (lost > self._config.small or Trigger.EMPTY in self._triggers):
            triggers.append(Trigger.EMPTY)
        elif lost > max(self._config.small, self._config.share * most):
            triggers.append(Trigger.SHRANK)
        suddenly = heaviest > 0 and objects > self._config.small
        alarmed = suddenly or Trigger.ALL_ZERO in self._triggers or self._is_made_for_nothing()
        if objects > 0 and weight == 0 and alarmed:
            triggers.append(Trigger.ALL_ZERO)
        return triggers + [
            trigger for trigger in self._required_objects if self._is_missing(trigger)
        ]

    def _is_missing(self, trigger: Trigger) -> bool:
        """Whether, at the first look and since, nothing is there of what lives needs.

        Whose owners go while we look on is meant to go with them, unless that is too much at once.
        """
        if trigger in self._has_asked and trigger not in self._triggers:
            return False
        if (count := self._required_objects[trigger]()) is None:
            return trigger in self._triggers
        self._has_asked.add(trigger)
        return count > self._config.small

    def _is_made_for_nothing(self) -> bool:
        """Whether, at the first look, nothing is asked for while much lives that was made for it.

        No earlier view of this process can show it. A new cluster has nothing that runs.
        """
        if self._has_looked or (owned := self._owned()) is None:
            return False
        self._has_looked = True
        _, objects, weight = self._views[-1]
        return weight == 0 and min(objects, owned) > self._config.small

    def _trigger(self, trigger: Trigger, now: float) -> None:
        if now < self._resumed_until:
            return
        self._triggers[trigger] = now
        message = (
            f"{_MESSAGES[trigger]}: deletions are held back; `grange farm resume` lets them go on"
        )
        self._alerts.fire(Alert(self._about, trigger, message, HIGH))
