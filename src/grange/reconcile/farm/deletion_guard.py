"""The failsafe: when the view of the world looks wrong, nothing is destroyed.

It looks wrong when everything seems to be gone, when everything is scaled to nothing at once, when
much has vanished in a short time, and when the store has gone back to an earlier state. A process
that has only just begun has nothing to compare with but what lives: it looks wrong when nothing is
asked for, or nothing is there that could ask, and much is there that was made for it; and when no
node is there, and much runs on some. It also
stops us when we ourselves delete more than a budget. Creating goes on: a cluster that really is new
must be able to begin. What trips it is remembered until the view has been calm for a while, or until
an operator says that all is well.
"""

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from grange.alerts.alerts import HIGH, Alert, Alerts
from grange.reconcile.farm.errors import DeletionsHeld


class Danger(StrEnum):
    """Why deletions are held; also the reason of the alert."""

    EMPTY = "no_objects_found"
    ALL_ZERO = "zero_replicas_found"
    SHRANK = "objects_vanished"
    WENT_BACK = "store_went_back"
    TOO_MANY = "deletion_budget_exceeded"
    ORPHANED = "owners_not_found"
    NODELESS = "nodes_not_found"


@dataclass(frozen=True, slots=True)
class FailsafeConfig:
    """What counts as dangerous.

    Attributes:
        small: so many objects may vanish at once without anybody's being alarmed.
        share: vanishing of more than this share within the window is alarming.
        window_s: how far back the view is compared.
        deletions: so many more of ours may be deleted than created within the window, of any one
            resource. What is replaced is not lost: a rolling update may be as fast as it can.
        deletion_share: or so large a share of the population, if that is more.
        calm_s: so long after the last alarming sight deletions go on.
        resume_s: how long an operator's word holds.
    """

    small: int = 3
    share: float = 0.5
    window_s: float = 60.0
    deletions: int = 500
    deletion_share: float = 0.25
    calm_s: float = 60.0
    resume_s: float = 600.0


@dataclass(slots=True, eq=False)
class Change:
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
    Danger.EMPTY: "every object has vanished from the view",
    Danger.ALL_ZERO: "every object asks for nothing all at once",
    Danger.SHRANK: "much of the view has vanished at once",
    Danger.WENT_BACK: "the store has gone back to an earlier state",
    Danger.ORPHANED: "much lives, and none of the objects that it was made for is there",
    Danger.NODELESS: "much lives, and none of the nodes that it lives on is there",
    Danger.TOO_MANY: "more deletions were wanted than the budget allows",
}


Bereft = Mapping[Danger, Callable[[], int | None]]
"""By the danger that it is: how many live ones need objects of which none at all is there.

None while that is not known; it may stop counting beyond ``small``.
"""


class Failsafe:
    """Judges one farm's view and deletions; every method is instantaneous.

    Args:
        about: the farm, for alerts.
        alerts: who hears of it.
        config: settings.
        population: how many objects there are that the farm might delete.
        owned: how many live ones were made for the farm's objects, for the first look; None while
            that is not known. The population by default.
        bereft: what lives without what it needs, for the first look.
    """

    def __init__(
        self,
        about: str,
        alerts: Alerts,
        config: FailsafeConfig | None = None,
        *,
        population: Callable[[], int] = lambda: 0,
        owned: Callable[[], int | None] | None = None,
        bereft: Bereft | None = None,
    ) -> None:
        self._about = about
        self._alerts = alerts
        self._config = config or FailsafeConfig()
        self._population = population
        self._owned = owned or population
        self._bereft = bereft or {}
        self._has_looked = False
        self._has_asked: set[Danger] = set()
        self._dangers: dict[Danger, float] = {}  # when each was last seen
        self._views: deque[tuple[float, int, int]] = deque()  # (when, objects, weight)
        self._changes: deque[Change] = deque()
        self._lost: Counter[str] = Counter()  # deletions less creations, by resource
        self._revision = 0
        self._resumed_until = float("-inf")

    @property
    def dangers(self) -> tuple[Danger, ...]:
        """Why deletions are held, oldest first; empty when they are not."""
        return tuple(self._dangers)

    def see(
        self, now: float, *, objects: int, weight: int | None = None, version: str = ""
    ) -> None:
        """Take note of the view.

        Args:
            now: monotonic seconds.
            objects: how many there are.
            weight: what they ask for together (replicas, say); None where that has no meaning.
            version: the store's version, where it is a whole number.
        """
        if version.isdecimal():
            if int(version) < self._revision:
                self._trip(Danger.WENT_BACK, now)
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
            for danger in self._sights():
                self._trip(danger, now)
        for danger, last in list(self._dangers.items()):
            if now >= last + self._config.calm_s:
                del self._dangers[danger]
                self._alerts.clear(self._about, danger)
        if not self._dangers:
            return None
        return min(self._dangers.values()) + self._config.calm_s

    def permit_deletion(self, now: float, resource: str = "pods") -> Change:
        """Allow one deletion, and count it at once: those under way share the budget.

        Returns:
            What to hand to ``spared`` if nothing was deleted after all.

        Raises:
            DeletionsHeld: it must not happen now.
        """
        self.tick(now)
        self._forget_changes(now)
        budget = max(self._config.deletions, int(self._config.deletion_share * self._population()))
        if self._lost[resource] >= budget or Danger.TOO_MANY in self._dangers:
            # Also what is refused keeps the alarm up: as long as somebody insists, it is not calm.
            self._trip(Danger.TOO_MANY, now)
        if self._dangers:
            names = ", ".join(self._dangers)
            raise DeletionsHeld(
                f"{self._about}: deletions are held back ({names}); "
                f"they go on when all is calm, or after `grange farm resume`",
                retry_after_s=max(1, int(self._config.calm_s)),
            )
        return self._note(now, resource, 1)

    def spared(self, change: Change) -> None:
        """A deletion that was allowed did not happen: it does not count. Idempotent."""
        self._lost[change.resource] -= change.lost
        change.lost = 0

    def created(self, now: float, resource: str) -> None:
        """One was created: it makes up for one that is deleted in the same window."""
        self._forget_changes(now)
        self._note(now, resource, -1)

    def _note(self, now: float, resource: str, lost: int) -> Change:
        change = Change(now, resource, lost)
        self._changes.append(change)
        self._lost[resource] += lost
        return change

    def _forget_changes(self, now: float) -> None:
        while self._changes and self._changes[0].at <= now - self._config.window_s:
            self.spared(self._changes.popleft())  # not any more

    def resume(self, now: float) -> None:
        """An operator says that all is well: what we see now is what is meant."""
        self._resumed_until = now + self._config.resume_s
        while self._changes:
            self.spared(self._changes.popleft())
        while len(self._views) > 1:
            self._views.popleft()
        for danger in list(self._dangers):
            del self._dangers[danger]
            self._alerts.clear(self._about, danger)

    def _forget_views(self, now: float) -> None:
        """Drop what is too old to compare with; the newest of those is how the window began."""
        while len(self._views) > 1 and self._views[1][0] <= now - self._config.window_s:
            self._views.popleft()

    def _sights(self) -> list[Danger]:
        """What is alarming about the present view."""
        _, objects, weight = self._views[-1]
        most = max(view[1] for view in self._views)
        heaviest = max(view[2] for view in self._views)
        lost = most - objects
        sights = []
        if objects == 0 and (lost > self._config.small or Danger.EMPTY in self._dangers):
            sights.append(Danger.EMPTY)
        elif lost > max(self._config.small, self._config.share * most):
            sights.append(Danger.SHRANK)
        suddenly = heaviest > 0 and objects > self._config.small
        alarmed = suddenly or Danger.ALL_ZERO in self._dangers or self._is_made_for_nothing()
        if objects > 0 and weight == 0 and alarmed:
            sights.append(Danger.ALL_ZERO)
        return sights + [danger for danger in self._bereft if self._is_bereft(danger)]

    def _is_bereft(self, danger: Danger) -> bool:
        """Whether, at the first look and since, nothing is there of what lives needs.

        Whose owners go while we look on is meant to go with them, unless that is too much at once.
        """
        if danger in self._has_asked and danger not in self._dangers:
            return False
        if (count := self._bereft[danger]()) is None:
            return danger in self._dangers
        self._has_asked.add(danger)
        return count > self._config.small

    def _is_made_for_nothing(self) -> bool:
        """Whether, at the first look, nothing is asked for while much lives that was made for it.

        No earlier view of ours could tell. A new cluster has nothing that lives.
        """
        if self._has_looked or (owned := self._owned()) is None:
            return False
        self._has_looked = True
        _, objects, weight = self._views[-1]
        return weight == 0 and min(objects, owned) > self._config.small

    def _trip(self, danger: Danger, now: float) -> None:
        if now < self._resumed_until:
            return
        self._dangers[danger] = now
        message = (
            f"{_MESSAGES[danger]}: deletions are held back; `grange farm resume` lets them go on"
        )
        self._alerts.fire(Alert(self._about, danger, message, HIGH))
